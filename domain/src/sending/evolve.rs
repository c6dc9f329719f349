//! Applies events literally, without any decision.

use super::event::Event;
use super::payload;
use super::state::{Sending, SendingStatus};
use crate::time::Timestamp;

/// Returns the outbound transfer after the events of one commit at time `at`, with the next version.
#[must_use]
pub fn commit(mut sending: Sending, at: Timestamp) -> Sending {
    sending.version += 1;
    sending.updated_at = at;
    sending
}

/// Returns the outbound transfer after one event. The version changes per commit, not per event.
#[must_use]
pub fn evolve(mut sending: Sending, event: &Event) -> Sending {
    match event {
        Event::Accepted { order } => sending.order = (**order).clone(),
        Event::Screened { verdict } => sending.verdict = Some(verdict.clone()),
        Event::Sent { revision, tx_hash, at } => {
            sending.revision = sending.revision.max(*revision);
            sending.status = SendingStatus::Sent;
            sending.tx_hash = Some(*tx_hash);
            (sending.failure_reason, sending.failure) = (None, None);
            sending.finished_at = Some(*at);
        }
        Event::Failed { revision, reason, detail, at } => {
            sending.revision = sending.revision.max(*revision);
            sending.status = SendingStatus::Failed;
            sending.tx_hash = None;
            (sending.failure_reason, sending.failure) = (Some(*reason), Some(detail.clone()));
            sending.finished_at = Some(*at);
        }
    }
    sending.sequence += u32::from(payload::announced(&sending, event).is_some());
    sending
}
