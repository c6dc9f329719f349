//! Webhook configuration, the delivery log, and the feed of all events.
//!
//! The webhook sender owns the rows and the secrets, and sends the requests. This module only presents them.

pub mod deliveries;
pub mod endpoint;
pub mod events;

use payferry_domain::payment::EventPattern;
use payferry_httpkit::{Fault, read};
use serde_json::Value;

pub use deliveries::DeliveryRecord;

/// Maximum patterns of one filter; there are two dozen events.
const PATTERNS_MAX: usize = 50;

/// Reads a list of event patterns.
fn patterns(value: &Value) -> Result<Vec<EventPattern>, Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of strings"))?;
    if list.is_empty() {
        return Err(Fault::new("empty", "must not be empty; [\"*\"] stands for all events"));
    }
    if list.len() > PATTERNS_MAX {
        return Err(Fault::new("too_many", format!("may have at most {PATTERNS_MAX} items")));
    }
    let expected = "*, a family such as payment.*, the name of an event such as payin.settled";
    list.iter().map(|pattern| read::name(pattern, expected)).collect()
}
