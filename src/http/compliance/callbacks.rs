//! `POST /compliance/callbacks/{provider}`: authenticated by the provider's signature instead of an API key. Not in the
//! OpenAPI document, which is for PSPs.

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use payferry_actors::compliance::identity::{CallbackError, CallbackFailure};
use payferry_httpkit::extract::read_body;
use payferry_httpkit::{Answer, ApiError, Path};
use serde_json::json;

use crate::http::state::AppState;

/// Maximum size of a callback. Providers send a few KiB.
pub const CALLBACK_BYTES_MAX: usize = 64 * 1024;

/// A callback within the rate limit of its address.
pub struct Admitted;

impl FromRequestParts<AppState> for Admitted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        app.limiters.callback(parts).map(|()| Self)
    }
}

/// Accepts signed callbacks of the configured provider only. A repeated, late or irrelevant callback gets 200 and
/// changes nothing. One that cannot be stored gets 503, so that the provider repeats it.
pub async fn take(
    _: Admitted,
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
