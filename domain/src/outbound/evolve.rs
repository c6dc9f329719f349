//! Applies events literally, without any decision.

use super::event::Event;
use super::payload;
use super::state::{OutboundStatus, OutboundTransfer};
use crate::time::Timestamp;

/// Returns the outbound transfer after the events of one commit at time `at`, with the next version.
#[must_use]
pub fn commit(mut outbound: OutboundTransfer, at: Timestamp) -> OutboundTransfer {
    outbound.version += 1;
    outbound.updated_at = at;
    outbound
}

/// Returns the outbound transfer after one event. The version changes per commit, not per event.
#[must_use]
pub fn evolve(mut outbound: OutboundTransfer, event: &Event) -> OutboundTransfer {
    match event {
        Event::Accepted { order } => outbound.order = (**order).clone(),
        Event::Screened { verdict } => outbound.verdict = Some(verdict.clone()),
        Event::Sent { revision, tx_hash, at } => {
            outbound.revision = outbound.revision.max(*revision);
            outbound.status = OutboundStatus::Sent;
            outbound.tx_hash = Some(*tx_hash);
            (outbound.failure_reason, outbound.failure) = (None, None);
            outbound.finished_at = Some(*at);
        }
        Event::Failed { revision, reason, detail, at } => {
            outbound.revision = outbound.revision.max(*revision);
            outbound.status = OutboundStatus::Failed;
            outbound.tx_hash = None;
            (outbound.failure_reason, outbound.failure) = (Some(*reason), Some(detail.clone()));
            outbound.finished_at = Some(*at);
        }
    }
    outbound.sequence += u32::from(payload::announced(&outbound, event).is_some());
    outbound
}
