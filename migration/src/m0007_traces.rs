//! The traces of payments, payouts and withdrawals, for the spans of their operations and deliveries.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0007_traces",
    both: &[&["ALTER TABLE events ADD COLUMN traceparent TEXT", "ALTER TABLE operations ADD COLUMN traceparent TEXT"]],
    sqlite: &[],
    postgres: &[],
};
