//! JSON-RPC over HTTP, for wallets and `cast`, open to any origin. A GET with an upgrade becomes a WebSocket.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use crate::devchain::Devchain;
use crate::{packet, ws};

/// Maximum size of a body or a message, like geth's.
pub(crate) const BODY_BYTES_MAX: usize = 5 * 1024 * 1024;

const METHODS: &str = "POST, OPTIONS";

pub(crate) fn router(chain: Devchain) -> Router {
    let route = post(handle).options(preflight).get(ws::upgrade).layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    Router::new().route("/", route).with_state(chain)
}

async fn preflight() -> Response {
    (StatusCode::NO_CONTENT, cors()).into_response()
}

fn cors() -> HeaderMap {
    let any = HeaderValue::from_static("*");
    HeaderMap::from_iter([
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, any.clone()),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, any),
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS)),
    ])
}

async fn handle(State(chain): State<Devchain>, body: Bytes) -> Response {
    match packet::answer(&chain, None, &body).await {
        Ok(text) => {
            let json = HeaderValue::from_static("application/json");
            let mut response = (cors(), text).into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(failure) => (failure.0, cors(), [(header::RETRY_AFTER, "1")], failure.body()).into_response(),
    }
}

/// The response to a GET that is not the start of a WebSocket.
pub(crate) fn not_a_websocket() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, METHODS)]).into_response()
}
