//! One run against a sandbox: its PSP, merchant, payers and webhook receiver, the actions on each payment, and the audit
//! at the end.

use std::sync::Arc;

use alloy::primitives::Address;
use anyhow::Context;
use payferry_contracts::{payment_salt, vault_address};
use tokio::time::Instant;

use super::behaviour::Intent;
use super::state::RunState;
use super::{Baseline, baseline};
use crate::payers::{Payers, Persistence, Unsent};
use crate::psp::{Initiated, Psp, WebhookEndpoint};
use crate::receiver::Receiver;
use crate::sandbox::SandboxInfo;
use crate::wire::MerchantId;

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
    /// Makes the merchant, makes and funds the payers, and reads the baseline.
    pub async fn start(
        psp: Psp,
        sandbox: SandboxInfo,
        state: Arc<RunState>,
        persistence: Persistence,
    ) -> anyhow::Result<Self> {
        let run = state.run();
        let merchant = psp.merchant(&format!("load-{run}"), run).await?;
        let payers = Payers::set_up(psp.side(), &sandbox, run, persistence).await?;
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
