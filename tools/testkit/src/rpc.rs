//! JSON-RPC client of one chain of a sandbox: single calls, and batches of one method.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::http::Method;
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::{CallError, Client, Response, request};
use crate::wire::Chain;

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
pub struct Rpc {
    client: Arc<Client>,
    path: String,
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
        Self { client: Arc::clone(client), path: format!("/sandbox/rpc/{chain}") }
    }

    /// Calls a method once. `params` is a JSON array.
    pub async fn call<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, RpcFailure> {
        single(self.batch(method, [params.to_string()]).await?)
    }

    /// Calls a method that changes nothing. Retries while the node does not respond ([`Client::read`]).
    pub async fn read<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, RpcFailure> {
        let (body, count) = body(method, [params.to_string()]);
        let body = Bytes::from(body);
        let answer = self.client.read(|| request(Method::POST, &self.path, body.clone())).await?;
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
        results(&self.client.post(&self.path, body).await?, count)
    }
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

fn results(answer: &Response, count: usize) -> Result<Vec<RpcResult>, RpcFailure> {
    if !answer.status.is_success() {
        return Err(RpcFailure::Status(answer.status.as_u16()));
    }
    let answers: Vec<RpcAnswer<'_>> = serde_json::from_slice(&answer.body).map_err(|_| RpcFailure::Malformed)?;
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
