//! JSON-RPC client of one chain, of a sandbox or of a test network: single calls, and batches of one method.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use crate::client::{CallError, Client, request};
use crate::wire::Chain;

/// Attempts of a read while a node of a test network does not answer, and the pause between two of them.
const READS_MAX: u32 = 7;
const READ_PAUSE: Duration = Duration::from_secs(1);
/// Statuses of a node that is overloaded or away.
const MAY_PASS: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// Reason why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RpcFailure {
    /// The request had no response.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The HTTP status was not a success.
    #[error("HTTP {0}")]
    Status(u16),
    /// The node returned an error.
    #[error("{0}")]
    Refused(String),
    /// The response does not follow the specification.
    #[error("the node's answer cannot be read")]
    Malformed,
}

/// Result of one call of a batch.
pub type RpcResult = Result<Box<RawValue>, RpcFailure>;

/// JSON-RPC endpoint of one chain.
#[derive(Debug, Clone)]
pub struct Rpc(Endpoint);

#[derive(Debug, Clone)]
enum Endpoint {
    /// A path of the sandbox.
    Sandbox(Arc<Client>, String),
    /// A node of a test network. Its URL may contain a key.
    Network(reqwest::Client, Url),
}

#[derive(Deserialize)]
struct RpcAnswer<'a> {
    id: usize,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl Rpc {
    /// Makes a client of the endpoint of `chain` at the sandbox that `client` calls.
    pub fn of_sandbox(client: &Arc<Client>, chain: Chain) -> Self {
        Self(Endpoint::Sandbox(Arc::clone(client), format!("/sandbox/rpc/{chain}")))
    }

    /// Makes a client of a node. `deadline` is the timeout of a request.
    pub fn of_network(url: Url, deadline: Duration) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().timeout(deadline).build()?;
        Ok(Self(Endpoint::Network(client, url)))
    }

    /// Calls a method once. `params` is a JSON array.
    pub async fn call<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, RpcFailure> {
        single(self.batch(method, [params.to_string()]).await?)
    }

    /// Calls a method that changes nothing. Retries while the node does not respond ([`Client::read`]).
    pub async fn read<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, RpcFailure> {
        let (body, count) = body(method, [params.to_string()]);
        let body = Bytes::from(body);
        let answer = match &self.0 {
            Endpoint::Sandbox(client, path) => {
                let response = client.read(|| request(Method::POST, path, body.clone())).await?;
                (response.status, response.body)
            }
            Endpoint::Network(client, url) => {
                let mut tries = 1;
                loop {
                    let answer = post(client, url, body.clone()).await;
                    let may_pass = answer.as_ref().map_or(true, |(status, _)| MAY_PASS.contains(status));
                    if !may_pass || tries == READS_MAX {
                        break answer?;
                    }
                    tries += 1;
                    tokio::time::sleep(READ_PAUSE).await;
                }
            }
        };
        single(results(&answer, count)?)
    }

    /// Calls one method several times in one request. Each item of `params` is a JSON array. The results have the same
    /// order.
    pub async fn batch(
        &self,
        method: &str,
        params: impl IntoIterator<Item = String>,
    ) -> Result<Vec<RpcResult>, RpcFailure> {
        let (body, count) = body(method, params);
        let answer = match &self.0 {
            Endpoint::Sandbox(client, path) => {
                let response = client.post(path, body).await?;
                (response.status, response.body)
            }
            Endpoint::Network(client, url) => post(client, url, body.into()).await?,
        };
        results(&answer, count)
    }
}

/// Sends a request to a node once.
async fn post(client: &reqwest::Client, url: &Url, body: Bytes) -> Result<(StatusCode, Bytes), CallError> {
    let failed = |error: reqwest::Error| match () {
        () if error.is_connect() => CallError::Unconnected,
        () if error.is_timeout() => CallError::TimedOut,
        () => CallError::Broken,
    };
    let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body);
    let response = request.send().await.map_err(failed)?;
    Ok((response.status(), response.bytes().await.map_err(failed)?))
}

fn body(method: &str, params: impl IntoIterator<Item = String>) -> (String, usize) {
    let (mut body, mut count) = (String::from("["), 0_usize);
    for params in params {
        let comma = if count == 0 { "" } else { "," };
        let _ = write!(body, r#"{comma}{{"jsonrpc":"2.0","id":{count},"method":"{method}","params":{params}}}"#);
        count += 1;
    }
    body.push(']');
    (body, count)
}

fn results((status, body): &(StatusCode, Bytes), count: usize) -> Result<Vec<RpcResult>, RpcFailure> {
    if !status.is_success() {
        return Err(RpcFailure::Status(status.as_u16()));
    }
    let answers: Vec<RpcAnswer<'_>> = serde_json::from_slice(body).map_err(|_| RpcFailure::Malformed)?;
    let mut results: Vec<_> = (0..count).map(|_| Err(RpcFailure::Malformed)).collect();
    for answer in answers {
        let place = results.get_mut(answer.id).ok_or(RpcFailure::Malformed)?;
        *place = match (answer.result, answer.error) {
            (_, Some(refusal)) => Err(RpcFailure::Refused(refusal.message)),
            (Some(result), None) => Ok(result.to_owned()),
            // `null` is a result.
            (None, None) => Ok(RawValue::NULL.to_owned()),
        };
    }
    Ok(results)
}

fn single<T: DeserializeOwned>(mut results: Vec<RpcResult>) -> Result<T, RpcFailure> {
    let result = results.pop().ok_or(RpcFailure::Malformed)??;
    serde_json::from_str(result.get()).map_err(|_| RpcFailure::Malformed)
}
