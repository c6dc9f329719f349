//! Stopped writes: changes that would have violated an invariant of the domain or a rule of the database. Each is a defect.
//!
//! The latest one is kept for the process, like the metric: what stops it may know no journal.

use std::fmt::Display;
use std::time::SystemTime;

use parking_lot::Mutex;
use payferry_domain::Timestamp;
use payferry_domain::invariants::{self, Violated};

payferry_runtime::metrics! {
    Counter VIOLATIONS = "payferry_invariant_violations_total",
        "Writes stopped because they would have violated an invariant, by its number. Each is a defect.",
        exported by "invariant" in invariants::ids();
}

/// The latest stopped write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedWrite {
    /// Wall-clock time.
    pub at: Timestamp,
    /// Id of the payment, payout, withdrawal or customer, or `journal`.
    pub subject: String,
    /// Violated invariants, or the error of the database.
    pub reason: String,
    /// Number of stopped writes since the process started.
    pub total: u64,
}

static LATEST: Mutex<Option<StoppedWrite>> = Mutex::new(None);

/// Returns the latest stopped write of this process.
pub fn latest() -> Option<StoppedWrite> {
    LATEST.lock().clone()
}

/// Counts and logs a change of `subject` that was stopped.
pub fn report(subject: impl Display, violated: &Violated) {
    for violation in &violated.0 {
        VIOLATIONS.add(&[("invariant", violation.id)], 1);
    }
    tracing::error!(%subject, %violated, "a change of {subject} was stopped: {violated}");
    stopped(subject.to_string(), violated.to_string());
}

/// Records a write that the database rejected as invalid.
pub(crate) fn refused(reason: &impl Display) {
    stopped("journal".to_owned(), format!("the database rejected a write: {reason}"));
}

fn stopped(subject: String, reason: String) {
    let mut latest = LATEST.lock();
    let total = latest.as_ref().map_or(0, |latest| latest.total) + 1;
    *latest = Some(StoppedWrite { at: Timestamp::from(SystemTime::now()), subject, reason, total });
}
