//! Actions on each payment of a run: it is initiated and paid.

use std::sync::Arc;

use alloy::primitives::Address;
use futures::stream::{self, StreamExt};
use payferry_contracts::{salt_of, vault_address};
use payferry_testkit::wire::MerchantId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::InFlight;
use crate::behaviour::{Behaviour, Intent};
use crate::state::RunState;
use payferry_testkit::payers::Payers;
use payferry_testkit::progress::Progress;
use payferry_testkit::psp::{Initiated, Psp};

/// Concurrent initiations of held payments, which are not measured.
pub(super) const HOLD_WORKERS: usize = 64;

/// Values that all payments of a run share.
#[derive(Debug)]
pub(super) struct RunContext {
    pub(super) psp: Psp,
    pub(super) merchant: MerchantId,
    /// Settlement contract, which determines the wallet of each payment.
    pub(super) factory: Address,
    pub(super) state: Arc<RunState>,
    pub(super) payers: Payers,
    pub(super) in_flight: InFlight,
}

impl RunContext {
    /// Starts payment `number` of the schedule, unless too many are in flight.
    pub(super) fn begin(self: &Arc<Self>, number: u32, behaviour: Behaviour, intended: Instant) {
        let intent = Intent::nth(number, behaviour);
        let number = self.state.due(intent, intended);
        let Some(place) = self.in_flight.enter() else { return self.state.turned_away(number) };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let made = this.initiate(number, &intent).await;
            drop(place);
            let Some(made) = made else { return };
            if behaviour != Behaviour::Late {
                this.pay(number, &intent, made.intermediary_wallet).await;
            }
        });
    }

    async fn initiate(&self, number: u32, intent: &Intent) -> Option<Initiated> {
        let (begun, answer) =
            self.psp.initiate_timed(self.merchant, &self.state.reference(number), &intent.terms()).await;
        let made = self.state.answered(number, begun, answer)?;
        let wallet = vault_address(self.factory, salt_of(&made.payment_id.to_string()));
        if wallet != made.intermediary_wallet {
            let fault = format!("was made with the wallet {}, not {wallet}", made.intermediary_wallet);
            if let Some(record) = self.state.read().record(number) {
                record.fault(fault);
            }
        }
        Some(made)
    }

    async fn pay(&self, number: u32, intent: &Intent, wallet: Address) {
        let Some(amount) = intent.paid_amount() else { return };
        let asked = Instant::now();
        let sent = self.payers.pay(intent.chain, intent.token, wallet, amount).await;
        self.state.paid(number, asked, sent);
    }

    /// Pays payments whose expiry a webhook reported.
    pub(super) async fn pay_late(self: Arc<Self>, mut expired: mpsc::UnboundedReceiver<u32>) {
        while let Some(number) = expired.recv().await {
            let late = self.state.read().record(number).and_then(|record| Some((record.intent, record.made?.wallet)));
            let Some((intent, wallet)) = late else { continue };
            let this = Arc::clone(&self);
            tokio::spawn(async move { this.pay(number, &intent, wallet).await });
        }
    }

    /// Makes payments that are not paid and stay live.
    pub(super) async fn hold(&self, count: u32, stop: &CancellationToken, bar: &Progress) {
        let make = async |number: u32| {
            if stop.is_cancelled() {
                return;
            }
            let intent = Intent::nth(number, Behaviour::Held);
            let number = self.state.due(intent, Instant::now());
            self.initiate(number, &intent).await;
            bar.step();
        };
        stream::iter(0..count).map(make).buffer_unordered(HOLD_WORKERS).collect::<()>().await;
    }

    /// Returns when the youngest incomplete payment was made, of those that are meant to expire or of the others.
    /// Payments that could not be paid do not count. Payments whose payer has no response yet count, whatever webhooks
    /// reported.
    pub(super) fn open(&self, expiring: bool) -> Option<Instant> {
        let inner = self.state.read();
        let open = inner.records.iter().filter(|record| {
            let is_open = !record.is_complete() || record.is_ahead();
            record.intent.behaviour.expires() == expiring && record.unsent.is_none() && is_open
        });
        open.filter_map(|record| record.made.map(|made| made.at)).max()
    }
}
