//! The outermost layer around every request: request id, span, log line, time limit, and the problem document of every
//! failure.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ALLOW, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use tokio::sync::Semaphore;
use tracing::{Instrument, Level};
use ulid::Ulid;

use super::error::{ApiError, Away, Listener};
use super::state::AppState;

/// The header with the request's id, in both directions.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that a caller may choose, in characters.
const REQUEST_ID_CHARS_MAX: usize = 128;

/// The id of the request, stored in its extensions.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// The outermost layer.
pub(super) async fn surround(State(app): State<AppState>, request: Request, next: Next) -> Response {
    within(Listener::Public, &app.door, app.config.limits.request_timeout, request, next).await
}

/// The same layer for a listener with its own limit of concurrent requests.
pub(crate) async fn within(
    listener: Listener,
    door: &Semaphore,
    request_timeout: Duration,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request_id(request.headers());
    let method = request.method().clone();
    let started = Instant::now();
    // Paths may contain the token of a magic link, so the log has only the route's template.
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        http.method = %method,
        http.route = %route,
        psp.id = tracing::field::Empty,
        key.id = tracing::field::Empty,
    );
    request.extensions_mut().insert(RequestId(id.clone()));
    let answered = async {
        // Refuse at once when there is no capacity. Queued requests would add to the overload.
        let Ok(_room) = door.try_acquire() else {
            let refused = ApiError::Unavailable(Away::Capacity, "too many requests".into()).into_response();
            let (response, failure) = finish(refused, &id, listener);
            note(&response, failure.as_ref(), &method, &route, started.elapsed());
            return response;
        };
        let answer = std::panic::AssertUnwindSafe(next.run(request)).catch_unwind();
        let response = match tokio::time::timeout(request_timeout, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(panic)) => ApiError::internal(format!("a handler panicked: {}", words_of(&*panic))).into_response(),
            Err(_) => ApiError::TimedOut.into_response(),
        };
        let (response, failure) = finish(response, &id, listener);
        note(&response, failure.as_ref(), &method, &route, started.elapsed());
        response
    };
    answered.instrument(span).await
}

/// Returns the caller's request id if it is valid for a header and a log, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
    let sane = |id: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        !id.is_empty() && id.len() <= REQUEST_ID_CHARS_MAX && id.bytes().all(allowed)
    };
    given.filter(sane).map_or_else(|| format!("req_{}", Ulid::generate()), str::to_owned)
}

/// Writes the problem document of a failure and the headers of every answer.
fn finish(mut response: Response, id: &str, listener: Listener) -> (Response, Option<ApiError>) {
    if response.status() == StatusCode::METHOD_NOT_ALLOWED && response.extensions().get::<ApiError>().is_none() {
        let allow = response.headers().get(ALLOW).cloned();
        response = ApiError::MethodNotAllowed(allow).into_response();
    }
    let failure = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &failure {
        response = error.response(id, listener);
    }
    let headers = response.headers_mut();
    // The id was validated, so it is a valid header value.
    headers.extend(HeaderValue::from_str(id).map(|id| (X_REQUEST_ID, id)));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    (response, failure)
}

/// Writes one log line for each request, whatever its outcome.
fn note(response: &Response, failure: Option<&ApiError>, method: &Method, route: &str, took: Duration) {
    let status = response.status().as_u16();
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let failed = failure.and_then(ApiError::for_log);
    match failed {
        Some((Level::ERROR, error)) => tracing::error!(
            http.status = status,
            took_ms = millis,
            error,
            "{method} {route} failed with {status} in {millis} ms: {error}"
        ),
        Some((_, error)) => tracing::warn!(
            http.status = status,
            took_ms = millis,
            error,
            "{method} {route} answered {status} in {millis} ms: {error}"
        ),
        None => {
            tracing::info!(http.status = status, took_ms = millis, "{method} {route} answered {status} in {millis} ms");
        }
    }
    super::metrics::request(method, route, status, took);
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
