//! Applying events.
use super::{Event, Payment};
use crate::time::Timestamp;
/// The payment after an event.
pub fn evolve(payment: Payment, _event: &Event) -> Payment {
    payment
}
/// The payment after the events of one commit: one version more.
pub fn commit(payment: Payment, events: &[Event], at: Timestamp) -> Payment {
    let mut payment = events.iter().fold(payment, evolve);
    payment.version += 1;
    payment.updated_at = at;
    payment
}
