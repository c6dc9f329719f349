//! Counts of a run: totals, errors by kind, and the values of each second.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::Serialize;

use super::heat::Heat;

/// Largest number of distinct kinds of errors. Further kinds share a name.
const ERROR_KINDS_MAX: usize = 64;
const OTHER_ERRORS: &str = "other";
/// Largest number of recorded seconds: six hours.
const SECONDS_MAX: usize = 6 * 3_600;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts at one moment, or their increase.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
        pub struct Counted {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counted {
            /// Returns each count with its name, in the order of the stages.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Returns the increase since `before`.
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Held payments that were made.
    held,
    /// Payments that were due. Held payments do not count from here on.
    due,
    /// Payments that were rejected because too many were in flight.
    turned_away,
    /// Payments that the service accepted with 201.
    accepted,
    /// Payments that the service refused.
    refused,
    /// Those of them that it refused with the code `overloaded`.
    overloaded,
    /// Payments without a response, or whose request could not be sent.
    unanswered,
    /// Payments of both kinds whose refusal or failure an injected fault explains.
    excused,
    /// Transfers that a node accepted, and authorizations that the service accepted.
    sent,
    /// Transfers and authorizations that could not be sent.
    unsent,
    /// Transfers and collections in a block.
    mined,
    /// Confirmed payments.
    confirmed,
    /// Settled payments.
    settled,
    /// Payments of which every expected event arrived.
    complete,
    /// Events of payments whose money or settlement a reorganisation of the chain removed.
    reorged,
    /// Genuine webhooks.
    webhooks,
    /// Genuine webhooks that were repetitions.
    repeated,
    /// Genuine webhooks that arrived before an earlier event of their payment.
    out_of_order,
    /// Genuine webhooks of payments that are not of this run.
    foreign,
    /// Forged webhooks.
    forged,
    /// Genuine webhooks that the receiver refused, because it was to fail.
    denied,
}

/// One second of the run. It is longer if the load tester got no CPU time, and shorter at the end.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Second {
    /// Seconds from the first arrival to its end.
    pub at_secs: f64,
    /// Its length in seconds.
    pub period_secs: f64,
    /// Counts in it.
    pub counted: Counted,
    /// Initiations in flight at its end.
    pub in_flight: usize,
    /// Accepted and incomplete payments at its end. Held payments do not count.
    pub open: u64,
    /// Errors in it.
    pub errors: u64,
    /// Median latency of the initiations that ended in it, in milliseconds.
    pub accepted_p50_ms: f64,
    /// 99th percentile of them.
    pub accepted_p99_ms: f64,
    /// Median latency of the payments that completed in it, in milliseconds.
    pub complete_p50_ms: f64,
    /// 99th percentile of them.
    pub complete_p99_ms: f64,
    /// Initiations that ended in it, by latency.
    pub accepted_heat: Heat,
    /// Payments that completed in it, by latency.
    pub complete_heat: Heat,
    /// Cores that the service kept busy; null if its process is unknown.
    pub service_cores: Option<f64>,
    /// Memory of the service, in bytes.
    pub service_bytes: Option<u64>,
    /// Cores that the load tester kept busy.
    pub own_cores: Option<f64>,
}

impl Second {
    /// Returns its middle.
    pub fn middle_secs(&self) -> f64 {
        self.at_secs - self.period_secs / 2.0
    }
}

/// Counts and their course.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    counted: Counted,
    errors: BTreeMap<String, u64>,
    error_count: u64,
    course: Vec<Second>,
    /// True if more seconds occurred than are kept.
    is_cut: bool,
}

impl Tally {
    /// Adds one to a count.
    pub fn count(&self, of: impl FnOnce(&mut Counted) -> &mut u64) {
        *of(&mut self.0.lock().counted) += 1;
    }

    /// Returns the counts.
    pub fn counted(&self) -> Counted {
        self.0.lock().counted
    }

    /// Counts an error of a kind.
    pub fn error(&self, kind: &str) {
        let totals = &mut *self.0.lock();
        totals.error_count += 1;
        let known = totals.errors.len() < ERROR_KINDS_MAX || totals.errors.contains_key(kind);
        *totals.errors.entry(if known { kind } else { OTHER_ERRORS }.to_owned()).or_default() += 1;
    }

    /// Returns the errors by kind.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.0.lock().errors.clone()
    }

    /// Returns the number of errors.
    pub fn error_count(&self) -> u64 {
        self.0.lock().error_count
    }

    /// Adds a second to the course.
    pub fn second(&self, second: Second) {
        let totals = &mut *self.0.lock();
        totals.is_cut = totals.course.len() >= SECONDS_MAX;
        if !totals.is_cut {
            totals.course.push(second);
        }
    }

    /// Returns a note if the course does not contain the whole run.
    pub fn course_is_cut(&self) -> Option<String> {
        let totals = self.0.lock();
        let hours = totals.course.last()?.at_secs / 3_600.0;
        totals.is_cut.then(|| {
            format!(
                "The course contains only the first {hours:.1} hours of the run; rates, cores and memory are of these."
            )
        })
    }

    /// Returns the course so far.
    pub fn course(&self) -> Vec<Second> {
        self.0.lock().course.clone()
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
    fn a_cut_course_has_a_note() {
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
    fn counts_have_an_increase() {
        let tally = Tally::default();
        tally.count(|counted| &mut counted.accepted);
        let before = tally.counted();
        tally.count(|counted| &mut counted.accepted);
        tally.count(|counted| &mut counted.settled);
        let grown = tally.counted().since(&before);
        assert_eq!((grown.accepted, grown.settled, grown.refused), (1, 1, 0));
    }
}
