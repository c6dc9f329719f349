//! One run against a sandbox: its PSP, merchant, payers and webhook receiver, the actions on each payment, and the audit
//! at the end.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, ensure};
use payferry_contracts::{payment_salt, vault_address};
use payferry_devchain::DevWallet;
use serde_json::json;
use tokio::time::Instant;

use super::behaviour::{Behaviour, Intent};
use super::customers;
use super::outbound::{OutboundKind, OutboundNeeds, OutboundOrder, Shortfalls};
use super::record::InitiationFailure;
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

/// Interval of the checks whether the account of a payer is known.
const PAYER_POLL: Duration = Duration::from_millis(20);
/// Longest wait for the settlement of a payment that fills the vault.
const FUNDED_PATIENCE: Duration = Duration::from_mins(1);
const FUNDED_POLL: Duration = Duration::from_millis(100);

/// Fills the PSP's vault with one payment in each token that has a shortfall, and waits for the settlements. The payments
/// are of another merchant, so that they are not compared.
async fn fund(psp: &Psp, state: &RunState, payers: &Payers, of: &Shortfalls) -> anyhow::Result<()> {
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

/// Number of customers who get payouts, unless the payment has a customer of its own.
const PAYEES: u32 = 3;
/// Attempts to verify a customer while the service may be down, and the pause between two of them.
const VERIFY_TRIES_MAX: u32 = 60;
const VERIFY_PAUSE: Duration = Duration::from_secs(2);

/// Returns the PSP's own wallet.
fn withdrawal_wallet(run: &str) -> Address {
    DevWallet::from_seed(&format!("payferry load-{run} withdrawals")).address()
}

/// Registers customers with a wallet, who accept the terms and are approved.
async fn payees(psp: &Psp, run: &str) -> anyhow::Result<Vec<Payee>> {
    let mut payees = Vec::new();
    for number in 1..=PAYEES {
        let name = format!("load-{run}-payee-{number}");
        let wallet = wallet_of(&name);
        let id = psp.customer(&format!("{name}@example.com"), &name).await.context("no customer for payouts")?;
        psp.clear_customer(&id, wallet).await.context("no customer for payouts")?;
        payees.push(Payee { id: Ok(id), wallet });
    }
    Ok(payees)
}

/// Returns the wallet of a customer.
fn wallet_of(name: &str) -> Address {
    DevWallet::from_seed(&format!("payferry {name}")).address()
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
    /// Customers who get payouts.
    payees: Vec<Payee>,
    persistence: Persistence,
}

/// A customer who gets payouts: the id, or the reason why there is none.
#[derive(Debug, Clone)]
struct Payee {
    id: Result<String, InitiationFailure>,
    wallet: Address,
}

impl Session {
    /// Makes the merchant, makes and funds the payers, fills the vault for the outbound transfers, and reads the baseline.
    pub async fn start(
        psp: Psp,
        sandbox: SandboxInfo,
        state: Arc<RunState>,
        persistence: Persistence,
        needs: &OutboundNeeds,
    ) -> anyhow::Result<Self> {
        let run = state.run();
        let merchant = psp.merchant(&format!("load-{run}"), run).await?;
        let payers = Payers::set_up(psp.side(), &sandbox, run, persistence).await?;
        fund(&psp, &state, &payers, &needs.shortfalls).await?;
        let payees = if needs.has_payees { payees(&psp, run).await? } else { Vec::new() };
        if needs.has(OutboundKind::Withdrawal) {
            for chain in sandbox.chains.keys() {
                psp.set_withdrawal_wallet(*chain, withdrawal_wallet(run)).await?;
            }
        }
        let baseline = baseline(&psp, &sandbox).await?;
        let factory = sandbox.chains.values().next().context("the sandbox has no chains")?.payferry;
        Ok(Self { psp, merchant, factory, state, payers, sandbox, baseline, payees, persistence })
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

    /// Registers the customer of a payment, finds the customer by search, and has the customer verified.
    pub async fn register(&self, number: u32, intended: Instant) {
        self.state.customer_due(number, intended);
        self.state.customer_ended(number, self.verified_customer(number).await);
    }

    async fn verified_customer(&self, number: u32) -> Result<(), InitiationFailure> {
        let (name, email) = (self.state.reference(number), customers::email(&self.state, number));
        let registered = self.psp.customer(&email, &name).await;
        let id = registered.map_err(|failed| InitiationFailure::of_order("register", &failed))?;
        self.state.customer_registered(number, &id);
        let failure = |kind: String| InitiationFailure { kind, may_be_there: true };
        let tries_max = if self.persistence == Persistence::ThroughOutages { VERIFY_TRIES_MAX } else { 1 };
        for tries in 1.. {
            let found = async {
                let found = self.psp.customers(&email).await?;
                self.psp.clear_customer(&id, wallet_of(&name)).await?;
                anyhow::Ok(found)
            };
            match found.await {
                Ok(found) => return customers::compare_found(&id, &email, &found).map_err(failure),
                Err(error) if tries == tries_max => return Err(failure(format!("verify: {error:#}"))),
                Err(_) => tokio::time::sleep(VERIFY_PAUSE).await,
            }
        }
        unreachable!("the loop has no end")
    }

    /// Returns the customer who gets the payout of a payment. Waits until the payment's own customer is verified.
    async fn payee(&self, number: u32, intent: &Intent) -> Option<Payee> {
        if intent.behaviour != Behaviour::Customer {
            return self.payees.get(number as usize % self.payees.len().max(1)).cloned();
        }
        let wallet = wallet_of(&self.state.reference(number));
        loop {
            {
                let mut inner = self.state.read();
                let customer = inner.record(number)?.customer.as_deref()?;
                if !customer.is_open() {
                    let id = match &customer.failed {
                        Some(why) => Err(InitiationFailure { may_be_there: false, ..why.clone() }),
                        None => Ok(customer.id.clone().unwrap_or_default()),
                    };
                    return Some(Payee { id, wallet });
                }
            }
            tokio::time::sleep(PAYER_POLL).await;
        }
    }

    /// Returns the account that paid. The node's response to the payer may arrive after the settlement.
    async fn payer(&self, number: u32) -> Option<Address> {
        loop {
            {
                let mut inner = self.state.read();
                let record = inner.record(number)?;
                if record.payer.is_some() || record.unsent.is_some() {
                    return record.payer;
                }
            }
            tokio::time::sleep(PAYER_POLL).await;
        }
    }

    /// Requests the outbound transfer of a settled payment.
    pub async fn send_on(&self, number: u32, intent: &Intent) {
        let payer = self.payer(number).await;
        let payee = self.payee(number, intent).await;
        let order = {
            let mut inner = self.state.read();
            let Some(record) = inner.record(number) else { return };
            let Some((kind, amount)) = intent.behaviour.outbound().zip(intent.outbound_amount()) else { return };
            let to = match kind {
                OutboundKind::Refund => payer,
                OutboundKind::Payout => payee.as_ref().map(|payee| payee.wallet),
                OutboundKind::Withdrawal => Some(withdrawal_wallet(self.state.run())),
            };
            let Some((id, to)) = record.id().zip(to) else { return };
            let order = OutboundOrder { kind, amount, to };
            record.request_outbound(order, Instant::now());
            (order, id)
        };
        let (OutboundOrder { kind, amount, to }, id) = order;
        let reference = self.state.reference(number);
        let (amount_text, currency, chain) = (amount.to_string(), intent.token.as_str(), intent.chain.as_str());
        let (path, body) = match kind {
            // Without an amount, everything is refunded.
            OutboundKind::Refund if amount == intent.amount => {
                (format!("/payments/{id}/refunds"), json!({"address": to, "reference": reference}))
            }
            OutboundKind::Refund => (
                format!("/payments/{id}/refunds"),
                json!({"address": to, "amount": amount_text, "reference": reference}),
            ),
            OutboundKind::Payout => {
                let customer_id = match payee.map(|payee| payee.id) {
                    Some(Err(failed)) => return self.state.outbound_answered(number, Err(failed)),
                    id => id.and_then(Result::ok),
                };
                let body = json!({
                    "customer_id": customer_id, "amount": amount_text, "currency": currency, "chain": chain,
                    "reference": reference,
                });
                ("/payouts".to_owned(), body)
            }
            OutboundKind::Withdrawal => {
                let body = json!({
                    "amount": amount_text, "currency": currency, "chain": chain, "reference": reference,
                });
                ("/withdrawals".to_owned(), body)
            }
        };
        let answer = self.psp.order(&path, &body, &reference).await;
        self.state.outbound_answered(number, answer.map_err(|failed| InitiationFailure::of_order("send", &failed)));
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
