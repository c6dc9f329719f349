//! Records the outcomes of attempts to the endpoints of a PSP. Those that arrive during a write are written together.
//!
//! The task of the first turn that ends writes its outcome, and then those that have arrived meanwhile, until there are none.
//! The tasks of these other turns end at once.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use payferry_domain::EndpointId;
use payferry_journal::{DeliveryOutcome, JournalError, JournalWrite};

use super::delivery::{InProgress, Turn};
use super::endpoint::Share;
use super::lane::Ended;
use super::sender::SenderContext;

/// Maximum number of outcomes in one write, so that a commit stays short.
const OUTCOMES_MAX: usize = 128;
/// Pause before a failed write is repeated.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// The end of a turn before its outcome is recorded.
pub(super) struct Unrecorded {
    pub(super) endpoint_id: EndpointId,
    pub(super) ended: Ended,
    /// `None` if nothing was sent.
    pub(super) outcome: Option<DeliveryOutcome>,
    /// The delivery is in progress until its outcome is recorded.
    pub(super) under_way: InProgress,
    pub(super) share: Share,
}

/// Turns that end, in the order in which they ended.
pub(super) struct Recorder {
    context: Arc<SenderContext>,
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    waiting: Vec<Unrecorded>,
    is_writing: bool,
    recorded: Vec<(EndpointId, Ended)>,
}

impl Recorder {
    pub(super) fn new(context: Arc<SenderContext>) -> Self {
        Self { context, turns: Mutex::default() }
    }

    /// Records the outcome of a turn. Calls `report` when there are recorded turns to take again.
    pub(super) async fn record(&self, turn: Unrecorded, report: impl Fn()) {
        let is_written_elsewhere = {
            let mut turns = self.turns.lock();
            turns.waiting.push(turn);
            std::mem::replace(&mut turns.is_writing, true)
        };
        if is_written_elsewhere {
            return;
        }
        while let Some(mut part) = self.next_part() {
            let outcomes: Arc<[_]> = part.iter_mut().filter_map(|turn| turn.outcome.take()).collect();
            let written = AssertUnwindSafe(self.write(outcomes)).catch_unwind().await;
            let why_not = |delivery_id: &str| match &written {
                Ok(refused) => refused.get(delivery_id).cloned(),
                Err(_) => Some("the write of the outcome panicked".to_owned()),
            };
            let mut recorded = Vec::with_capacity(part.len());
            for Unrecorded { endpoint_id, mut ended, outcome: _, under_way, share } in part {
                if let Some(why) = why_not(under_way.delivery_id()) {
                    ended.turn = Turn::Broken(why);
                }
                drop((under_way, share));
                recorded.push((endpoint_id, ended));
            }
            let is_first = {
                let mut turns = self.turns.lock();
                let is_first = turns.recorded.is_empty();
                turns.recorded.extend(recorded);
                is_first
            };
            if is_first {
                report();
            }
        }
    }

    /// Takes the recorded turns.
    pub(super) fn take(&self) -> Vec<(EndpointId, Ended)> {
        std::mem::take(&mut self.turns.lock().recorded)
    }

    /// The next turns to record together; if there are none, the next turn that ends begins to write again.
    fn next_part(&self) -> Option<Vec<Unrecorded>> {
        let mut turns = self.turns.lock();
        if turns.waiting.is_empty() {
            turns.is_writing = false;
            return None;
        }
        let count = turns.waiting.len().min(OUTCOMES_MAX);
        Some(turns.waiting.drain(..count).collect())
    }

    /// Writes the outcomes, and retries until they are written. Returns the reasons why outcomes can never be written, by
    /// delivery.
    async fn write(&self, outcomes: Arc<[DeliveryOutcome]>) -> HashMap<String, String> {
        let mut refused = HashMap::new();
        let mut parts = vec![outcomes];
        while let Some(part) = parts.pop() {
            let Some(first) = part.first() else { continue };
            match self.context.journal.submit(JournalWrite::Deliveries(Arc::clone(&part))).await {
                Ok(_) => {}
                Err(JournalError::Refused(_)) if part.len() > 1 => {
                    // At least one outcome is invalid: write each half separately.
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([one.into(), other.into()]);
                }
                Err(JournalError::Refused(error)) => drop(refused.insert(first.attempt.delivery_id.clone(), error)),
                Err(error) => {
                    let (id, count) = (&first.attempt.delivery_id, part.len());
                    tracing::warn!(delivery.id = %id, %error, "{count} outcomes of deliveries will be written later");
                    tokio::time::sleep(RECORD_PAUSE).await;
                    parts.push(part);
                }
            }
        }
        refused
    }
}
