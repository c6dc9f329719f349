//! Actions on each payment of a run: it is initiated and paid.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::InFlight;
use payferry_testkit::audit::behaviour::{Behaviour, Intent};
use payferry_testkit::audit::session::Session;
use payferry_testkit::progress::Progress;

/// Concurrent initiations of held payments, which are not measured.
pub(super) const HOLD_WORKERS: usize = 64;

/// Values that all payments of a run share.
#[derive(Debug)]
pub(super) struct RunContext {
    pub(super) session: Session,
    pub(super) in_flight: InFlight,
}

impl RunContext {
    /// Starts payment `number` of the schedule, unless too many are in flight.
    pub(super) fn begin(self: &Arc<Self>, number: u32, behaviour: Behaviour, intended: Instant) {
        let intent = Intent::nth(number, behaviour);
        let number = self.session.state.due(intent, intended);
        let Some(place) = self.in_flight.enter() else { return self.session.state.turned_away(number) };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let made = this.session.initiate(number, &intent).await;
            drop(place);
            let Some(made) = made else { return };
            match behaviour {
                Behaviour::Late => {}
                Behaviour::Authorized => this.session.authorize(number, &intent, &made).await,
                _ => this.session.pay(number, &intent, made.intermediary_wallet).await,
            }
        });
    }

    /// Pays payments whose expiry a webhook reported.
    pub(super) async fn pay_late(self: Arc<Self>, mut expired: mpsc::UnboundedReceiver<u32>) {
        while let Some(number) = expired.recv().await {
            let late =
                self.session.state.read().record(number).and_then(|record| Some((record.intent, record.made?.wallet)));
            let Some((intent, wallet)) = late else { continue };
            let this = Arc::clone(&self);
            tokio::spawn(async move { this.session.pay(number, &intent, wallet).await });
        }
    }

    /// Makes payments that are not paid and stay live.
    pub(super) async fn hold(&self, count: u32, stop: &CancellationToken, bar: &Progress) {
        let make = async |number: u32| {
            if stop.is_cancelled() {
                return;
            }
            let intent = Intent::nth(number, Behaviour::Held);
            let number = self.session.state.due(intent, Instant::now());
            self.session.initiate(number, &intent).await;
            bar.step();
        };
        stream::iter(0..count).map(make).buffer_unordered(HOLD_WORKERS).collect::<()>().await;
    }

    /// Returns when the youngest incomplete payment was made, of those that are meant to expire or of the others.
    /// Payments that could not be paid do not count. Payments whose payer has no response yet count, whatever webhooks
    /// reported.
    pub(super) fn open(&self, expiring: bool) -> Option<Instant> {
        let inner = self.session.state.read();
        let open = inner.records.iter().filter(|record| {
            let is_open = !record.is_complete() || record.is_ahead();
            record.intent.behaviour.expires() == expiring && record.unsent.is_none() && is_open
        });
        open.filter_map(|record| record.made.map(|made| made.at)).max()
    }
}
