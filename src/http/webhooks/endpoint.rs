//! The first endpoint of an account: `PATCH /api/v1/set_webhook`, `GET /api/v1/webhook`, `POST /api/v1/webhook/rotate` and
//! `POST /api/v1/webhook/test`. All endpoints are in `endpoints`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::payment::EventPattern;
use payferry_domain::{EndpointId, KeyId, PspId, Timestamp};
use payferry_entities::{Transaction, webhook_endpoints};
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::{Field, RequestBody as _};
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::{
    Answer, ApiError, Caller, Fault, Fields, Problem, Read, Rule, Submission, Webhooks, read, request, rule,
};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::psps::patterns_of;
use payferry_webhook::url_guard::{self, URL_CHARS_MAX};
use payferry_webhook::{Secret, TestError, TestOutcome, UrlPolicy, endpoints};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema, SchemaFormat};

use crate::http::state::AppState;

/// Maximum patterns of one filter; there are two dozen events.
const PATTERNS_MAX: usize = 50;

/// Events that an endpoint receives: a list of patterns that may be missing or null.
pub(super) struct Patterns;

/// A URL. Which hosts and schemes are allowed depends on the environment (see [`url_guard`]).
pub(super) const WEBHOOK_URL: Rule<String> = Rule {
    read: |value| read::string(value).map(str::to_owned),
    schema: || {
        let format = SchemaFormat::Custom("uri".to_owned());
        rule::string().format(Some(format)).max_length(Some(URL_CHARS_MAX)).pattern(Some("^[Hh][Tt][Tt][Pp][Ss]?://"))
    },
};

request! {
    /// Destination of events.
    pub struct SetWebhookRequest {
        /// HTTPS, publicly reachable. (The sandbox also accepts plain HTTP and loopback addresses.)
        webhook_url: String = required(WEBHOOK_URL).example("https://psp.example/webhooks"),
        /// Patterns such as `payment.*` or `payin.settled`. If absent, they stay unchanged; initially all events are sent
        /// except `customer.*`, which must be named.
        events: Option<Vec<EventPattern>> = Patterns,
    }
}

record! {
    fn of(endpoint: webhook_endpoints::Model, secret: Option<&Secret>) -> Result<Self, ApiError> {
        let events = patterns_shown(&endpoint)?;
    }

    /// The current destination of events.
    pub struct SetWebhookAnswer {
        message: &'static str = "The webhook is set.",
        /// The id of the endpoint.
        id: String = endpoint.id,
        webhook_url: String = endpoint.url,
        events: Vec<String> = events,
        /// The secret that signs deliveries; shown only when it is created, else null.
        #[schema(example = "whsec_...")]
        signing_secret: Option<String> = secret.map(Secret::reveal),
    }
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
        let asked = SetWebhookRequest::read(body);
        let url = checked_url(body, "webhook_url", policy);
        Some((url?, asked?.events))
    })?;
    let transaction = app.database().begin().await?;
    let (now, psp_id) = (app.clock().real_now(), request.psp_id);
    let (endpoint, secret) = endpoints::set(&transaction, app.sealer(), psp_id, &url, patterns.as_deref(), now).await?;
    note(&transaction, (psp_id, request.key_id), "webhook.set", detail(&endpoint)?, now).await?;
    let answer = SetWebhookAnswer::of(endpoint, secret.as_ref())?;
    let answered = request.idempotency.commit(transaction, Answer::ok(&answer)?).await?;
    app.system.psps().forget(psp_id).await;
    app.system.webhooks().refresh(psp_id);
    Ok(answered)
}

/// Writes an audit entry of a change of an endpoint.
pub(super) async fn note(
    transaction: &Transaction,
    (psp_id, key_id): (PspId, KeyId),
    action: &str,
    detail: Value,
    now: Timestamp,
) -> Result<(), ApiError> {
    let entry = NewAuditEntry { action: action.to_owned(), psp_id: Some(psp_id), subject: psp_id.to_string(), detail };
    Ok(audit::append(transaction, &Actor::ApiKey(key_id), now, vec![entry]).await?)
}

/// The detail of an endpoint in the audit log. A query of its URL may contain a secret.
pub(super) fn detail(endpoint: &webhook_endpoints::Model) -> Result<Value, ApiError> {
    let host = url::Url::parse(&endpoint.url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
    Ok(json!({ "endpoint": endpoint.id, "host": host, "events": patterns_shown(endpoint)? }))
}

/// Checks the URL in this field, if it is a text. `None` if it is absent or wrong.
pub(super) fn checked_url(body: &Fields<'_>, field: &str, policy: UrlPolicy) -> Option<String> {
    match url_guard::check(policy, body.valid(field, read::string)?) {
        Ok(url) => Some(url.into()),
        Err(error) => {
            body.fault(field, Fault::new(error.code(), error.to_string()));
            None
        }
    }
}

/// Destination of events. Secrets are not shown again.
#[derive(Default, Serialize, ToSchema)]
pub struct WebhookAnswer {
    message: &'static str,
    /// The id of the endpoint; null if no URL is set.
    id: Option<String>,
    /// Null if none is set: without an endpoint, events are queued until one is.
    webhook_url: Option<String>,
    events: Vec<String>,
    /// Time until which deliveries are also signed with the secret before the last rotation.
    previous_secret_expires_at: Option<DateTime>,
    created_at: Option<DateTime>,
    updated_at: Option<DateTime>,
}

/// Read where events go
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/api/v1/webhook", tag = "Webhooks", operation_id = "getWebhook",
    responses((status = 200, description = "The configuration.", body = WebhookAnswer)),
)]
pub async fn show(State(app): State<AppState>, caller: Caller<Read>) -> Result<Answer, ApiError> {
    let first = EndpointId::first_of(caller.psp_id);
    let endpoint = endpoints::load(app.database().reader(), caller.psp_id, first).await?;
    let now = app.clock().real_now::<Timestamp>().as_millis();
    let answer = match endpoint {
        None => WebhookAnswer {
            message: "No webhook URL is set.",
            events: vec!["*".to_owned()],
            ..WebhookAnswer::default()
        },
        Some(endpoint) => WebhookAnswer {
            message: "Webhook",
            events: patterns_shown(&endpoint)?,
            id: Some(endpoint.id),
            webhook_url: Some(endpoint.url),
            previous_secret_expires_at: endpoint.previous_secret_expires_at.filter(|until| *until > now).map(DateTime),
            created_at: Some(DateTime(endpoint.created_at)),
            updated_at: Some(DateTime(endpoint.updated_at)),
        },
    };
    Answer::ok(&answer)
}

record! {
    fn of(endpoint: webhook_endpoints::Model, secret: &Secret) {}

    /// The new secret.
    pub struct RotateAnswer {
        message: &'static str = "The signing secret is replaced.",
        webhook_url: String = endpoint.url,
        /// Shown only once.
        #[schema(example = "whsec_...")]
        signing_secret: String = secret.reveal(),
        /// Time until which deliveries are also signed with the old secret.
        previous_secret_expires_at: Option<DateTime> = endpoint.previous_secret_expires_at.map(DateTime),
    }
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
    let first = EndpointId::first_of(request.psp_id);
    rotate_secret(&app, &request, first, not_set).await
}

/// Replaces the secret of an endpoint.
pub(super) async fn rotate_secret(
    app: &AppState,
    request: &Submission<Webhooks>,
    id: EndpointId,
    missing: impl FnOnce() -> ApiError,
) -> Result<Response, ApiError> {
    let transaction = app.database().begin().await?;
    let now = app.clock().real_now();
    let rotated = endpoints::rotate(&transaction, app.sealer(), request.psp_id, id, now).await?;
    let (endpoint, secret) = rotated.ok_or_else(missing)?;
    let detail = json!({ "endpoint": endpoint.id });
    note(&transaction, (request.psp_id, request.key_id), "webhook.secret_rotated", detail, now).await?;
    let answer = RotateAnswer::of(endpoint, &secret);
    let answered = request.idempotency.commit(transaction, Answer::ok(&answer)?).await?;
    app.system.webhooks().refresh(request.psp_id);
    Ok(answered)
}

record! {
    fn of(outcome: TestOutcome) {}

    /// Result of the test.
    pub struct TestAnswer {
        message: &'static str =
            if outcome.delivered { "The endpoint acknowledged it." } else { "The endpoint did not acknowledge it." },
        webhook_url: String = outcome.url,
        /// The `webhook-id` of the request.
        event_id: String = outcome.event_id.to_string(),
        /// True if the endpoint answered 2xx in time.
        delivered: bool = outcome.delivered,
        response_code: Option<u16> = outcome.response_code,
        /// First 1 KiB of the answer.
        response_body: Option<String> = outcome.response_body,
        duration_ms: u64 = outcome.duration_ms,
        /// Error of the request, if it got no answer.
        error: Option<String> = outcome.error,
    }
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
    send_test(&app, &request, EndpointId::first_of(request.psp_id), not_set).await
}

/// Sends a test event to an endpoint.
pub(super) async fn send_test(
    app: &AppState,
    request: &Submission<Webhooks>,
    id: EndpointId,
    missing: impl FnOnce() -> ApiError,
) -> Result<Response, ApiError> {
    let outcome = app.system.webhooks().test(request.psp_id, id).await.map_err(|error| match error {
        TestError::NoEndpoint => missing(),
        TestError::Database(error) => error.into(),
        TestError::Secret(error) => ApiError::internal(error),
    })?;
    let answer = TestAnswer::of(outcome);
    let transaction = app.database().begin().await?;
    request.idempotency.commit(transaction, Answer::ok(&answer)?).await
}

/// The patterns of an endpoint.
pub(super) fn patterns_shown(endpoint: &webhook_endpoints::Model) -> Result<Vec<String>, ApiError> {
    Ok(patterns_of(endpoint)?.iter().map(ToString::to_string).collect())
}

/// The error if there is no URL whose secret to rotate or which to test.
fn not_set() -> ApiError {
    ApiError::conflict("webhook_not_set", "No webhook URL is set; set one with PATCH /api/v1/set_webhook.")
}

impl Field for Patterns {
    type Value = Option<Vec<EventPattern>>;

    fn read(&self, name: &str, fields: &Fields<'_>) -> Option<Self::Value> {
        Some(fields.optional(name, patterns))
    }

    fn schema(&self) -> RefOr<Schema> {
        let list = ArrayBuilder::new().schema_type(SchemaType::from_iter([Type::Array, Type::Null]));
        let list = list.items(rule::one_of(EventPattern::every().map(|pattern| pattern.to_string())));
        let example = json!(["payment.*", "refund.sent"]);
        list.min_items(Some(1)).max_items(Some(PATTERNS_MAX)).examples([example]).build().into()
    }
}

/// Reads a list of event patterns.
fn patterns(value: &Value) -> Result<Vec<EventPattern>, Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of strings"))?;
    if list.is_empty() {
        return Err(Fault::new("empty", "must not be empty; [\"*\"] stands for all events except customer.*"));
    }
    if list.len() > PATTERNS_MAX {
        return Err(Fault::new("too_many", format!("may have at most {PATTERNS_MAX} items")));
    }
    let expected = "*, a family such as payment.*, the name of an event such as payin.settled";
    list.iter().map(|pattern| read::word(pattern, expected)).collect()
}
