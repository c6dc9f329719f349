//! The announcer: moves the events that changes of customers record into the feed.
//!
//! It holds no state. The database says what is recorded, and the commit that moves an event removes its record, so an event
//! is in the feed once, whatever is interrupted and however many nodes run.

use std::sync::Arc;
use std::time::Duration;

use payferry_journal::customers::events::announce;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};

use crate::aggregate::Services;

/// Actor name of the announcer.
pub(crate) const NAME: &str = "announcer";
/// Pause between two steps: the longest delay of an event.
const INTERVAL: Duration = Duration::from_secs(1);

/// The actor of the announcer.
#[derive(Clone)]
pub(crate) struct Announcer {
    pub(crate) services: Arc<Services>,
}

/// Message: look for recorded events.
pub(crate) struct AnnounceStep;

impl Behaviour for Announcer {
    const KIND: ActorKind = ActorKind::Announcer;
    type Msg = AnnounceStep;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<AnnounceStep>, (): ()) -> ActorResult<()> {
        Ok(myself.cast(AnnounceStep)?)
    }

    async fn handle(&self, myself: &Mailbox<AnnounceStep>, _: AnnounceStep, (): &mut ()) -> ActorResult {
        let Services { database, journal, psps, clock, .. } = &*self.services;
        let wait = match Box::pin(announce(database, journal, psps, clock.real_now())).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "could not announce the events of customers: {error}");
                INTERVAL
            }
        };
        myself.send_after(wait, || AnnounceStep);
        Ok(())
    }
}
