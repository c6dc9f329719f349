//! HTTP answers of the endpoint, and faults that replace or truncate them.

use std::io;

use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::fault::What;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const PAGE: &str = "<!DOCTYPE html><html><body>We will be back soon.</body></html>";

/// Answer to a request. An error closes the connection without one.
pub(super) type Reply = io::Result<Response<Body>>;

pub(super) fn json(body: &Value) -> Reply {
    http(200, None, JSON, body.to_string())
}

/// HTTP status for a query whose range is too large.
pub(super) fn too_large() -> Reply {
    http(413, None, TEXT, "content too large")
}

/// The first half of an answer; then the connection is closed.
pub(super) fn truncated(body: &Value) -> Reply {
    let mut sent = body.to_string().into_bytes();
    let length = sent.len();
    sent.truncate(length / 2);
    let end = async {
        // The first half is sent while this waits.
        tokio::task::yield_now().await;
        Err(closed())
    };
    let body = Body::from_stream(stream::iter([Ok(sent)]).chain(stream::once(end)));
    Response::builder().header(CONTENT_TYPE, JSON).header(CONTENT_LENGTH, length).body(body).map_err(io::Error::other)
}

/// Answer of a fault that replaces the whole answer.
pub(super) fn replacement(what: &What, is_batch: bool) -> Option<Reply> {
    match *what {
        What::Closed => Some(Err(closed())),
        What::Status(status, retry_after) => Some(http(status, retry_after, TEXT, "not now")),
        What::StatusError(status, retry_after, code, message) => {
            let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
            Some(http(status, retry_after, JSON, body.to_string()))
        }
        What::Garbage => Some(http(200, None, TEXT, "\u{1}\u{2}garbage{{{")),
        What::Html => Some(http(200, None, "text/html", PAGE)),
        What::NoBatches if is_batch => {
            let error = json!({"code": -32_600, "message": "batch requests are not enabled"});
            Some(json(&json!({"jsonrpc": "2.0", "id": null, "error": error})))
        }
        _ => None,
    }
}

fn http(status: u16, retry_after: Option<u64>, content_type: &str, body: impl Into<Body>) -> Reply {
    let mut reply = Response::builder().status(status).header(CONTENT_TYPE, content_type);
    if let Some(secs) = retry_after {
        reply = reply.header(RETRY_AFTER, secs);
    }
    reply.body(body.into()).map_err(io::Error::other)
}

fn closed() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}
