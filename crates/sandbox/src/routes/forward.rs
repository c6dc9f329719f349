//! The sandbox's routes in a member: each request goes to the first process, which has the environment.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use payferry_httpkit::{ApiError, Away};
use url::Url;

use super::away;
use crate::inbox::BODY_BYTES_MAX;

/// Headers that concern a connection, not a request.
const OF_THE_CONNECTION: [header::HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE];

/// The routes of the sandbox, in a member.
pub fn forwarding<S: Clone + Send + Sync + 'static>(first_url: Url) -> anyhow::Result<Router<S>> {
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let handler = any(async move |request: Request| forward(http, first_url, request).await.into_response());
    let router = Router::new().route("/sandbox", handler.clone()).route("/sandbox/{*path}", handler);
    Ok(router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)))
}

async fn forward(http: reqwest::Client, first_url: Url, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let url = first_url.join(path).map_err(away)?;
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| ApiError::TooLarge(BODY_BYTES_MAX))?;
    let sent = http.request(parts.method, url).headers(end_to_end(parts.headers)).body(body).send().await;
    let answer = sent.map_err(|_| ApiError::Unavailable(Away::Chain, "the first node does not answer".into()))?;
    let (status, headers) = (answer.status(), end_to_end(answer.headers().clone()));
    let body: Bytes = answer.bytes().await.map_err(|_| away("the first node ended its answer early"))?;
    Ok((StatusCode::from_u16(status.as_u16()).map_err(away)?, headers, Body::from(body)).into_response())
}

fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    headers
}
