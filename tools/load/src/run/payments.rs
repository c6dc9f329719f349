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

    /// Pays payments whose expiry a webhook reported, and requests the outbound transfers of those whose settlement one
    /// reported.
    pub(super) async fn go_on(self: Arc<Self>, mut due_next: mpsc::UnboundedReceiver<u32>) {
        while let Some(number) = due_next.recv().await {
            let due =
                self.session.state.read().record(number).and_then(|record| Some((record.intent, record.made?.wallet)));
            let Some((intent, wallet)) = due else { continue };
            let this = Arc::clone(&self);
            tokio::spawn(async move {
                match intent.behaviour.outbound() {
                    Some(_) => this.session.send_on(number, &intent).await,
                    None => this.session.pay(number, &intent, wallet).await,
                }
            });
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
    /// Payments that could not be paid, or whose outbound transfer was refused, do not count. Payments whose payer has no response yet count, whatever webhooks
    /// reported.
    pub(super) fn open(&self, expiring: bool) -> Option<Instant> {
        let inner = self.session.state.read();
        let open = inner.records.iter().filter(|record| {
            let is_open = !record.is_complete() || record.is_ahead();
            let can_complete = record.unsent.is_none() && !record.is_outbound_refused();
            record.intent.behaviour.expires() == expiring && can_complete && is_open
        });
        open.filter_map(|record| record.made.map(|made| made.at)).max()
    }
}
