//! JSON-RPC of one chain of a sandbox, over the lean client: single calls and batches of one method.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::http::Method;
use hyper::body::Bytes;
use payferry_domain::Chain;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{Answer as HttpAnswer, CallError, Client, request};

/// Why there is no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RpcFailure {
    /// The request had no answer.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The answer was not 200.
    #[error("HTTP {0}")]
    Status(u16),
    /// The node said no.
    #[error("{0}")]
    Refused(String),
    /// The answer was not what the specification says.
    #[error("the node's answer cannot be read")]
    Malformed,
}

/// The result of one call of a batch.
pub type RpcResult = Result<Box<RawValue>, RpcFailure>;

/// One chain's endpoint.
#[derive(Debug, Clone)]
pub struct Rpc {
    client: Arc<Client>,
    path: String,
}

#[derive(Deserialize)]
struct Answer<'a> {
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
    /// The endpoint of `chain` at the sandbox that the client calls.
    pub fn of_sandbox(client: &Arc<Client>, chain: Chain) -> Self {
        Self { client: Arc::clone(client), path: format!("/sandbox/rpc/{chain}") }
    }

    /// One call; `params` is a JSON array.
    pub async fn call<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, RpcFailure> {
        single(self.batch(method, [params.to_string()]).await?)
    }

    /// The same for a call that changes nothing: it is made again where the node does not answer ([`Client::read`]).
    pub async fn read<T: DeserializeOwned>(&self, method: &str, params: &Value) -> Result<T, RpcFailure> {
        let (body, count) = body(method, [params.to_string()]);
        let body = Bytes::from(body);
        let answer = self.client.read(|| request(Method::POST, &self.path, body.clone())).await?;
        single(results(&answer, count)?)
    }

    /// Calls of one method in one request, each with its parameters as a JSON array; the results are in their order.
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

fn results(answer: &HttpAnswer, count: usize) -> Result<Vec<RpcResult>, RpcFailure> {
    if !answer.status.is_success() {
        return Err(RpcFailure::Status(answer.status.as_u16()));
    }
    let answers: Vec<Answer<'_>> = serde_json::from_slice(&answer.body).map_err(|_| RpcFailure::Malformed)?;
    let mut results: Vec<_> = (0..count).map(|_| Err(RpcFailure::Malformed)).collect();
    for answer in answers {
        let place = results.get_mut(answer.id).ok_or(RpcFailure::Malformed)?;
        *place = match (answer.result, answer.error) {
            (_, Some(refusal)) => Err(RpcFailure::Refused(refusal.message)),
            (Some(result), None) => Ok(result.to_owned()),
            // `null` is a result, too.
            (None, None) => Ok(RawValue::NULL.to_owned()),
        };
    }
    Ok(results)
}

fn single<T: DeserializeOwned>(mut results: Vec<RpcResult>) -> Result<T, RpcFailure> {
    let result = results.pop().ok_or(RpcFailure::Malformed)??;
    serde_json::from_str(result.get()).map_err(|_| RpcFailure::Malformed)
}
