//! What the interface counts. Labels are routes and statuses, never ids.

use std::time::Duration;

use axum::http::Method;
use metrics::{counter, describe_counter, describe_histogram, histogram};

const REQUESTS: &str = "payferry_http_requests_total";
const SECONDS: &str = "payferry_http_request_duration_seconds";

/// Says what the metrics mean.
pub(super) fn describe() {
    describe_counter!(REQUESTS, "Requests answered, by method, route template and status.");
    describe_histogram!(SECONDS, metrics::Unit::Seconds, "Time from the request's head to its answer's.");
}

/// One request was answered.
pub(super) fn request(method: &Method, route: &str, status: u16, took: Duration) {
    let labels = [("method", method_label(method)), ("route", route.to_owned()), ("status", status.to_string())];
    histogram!(SECONDS, &labels[..2]).record(took.as_secs_f64());
    counter!(REQUESTS, &labels).increment(1);
}

/// A stranger's method is no label: there are endlessly many.
fn method_label(method: &Method) -> String {
    let known = [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::PUT, Method::HEAD, Method::OPTIONS];
    if known.contains(method) { method.to_string() } else { "other".to_owned() }
}
