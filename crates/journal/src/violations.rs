//! Stopped writes: changes that would have violated an invariant of the domain.

use std::fmt::Display;

use payferry_domain::invariants::{self, Violated};

payferry_runtime::metrics! {
    Counter VIOLATIONS = "payferry_invariant_violations_total",
        "Writes stopped because they would have violated an invariant, by its number. Each is a defect.",
        exported by "invariant" in invariants::ids();
}

/// Counts and logs a change of `subject` that was stopped.
pub fn report(subject: impl Display, violated: &Violated) {
    for violation in &violated.0 {
        VIOLATIONS.add(&[("invariant", violation.id)], 1);
    }
    tracing::error!(%subject, %violated, "a change of {subject} was stopped: {violated}");
}
