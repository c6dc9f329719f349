//! What the interface counts. Labels are methods, route templates and statuses, never ids.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::Method;
use metrics::{Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use parking_lot::RwLock;

const REQUESTS: &str = "payferry_http_requests_total";
const SECONDS: &str = "payferry_http_request_duration_seconds";
const STREAMS: &str = "payferry_http_streams_open";

/// The handles of one route, which are looked up once; there are as many as there are routes.
struct Handles {
    seconds: Histogram,
    /// By status, of which a route answers few.
    requests: Vec<(u16, Counter)>,
}

type ByRoute = HashMap<String, Vec<(&'static str, Handles)>>;

static HANDLES: LazyLock<RwLock<ByRoute>> = LazyLock::new(RwLock::default);

/// Says what the metrics mean.
pub fn describe() {
    describe_counter!(REQUESTS, "Requests answered, by method, route template and status.");
    describe_histogram!(SECONDS, metrics::Unit::Seconds, "Time from the request's head to its answer's.");
    describe_gauge!(STREAMS, "Streams of payments that are open: payers' pages, and those of PSPs.");
    // Those looked up before somebody listened would stay deaf.
    HANDLES.write().clear();
}

/// A stream was opened; it is counted until the answer is dropped.
pub fn stream_opened() -> OpenStream {
    gauge!(STREAMS).increment(1.0);
    OpenStream
}

/// A stream that is open.
pub struct OpenStream;

impl Drop for OpenStream {
    fn drop(&mut self) {
        gauge!(STREAMS).decrement(1.0);
    }
}

/// One request was answered.
pub(crate) fn request(method: &Method, route: &str, status: u16, took: Duration) {
    let method = method_label(method);
    if !record(&HANDLES.read(), method, route, status, took) {
        let mut routes = HANDLES.write();
        prepare(&mut routes, method, route, status);
        record(&routes, method, route, status, took);
    }
}

/// Records with handles that are there; answers whether they were.
fn record(routes: &ByRoute, method: &'static str, route: &str, status: u16, took: Duration) -> bool {
    let of_route = routes.get(route).into_iter().flatten();
    let Some((_, handles)) = of_route.into_iter().find(|(of, _)| *of == method) else { return false };
    let Some((_, requests)) = handles.requests.iter().find(|(of, _)| *of == status) else { return false };
    handles.seconds.record(took.as_secs_f64());
    requests.increment(1);
    true
}

/// Looks handles up.
fn prepare(routes: &mut ByRoute, method: &'static str, route: &str, status: u16) {
    let methods = routes.entry(route.to_owned()).or_default();
    let place = methods.iter().position(|(of, _)| *of == method).unwrap_or_else(|| {
        let seconds = histogram!(SECONDS, "method" => method, "route" => route.to_owned());
        methods.push((method, Handles { seconds, requests: Vec::new() }));
        methods.len() - 1
    });
    let requests = &mut methods[place].1.requests;
    if !requests.iter().any(|(of, _)| *of == status) {
        let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        requests.push((status, counter!(REQUESTS, &labels)));
    }
}

/// A stranger's method is no label: there are endlessly many.
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
