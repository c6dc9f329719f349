//! The outermost layers of a listener: the request's id, its span and its line in the log, its time limit, and the problem
//! document of every failure.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::{ALLOW, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use payferry_runtime::request::{self, RequestSource};
use tokio::sync::Semaphore;
use tower::util::MapRequestLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestId, RequestId, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tracing::{Instrument, Level};
use ulid::Ulid;

use crate::error::{ApiError, Away, Listener};

/// The header with the request's id, in both directions.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Characters of an id that a caller chose.
const REQUEST_ID_CHARS_MAX: usize = 128;
/// Status of the timeout layer. No handler answers with it; `finish` turns it into [`ApiError::TimedOut`].
const TIMED_OUT: StatusCode = StatusCode::REQUEST_TIMEOUT;

/// The outermost layers of one listener.
#[derive(Clone)]
pub struct Edge {
    /// The listener.
    pub listener: Listener,
    /// Permits for concurrent requests.
    pub door: Arc<Semaphore>,
    /// Time limit of a request, including its body.
    pub request_timeout: Duration,
}

impl Edge {
    /// Adds the layers to every route of `router`, including the fallback.
    pub fn surround<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        let request_timeout = self.request_timeout;
        // The first is the outermost.
        router.layer((
            MapRequestLayer::new(drop_unfit_id),
            SetRequestIdLayer::new(X_REQUEST_ID, GeneratedId),
            middleware::from_fn_with_state(self, answer),
            TimeoutLayer::with_status_code(TIMED_OUT, request_timeout),
            CatchPanicLayer::custom(panicked),
        ))
    }
}

/// Makes the id of a request that came without one.
#[derive(Clone)]
struct GeneratedId;

impl MakeRequestId for GeneratedId {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        HeaderValue::try_from(format!("req_{}", Ulid::generate())).ok().map(RequestId::new)
    }
}

/// Removes the caller's id unless it is valid in a header and in a log.
fn drop_unfit_id(mut request: Request) -> Request {
    let is_fit = |id: &HeaderValue| {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
        !id.is_empty() && id.len() <= REQUEST_ID_CHARS_MAX && id.as_bytes().iter().all(allowed)
    };
    if request.headers().get(&X_REQUEST_ID).is_some_and(|id| !is_fit(id)) {
        request.headers_mut().remove(&X_REQUEST_ID);
    }
    request
}

/// The response to a request whose handler panicked.
#[allow(clippy::needless_pass_by_value, reason = "the layer passes it by value")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    ApiError::internal(format!("a handler panicked: {}", panic_text(&*panic))).into_response()
}

/// Runs one request if a permit is free, then writes its problem document, its headers and its log line.
async fn answer(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let id = id.unwrap_or_default().to_owned();
    let method = request.method().clone();
    let started = Instant::now();
    // Paths may hold a magic link's token: only the template is logged.
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        http.method = %method,
        http.route = %route,
        psp.id = tracing::field::Empty,
        key.id = tracing::field::Empty,
    );
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    let source = RequestSource { id: id.clone(), address: peer };
    let answered = async {
        // At the limit the request is rejected immediately: a queue would only grow.
        let response = match edge.door.try_acquire() {
            Ok(_room) => next.run(request).await,
            Err(_) => ApiError::Unavailable(Away::Capacity, "too many concurrent requests".into()).into_response(),
        };
        let (response, failure) = finish(response, &id, edge.listener);
        note(&response, failure.as_ref(), &method, &route, started.elapsed());
        response
    };
    request::answering(source, answered).instrument(span).await
}

/// Writes the problem document of a failure, and the headers of every response.
fn finish(mut response: Response, id: &str, listener: Listener) -> (Response, Option<ApiError>) {
    if response.status() == StatusCode::METHOD_NOT_ALLOWED && response.extensions().get::<ApiError>().is_none() {
        let allow = response.headers().get(ALLOW).cloned();
        response = ApiError::MethodNotAllowed(allow).into_response();
    }
    if response.status() == TIMED_OUT && response.extensions().get::<ApiError>().is_none() {
        response = ApiError::TimedOut.into_response();
    }
    let failure = response.extensions_mut().remove::<ApiError>();
    if let Some(error) = &failure {
        response = error.response(id, listener);
    }
    let headers = response.headers_mut();
    // The id was checked, so it is a header's value.
    headers.extend(HeaderValue::from_str(id).map(|id| (X_REQUEST_ID, id)));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    (response, failure)
}

/// Logs one line for each request, whatever its outcome.
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
    crate::metrics::request(method, route, status, took);
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
