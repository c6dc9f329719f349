//! `GET /api/v1/webhook`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_domain::Timestamp;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::ApiError;
use payferry_webhook::endpoints;
use serde::Serialize;
use utoipa::ToSchema;

use super::patterns_shown;
use crate::http::state::AppState;

/// Destination of events. Secrets are not shown again.
#[derive(Serialize, ToSchema)]
pub struct WebhookAnswer {
    message: &'static str,
    /// Null if none was ever set: events are queued until one is.
    webhook_url: Option<String>,
    events: Vec<String>,
    /// Time until which deliveries are also signed with the secret before the last rotation.
    #[schema(format = "date-time")]
    previous_secret_expires_at: Option<String>,
    #[schema(format = "date-time")]
    created_at: Option<String>,
    #[schema(format = "date-time")]
    updated_at: Option<String>,
}

/// Read where events go
#[utoipa::path(
    get, path = "/api/v1/webhook", tag = "Webhooks", operation_id = "getWebhook",
    responses((status = 200, description = "The configuration.", body = WebhookAnswer)),
)]
pub async fn show(State(app): State<AppState>, caller: Caller<Read>) -> Result<Response, ApiError> {
    let endpoint = endpoints::load(app.database().reader(), caller.psp_id).await?;
    let now = app.clock().real_now::<Timestamp>().as_millis();
    let text = |at: i64| Timestamp(at).to_string();
    let answer = match endpoint {
        None => WebhookAnswer {
            message: "No webhook URL is set.",
            webhook_url: None,
            events: vec!["*".to_owned()],
            previous_secret_expires_at: None,
            created_at: None,
            updated_at: None,
        },
        Some(endpoint) => WebhookAnswer {
            message: "Webhook",
            events: patterns_shown(&endpoint)?,
            webhook_url: Some(endpoint.url),
            previous_secret_expires_at: endpoint.previous_secret_expires_at.filter(|until| *until > now).map(text),
            created_at: Some(text(endpoint.created_at)),
            updated_at: Some(text(endpoint.updated_at)),
        },
    };
    Ok(Answer::ok(&answer)?.into_response())
}
