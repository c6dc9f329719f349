//! `PATCH /api/v1/set_webhook`.

use axum::extract::State;
use axum::response::Response;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Webhooks;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Fault, Submission, read};
use payferry_webhook::{UrlPolicy, endpoints, url_guard};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{patterns, patterns_shown};
use crate::http::state::AppState;

/// Destination of events.
#[derive(ToSchema)]
pub struct SetWebhookRequest {
    /// HTTPS, publicly reachable. (The sandbox also accepts plain HTTP and loopback addresses.)
    #[schema(format = "uri", max_length = 2_048, example = "https://psp.example/webhooks")]
    pub webhook_url: String,
    /// Patterns such as `payment.*` or `payin.settled`. If absent, they stay unchanged; initially all events are sent.
    #[schema(example = json!(["payment.*", "refund.sent"]))]
    pub events: Option<Vec<String>>,
}

/// The current destination of events.
#[derive(Serialize, ToSchema)]
pub struct SetWebhookAnswer {
    message: &'static str,
    webhook_url: String,
    events: Vec<String>,
    /// The secret that signs deliveries; shown only when it is created, else null.
    #[schema(example = "whsec_...")]
    signing_secret: Option<String>,
}

/// Set where events go
///
/// The first request creates the signing secret and shows it.
#[utoipa::path(
    patch, path = "/api/v1/set_webhook", tag = "Webhooks", operation_id = "setWebhook", request_body = SetWebhookRequest,
    responses(
        (status = 200, description = "Set.", body = SetWebhookAnswer),
        (status = 422, description = "The URL or a pattern is refused.", body = Problem),
    ),
)]
pub async fn set(State(app): State<AppState>, request: Submission<Webhooks>) -> Result<Response, ApiError> {
    let policy = app.system.webhooks().url_policy();
    let (url, patterns) = request.read(|body| {
        let url = body.required("webhook_url", |value| webhook_url(policy, value));
        let patterns = body.optional("events", patterns);
        Some((url?, patterns))
    })?;
    let transaction = app.database().begin().await?;
    let (now, psp_id) = (app.clock().real_now(), request.psp_id);
    let (endpoint, secret) = endpoints::set(&transaction, app.sealer(), psp_id, &url, patterns.as_deref(), now).await?;
    let answer = SetWebhookAnswer {
        message: "The webhook is set.",
        events: patterns_shown(&endpoint)?,
        webhook_url: endpoint.url,
        signing_secret: secret.map(|secret| secret.reveal()),
    };
    let answered = request.idempotency.commit(&app, transaction, Answer::ok(&answer)?).await?;
    app.system.psps().forget(psp_id).await;
    app.system.webhooks().refresh(psp_id);
    Ok(answered)
}

fn webhook_url(policy: UrlPolicy, value: &Value) -> Result<String, Fault> {
    let text = read::string(value)?;
    let url = url_guard::check(policy, text).map_err(|error| Fault::new(error.code(), error.to_string()))?;
    Ok(url.to_string())
}
