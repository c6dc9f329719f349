//! `POST /compliance/callbacks/{provider}`: no API key, the provider's signature is the proof. Not in the interface's
//! document, which is for PSPs.

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use payferry_actors::compliance::identity::{CallbackError, CallbackFailure};
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Path, read_body};
use serde_json::json;

use crate::http::state::AppState;

/// Bytes of a callback: providers send a few KiB.
pub const CALLBACK_BYTES_MAX: usize = 64 * 1024;

/// A callback that was within the limit of its address.
pub struct Admitted;

impl FromRequestParts<AppState> for Admitted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        app.limiters.callback(parts).map(|()| Self)
    }
}

/// For the configured provider only, which signs it. A repeated, late or irrelevant one is answered with 200 and changes
/// nothing; one that cannot be written down with 503, so that the provider sends it again.
pub async fn take(
    _: Admitted,
    State(app): State<AppState>,
    Path(provider): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    let body = read_body(body, CALLBACK_BYTES_MAX).await?;
    match app.system.desk().callback(&provider, &headers, &body).await {
        Ok(_) => Answer::ok(&json!({"message": "Taken in"})),
        Err(CallbackFailure::UnknownProvider) => Err(ApiError::NotFound("provider")),
        Err(CallbackFailure::Refused(CallbackError::Forged(why))) => Err(ApiError::ForgedCallback(why)),
        Err(CallbackFailure::Refused(CallbackError::Unreadable(why))) => Err(ApiError::UnreadableCallback(why)),
        Err(CallbackFailure::NotApplied(error)) => Err(match ApiError::from(error) {
            // Its customer is gone with the row, or the domain refuses a fact: nothing that repeating would mend.
            error @ (ApiError::NotFound(_) | ApiError::Conflict(..)) => ApiError::internal(format!("{error:?}")),
            error => error,
        }),
    }
}
