//! Metrics of the interface. Labels are methods, route templates and statuses, never ids.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::Method;
use metrics::{Counter, Histogram, counter, gauge, histogram};
use parking_lot::RwLock;

payferry_runtime::metrics! {
    Counter REQUESTS = "payferry_http_requests_total",
        "Requests answered, by method, route template and status. Requests for unknown paths, and with methods that a \
         path does not have, are one series: `other`, `unmatched`, 404.";
    Histogram(Seconds) SECONDS = "payferry_http_request_duration_seconds",
        "Time from the request head to the response head.";
    Counter CONNECTIONS_CLOSED = "payferry_http_connections_closed_total",
        "Connections closed because their address had too many, by reason: `oldest_incomplete` gave way to a new one, \
         `all_answering` was new.", exported by "reason" in [OLDEST_INCOMPLETE, ALL_ANSWERING];
    Gauge STREAMS = "payferry_http_streams_open", "Open payment streams of payers' pages and PSPs.", exported;
}

/// Reasons for which a connection is closed.
pub(crate) const OLDEST_INCOMPLETE: &str = "oldest_incomplete";
pub(crate) const ALL_ANSWERING: &str = "all_answering";

/// Metric handles of one route and method, looked up once. Their number is bounded by the routes.
struct Handles {
    seconds: Histogram,
    /// By status. A route answers few of them.
    requests: Vec<(u16, Counter)>,
}

type ByRoute = HashMap<String, Vec<(&'static str, Handles)>>;

static HANDLES: LazyLock<RwLock<ByRoute>> = LazyLock::new(RwLock::default);

/// Route label of requests that have no route.
pub(crate) const UNMATCHED: &str = "unmatched";

/// Registers the help texts of the metrics, for a recorder that was just installed.
pub fn install() {
    describe();
    // Handles from before the recorder was installed would record nothing.
    HANDLES.write().clear();
}

/// Counts an open stream until the returned value is dropped.
pub fn stream_opened() -> OpenStream {
    gauge!(STREAMS.name).increment(1.0);
    OpenStream
}

/// An open stream.
pub struct OpenStream;

impl Drop for OpenStream {
    fn drop(&mut self) {
        gauge!(STREAMS.name).decrement(1.0);
    }
}

/// Counts a connection that was closed because of the limit per address.
pub(crate) fn connection_closed(reason: &'static str) {
    counter!(CONNECTIONS_CLOSED.name, "reason" => reason).increment(1);
}

/// Records one answered request.
pub(crate) fn request(method: &Method, route: &str, status: u16, took: Duration) {
    let is_unmatched = status == 405 || (status == 404 && route == UNMATCHED);
    let (method, route, status) =
        if is_unmatched { ("other", UNMATCHED, 404) } else { (method_label(method), route, status) };
    if !record(&HANDLES.read(), method, route, status, took) {
        let mut routes = HANDLES.write();
        prepare(&mut routes, method, route, status);
        record(&routes, method, route, status, took);
    }
}

/// Records with existing handles; returns false if there are none yet.
fn record(routes: &ByRoute, method: &'static str, route: &str, status: u16, took: Duration) -> bool {
    let of_route = routes.get(route).into_iter().flatten();
    let Some((_, handles)) = of_route.into_iter().find(|(of, _)| *of == method) else { return false };
    let Some((_, requests)) = handles.requests.iter().find(|(of, _)| *of == status) else { return false };
    handles.seconds.record(took.as_secs_f64());
    requests.increment(1);
    true
}

/// Looks the handles up.
fn prepare(routes: &mut ByRoute, method: &'static str, route: &str, status: u16) {
    let methods = routes.entry(route.to_owned()).or_default();
    let place = methods.iter().position(|(of, _)| *of == method).unwrap_or_else(|| {
        let seconds = histogram!(SECONDS.name, "method" => method, "route" => route.to_owned());
        methods.push((method, Handles { seconds, requests: Vec::new() }));
        methods.len() - 1
    });
    let requests = &mut methods[place].1.requests;
    if !requests.iter().any(|(of, _)| *of == status) {
        let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        requests.push((status, counter!(REQUESTS.name, &labels)));
    }
}

/// Maps unknown methods to one label: callers can invent any number of them.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::PUT => "PUT",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
