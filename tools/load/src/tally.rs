//! Counts of a run: totals, errors by kind, and what each second saw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use super::stages::Latencies;

/// Kinds of errors that are told apart; further ones share a name.
const ERROR_KINDS_MAX: usize = 64;
const OTHER_ERRORS: &str = "other";
/// Seconds of the course that are kept: six hours, of a load tester that is not starved.
const SECONDS_MAX: usize = 6 * 3_600;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is counted.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// The counts at one moment, or what they grew by.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
        pub struct Counted {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// As they are now.
            pub fn read(&self) -> Counted {
                Counted { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counted {
            /// Each with its name, in the order in which a payment meets them.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// What they grew by since.
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Payments that are held: made and not to be paid.
    held,
    /// Payments that were due, those that are held left out from here on.
    due,
    /// Payments that found no place in flight and never began.
    turned_away,
    /// Payments that the service answered with 201.
    accepted,
    /// Payments that it refused.
    refused,
    /// Payments that it did not answer, or could not even be asked for.
    unanswered,
    /// Transfers that a node took.
    sent,
    /// Transfers that could not be sent.
    unsent,
    /// Transfers that are in a block.
    mined,
    /// Payments that were confirmed.
    confirmed,
    /// Payments that were settled.
    settled,
    /// Payments of which every expected event came.
    complete,
    /// Webhooks that were genuine.
    webhooks,
    /// Of them, those that had come before.
    repeated,
    /// Of them, those that came before an earlier event of their payment.
    out_of_order,
    /// Of them, those of payments that are not of this run.
    foreign,
    /// Webhooks that were not genuine.
    forged,
}

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One second of the run; more than one where the load tester got no time to look, less at the end.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Second {
    /// Seconds since the first arrival was due, at its end.
    pub at_secs: f64,
    /// How long it really was, in seconds.
    pub period_secs: f64,
    /// What happened in it.
    pub counted: Counted,
    /// Initiations without an answer at its end.
    pub in_flight: usize,
    /// Payments at its end that are accepted and not complete, those that are held left out.
    pub open: u64,
    /// Errors in it.
    pub errors: u64,
    /// Half of the initiations answered in it took no longer, in milliseconds.
    pub accepted_p50_ms: f64,
    /// 99 of 100.
    pub accepted_p99_ms: f64,
    /// The same of payments that were complete in it.
    pub complete_p50_ms: f64,
    /// 99 of 100.
    pub complete_p99_ms: f64,
    /// Processor time of the service, in cores; null if its process is not known.
    pub service_cores: Option<f64>,
    /// Its memory, in bytes.
    pub service_bytes: Option<u64>,
    /// Processor time of the load tester, in cores.
    pub own_cores: Option<f64>,
}

impl Second {
    /// When half of it was over.
    pub fn middle_secs(&self) -> f64 {
        self.at_secs - self.period_secs / 2.0
    }
}

/// Counts and their course.
#[derive(Debug, Default)]
pub struct Tally {
    /// The totals.
    pub counts: Counts,
    errors: Mutex<BTreeMap<String, u64>>,
    error_count: AtomicU64,
    accepted: Mutex<Latencies>,
    complete: Mutex<Latencies>,
    course: Mutex<Vec<Second>>,
    /// There were more than are kept.
    is_cut: AtomicBool,
}

impl Tally {
    /// Counts an error of a kind.
    pub fn error(&self, kind: &str) {
        count(&self.error_count);
        let mut errors = self.errors.lock();
        let known = errors.len() < ERROR_KINDS_MAX || errors.contains_key(kind);
        *errors.entry(if known { kind } else { OTHER_ERRORS }.to_owned()).or_default() += 1;
    }

    /// Errors by kind.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// How many there were.
    pub fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }

    /// An initiation was answered, so long after its intended beginning.
    pub fn accepted_in(&self, latency: std::time::Duration) {
        self.accepted.lock().record(latency);
    }

    /// A payment was complete, so long after its intended beginning.
    pub fn complete_in(&self, latency: std::time::Duration) {
        self.complete.lock().record(latency);
    }

    /// The latencies of this second so far, initiations and whole payments; they begin anew.
    pub fn take_latencies(&self) -> [Latencies; 2] {
        [&self.accepted, &self.complete].map(|latencies| latencies.lock().take())
    }

    /// Adds a second to the course.
    pub fn second(&self, second: Second) {
        let mut course = self.course.lock();
        if course.len() < SECONDS_MAX {
            course.push(second);
        } else {
            self.is_cut.store(true, Ordering::Relaxed);
        }
    }

    /// That the course has not the whole run, in words.
    pub fn course_is_cut(&self) -> Option<String> {
        let last = *self.course.lock().last()?;
        let hours = last.at_secs / 3_600.0;
        self.is_cut.load(Ordering::Relaxed).then(|| {
            format!(
                "The course has the first {hours:.1} hours of the run only: its rates, cores and memory are of these."
            )
        })
    }

    /// The course so far.
    pub fn course(&self) -> Vec<Second> {
        self.course.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_are_bounded() {
        let tally = Tally::default();
        for kind in 0..ERROR_KINDS_MAX + 10 {
            tally.error(&format!("kind {kind}"));
        }
        tally.error("kind 1");
        let errors = tally.errors();
        assert_eq!((errors.len(), errors["kind 1"], errors[OTHER_ERRORS]), (ERROR_KINDS_MAX + 1, 2, 10));
        assert_eq!(tally.error_count(), 75);
    }

    #[test]
    fn a_course_that_does_not_go_on_says_so() {
        let tally = Tally::default();
        assert_eq!(tally.course_is_cut(), None);
        for second in 1..=SECONDS_MAX {
            #[allow(clippy::cast_precision_loss, reason = "small")]
            tally.second(Second { at_secs: second as f64, period_secs: 1.0, ..Second::default() });
        }
        assert_eq!(tally.course_is_cut(), None);
        tally.second(Second { at_secs: 40_000.0, ..Second::default() });
        let said = tally.course_is_cut();
        assert!(said.as_deref().is_some_and(|said| said.contains("the first 6.0 hours")), "{said:?}");
        assert_eq!(tally.course().len(), SECONDS_MAX);
    }

    #[test]
    fn counts_are_told_by_the_second() {
        let tally = Tally::default();
        count(&tally.counts.accepted);
        let before = tally.counts.read();
        count(&tally.counts.accepted);
        count(&tally.counts.settled);
        let grown = tally.counts.read().since(&before);
        assert_eq!((grown.accepted, grown.settled, grown.refused), (1, 1, 0));
    }
}
