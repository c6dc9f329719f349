//! JSON-RPC of one chain of a sandbox, over the lean client: single calls and batches of one method.

use std::fmt::Write as _;
use std::sync::Arc;

use payferry_domain::Chain;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{CallError, Client};

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
        let mut results = self.batch(method, [params.to_string()]).await?;
        let result = results.pop().ok_or(RpcFailure::Malformed)??;
        serde_json::from_str(result.get()).map_err(|_| RpcFailure::Malformed)
    }

    /// Calls of one method in one request, each with its parameters as a JSON array; the results are in their order.
    pub async fn batch(
        &self,
        method: &str,
        params: impl IntoIterator<Item = String>,
    ) -> Result<Vec<Result<Box<RawValue>, RpcFailure>>, RpcFailure> {
        let (mut body, mut count) = (String::from("["), 0_usize);
        for params in params {
            let comma = if count == 0 { "" } else { "," };
            let _ = write!(body, r#"{comma}{{"jsonrpc":"2.0","id":{count},"method":"{method}","params":{params}}}"#);
            count += 1;
        }
        body.push(']');
        let answer = self.client.post(&self.path, body).await?;
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
}
