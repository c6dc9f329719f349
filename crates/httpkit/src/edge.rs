//! The outermost layers of a listener: the request's id, its span and its line in the log, its limits, and the problem
//! document of every failure. [`crate::progress`] owns the limits.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use payferry_runtime::request::{self, RequestSource};
use payferry_runtime::trace::{Span, TRACEPARENT};
use tokio::sync::Semaphore;
use tower::ServiceExt;
use tower::util::MapRequestLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestId, RequestId, SetRequestIdLayer};
use tracing::{Instrument, Level};
use ulid::Ulid;

use crate::address::ClientAddress;
use crate::arriving::{AnsweringBody, ArrivingBody};
use crate::connections::{Answering, Connection};
use crate::error::{ApiError, Listener};
use crate::idempotency::IdempotencySlot;
use crate::limits::AllowanceSlot;
use crate::progress::{Door, EdgeLimits, FinishOnDrop, RequestProgress, Shares};
use crate::serve::HEAD_BYTES_MAX;

/// The header with the request's id, in both directions.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Characters of an id that a caller chose.
const REQUEST_ID_CHARS_MAX: usize = 128;
/// Permits for requests of the routes with a reserve, when all other permits are in use.
pub const RESERVED_REQUESTS: usize = 16;

/// The outermost layers of one listener.
#[derive(Clone)]
pub struct Edge {
    listener: Listener,
    /// Permits for concurrent requests.
    door: Arc<Semaphore>,
    /// Permits and paths of the routes that answer when the door is full.
    reserve: Arc<Semaphore>,
    reserved: &'static [&'static str],
    /// Time limit of a request after its body has arrived.
    request_timeout: Duration,
    shares: Arc<Shares>,
}

impl Edge {
    /// The layers of this listener, with these permits for concurrent requests. A request whose body has arrived may take
    /// `request_timeout`.
    pub fn new(listener: Listener, door: Arc<Semaphore>, request_timeout: Duration, limits: EdgeLimits) -> Self {
        let (reserve, shares) = (Arc::new(Semaphore::new(RESERVED_REQUESTS)), Shares::new(limits));
        Self { listener, door, reserve, reserved: &[], request_timeout, shares }
    }

    /// The routes with these paths answer even when the door is full, within [`RESERVED_REQUESTS`].
    pub fn reserve_for(self, reserved: &'static [&'static str]) -> Self {
        Self { reserved, ..self }
    }

    /// Adds the layers to every route of `router`, including the fallback.
    pub fn surround<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        // The first is the outermost.
        router.layer((
            MapRequestLayer::new(drop_unfit_id),
            SetRequestIdLayer::new(X_REQUEST_ID, GeneratedId),
            middleware::from_fn_with_state(self, answer),
            CatchPanicLayer::custom(panicked),
        ))
    }

    /// Runs a request within its limits. The answer is the refusal if the body was not accepted, whatever the handler
    /// made of it. Also returns the mark of the connection, for as long as the response is sent.
    async fn run(&self, mut request: Request, route: &str, next: Next) -> (Response, Option<Answering>) {
        let reserve = self.reserved.contains(&route).then(|| Arc::clone(&self.reserve));
        let door = Door::new(Arc::clone(&self.door), reserve);
        if head_bytes(&request) > HEAD_BYTES_MAX {
            return (ApiError::HeadTooLarge.into_response(), None);
        }
        let address = ClientAddress::in_extensions(request.extensions());
        let connection = request.extensions().get::<Arc<Connection>>().cloned();
        let progress = RequestProgress::new(&self.shares, door, address, connection);
        let finish = FinishOnDrop(progress.clone());
        request.extensions_mut().insert(progress.clone());
        // Handlers of GET and HEAD ignore a body.
        let is_complete = request.body().is_end_stream() || matches!(*request.method(), Method::GET | Method::HEAD);
        if !is_complete && let Err(refusal) = check_encoding(request.headers()) {
            return (refusal.into_response(), progress.finish());
        }
        if !is_complete {
            let idle_timeout = self.shares.limits.body_idle_timeout;
            request = request.map(|body| Body::new(ArrivingBody::new(body, progress.clone(), idle_timeout)));
        }
        let counted = progress.begin().and_then(|()| if is_complete { progress.arrive() } else { Ok(()) });
        if let Err(refusal) = counted {
            return (refusal.into_response(), progress.finish());
        }
        let response = self.until_deadline(&progress, next.run(request)).await;
        let response = progress.refusal().map_or(response, IntoResponse::into_response);
        let answering = progress.finish();
        drop(finish);
        (response, answering)
    }

    async fn until_deadline(&self, progress: &RequestProgress, running: impl Future<Output = Response>) -> Response {
        let mut running = std::pin::pin!(running);
        loop {
            let (deadline, _) = progress.deadline(self.request_timeout);
            if let Ok(response) = tokio::time::timeout_at(deadline, &mut running).await {
                return response;
            }
            // The body may have arrived in the meantime, and the deadline with it.
            let (deadline, failure) = progress.deadline(self.request_timeout);
            if deadline <= tokio::time::Instant::now() {
                return failure.into_response();
            }
        }
    }
}

/// Sends a request to routes that no edge surrounds, as a part of the request with the extensions `outer`, which an edge
/// answers. It comes from the same client and counts as that request. The failure of a route is an error, not a response.
pub async fn send_below(routes: Router, mut request: Request, outer: &Extensions) -> Result<Response, ApiError> {
    let idempotency = IdempotencySlot::default();
    let extensions = request.extensions_mut();
    extensions.insert(idempotency.clone());
    hand_on::<ClientAddress>(outer, extensions);
    hand_on::<AllowanceSlot>(outer, extensions);
    hand_on::<RequestProgress>(outer, extensions);
    let response = routes.oneshot(request).await.unwrap_or_else(|never| match never {});
    let mut response = idempotency.first_answer_or(response).await;
    response.extensions_mut().remove::<ApiError>().map_or(Ok(response), Err)
}

fn hand_on<T: Clone + Send + Sync + 'static>(from: &Extensions, to: &mut Extensions) {
    if let Some(value) = from.get::<T>() {
        to.insert(value.clone());
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

/// Runs one request within its limits, then writes its problem document, its headers and its log line.
async fn answer(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let id = id.unwrap_or_default().to_owned();
    let method = request.method().clone();
    let started = Instant::now();
    // Paths may hold a magic link's token: only the template is logged.
    let route =
        request.extensions().get::<MatchedPath>().map_or(crate::metrics::UNMATCHED, MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        http.method = %method,
        http.route = %route,
        psp.id = tracing::field::Empty,
        key.id = tracing::field::Empty,
    );
    let address = request.extensions().get::<ClientAddress>().map(|address| address.0);
    let allowance = AllowanceSlot::default();
    request.extensions_mut().insert(allowance.clone());
    let idempotency = IdempotencySlot::default();
    request.extensions_mut().insert(idempotency.clone());
    let begin_span = || Span::of_request(method.as_str(), &route, traceparent(request.headers()));
    let mut traced = (edge.listener == Listener::Public).then(begin_span);
    let traceparent = traced.as_ref().and_then(Span::traceparent);
    let source = RequestSource { id: Some(id.clone()), address, traceparent, ..RequestSource::default() };
    let answered = async {
        let (response, answering) = edge.run(request, &route, next).await;
        let response = idempotency.first_answer_or(response).await;
        let (mut response, failure) = finish(response, &id, edge.listener);
        allowance.write(response.headers_mut());
        note(&response, failure.as_ref(), &method, &route, started.elapsed());
        if let Some(span) = &mut traced {
            let status = response.status();
            span.set("http.response.status_code", || i64::from(status.as_u16()));
            span.fail(|| status.is_server_error().then(|| status.to_string()));
        }
        match answering {
            Some(answering) => response.map(|body| Body::new(AnsweringBody::new(body, answering))),
            None => response,
        }
    };
    request::answering(source, answered).instrument(span).await
}

/// The context of the caller's trace. A request with several is malformed.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(TRACEPARENT).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

/// Refuses a body that is compressed, or that is not UTF-8.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_identity = |coding: &str| coding.is_empty() || coding.eq_ignore_ascii_case("identity");
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if !codings.all(|value| value.to_str().is_ok_and(|codings| codings.split(',').map(str::trim).all(is_identity))) {
        return Err(ApiError::UnsupportedEncoding("Content-Encoding", "identity"));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_utf8 = |parameter: &str| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        !name.trim().eq_ignore_ascii_case("charset") || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
    };
    if kind.split(';').skip(1).all(is_utf8) { Ok(()) } else { Err(ApiError::UnsupportedEncoding("charset", "utf-8")) }
}

/// Size of the request line and the headers. The connection limits what it reads ahead, which may be a little more.
fn head_bytes(request: &Request) -> usize {
    let uri = request.uri();
    let line = uri.path().len() + uri.query().map_or(0, str::len);
    request.headers().iter().fold(line, |bytes, (name, value)| bytes + name.as_str().len() + value.len())
}

/// Writes the problem document of a failure, and the headers of every response.
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

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::header::CONNECTION;
    use axum::routing::{get, post};

    use super::*;
    use crate::caller::read_body;

    /// Time limit of a request in these tests.
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn router(room: usize) -> Router {
        let limits = EdgeLimits::production();
        let edge =
            Edge::new(Listener::Operator, Arc::new(Semaphore::new(room)), TIMEOUT, limits).reserve_for(&["/health"]);
        let slow_work = async |body: Body| {
            let read = read_body(body, 1_000).await.map(|body| body.len().to_string());
            tokio::time::sleep(TIMEOUT.saturating_sub(Duration::from_secs(1))).await;
            read
        };
        let router = Router::new()
            .route("/endless", get(std::future::pending::<()>).post(std::future::pending::<()>))
            .route("/slow", post(slow_work))
            .route("/ignores", post(async || "ignored"))
            .route("/health", get(async || "well"));
        edge.surround(router)
    }

    fn request(method: Method, path: &str, body: Body) -> Request {
        axum::http::Request::builder().method(method).uri(path).body(body).unwrap_or_default()
    }

    async fn send(router: &Router, request: Request) -> (StatusCode, String) {
        let response = router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let status = response.status();
        assert_eq!(response.headers().get(CONNECTION).is_some(), status == StatusCode::REQUEST_TIMEOUT);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// A body that is complete after this time.
    fn delayed(pause: Duration) -> Body {
        Body::from_stream(futures::stream::once(async move {
            tokio::time::sleep(pause).await;
            Ok::<_, std::convert::Infallible>("body")
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn missing_body_gets_408_whatever_the_handler_answers() {
        let endless = Body::from_stream(futures::stream::pending::<Result<&str, std::convert::Infallible>>());
        let (status, problem) = send(&router(1), request(Method::POST, "/slow", endless)).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert!(problem.contains("body_timeout") && problem.contains("was not carried out"), "{problem}");
        assert!(!problem.contains("may have been"), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn time_limit_starts_when_the_body_has_arrived() {
        let slow = request(Method::POST, "/slow", delayed(Duration::from_secs(4)));
        assert_eq!(send(&router(1), slow).await, (StatusCode::OK, "4".to_owned()));
        for (method, body) in [(Method::GET, Body::empty()), (Method::POST, delayed(Duration::from_secs(1)))] {
            let began = tokio::time::Instant::now();
            let (status, problem) = send(&router(1), request(method, "/endless", body)).await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(problem.contains("timed_out"), "{problem}");
            assert_eq!(began.elapsed(), TIMEOUT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_without_their_body_take_no_room() {
        let router = router(1);
        let waiting = tokio::spawn({
            let (router, slow) = (router.clone(), request(Method::POST, "/slow", delayed(Duration::from_secs(4))));
            async move { send(&router, slow).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let ignores = request(Method::POST, "/ignores", delayed(Duration::from_secs(1)));
        assert_eq!(send(&router, ignores).await, (StatusCode::OK, "ignored".to_owned()));
        let running = tokio::spawn({
            let router = router.clone();
            async move { send(&router, request(Method::GET, "/endless", Body::empty())).await }
        });
        tokio::time::sleep(Duration::from_secs(4)).await;
        let (status, problem) = waiting.await.unwrap_or_default();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "its body arrived when there was no room");
        assert!(problem.contains("overloaded"), "{problem}");
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn routes_with_a_reserve_answer_when_the_door_is_full() {
        let router = router(1);
        let running = tokio::spawn({
            let router = router.clone();
            async move { send(&router, request(Method::GET, "/endless", Body::empty())).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            send(&router, request(Method::POST, "/ignores", Body::empty())).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(
            send(&router, request(Method::GET, "/health", Body::empty())).await,
            (StatusCode::OK, "well".to_owned())
        );
        running.abort();
        let _ = running.await;
        assert_eq!(send(&router, request(Method::POST, "/ignores", Body::empty())).await.0, StatusCode::OK);
    }
}
