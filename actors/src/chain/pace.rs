//! How actors that look at a chain keep time: back-off after errors, and looks of which one at most is in the mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

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
