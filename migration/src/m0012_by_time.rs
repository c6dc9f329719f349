//! Indexes by time: of operations in progress, and of a PSP's events.
//!
//! `operations_open` contains operations in progress, by time of creation, so that the operator sees those that take
//! too long. It contains few rows at a time: an operation is inserted when it is created, updated with each step, and
//! removed at the end.
//!
//! `events_psp_id_created_at` contains a PSP's events, which are redelivered in bulk by time of creation. Events are
//! created in time order, so each one is appended to the index, as in the index by position. This costs about a tenth
//! of the plain insert of an event.

pub(crate) const UP: &[&str] = &[
    "CREATE INDEX operations_open ON operations (created_at) WHERE status IN ('queued', 'submitted', 'mined')",
    "CREATE INDEX events_psp_id_created_at ON events (psp_id, created_at)",
];
