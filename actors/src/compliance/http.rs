//! Shared parts of the HTTP providers: URL check for secrets, client, and bounded body reads.

use std::net::IpAddr;

use reqwest::{Client, Response, redirect};
use url::{Host, Url};

/// Maximum length of an answer.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

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
