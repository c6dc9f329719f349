//! Shared parts of the HTTP providers: URL check for secrets, client, requests with their failures, and labels.

use std::net::IpAddr;

use reqwest::header::HeaderValue;
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use url::{Host, Url};

/// Maximum length of an answer.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of a provider's labels that are kept.
const LABELS_MAX: usize = 16;
/// Maximum length of a label, characters.
const LABEL_CHARS_MAX: usize = 48;

/// Reasons for a missing answer. They contain neither secrets nor the URL nor text from the provider.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpFailure {
    #[error("did not answer in time")]
    Timeout,
    #[error("cannot be reached")]
    Unreachable,
    #[error("limits the rate of requests (HTTP 429)")]
    RateLimited,
    #[error("refuses {what} (HTTP {status})")]
    Refused { what: &'static str, status: u16 },
    #[error("answered HTTP {0}")]
    Status(u16),
    #[error("returned an unexpected answer{0}")]
    Malformed(&'static str),
    #[error("has not assessed the address yet")]
    NotAssessed,
    #[error("returned an unknown risk level")]
    UnknownLevel,
}

impl From<reqwest::Error> for HttpFailure {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() { Self::Timeout } else { Self::Unreachable }
    }
}

/// Sends a request; an answer without success is a failure. `credentials` names what the provider refuses with 401 or
/// 403.
pub(super) async fn send(request: RequestBuilder, credentials: &'static str) -> Result<Response, HttpFailure> {
    let response = request.send().await?;
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::TOO_MANY_REQUESTS => Err(HttpFailure::RateLimited),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(HttpFailure::Refused { what: credentials, status: status.as_u16() })
        }
        status => Err(HttpFailure::Status(status.as_u16())),
    }
}

/// Header value of a token, which logs hide; `None` if it is empty or cannot be sent.
pub(super) fn token_header(token: &str) -> Option<HeaderValue> {
    let mut token = HeaderValue::from_str(token.trim()).ok().filter(|token| !token.is_empty())?;
    token.set_sensitive(true);
    Some(token)
}

/// Labels of a provider as words, without duplicates: `FORGERY` becomes `forgery`.
pub(super) fn labels(named: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut labels: Vec<String> = Vec::new();
    for name in named {
        let label: String = name.as_ref().trim().chars().take(LABEL_CHARS_MAX).map(letter).collect();
        if !label.is_empty() && !labels.contains(&label) && labels.len() < LABELS_MAX {
            labels.push(label);
        }
    }
    labels
}

/// Parses the URL of a provider's API if secrets may be sent there: `https://`, or `http://` to this machine, without
/// user, query or fragment. Its path ends without an empty segment.
pub(super) fn api_url(text: &str) -> Option<Url> {
    let mut url = Url::parse(text.trim()).ok()?;
    let here = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => IpAddr::from(address).is_loopback(),
        Host::Ipv6(address) => IpAddr::from(address).is_loopback(),
    };
    let is_bare =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    if !is_bare || !(url.scheme() == "https" || (url.scheme() == "http" && here)) {
        return None;
    }
    url.path_segments_mut().ok()?.pop_if_empty();
    Some(url)
}

/// Builds a client that follows no redirects, because they could send secrets elsewhere.
pub(super) fn client_for(api: &Url) -> Result<Client, reqwest::Error> {
    payferry_runtime::tls::install();
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .user_agent(concat!("Payferry/", env!("CARGO_PKG_VERSION")));
    // Plain HTTP goes only to this machine, bypassing any proxy.
    let client = if api.scheme() == "http" { client.no_proxy() } else { client };
    client.build()
}

/// Reads the answer's body; `Ok(None)` if it exceeds the limit.
pub(super) async fn body_of(mut response: Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}
