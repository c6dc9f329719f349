//! What to do after an event.
use super::{Effect, Event, Payment};
/// What to do after an event was committed.
pub fn react(_after: &Payment, _event: &Event) -> Vec<Effect> {
    Vec::new()
}
