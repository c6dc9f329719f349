//! Pacing of chain actors: back-off after errors, and at most one waiting poll per mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use payferry_runtime::observe::Mailbox;
use payferry_runtime::supervise::doubled;
use tokio::time::Instant;

/// Initial wait after an error; doubles with each further error.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// Upper limit of the wait.
const BACKOFF_MAX: Duration = Duration::from_secs(15);

/// Wait that doubles with each failure, with up to a quarter of jitter so that retries spread out.
pub fn backoff(failures: u32) -> Duration {
    doubled(BACKOFF_MIN, BACKOFF_MAX, failures).mul_f64(1.0 - rand::random::<f64>() / 4.0)
}

/// Severity of an error for the pass that it occurred in, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Another writer committed first: the next pass sees its result.
    Overtaken,
    /// One item, or the items of one account, must wait: the others continue at the same interval.
    Item,
    /// Endpoints are unavailable or reject requests: more frequent requests do not help.
    Outside,
    /// The service's own database failed: nothing can be recorded.
    Own,
}

impl Severity {
    fn slows(self) -> bool {
        self >= Self::Outside
    }
}

/// An error that blocks progress, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingError {
    /// Severity of the error.
    pub severity: Severity,
    /// Why.
    pub why: String,
}

/// The most severe of these, of equals the first; `None` if there are none. It determines the report and the pace.
pub fn gather(all: impl IntoIterator<Item = BlockingError>) -> Option<BlockingError> {
    all.into_iter().reduce(|gravest, next| if next.severity > gravest.severity { next } else { gravest })
}

/// Progress of a repeated task. Each task has its own state and its own back-off, so an error that lasts neither blocks
/// the other tasks nor is hidden by their success.
#[derive(Debug, Default)]
pub struct Pass {
    failures: u32,
    /// Consecutive failures that slowed the task down.
    slowed: u32,
    not_before: Option<Instant>,
    blocking_error: Option<BlockingError>,
}

impl Pass {
    /// True if the wait after the last error is over.
    pub fn is_due(&self) -> bool {
        self.not_before.is_none_or(|not_before| Instant::now() >= not_before)
    }

    /// Clears errors and back-off.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Ends a pass that had these errors.
    pub fn conclude(&mut self, errors: impl IntoIterator<Item = BlockingError>) {
        match gather(errors) {
            None => self.succeeded(),
            // The previous state remains until a pass has learned more.
            Some(BlockingError { severity: Severity::Overtaken, .. }) => {}
            Some(blocking_error) => {
                self.failures = self.failures.saturating_add(1);
                if blocking_error.severity.slows() {
                    self.not_before = Some(Instant::now() + backoff(self.slowed));
                    self.slowed = self.slowed.saturating_add(1);
                } else {
                    self.not_before = None;
                    self.slowed = 0;
                }
                self.blocking_error = Some(blocking_error);
            }
        }
    }

    /// The current blocking error, if any.
    pub fn blocking_error(&self) -> Option<&BlockingError> {
        self.blocking_error.as_ref()
    }

    /// Consecutive passes with errors.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// A message to an actor of which at most one waits in its mailbox, such as a poll.
#[derive(Clone, Debug, Default)]
pub struct CoalescedMessage {
    is_waiting: Arc<AtomicBool>,
}

impl CoalescedMessage {
    /// Sends the message, unless one is waiting. Returns false if the actor is gone.
    pub fn send<M: Send + 'static>(&self, actor: &Mailbox<M>, message: M) -> bool {
        self.is_waiting.swap(true, Ordering::AcqRel) || actor.cast(message).is_ok()
    }

    /// Sends the message after `wait`, unless one is waiting. From now on, it counts as waiting.
    pub fn send_after<M: Send + 'static>(&self, wait: Duration, actor: &Mailbox<M>, message: M) {
        if !self.is_waiting.swap(true, Ordering::AcqRel) {
            actor.send_after(wait, || message);
        }
    }

    /// Returns true if a message is waiting.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Records that the actor has received the message.
    pub fn received(&self) {
        self.is_waiting.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocking_error(severity: Severity, why: &str) -> BlockingError {
        BlockingError { severity, why: why.to_owned() }
    }

    #[test]
    fn reports_the_most_severe_error_and_of_equals_the_first() {
        assert_eq!(gather([]), None);
        let [item, other] = ["the fee", "the receipt"].map(|why| blocking_error(Severity::Item, why));
        let [away, slow] = ["away", "slow"].map(|why| blocking_error(Severity::Outside, why));
        let (overtaken, own) =
            (blocking_error(Severity::Overtaken, "faster"), blocking_error(Severity::Own, "the database"));
        let said = |all: &[&BlockingError]| gather(all.iter().map(|one| (*one).clone())).unwrap();
        assert_eq!(said(&[&item, &other]), item);
        assert_eq!(said(&[&other, &item]), other);
        assert_eq!(said(&[&item, &away, &other]), away, "an item's error does not hide an unavailable endpoint");
        assert_eq!(said(&[&away, &item, &slow]), away);
        assert_eq!(said(&[&overtaken, &item]), item);
        assert_eq!(said(&[&item, &overtaken]), item);
        assert_eq!(said(&[&away, &own, &slow]), own);
        assert_eq!(said(&[&overtaken]), overtaken);
    }

    #[test]
    fn only_errors_that_affect_all_items_slow_a_pass() {
        for (severity, slows) in
            [(Severity::Overtaken, false), (Severity::Item, false), (Severity::Outside, true), (Severity::Own, true)]
        {
            let mut pass = Pass::default();
            pass.conclude([blocking_error(severity, "it")]);
            assert_eq!(pass.is_due(), !slows, "{severity:?}");
            pass.conclude([]);
            assert!(pass.is_due() && pass.blocking_error().is_none() && pass.failures() == 0, "{severity:?}");
        }
    }

    #[test]
    fn errors_of_single_items_do_not_slow_a_pass_but_are_reported() {
        let mut pass = Pass::default();
        pass.conclude([blocking_error(Severity::Outside, "away")]);
        for failures in 2..20 {
            pass.conclude([blocking_error(Severity::Item, "the fee")]);
            assert!(pass.is_due());
            assert_eq!((pass.failures(), pass.blocking_error().unwrap().why.as_str()), (failures, "the fee"));
        }
        assert_eq!(pass.slowed, 0, "the back-off of the endpoint starts again from its minimum");
        pass.conclude([blocking_error(Severity::Overtaken, "faster")]);
        assert_eq!(pass.blocking_error().unwrap().why, "the fee", "the earlier error remains");
    }
}
