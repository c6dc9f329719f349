//! Verification of customers: requested by the PSP (`POST /customers/compliance`), answered by the provider's callbacks
//! (`POST /compliance/callbacks/{provider}`). Callbacks are authenticated by the provider's signature instead of an API
//! key, and are not in the OpenAPI document, which is for PSPs.
//!
//! The compliance service decides when to contact the provider, and the domain what a verdict means.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use payferry_actors::compliance::identity::{CallbackError, CallbackFailure, link_of};
use payferry_domain::customer::Command;
use payferry_domain::{CheckId, CustomerId};
use payferry_entities::{CheckStatus, checks};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::read_body;
use payferry_httpkit::{Answer, ApiError, Away, Customers, FieldError, Path, Problem, Submission, request, rule};
use payferry_journal::audit::Actor;
use payferry_journal::customers::CustomerChangeError;
use sea_orm::EntityTrait;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::state::{AppShared, AppState};

/// Maximum wait of the answer for the provider's link. After that the caller has to repeat the request.
const LINK_PATIENCE: Duration = Duration::from_secs(4);
/// The first pause between two checks for the link; doubles up to the maximum.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(250);

request! {
    /// The customer to verify.
    pub struct ComplianceRequest {
        /// The customer.
        customer_id: CustomerId = required(rule::id()).example("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
    }
}

/// A verification in progress.
#[derive(Serialize, ToSchema)]
pub struct ComplianceAnswer {
    message: &'static str,
    #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    customer_id: String,
    /// pending until there is a verdict, then approved or rejected.
    #[schema(example = "pending")]
    kyc_status: String,
    #[schema(example = "ver_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    verification_id: String,
    /// Where the customer (for a business: its primary contact) verifies their identity. Null until the provider has
    /// answered: repeat the request to get the link of the same verification.
    verification_url: Option<String>,
}

/// Start identity verification
///
/// Requires the customer's acceptance of the terms and all required documents. The provider verifies the person at
/// `verification_url`; the verdict is the customer's `kyc_status`. A request during a verification returns the same
/// verification. A request after a rejection starts a new one.
#[utoipa::path(
    post, path = "/customers/compliance", tag = "Customers", operation_id = "startVerification",
    request_body = ComplianceRequest,
    responses(
        (status = 202, description = "The verification.", body = ComplianceAnswer),
        (status = 404, description = "`customer_not_found`.", body = Problem),
        (
            status = 409, body = Problem,
            description = "`tos_not_accepted`, `documents_missing` (each named in `errors`), `customer_inactive`, \
                           `already_cleared` or `update_in_progress`.",
        ),
        (status = 503, description = "`identity_provider_unconfigured`: customers cannot be verified.", body = Problem),
    ),
)]
pub async fn request(State(app): State<AppState>, request: Submission<Customers>) -> Result<Response, ApiError> {
    let ComplianceRequest { customer_id } = request.parse()?;
    let opened = app.system.open_customer(customer_id, Some(request.psp_id)).await;
    let mut opened = opened.map_err(|error| match error {
        CustomerChangeError::NotFound => unknown_customer(),
        error => error.into(),
    })?;
    if app.system.compliance().provider().is_none() {
        return Err(ApiError::Unavailable(Away::IdentityProvider, "no identity provider is configured".into()));
    }
    let command = Command::RequestCheck(CheckId::generate());
    opened.apply(&command, &Actor::ApiKey(request.key_id), app.clock().now()).await?;
    let kyc_status = opened.customer().kyc_status.to_string();
    let check = opened.customer().check.ok_or_else(|| ApiError::internal("a verification without a check"))?.id;
    opened.commit().await?;
    app.system.compliance().nudge();
    let answer = Answer::accepted(&ComplianceAnswer {
        message: "Verification in progress",
        customer_id: customer_id.to_string(),
        kyc_status,
        verification_id: check.to_string(),
        verification_url: link(&app, check).await?,
    })?;
    // The compliance service fetches the link after its commit, so the answer is stored in a transaction of its own. If
    // that is lost, a repeated request answers the same verification anyway.
    let kept = app.database().begin().await?;
    request.idempotency.commit(kept, answer).await
}

fn unknown_customer() -> ApiError {
    let error = FieldError::new("customer_id", "not_found", "is not a customer of this account");
    ApiError::FieldNotFound("customer_not_found", error)
}

/// Waits for the link of a check; `None` if the provider takes too long or fails.
async fn link(app: &AppShared, check: CheckId) -> Result<Option<String>, ApiError> {
    let deadline = Instant::now() + LINK_PATIENCE;
    let mut pause = LOOK_PAUSE_MIN;
    loop {
        let row = checks::Entity::find_by_id(check.to_string()).one(app.database().reader()).await?;
        let row = row.ok_or_else(|| ApiError::internal("a check without a row"))?;
        let is_waiting = row.status == CheckStatus::Queued && row.attempts == 0;
        if !is_waiting || Instant::now() >= deadline {
            return Ok(if row.status == CheckStatus::Open { link_of(&row, app.sealer()) } else { None });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_PAUSE_MAX);
    }
}

/// Maximum size of a callback. Providers send a few KiB.
pub const CALLBACK_BYTES_MAX: usize = 64 * 1024;

/// A callback within the rate limit of its address.
pub struct CallbackAdmitted;

impl FromRequestParts<AppState> for CallbackAdmitted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        app.limiters.callback(parts).map(|()| Self)
    }
}

/// Accepts signed callbacks of the configured provider only. A repeated, late or irrelevant callback gets 200 and
/// changes nothing. One that cannot be stored gets 503, so that the provider repeats it.
pub async fn take(
    _: CallbackAdmitted,
    State(app): State<AppState>,
    Path(provider): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    let body = read_body(body, CALLBACK_BYTES_MAX).await?;
    match app.system.compliance().callback(&provider, &headers, &body).await {
        Ok(_) => Answer::ok(&json!({"message": "Accepted"})),
        Err(CallbackFailure::UnknownProvider) => Err(ApiError::NotFound("provider")),
        Err(CallbackFailure::Refused(CallbackError::Forged(why))) => Err(ApiError::ForgedCallback(why)),
        Err(CallbackFailure::Refused(CallbackError::Unreadable(why))) => Err(ApiError::UnreadableCallback(why)),
        Err(CallbackFailure::NotApplied(error)) => Err(match ApiError::from(error) {
            // The customer's row is gone, or the domain refuses a fact. Repeating the callback would not help.
            error @ (ApiError::NotFound(_) | ApiError::Conflict(..)) => ApiError::internal(format!("{error:?}")),
            error => error,
        }),
    }
}
