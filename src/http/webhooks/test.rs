//! `POST /api/v1/webhook/test`.

use axum::extract::State;
use axum::response::Response;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Webhooks;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Submission;
use payferry_webhook::TestError;
use serde::Serialize;
use utoipa::ToSchema;

use super::not_set;
use crate::http::state::AppState;

/// Result of the test.
#[derive(Serialize, ToSchema)]
pub struct TestAnswer {
    message: &'static str,
    webhook_url: String,
    /// The `webhook-id` of the request.
    event_id: String,
    /// True if the endpoint answered 2xx in time.
    delivered: bool,
    response_code: Option<u16>,
    /// First 1 KiB of the answer.
    response_body: Option<String>,
    duration_ms: u64,
    /// Error of the request, if it got no answer.
    error: Option<String>,
}

/// Send a test event
///
/// Sends one signed `webhook.test` with `payment_id: "pay_test"` immediately, without retries, and returns the outcome.
#[utoipa::path(
    post, path = "/api/v1/webhook/test", tag = "Webhooks", operation_id = "testWebhook",
    responses(
        (status = 200, description = "It was sent, whatever the endpoint answered.", body = TestAnswer),
        (status = 409, description = "`webhook_not_set`.", body = Problem),
    ),
)]
pub async fn test(State(app): State<AppState>, request: Submission<Webhooks>) -> Result<Response, ApiError> {
    let outcome = app.system.webhooks().test(request.psp_id).await.map_err(|error| match error {
        TestError::NoEndpoint => not_set(),
        TestError::Database(error) => error.into(),
        TestError::Secret(error) => ApiError::internal(error),
    })?;
    let answer = TestAnswer {
        message: if outcome.delivered {
            "The endpoint acknowledged it."
        } else {
            "The endpoint did not acknowledge it."
        },
        webhook_url: outcome.url,
        event_id: outcome.event_id.to_string(),
        delivered: outcome.delivered,
        response_code: outcome.response_code,
        response_body: outcome.response_body,
        duration_ms: outcome.duration_ms,
        error: outcome.error,
    };
    let transaction = app.database().begin().await?;
    request.idempotency.commit(&app, transaction, Answer::ok(&answer)?).await
}
