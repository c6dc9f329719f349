//! One run against a sandbox: its PSP, merchant, payers and webhook receiver, the actions on each payment, and the audit
//! at the end.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, ensure};
use payferry_contracts::{payment_salt, vault_address};
use serde_json::json;
use tokio::time::Instant;

use super::behaviour::Intent;
use super::outbound::{OutboundKind, OutboundOrder, Shortfalls};
use super::state::RunState;
use super::{Baseline, baseline};
use crate::payers::{Payers, Persistence, Unsent};
use crate::psp::{EXPIRES_SECS, Initiated, PaymentTerms, Psp, WebhookEndpoint};
use crate::receiver::Receiver;
use crate::sandbox::SandboxInfo;
use crate::wire::{Amount, MerchantId, Status};

/// Starts a receiver that passes webhooks to `state`, and makes it the webhook endpoint of the PSP. Also returns the
/// endpoint so far.
pub async fn receive(psp: &Psp, state: &Arc<RunState>) -> anyhow::Result<(Receiver, WebhookEndpoint)> {
    let receiving = Arc::clone(state);
    let receiver = Receiver::start(move |request| {
        let (status, after) = receiving.answer(&request);
        async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            status
        }
    });
    let receiver = receiver.await?;
    let before = psp.endpoint().await?;
    receiver.verify_with(&psp.receive_at(receiver.url(), &before).await?);
    Ok((receiver, before))
}

/// Longest wait for the settlement of a payment that fills the vault.
const FUNDED_PATIENCE: Duration = Duration::from_mins(1);
const FUNDED_POLL: Duration = Duration::from_millis(100);

/// Fills the PSP's vault with one payment in each token that has a shortfall, and waits for the settlements. The payments
/// are of another merchant, so that they are not compared.
async fn fund(psp: &Psp, state: &RunState, payers: &Payers, Shortfalls(of): &Shortfalls) -> anyhow::Result<()> {
    if of.is_empty() {
        return Ok(());
    }
    let name = format!("{}-funds", state.run());
    let merchant = psp.merchant(&format!("load-{name}"), &name).await?;
    let mut waiting = Vec::new();
    for ((chain, token), shortfall) in of {
        // Above the smallest amount of a payment, and enough for any fee up to a half.
        let amount = shortfall.saturating_add(*shortfall).saturating_add(Amount::from_tokens(1));
        let terms = PaymentTerms { chain: *chain, token: *token, amount, expires_secs: EXPIRES_SECS };
        let made = psp.initiate(merchant, &name, &terms).await.1.context("the vault cannot be filled")?;
        state.prepare(made.payment_id);
        payers.pay(*chain, *token, made.intermediary_wallet, amount).await.context("the vault cannot be filled")?;
        waiting.push(made.payment_id);
    }
    let since = Instant::now();
    while let Some(id) = waiting.last() {
        if psp.status(*id).await? == Status::Settled.as_str() {
            waiting.pop();
            continue;
        }
        ensure!(since.elapsed() < FUNDED_PATIENCE, "{id}, which fills the vault, was not settled in a minute");
        tokio::time::sleep(FUNDED_POLL).await;
    }
    Ok(())
}

/// A run, and the state at its beginning.
#[derive(Debug)]
pub struct Session {
    /// The PSP.
    pub psp: Psp,
    /// Merchant of all payments of the run.
    pub merchant: MerchantId,
    /// Settlement contract, which determines the wallet of each payment.
    factory: Address,
    /// State of the run.
    pub state: Arc<RunState>,
    /// Payers on all chains.
    pub payers: Payers,
    /// Chains and contracts.
    pub sandbox: SandboxInfo,
    /// State at the beginning of the run.
    pub baseline: Baseline,
    persistence: Persistence,
}

impl Session {
    /// Makes the merchant, makes and funds the payers, fills the vault for the outbound transfers, and reads the baseline.
    pub async fn start(
        psp: Psp,
        sandbox: SandboxInfo,
        state: Arc<RunState>,
        persistence: Persistence,
        shortfalls: &Shortfalls,
    ) -> anyhow::Result<Self> {
        let run = state.run();
        let merchant = psp.merchant(&format!("load-{run}"), run).await?;
        let payers = Payers::set_up(psp.side(), &sandbox, run, persistence).await?;
        fund(&psp, &state, &payers, shortfalls).await?;
        let baseline = baseline(&psp, &sandbox).await?;
        let factory = sandbox.chains.values().next().context("the sandbox has no chains")?.payferry;
        Ok(Self { psp, merchant, factory, state, payers, sandbox, baseline, persistence })
    }

    /// Initiates payment `number` of the state. Returns `None` if it was not made; its record then has the reason.
    pub async fn initiate(&self, number: u32, intent: &Intent) -> Option<Initiated> {
        let (begun, answer) = self.psp.initiate(self.merchant, &self.state.reference(number), &intent.terms()).await;
        let made = self.state.answered(number, begun, answer)?;
        let salt = payment_salt(made.payment_id.ulid(), self.sandbox.psp_id.ulid(), self.state.fee_bps());
        let wallet = vault_address(self.factory, salt);
        if wallet != made.intermediary_wallet {
            let fault = format!("was made with the wallet {}, not {wallet}", made.intermediary_wallet);
            if let Some(record) = self.state.read().record(number) {
                record.fault(fault);
            }
        }
        Some(made)
    }

    /// Sends the transfer of the payer to a payment, if it is to be paid.
    pub async fn pay(&self, number: u32, intent: &Intent, wallet: Address) {
        let Some(amount) = intent.paid_amount() else { return };
        let asked = Instant::now();
        let sent = self.payers.pay(intent.chain, intent.token, wallet, amount).await;
        self.state.paid(number, asked, sent);
    }

    /// Requests the outbound transfer of a settled payment.
    pub async fn send_on(&self, number: u32, intent: &Intent) {
        let order = {
            let mut inner = self.state.read();
            let Some(record) = inner.record(number) else { return };
            let (kind, amount) = (intent.behaviour.outbound(), intent.outbound_amount());
            let Some(((kind, amount), (id, to))) = kind.zip(amount).zip(record.id().zip(record.payer)) else { return };
            let order = OutboundOrder { kind, amount, to };
            record.request_outbound(order, Instant::now());
            (order, id)
        };
        let (OutboundOrder { kind, amount, to }, id) = order;
        let reference = self.state.reference(number);
        let (path, body) = match kind {
            // Without an amount, everything is refunded.
            OutboundKind::Refund if amount == intent.amount => {
                (format!("/payments/{id}/refunds"), json!({"address": to, "reference": reference}))
            }
            OutboundKind::Refund => (
                format!("/payments/{id}/refunds"),
                json!({"address": to, "amount": amount.to_string(), "reference": reference}),
            ),
        };
        self.state.outbound_answered(number, self.psp.order(&path, &body, &reference).await);
    }

    /// Signs a payment and submits the authorization.
    pub async fn authorize(&self, number: u32, intent: &Intent, made: &Initiated) {
        let asked = Instant::now();
        let accepted = async {
            let body = self.payers.authorization(intent.chain, made)?;
            self.psp.authorize(made.payment_id, body, self.persistence).await.map_err(Unsent::Unauthorized)?;
            Ok(Instant::now())
        };
        self.state.authorized(number, asked, accepted.await);
    }
}
