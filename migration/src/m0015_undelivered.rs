//! Indexes of failed deliveries by age.
//!
//! They show the operator the age of the oldest undelivered event, separately for deliveries that wait for a retry and
//! for exhausted ones. A delivery is in an index only while it has that status; most never are.

pub(crate) const UP: &[&str] = &[
    "CREATE INDEX deliveries_failed ON deliveries (psp_id, position) WHERE status = 'failed'",
    "CREATE INDEX deliveries_exhausted ON deliveries (psp_id, position) WHERE status = 'exhausted'",
];
