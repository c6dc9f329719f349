//! How actors that look at a chain keep time: back-off after errors, and looks of which one at most is in the mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::observe::Mailbox;

/// The first wait after an error; doubled with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// The longest wait between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(15);

/// Doubles with each failure, with jitter of a quarter, so that many do not come back at once.
pub(super) fn backoff(failures: u32) -> Duration {
    let wait = BACKOFF_MIN.saturating_mul(1 << failures.min(8)).min(BACKOFF_MAX);
    wait.mul_f64(1.0 - rand::random::<f64>() / 4.0)
}

/// How a task that comes again and again gets on. Each task has its own and waits out its own errors: one that stands for
/// long neither keeps the others from going on, nor is it forgotten when they do.
#[derive(Debug, Default)]
pub(super) struct Pass {
    failures: u32,
    not_before: Option<Instant>,
    trouble: Option<String>,
}

impl Pass {
    /// Whether the wait after the last error is over.
    pub(super) fn is_due(&self) -> bool {
        self.not_before.is_none_or(|not_before| Instant::now() >= not_before)
    }

    /// Nothing holds it up.
    pub(super) fn went_well(&mut self) {
        *self = Self::default();
    }

    /// It could not go on, for this reason.
    pub(super) fn went_wrong(&mut self, trouble: String) {
        self.not_before = Some(Instant::now() + backoff(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(trouble);
    }

    /// Why it cannot go on, if it cannot.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Errors in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

/// Looks that were asked for, of which one at most waits in the actor's mailbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    queued: Arc<AtomicBool>,
}

impl Looks {
    /// Asks for one; answers whether the actor is still there.
    pub(super) fn ask<M: Send + 'static>(&self, actor: &Mailbox<M>, look: M) -> bool {
        self.queued.swap(true, Ordering::AcqRel) || actor.cast(look).is_ok()
    }

    /// The one that waited is under way.
    pub(super) fn begun(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

/// A task that ends with whoever holds this.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
