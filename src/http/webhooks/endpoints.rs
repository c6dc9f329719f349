//! Endpoints of an account: `/api/v1/webhook-endpoints`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::payment::EventPattern;
use payferry_domain::webhook::RetrySchedule;
use payferry_domain::{EndpointId, Timestamp};
use payferry_entities::EndpointStatus;
use payferry_entities::webhook_endpoints::{self, Column};
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::extract::{Field as _, RequestBody as _};
use payferry_httpkit::lists::{DateTime, Found, Page, PageParams, read_page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Path, Problem, Read, Rule, Submission, Webhooks, request, rule};
use payferry_webhook::endpoints::{self, Change, ENDPOINTS_MAX};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::endpoint::{
    Patterns, RotateAnswer, TestAnswer, WEBHOOK_URL, checked_url, detail, note, patterns_shown, rotate_secret,
    send_test,
};
use crate::http::state::{AppState, ChangeOf, ListOf, OneOf};

record! {
    fn of(endpoint: webhook_endpoints::Model, now: Timestamp) -> Result<Self, ApiError> {
        let events = patterns_shown(&endpoint)?;
        let previous_until = endpoint.previous_secret_expires_at.filter(|until| *until > now.as_millis());
    }

    /// An endpoint, which receives events.
    #[derive(Debug)]
    pub struct EndpointRecord {
        #[schema(example = "we_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = endpoint.id,
        #[schema(example = "https://psp.example/webhooks")]
        url: String = endpoint.url,
        description: Option<String> = endpoint.description,
        /// Patterns of the events that it receives.
        events: Vec<String> = events,
        /// default (3 retries within 6 minutes) or extended (10 retries within 3 days).
        schedule: String = endpoint.schedule,
        /// enabled or disabled. Deliveries to a disabled endpoint wait until it is enabled.
        status: &'static str = endpoint.status.as_str(),
        /// Time until which deliveries are also signed with the secret before the last rotation.
        previous_secret_expires_at: Option<DateTime> = previous_until.map(DateTime),
        created_at: DateTime = DateTime(endpoint.created_at),
        updated_at: DateTime = DateTime(endpoint.updated_at),
    }
}

/// A status that a request may set.
const STATUS: Rule<EndpointStatus> = Rule {
    read: |value| word(&SETTABLE.map(|status| (status.as_str(), status)), value),
    schema: || rule::one_of(SETTABLE.map(EndpointStatus::as_str)),
};
const SETTABLE: [EndpointStatus; 2] = [EndpointStatus::Enabled, EndpointStatus::Disabled];

request! {
    /// Settings of an endpoint.
    pub struct EndpointFields {
        /// A note of your own.
        description: Option<String> = optional(rule::text()).example("accounting"),
        /// Patterns such as `payment.*` or `payin.settled`. Initially, all events are sent except
        /// `customer.*`, which must be named.
        events: Option<Vec<EventPattern>> = Patterns,
        /// default: 3 retries within 6 minutes. extended: 10 retries within 3 days.
        schedule: Option<RetrySchedule> = optional(rule::name()),
        /// Deliveries to a disabled endpoint wait until it is enabled.
        status: Option<EndpointStatus> = optional(STATUS),
    }
}

request! {
    /// An endpoint to create.
    pub struct CreateEndpointRequest {
        ..fields: EndpointFields,
        /// HTTPS, publicly reachable. (The sandbox also accepts plain HTTP and loopback addresses.)
        url: String = required(WEBHOOK_URL).example("https://psp.example/webhooks"),
    }
}

request! {
    /// A change of an endpoint. Absent and null fields stay unchanged.
    pub struct ChangeEndpointRequest {
        ..fields: EndpointFields,
        /// HTTPS, publicly reachable. (The sandbox also accepts plain HTTP and loopback addresses.)
        url: Option<String> = optional(WEBHOOK_URL).example("https://psp.example/webhooks"),
    }
}

impl EndpointFields {
    fn change(self, url: Option<String>) -> Change {
        let Self { description, events, schedule, status } = self;
        Change { url, description, events, schedule, status }
    }
}

/// A created endpoint.
#[derive(Serialize, ToSchema)]
pub struct CreatedEndpoint {
    #[serde(flatten)]
    endpoint: EndpointRecord,
    /// The secret that signs deliveries; shown only once.
    #[schema(example = "whsec_...")]
    signing_secret: String,
}

/// A page of endpoints.
#[derive(Serialize, ToSchema)]
pub struct EndpointList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    webhook_endpoints: Vec<EndpointRecord>,
}

fn id_of(text: &str) -> Result<EndpointId, ApiError> {
    text.parse().map_err(|_| missing())
}

fn missing() -> ApiError {
    ApiError::NotFound("endpoint")
}

/// Create an endpoint
///
/// Each endpoint receives the events that its patterns select, with its own retries. The first one of an account is also
/// that of `set_webhook`. An account has at most 16 endpoints.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints", tag = "Webhooks", operation_id = "createWebhookEndpoint",
    request_body = CreateEndpointRequest,
    responses(
        (status = 201, description = "The endpoint with its secret.", body = CreatedEndpoint),
        (status = 409, description = "`too_many_endpoints`.", body = Problem),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn create(State(app): State<AppState>, request: Submission<Webhooks>) -> Result<Response, ApiError> {
    let policy = app.system.webhooks().url_policy();
    let change = request.read(|body| {
        let asked = CreateEndpointRequest::read(body);
        let url = checked_url(body, "url", policy);
        Some(asked?.fields.change(Some(url?)))
    })?;
    let transaction = app.database().begin().await?;
    let (now, psp_id) = (app.clock().real_now(), request.psp_id);
    let created = endpoints::create(&transaction, app.sealer(), psp_id, change, now).await?;
    let (endpoint, secret) = created.ok_or_else(|| {
        ApiError::conflict(
            "too_many_endpoints",
            format!("An account has at most {ENDPOINTS_MAX} endpoints; delete one."),
        )
    })?;
    note(&transaction, (psp_id, request.key_id), "webhook.endpoint_created", detail(&endpoint)?, now).await?;
    let endpoint = EndpointRecord::of(endpoint, now)?;
    let answer = Answer::created(&CreatedEndpoint { endpoint, signing_secret: secret.reveal() })?;
    let answered = request.idempotency.commit(transaction, answer).await?;
    app.system.psps().forget(psp_id).await;
    app.system.webhooks().refresh(psp_id);
    Ok(answered)
}

/// List the endpoints
///
/// Newest first.
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints", tag = "Webhooks", operation_id = "listWebhookEndpoints", params(PageParams),
    responses((status = 200, description = "A page of endpoints.", body = EndpointList), UnreadableQuery),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, query) = parts;
    let page = Page::read("webhook_endpoints", query)?;
    let now = app.clock().real_now();
    let key = |row: &webhook_endpoints::Model| (row.created_at, row.id.clone());
    let order = [Column::CreatedAt, Column::Id];
    let own = endpoints::own(caller.psp_id);
    let Found { total, rows, next_cursor } = read_page(app.database(), own, order, &page, key).await?;
    let webhook_endpoints = rows.into_iter().map(|row| EndpointRecord::of(row, now)).collect::<Result<_, _>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&EndpointList { message: "Webhook endpoints", total, limit, offset, next_cursor, webhook_endpoints })
}

/// Read an endpoint
///
/// Returns the record itself. Its secret is not shown again.
#[utoipa::path(
    get, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "Webhooks", operation_id = "getWebhookEndpoint",
    params(("endpoint_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "The endpoint.", body = EndpointRecord)),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    let endpoint = endpoints::load(app.database().reader(), caller.psp_id, id_of(&id)?).await?;
    Answer::ok(&EndpointRecord::of(endpoint.ok_or_else(missing)?, app.clock().real_now())?)
}

/// Change an endpoint
///
/// A change of the schedule applies to waiting deliveries, too; a change of the patterns to later events.
#[utoipa::path(
    patch, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "Webhooks", operation_id = "changeWebhookEndpoint",
    request_body = ChangeEndpointRequest,
    params(("endpoint_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The endpoint.", body = EndpointRecord),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn change(parts: ChangeOf<Webhooks>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    let (id, psp_id, policy) = (id_of(&id)?, request.psp_id, app.system.webhooks().url_policy());
    endpoints::load(app.database().reader(), psp_id, id).await?.ok_or_else(missing)?;
    let change = request.read(|body| {
        let asked = ChangeEndpointRequest::read(body);
        let url = checked_url(body, "url", policy);
        Some(asked?.fields.change(url))
    })?;
    let transaction = app.database().begin().await?;
    let now = app.clock().real_now();
    let endpoint = endpoints::update(&transaction, psp_id, id, change, now).await?.ok_or_else(missing)?;
    note(&transaction, (psp_id, request.key_id), "webhook.endpoint_changed", detail(&endpoint)?, now).await?;
    let answer = Answer::ok(&EndpointRecord::of(endpoint, now)?)?;
    let answered = request.idempotency.commit(transaction, answer).await?;
    app.system.psps().forget(psp_id).await;
    app.system.webhooks().refresh(psp_id);
    Ok(answered)
}

/// The deleted endpoint.
#[derive(Serialize, ToSchema)]
pub struct DeletedEndpoint {
    message: &'static str,
    id: String,
}

/// Delete an endpoint
///
/// Its open deliveries are cancelled. The events stay in the feed.
#[utoipa::path(
    delete, path = "/api/v1/webhook-endpoints/{endpoint_id}", tag = "Webhooks", operation_id = "deleteWebhookEndpoint",
    params(("endpoint_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "Deleted.", body = DeletedEndpoint)),
)]
pub async fn delete(parts: OneOf<Webhooks>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    let (now, psp_id) = (app.clock().real_now(), caller.psp_id);
    let transaction = app.database().begin().await?;
    let endpoint = endpoints::delete(&transaction, psp_id, id_of(&id)?, now).await?.ok_or_else(missing)?;
    let detail = json!({ "endpoint": endpoint.id });
    note(&transaction, (psp_id, caller.key_id), "webhook.endpoint_deleted", detail, now).await?;
    transaction.commit().await?;
    app.system.psps().forget(psp_id).await;
    app.system.webhooks().refresh(psp_id);
    Answer::ok(&DeletedEndpoint { message: "The endpoint is deleted.", id: endpoint.id })
}

/// Replace the secret of an endpoint
///
/// For 24 hours, deliveries are signed with both the old and the new secret.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/rotate", tag = "Webhooks",
    operation_id = "rotateWebhookEndpointSecret",
    params(("endpoint_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "Replaced.", body = RotateAnswer)),
)]
pub async fn rotate(parts: ChangeOf<Webhooks>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    rotate_secret(&app, &request, id_of(&id)?, missing).await
}

/// Send a test event to an endpoint
///
/// Sends one signed `webhook.test` with `payment_id: "pay_test"` immediately, without retries, and returns the outcome.
#[utoipa::path(
    post, path = "/api/v1/webhook-endpoints/{endpoint_id}/test", tag = "Webhooks", operation_id = "testWebhookEndpoint",
    params(("endpoint_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "It was sent, whatever the endpoint answered.", body = TestAnswer)),
)]
pub async fn test(parts: ChangeOf<Webhooks>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    send_test(&app, &request, id_of(&id)?, missing).await
}
