//! Actions on each payment of a run: it is initiated and paid.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::InFlight;
use payferry_testkit::audit::behaviour::{Behaviour, Intent};
use payferry_testkit::audit::session::Session;
use payferry_testkit::audit::state::RunState;
use payferry_testkit::progress::Progress;
use payferry_testkit::wire::{Chain, Token};

/// Concurrent initiations of held payments, which are not measured.
pub(super) const HOLD_WORKERS: usize = 64;

/// Values that all payments of a run share.
#[derive(Debug)]
pub(super) struct RunContext {
    /// The PSPs, at least one. They share the figures.
    pub(super) sessions: Vec<Session>,
    pub(super) in_flight: InFlight,
    /// Tokens of the service, by chain.
    pub(super) assets: Vec<(Chain, Token)>,
}

/// Odd factor that spreads consecutive numbers over all values.
const SPREAD: u32 = 0x9e37_79b9;

/// Returns the PSP of payment `number`, one of `count`. It does not follow the pattern of behaviours, chains and tokens.
pub(super) fn psp_of(number: u32, count: usize) -> usize {
    let place = (u64::from(number.wrapping_mul(SPREAD)) * count as u64) >> 32;
    usize::try_from(place).unwrap_or(0)
}

impl RunContext {
    /// Returns the first PSP.
    pub(super) fn first(&self) -> &Session {
        &self.sessions[0]
    }

    /// Returns the state of the first PSP, with the figures of all.
    pub(super) fn state(&self) -> &Arc<RunState> {
        &self.first().state
    }

    /// Returns the states of all PSPs.
    pub(super) fn states(&self) -> impl Iterator<Item = &Arc<RunState>> {
        self.sessions.iter().map(|session| &session.state)
    }

    fn intent(&self, number: u32, behaviour: Behaviour) -> Intent {
        Intent::nth(number, behaviour).among(&self.assets, number)
    }

    /// Starts payment `number` of the schedule, unless too many are in flight.
    pub(super) fn begin(self: &Arc<Self>, number: u32, behaviour: Behaviour, intended: Instant) {
        let (intent, psp) = (self.intent(number, behaviour), psp_of(number, self.sessions.len()));
        let state = &self.sessions[psp].state;
        let number = state.due(intent, intended);
        let Some(place) = self.in_flight.enter() else { return state.turned_away(number) };
        if behaviour == Behaviour::Customer {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.sessions[psp].register(number, intended).await });
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let session = &this.sessions[psp];
            let made = session.initiate(number, &intent).await;
            drop(place);
            let Some(made) = made else { return };
            match behaviour {
                Behaviour::Late => {}
                Behaviour::Authorized => session.authorize(number, &intent, &made).await,
                _ => session.pay(number, &intent, made.intermediary_wallet).await,
            }
        });
    }

    /// Pays payments whose expiry a webhook reported, and requests the outbound transfers of those whose settlement one
    /// reported.
    pub(super) async fn go_on(self: Arc<Self>, psp: usize, mut due_next: mpsc::UnboundedReceiver<u32>) {
        while let Some(number) = due_next.recv().await {
            let mut inner = self.sessions[psp].state.read();
            let due = inner.record(number).and_then(|record| Some((record.intent, record.made?.wallet)));
            drop(inner);
            let Some((intent, wallet)) = due else { continue };
            let this = Arc::clone(&self);
            tokio::spawn(async move {
                let session = &this.sessions[psp];
                match intent.behaviour.outbound() {
                    Some(_) => session.send_on(number, &intent).await,
                    None => session.pay(number, &intent, wallet).await,
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
            let intent = self.intent(number, Behaviour::Held);
            let session = &self.sessions[psp_of(number, self.sessions.len())];
            let number = session.state.due(intent, Instant::now());
            session.initiate(number, &intent).await;
            bar.step();
        };
        stream::iter(0..count).map(make).buffer_unordered(HOLD_WORKERS).collect::<()>().await;
    }

    /// Returns when the youngest incomplete payment was made, of those that are meant to expire or of the others.
    /// Payments that could not be paid, or whose outbound transfer was refused, do not count. Payments whose payer has no response yet count, whatever webhooks
    /// reported.
    pub(super) fn open(&self, expiring: bool) -> Option<Instant> {
        self.states().filter_map(|state| open(state, expiring)).max()
    }
}

fn open(state: &RunState, expiring: bool) -> Option<Instant> {
    let inner = state.read();
    let open = inner.records.iter().filter(|record| {
        let is_open = !record.is_complete() || record.is_ahead();
        let can_complete = record.unsent.is_none() && !record.is_outbound_refused();
        record.intent.behaviour.expires() == expiring && can_complete && is_open
    });
    open.filter_map(|record| record.made.map(|made| made.at)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_psp_gets_every_kind_of_payment() {
        for (count, period) in [(2, 2), (3, 3), (3, 6), (20, 1)] {
            for place in 0..period {
                let of: Vec<usize> = (0..600).map(|turn| psp_of(turn * period + place, count)).collect();
                for psp in 0..count {
                    let share = of.iter().filter(|one| **one == psp).count() * count;
                    assert!((300..=900).contains(&share), "{psp} of {count} gets {share} of 600");
                }
            }
        }
        assert!((0..100).all(|number| psp_of(number, 1) == 0));
    }
}
