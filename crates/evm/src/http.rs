//! JSON-RPC transport over HTTP for alloy, and the settings of HTTP clients.
//!
//! The transport replaces alloy's own transport, which writes the endpoint's address (with its API key) into spans, and loses a 429
//! and its `Retry-After` if the body contains a JSON-RPC error.

use std::time::Duration;

use alloy::rpc::json_rpc::{RequestPacket, ResponsePacket};
use alloy::transports::{Transport, TransportError, TransportErrorKind, TransportFut};
use futures::StreamExt as _;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use tower::service_fn;
use url::Url;

/// Maximum size of a response body, in bytes. The receipts of a full block take a few million.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates an HTTP client for any number of endpoints. The caller sets the request timeout.
pub(super) fn client() -> Result<reqwest::Client, reqwest::Error> {
    builder().build()
}

/// Settings of every HTTP client.
pub(super) fn builder() -> reqwest::ClientBuilder {
    payferry_runtime::tls::install();
    reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(reqwest::redirect::Policy::none())
}

/// Transport of one endpoint.
pub(super) fn transport(client: reqwest::Client, url: Url) -> impl Transport + Clone {
    service_fn(move |packet| -> TransportFut<'static> { Box::pin(exchange(client.clone(), url.clone(), packet)) })
}

async fn exchange(client: reqwest::Client, url: Url, packet: RequestPacket) -> Result<ResponsePacket, TransportError> {
    let body = serde_json::to_vec(&packet).map_err(TransportError::ser_err)?;
    let request = client.post(url).header(CONTENT_TYPE, "application/json").body(body);
    let response = request.send().await.map_err(|error| gone(error.without_url()))?;
    let status = response.status();
    let delay = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = delay.and_then(|secs| secs.trim().parse().ok()).map(Duration::from_secs);
    let mut body: Vec<u8> = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        // For an incomplete response with an error status, the status is the more useful error.
        let piece = match piece {
            Ok(piece) => piece,
            Err(_) if !status.is_success() => break,
            Err(error) => return Err(gone(error.without_url())),
        };
        if body.len() + piece.len() > BODY_BYTES_MAX {
            return Err(TransportErrorKind::custom_str("the response is larger than 64 MiB"));
        }
        body.extend_from_slice(&piece);
    }
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body).into_owned();
        return Err(TransportErrorKind::http_error_with_retry_after(status.as_u16(), text, retry_after));
    }
    serde_json::from_slice(&body).map_err(|error| TransportError::deser_err(error, ""))
}

fn gone(error: reqwest::Error) -> TransportError {
    TransportErrorKind::custom(error)
}
