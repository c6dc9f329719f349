//! How actors that look at a chain keep time: back-off after errors, and looks of which one at most is in the mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use payferry_runtime::observe::Mailbox;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The first wait after an error; doubled with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// The longest wait between attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(15);

/// Doubles with each failure, with jitter of a quarter, so that many do not come back at once.
pub fn backoff(failures: u32) -> Duration {
    let wait = BACKOFF_MIN.saturating_mul(1 << failures.min(8)).min(BACKOFF_MAX);
    wait.mul_f64(1.0 - rand::random::<f64>() / 4.0)
}

/// How grave an error is for the pass that came upon it, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// Another writer was faster: the next pass sees what is there.
    Overtaken,
    /// One item waits, or those of one account: the others go on, and all are looked at as often as ever.
    Item,
    /// Endpoints are away or refuse: asking more often helps nobody.
    Outside,
    /// The service's own database: nothing can be recorded.
    Own,
}

impl Gravity {
    fn slows(self) -> bool {
        self >= Self::Outside
    }
}

/// That something cannot go on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// How grave it is.
    pub gravity: Gravity,
    /// Why.
    pub why: String,
}

/// What is said of these, and by which the pace goes on: the gravest, and of equals the first. `None` if there are none.
pub fn gather(all: impl IntoIterator<Item = HeldUp>) -> Option<HeldUp> {
    all.into_iter().reduce(|gravest, next| if next.gravity > gravest.gravity { next } else { gravest })
}

/// How a task that comes again and again gets on. Each task has its own and waits out its own errors: one that stands for
/// long neither keeps the others from going on, nor is it forgotten when they do.
#[derive(Debug, Default)]
pub struct Pass {
    failures: u32,
    /// How many of the last failures in a row slowed it down.
    slowed: u32,
    not_before: Option<Instant>,
    held_up: Option<HeldUp>,
}

impl Pass {
    /// Whether the wait after the last error is over.
    pub fn is_due(&self) -> bool {
        self.not_before.is_none_or(|not_before| Instant::now() >= not_before)
    }

    /// Nothing holds it up.
    pub fn went_well(&mut self) {
        *self = Self::default();
    }

    /// It came to its end, with all of these errors.
    pub fn conclude(&mut self, errors: impl IntoIterator<Item = HeldUp>) {
        match gather(errors) {
            None => self.went_well(),
            // What stood before it stands, until a pass has seen more.
            Some(HeldUp { gravity: Gravity::Overtaken, .. }) => {}
            Some(held_up) => {
                self.failures = self.failures.saturating_add(1);
                if held_up.gravity.slows() {
                    self.not_before = Some(Instant::now() + backoff(self.slowed));
                    self.slowed = self.slowed.saturating_add(1);
                } else {
                    self.not_before = None;
                    self.slowed = 0;
                }
                self.held_up = Some(held_up);
            }
        }
    }

    /// Why it cannot go on, if it cannot.
    pub fn held_up(&self) -> Option<&HeldUp> {
        self.held_up.as_ref()
    }

    /// Passes with errors in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Looks that were asked for, of which one at most waits in the actor's mailbox.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    queued: Arc<AtomicBool>,
}

impl Looks {
    /// Asks for one; answers whether the actor is still there.
    pub fn ask<M: Send + 'static>(&self, actor: &Mailbox<M>, look: M) -> bool {
        self.queued.swap(true, Ordering::AcqRel) || actor.cast(look).is_ok()
    }

    /// The one that waited is under way.
    pub fn begun(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

/// A task that ends with whoever holds this.
#[derive(Debug)]
pub struct AbortOnDrop(pub JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn held_up(gravity: Gravity, why: &str) -> HeldUp {
        HeldUp { gravity, why: why.to_owned() }
    }

    #[test]
    fn the_gravest_is_said_wherever_it_comes_and_of_equals_the_first() {
        assert_eq!(gather([]), None);
        let [item, other] = ["the fee", "the receipt"].map(|why| held_up(Gravity::Item, why));
        let [away, slow] = ["away", "slow"].map(|why| held_up(Gravity::Outside, why));
        let (overtaken, own) = (held_up(Gravity::Overtaken, "faster"), held_up(Gravity::Own, "the database"));
        let said = |all: &[&HeldUp]| gather(all.iter().map(|one| (*one).clone())).unwrap();
        assert_eq!(said(&[&item, &other]), item);
        assert_eq!(said(&[&other, &item]), other);
        assert_eq!(said(&[&item, &away, &other]), away, "one item does not hide that the endpoint is away");
        assert_eq!(said(&[&away, &item, &slow]), away);
        assert_eq!(said(&[&overtaken, &item]), item);
        assert_eq!(said(&[&item, &overtaken]), item);
        assert_eq!(said(&[&away, &own, &slow]), own);
        assert_eq!(said(&[&overtaken]), overtaken);
    }

    #[test]
    fn only_what_is_about_all_slows_a_pass() {
        for (gravity, slows) in
            [(Gravity::Overtaken, false), (Gravity::Item, false), (Gravity::Outside, true), (Gravity::Own, true)]
        {
            let mut pass = Pass::default();
            pass.conclude([held_up(gravity, "it")]);
            assert_eq!(pass.is_due(), !slows, "{gravity:?}");
            pass.conclude([]);
            assert!(pass.is_due() && pass.held_up().is_none() && pass.failures() == 0, "{gravity:?}");
        }
    }

    #[test]
    fn a_pass_with_errors_of_single_items_comes_as_often_as_ever_and_says_so() {
        let mut pass = Pass::default();
        pass.conclude([held_up(Gravity::Outside, "away")]);
        for failures in 2..20 {
            pass.conclude([held_up(Gravity::Item, "the fee")]);
            assert!(pass.is_due());
            assert_eq!((pass.failures(), pass.held_up().unwrap().why.as_str()), (failures, "the fee"));
        }
        assert_eq!(pass.slowed, 0, "the next time that the endpoint is away it begins anew");
        pass.conclude([held_up(Gravity::Overtaken, "faster")]);
        assert_eq!(pass.held_up().unwrap().why, "the fee", "nothing new is known");
    }
}
