//! A customer's consent to the terms of service: the link that a PSP requests
//! (`POST /api/v1/customers/{customer_id}/service-consent`).
//!
//! The link is the only credential: the customer just clicks to accept. The page is in `pages::consent`.

pub mod link;

use axum::extract::State;
use axum::response::Response;
use payferry_domain::customer::Rejection;
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::{Answer, ApiError, Customers, Path, Problem};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::customers;
use super::state::ChangeOf;

pub use link::LINK_SECS;

/// State of a customer's consent.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ConsentAnswer {
    /// The customer has not accepted yet.
    Pending {
        /// Instruction for the link.
        message: &'static str,
        /// Where the customer reads and accepts the terms. Anyone who has the link can accept.
        #[schema(example = "https://pay.example/consent?token=cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3.1700086400000.9f...")]
        url: String,
        /// When the link expires: 24 hours after its creation.
        expires_at: DateTime,
    },
    /// The customer has accepted.
    Accepted {
        /// Meaning of the state.
        message: &'static str,
        /// When the customer accepted.
        accepted_at: DateTime,
    },
}

/// Ask for a customer's consent
///
/// Returns a link to the terms of service, for the customer. Each call creates a new link. Links are valid for 24
/// hours, or until one of them is used. If the customer has already accepted, returns the time of acceptance.
#[utoipa::path(
    post, path = "/api/v1/customers/{customer_id}/service-consent", tag = "Customers",
    operation_id = "requestServiceConsent",
    params(("customer_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "A link, or the time of acceptance.", body = ConsentAnswer),
        (status = 409, description = "`customer_inactive`.", body = Problem),
    ),
)]
pub async fn request(parts: ChangeOf<Customers>) -> Result<Response, ApiError> {
    let (State(app), Path(customer_id), request) = parts;
    let opened = customers::open(&app, request.psp_id, &customer_id).await?;
    let customer = opened.customer();
    if !customer.is_active {
        return Err(Rejection::CustomerInactive.into());
    }
    let now = app.clock().now();
    let answer = if let Some(at) = customer.tos_accepted_at {
        let message = "The customer has already accepted the terms of service.";
        ConsentAnswer::Accepted { message, accepted_at: at.into() }
    } else {
        let (token, expires_at) = link::issue(app.sealer(), customer.id, now);
        let entry = NewAuditEntry {
            action: "customer.consent_requested".to_owned(),
            psp_id: Some(request.psp_id),
            subject: customer.id.to_string(),
            detail: json!({ "expires_at": expires_at }),
        };
        audit::append(opened.transaction(), &Actor::ApiKey(request.key_id), now, vec![entry]).await?;
        let message = "Send the customer to this link to accept the terms of service.";
        let url = app.url(&format!("/consent?token={token}"));
        ConsentAnswer::Pending { message, url, expires_at: expires_at.into() }
    };
    request.idempotency.commit(opened.into_transaction(), Answer::ok(&answer)?).await
}
