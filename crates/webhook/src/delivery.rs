//! One delivery, from its turn to its recorded outcome.
//!
//! The row is read when its turn begins, so changes made while it waited count. Rows of simultaneous turns are read
//! together. A delivery that was sent but not recorded (a crash in between) is still open and is sent again under the
//! same id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use payferry_domain::Timestamp;
use payferry_entities::delivery_attempts;
use payferry_journal::{DeliveryOutcome, JournalError, JournalWrite};

use super::attempt::{Outcome, Target, attempt};
use super::queue::{self, Due};
use super::schedule::AfterFailure;
use super::sender::SenderContext;

/// Pause before a failed write of an outcome is repeated.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// Result of a delivery's turn.
#[derive(Debug)]
pub(super) enum Turn {
    /// The delivery was attempted and the outcome is recorded.
    Attempted {
        delivered: bool,
        /// The receiver seems overloaded.
        strained: bool,
        /// Reason of the failure.
        failure: Option<String>,
        /// Next due time, if it is retried.
        next_attempt_at: Option<i64>,
    },
    /// The delivery is no longer open.
    Closed,
    /// Its row could not be read; nothing was sent.
    Unread(String),
    /// Internal error; the event may have been sent. The delivery is suspended to avoid sending it forever.
    Broken(String),
}

/// Rows of deliveries whose turns begin together; the first caller triggers the read.
pub(super) type Rows = Shared<BoxFuture<'static, Result<Arc<HashMap<String, Due>>, String>>>;

/// Returns the rows of these deliveries: those in `just_read`, and the others by one query on first use.
pub(super) fn rows(
    context: &Arc<SenderContext>,
    delivery_ids: Vec<String>,
    mut just_read: HashMap<String, Due>,
) -> Rows {
    let context = Arc::clone(context);
    let (mut rows, mut unread) = (HashMap::with_capacity(delivery_ids.len()), Vec::new());
    for id in delivery_ids {
        match just_read.remove(&id) {
            Some(due) => drop(rows.insert(id, due)),
            None => unread.push(id),
        }
    }
    let read = async move {
        let found = queue::due(&context.database, &unread).await.map_err(|error| error.to_string())?;
        rows.extend(found.into_iter().map(|due| (due.id.clone(), due)));
        Ok(Arc::new(rows))
    };
    read.boxed().shared()
}

/// Attempts the delivery and records the outcome. With `is_probe`, a failure takes no retry.
pub(super) async fn take_turn(
    context: &SenderContext,
    target: &Target,
    delivery_id: &str,
    rows: Rows,
    is_probe: bool,
) -> Turn {
    let due = match rows.await.map(|rows| rows.get(delivery_id).cloned()) {
        Ok(Some(due)) if matches!(due.status.as_str(), "queued" | "failed") => due,
        Ok(_) => return Turn::Closed,
        Err(error) => return Turn::Unread(error),
    };
    let Due { id: _, event_id, status, attempt_count, retries_left, payload } = due;
    let at: Timestamp = context.clock.real_now();
    let policy = context.config.url_policy;
    let outcome = attempt(&context.client, policy, target, &event_id, payload, at.as_millis() / 1_000).await;
    let takes_no_retry = is_probe || status == "queued";
    let next = next(context, &outcome, retries_left, takes_no_retry);
    context.metrics.attempted(next.status, outcome.duration);
    let (delivered, strained, failure) = (outcome.is_delivered(), outcome.is_strained(), outcome.failure());
    let row = row(delivery_id, attempt_count + 1, target, at, outcome);
    match record(context, row, next).await {
        Ok(()) => Turn::Attempted { delivered, strained, failure, next_attempt_at: next.attempt_at },
        Err(refusal) => Turn::Broken(refusal),
    }
}

/// State of a delivery after an attempt.
#[derive(Debug, Clone, Copy)]
struct Next {
    status: &'static str,
    retries_left: i64,
    attempt_at: Option<i64>,
}

fn next(context: &SenderContext, outcome: &Outcome, retries_left: i64, takes_no_retry: bool) -> Next {
    if outcome.is_delivered() {
        return Next { status: "delivered", retries_left, attempt_at: None };
    }
    let spread: f64 = rand::random();
    match context.config.schedule.after_failure(takes_no_retry, retries_left, outcome.retry_after, spread) {
        AfterFailure::Retry { after, retries_left } => {
            let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
            let attempt_at = context.clock.real_now::<Timestamp>().plus_millis(after_ms).as_millis();
            Next { status: "failed", retries_left, attempt_at: Some(attempt_at) }
        }
        AfterFailure::Exhausted => Next { status: "exhausted", retries_left: 0, attempt_at: None },
    }
}

fn row(delivery_id: &str, number: i64, target: &Target, at: Timestamp, outcome: Outcome) -> delivery_attempts::Model {
    delivery_attempts::Model {
        delivery_id: delivery_id.to_owned(),
        number,
        at: at.as_millis(),
        url: target.url.clone(),
        response_code: outcome.response_code.map(i64::from),
        response_body: outcome.response_body,
        duration_ms: i64::try_from(outcome.duration.as_millis()).unwrap_or(i64::MAX),
        error: outcome.error,
    }
}

/// Writes the outcome and retries until it is written. Returns an error if it can never be written.
async fn record(context: &SenderContext, attempt: delivery_attempts::Model, next: Next) -> Result<(), String> {
    let Next { status, retries_left, attempt_at: next_attempt_at } = next;
    loop {
        let unit = DeliveryOutcome { attempt: attempt.clone(), status, retries_left, next_attempt_at };
        match context.journal.submit(JournalWrite::Delivery(Box::new(unit))).await {
            // Conflict: another node, or this node before a restart, recorded an attempt with this number.
            Ok(_) | Err(JournalError::Conflict) => return Ok(()),
            Err(JournalError::Refused(error)) => return Err(error),
            Err(error) => {
                let id = &attempt.delivery_id;
                tracing::warn!(delivery.id = %id, %error, "the outcome of delivery {id} will be written later");
                tokio::time::sleep(RECORD_PAUSE).await;
            }
        }
    }
}

/// Marks a delivery as in progress until dropped, however its task ends.
pub(super) struct InProgress {
    context: Arc<SenderContext>,
    delivery_id: String,
}

impl InProgress {
    pub(super) fn new(context: &Arc<SenderContext>, delivery_id: &str) -> Self {
        context.under_way.insert(delivery_id.to_owned());
        Self { context: Arc::clone(context), delivery_id: delivery_id.to_owned() }
    }

    pub(super) fn delivery_id(&self) -> &str {
        &self.delivery_id
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.context.under_way.remove(&self.delivery_id);
    }
}
