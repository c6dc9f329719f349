//! `POST /api/v1/webhook/rotate`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::Timestamp;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Webhooks;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Submission;
use payferry_webhook::endpoints;
use serde::Serialize;
use utoipa::ToSchema;

use super::not_set;
use crate::http::state::AppState;

/// The new secret.
#[derive(Serialize, ToSchema)]
pub struct RotateAnswer {
    message: &'static str,
    webhook_url: String,
    /// Shown only once.
    #[schema(example = "whsec_...")]
    signing_secret: String,
    /// Time until which deliveries are also signed with the old secret.
    #[schema(format = "date-time")]
    previous_secret_expires_at: Option<String>,
}

/// Replace the signing secret
///
/// For 24 hours, deliveries are signed with both the old and the new secret.
#[utoipa::path(
    post, path = "/api/v1/webhook/rotate", tag = "Webhooks", operation_id = "rotateWebhookSecret",
    responses(
        (status = 200, description = "Replaced.", body = RotateAnswer),
        (status = 409, description = "`webhook_not_set`.", body = Problem),
    ),
)]
pub async fn rotate(State(app): State<AppState>, request: Submission<Webhooks>) -> Result<Response, ApiError> {
    let transaction = app.database().begin().await?;
    let rotated = endpoints::rotate(&transaction, app.sealer(), request.psp_id, app.clock().real_now()).await?;
    let (endpoint, secret) = rotated.ok_or_else(not_set)?;
    let answer = RotateAnswer {
        message: "The signing secret is replaced.",
        webhook_url: endpoint.url,
        signing_secret: secret.reveal(),
        previous_secret_expires_at: endpoint.previous_secret_expires_at.map(|at| Timestamp(at).to_string()),
    };
    let answered = request.idempotency.commit(&app, transaction, Answer::ok(&answer)?).await?;
    app.system.webhooks().refresh(request.psp_id);
    Ok(answered)
}
