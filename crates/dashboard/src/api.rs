//! Requests to the public API, on behalf of the request for a page.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Extensions, HeaderValue, Method};
use payferry_domain::Timestamp;
use payferry_domain::time::TimestampError;
use payferry_httpkit::ApiError;
use payferry_httpkit::edge::send_below;
use payferry_httpkit::error::KeyProblem;
use payferry_httpkit::idempotency::IDEMPOTENCY_KEY;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

/// Maximum size of an answer. A page of a list has at most a few megabytes.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Client of the API with one key.
pub(crate) struct ApiClient {
    routes: Router,
    authorization: HeaderValue,
    /// Extensions of the request for the page.
    outer: Extensions,
}

/// A request that changes something.
pub(crate) struct Change<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    /// Makes a repeated request harmless.
    pub(crate) idempotency_key: &'a str,
    pub(crate) body: ChangeBody,
}

/// Body of a request that changes something.
#[derive(derive_more::From)]
pub(crate) enum ChangeBody {
    /// An object.
    Json(Value),
    /// A file.
    File(Vec<u8>),
}

/// The answer to a change that the page does not show.
#[derive(Deserialize)]
pub(crate) struct Done(#[allow(dead_code, reason = "the page does not show it")] IgnoredAny);

/// A time in an answer.
#[derive(Debug, Clone, Copy, derive_more::Into, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct At(pub(crate) Timestamp);

impl TryFrom<String> for At {
    type Error = TimestampError;

    fn try_from(text: String) -> Result<Self, TimestampError> {
        text.parse().map(Self)
    }
}

impl ApiClient {
    pub(crate) fn new(routes: &Router, key: &str, outer: Extensions) -> Result<Self, ApiError> {
        let text = Zeroizing::new(format!("Bearer {key}"));
        let authorization = HeaderValue::from_str(&text);
        let mut authorization = authorization.map_err(|_| ApiError::Unauthorized(KeyProblem::Malformed))?;
        authorization.set_sensitive(true);
        Ok(Self { routes: routes.clone(), authorization, outer })
    }

    /// Reads an object or a list.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.call(Request::builder().uri(path).body(Body::empty()).map_err(ApiError::internal)?).await
    }

    /// Changes something.
    pub(crate) async fn send<T: DeserializeOwned>(&self, change: Change<'_>) -> Result<T, ApiError> {
        let Change { method, path, idempotency_key, body } = change;
        let (content_type, body) = match body {
            ChangeBody::Json(value) => ("application/json", Body::from(value.to_string())),
            ChangeBody::File(content) => ("application/octet-stream", Body::from(content)),
        };
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        let request = request.header(IDEMPOTENCY_KEY, idempotency_key).body(body);
        // An invalid idempotency key, which only a manipulated form has.
        self.call(request.map_err(|_| ApiError::BadHeader("Idempotency-Key", "visible ASCII characters"))?).await
    }

    async fn call<T: DeserializeOwned>(&self, mut request: Request) -> Result<T, ApiError> {
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        // The future of all routes is large.
        let response = Box::pin(send_below(self.routes.clone(), request, &self.outer)).await?;
        if !response.status().is_success() {
            return Err(ApiError::internal(format!("the API answered {} without an error", response.status())));
        }
        let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.map_err(ApiError::internal)?;
        serde_json::from_slice(&body).map_err(ApiError::internal)
    }
}

/// A path with a query of the pairs that have a value.
pub(crate) fn with_query<'a>(path: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// An id as a segment of a path. No object has another id.
pub(crate) fn segment<'a>(id: &'a str, what: &'static str) -> Result<&'a str, ApiError> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_id.then_some(id).ok_or(ApiError::NotFound(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_contain_only_values_and_escape_them() {
        let pairs = [("status", ""), ("reference", "a&b=c d"), ("cursor", "x_-")];
        assert_eq!(with_query("/payments", pairs), "/payments?reference=a%26b%3Dc+d&cursor=x_-");
        assert_eq!(with_query("/payments", [("status", "")]), "/payments");
    }

    #[test]
    fn only_ids_become_segments_of_paths() {
        assert_eq!(segment("pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "payment").unwrap(), "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3");
        for bad in ["", "../balances", "a/b", "a?b", "é", "a b", "%2e"] {
            assert!(segment(bad, "payment").is_err(), "{bad}");
        }
    }
}
