//! What follows from a command.
use super::{Command, Event, Payment, Rejection};
use crate::time::Timestamp;
/// The events that follow from `command`; empty if it is old or known.
pub fn decide(_payment: &Payment, _command: &Command, _now: Timestamp) -> Result<Vec<Event>, Rejection> {
    Ok(Vec::new())
}
