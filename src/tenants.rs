//! How a PSP becomes a row.

use payferry_actors::psps::PspPolicies;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::psps;

/// The row of a new PSP.
pub fn psp_row(id: PspId, name: &str, policies: &PspPolicies, now: Timestamp) -> serde_json::Result<psps::Model> {
    let settings = serde_json::to_string(policies)?;
    let at = now.as_millis();
    Ok(psps::Model { id: id.to_string(), name: name.to_owned(), settings, created_at: at, updated_at: at })
}
