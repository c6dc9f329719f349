//! `ANY /sandbox/inbox/{name}`: receives webhooks; `GET` lists them, `DELETE` removes them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use payferry_entities::{events, webhook_endpoints};
use payferry_httpkit::{Answer, ApiError, Caller, Fault, Path, QueryFields, Read};
use payferry_webhook::endpoints;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde_json::{Value, json};

use super::Body;
use crate::env::SandboxEnv;
use crate::inbox::{HEADER_ID, InboxEntry, text, verify};
use crate::routes::SandboxHost;

const NAME_CHARS_MAX: usize = 64;
/// Maximum delay of an answer, below the timeout of every request.
const DELAY_MS_MAX: u64 = 25_000;
/// Maximum number of entries per list.
const LIST_MAX: u64 = 1_000;
const LIST_DEFAULT: u64 = 100;

/// Requested failure behaviour of an inbox, from the query of the webhook's URL.
struct FailureBehaviour {
    status: StatusCode,
    delay: Duration,
    redirect: Option<HeaderValue>,
    /// Number of requests that get this behaviour; all requests by default.
    times: u64,
}

/// Receives a webhook and answers as requested by the query.
pub(super) async fn receive<H: SandboxHost>(
    State(app): State<H>,
    Extension(env): Extension<Arc<SandboxEnv>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let name = checked(name)?;
    let manners = manners(&uri)?;
    let webhook_id = text(&headers, HEADER_ID);
    let now = app.clock().real_now();
    // A webhook is verified only by a secret of a PSP whose endpoint uses this inbox.
    let mut verdict = verify(&headers, &body, &[], now);
    let mut owner = None;
    for (psp_id, secrets) in secrets(&app, &name).await? {
        verdict = verify(&headers, &body, &secrets, now);
        if verdict.is_ok() {
            owner = Some(psp_id);
            break;
        }
    }
    // Signed with another secret, it may still be an event of a PSP that changed its endpoint meanwhile.
    if let Some(id) = webhook_id.filter(|_| owner.is_none()) {
        owner = owner_of(&app, id).await?;
    }
    let bytes = body.len();
    let body =
        serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    let answered = |number| if number <= manners.times { manners.status } else { StatusCode::OK };
    let kept = env.inboxes().keep(&name, |number| InboxEntry {
        number,
        received_at: now.to_string(),
        verified: verdict.is_ok(),
        reason: verdict.err(),
        webhook_id: webhook_id.map(str::to_owned),
        answered: answered(number).as_u16(),
        body,
        bytes,
        owner,
    });
    let number =
        kept.map_err(|_| ApiError::Conflict("too_many_inboxes", "There are too many inboxes.".into(), vec![]))?;
    let status = answered(number);
    if number <= manners.times {
        tokio::time::sleep(manners.delay).await;
        if let Some(location) = manners.redirect {
            return Ok((status, [(LOCATION, location)]).into_response());
        }
    }
    Ok((status, if status.is_success() { "received" } else { "this answer was requested by the URL" }).into_response())
}

/// Lists the PSP's own webhooks, oldest first, without those of other or unknown owners.
pub(super) async fn list(
    Extension(env): Extension<Arc<SandboxEnv>>,
    caller: Caller<Read>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Answer, ApiError> {
    let name = checked(name)?;
    let mut query = QueryFields::of(&uri);
    let after = query.optional("after", |text| number(text, u64::MAX)).unwrap_or(0);
    let limit = query.optional("limit", |text| number(text, LIST_MAX)).unwrap_or(LIST_DEFAULT);
    query.finish()?;
    let (psp_id, limit) = (caller.psp_id.to_string(), usize::try_from(limit).unwrap_or(usize::MAX));
    let (received, webhooks) = env.inboxes().list(&name, &psp_id, after, limit);
    let next = webhooks.last().map_or(after, |entry| entry.number);
    Answer::ok(&json!({"message": "Inbox", "received": received, "next": next, "webhooks": webhooks}))
}

/// Removes the inbox's webhooks, except those of other PSPs.
pub(super) async fn clear(
    Extension(env): Extension<Arc<SandboxEnv>>,
    caller: Caller<Read>,
    Path(name): Path<String>,
) -> Result<Answer, ApiError> {
    env.inboxes().clear(&checked(name)?, &caller.psp_id.to_string());
    Answer::ok(&json!({"message": "Inbox cleared"}))
}

fn checked(name: String) -> Result<String, ApiError> {
    let fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let fits = !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(fit);
    if fits { Ok(name) } else { Err(ApiError::NotFound("inbox")) }
}

fn manners(uri: &Uri) -> Result<FailureBehaviour, ApiError> {
    let mut query = QueryFields::of(uri);
    let redirect = query.optional("redirect", |text| {
        HeaderValue::from_str(text).map_err(|_| Fault::new("invalid_url", "must be a URL"))
    });
    let status = query.optional("status", |text| {
        let status = text.parse().ok().filter(|code| (200..=599).contains(code));
        let status = status.and_then(|code| StatusCode::from_u16(code).ok());
        status.ok_or_else(|| Fault::new("out_of_range", "must be an HTTP status between 200 and 599"))
    });
    let delay_ms = query.optional("delay_ms", |text| number(text, DELAY_MS_MAX)).unwrap_or(0);
    let times = query.optional("times", |text| number(text, u64::MAX)).unwrap_or(u64::MAX);
    query.finish()?;
    let polite = if redirect.is_some() { StatusCode::FOUND } else { StatusCode::OK };
    let status = status.unwrap_or(polite);
    Ok(FailureBehaviour { status, delay: Duration::from_millis(delay_ms), redirect, times })
}

fn number(text: &str, max: u64) -> Result<u64, Fault> {
    let out = || Fault::new("out_of_range", format!("must be a whole number up to {max}"));
    text.parse().ok().filter(|number| *number <= max).ok_or_else(out)
}

/// Returns the PSP of an event, if the event exists.
async fn owner_of(app: &impl SandboxHost, event_id: &str) -> Result<Option<String>, ApiError> {
    let event =
        events::Entity::find().filter(events::Column::Id.eq(event_id)).select_only().column(events::Column::PspId);
    Ok(event.into_tuple::<String>().one(app.database().reader()).await?)
}

/// Returns the webhook secrets of each PSP whose endpoint uses this inbox.
async fn secrets(app: &impl SandboxHost, name: &str) -> Result<Vec<(String, Vec<String>)>, ApiError> {
    let path = format!("/sandbox/inbox/{name}");
    let rows = webhook_endpoints::Entity::find()
        .filter(webhook_endpoints::Column::Url.contains(&path))
        .all(app.database().reader())
        .await?;
    let now = app.clock().real_now();
    let points_here = |row: &webhook_endpoints::Model| url::Url::parse(&row.url).is_ok_and(|url| url.path() == path);
    let of = |row: webhook_endpoints::Model| {
        let opened = endpoints::secrets(app.sealer(), &row, now).map_err(ApiError::internal)?;
        Ok((row.psp_id, opened.iter().map(payferry_webhook::Secret::reveal).collect()))
    };
    rows.into_iter().filter(points_here).map(of).collect()
}
