//! Money that a PSP sends on: refunds, payouts and withdrawals, and the withdrawal wallet.

use alloy::primitives::Address;
use axum::http::{HeaderName, HeaderValue, Method};
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{OVERLOAD_PAUSE, Psp, problem};
use crate::client::{CallError, request};
use crate::wire::Chain;

/// Largest number of requests for one transfer, with a pause between two of them.
const ORDER_TRIES_MAX: u32 = 30;
/// Header of a key that makes a request repeatable.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Problem code of a repeated request whose first one is not answered yet.
const REQUEST_RUNNING: &str = "idempotency_request_running";
/// Reason why the request of an outbound transfer, or of a customer, was not accepted. Its text is the kind of error, for
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderFailed {
    /// The service refused it, with this status and problem code.
    #[error("{0} {1}")]
    Refused(u16, String),
    /// There was no response.
    #[error("{0}")]
    Unanswered(CallError),
    /// The response accepts it and has a body that cannot be parsed.
    #[error("unreadable answer")]
    Unreadable,
}

impl OrderFailed {
    /// Returns true if the service may have accepted it.
    pub const fn may_be_made(&self) -> bool {
        !matches!(self, Self::Refused(..))
    }
}

impl Psp {
    /// Sets the PSP's withdrawal wallet on a chain, as the operator of the sandbox.
    pub async fn set_withdrawal_wallet(&self, chain: Chain, address: Address) -> anyhow::Result<()> {
        let wallet = json!({"address": address, "chain": chain});
        self.post("/sandbox/withdrawal-wallet", &wallet).await.map(drop)
    }

    /// Requests an outbound transfer, and again with the same idempotency key while there is no answer, or the service is
    /// overloaded or unavailable. Returns its id.
    pub async fn order(&self, path: &str, body: &Value, key: &str) -> Result<String, OrderFailed> {
        self.post_keyed(path, body, key, 202).await.map(|WithId { id }| id)
    }

    /// Posts a request that creates something, as [`Self::order`]. `accepted` is the status of a success.
    pub(super) async fn post_keyed<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        key: &str,
        accepted: u16,
    ) -> Result<T, OrderFailed> {
        let (body, key) = (Bytes::from(body.to_string()), HeaderValue::from_str(key).ok());
        let (mut may_be_made, mut failed) = (false, OrderFailed::Unreadable);
        for tries in 1..=ORDER_TRIES_MAX {
            let mut request = request(Method::POST, path, body.clone());
            request.headers_mut().extend(key.clone().map(|key| (IDEMPOTENCY_KEY, key)));
            match self.authorizations.call(request).await {
                Ok(response) if response.status == accepted => {
                    return serde_json::from_slice(&response.body).map_err(|_| OrderFailed::Unreadable);
                }
                Ok(response) => {
                    let (status, code) = (response.status.as_u16(), problem(&response).code);
                    let may_pass = [429, 503].contains(&status) || code == REQUEST_RUNNING;
                    failed = OrderFailed::Refused(status, code);
                    if !may_pass {
                        break;
                    }
                }
                Err(error) => {
                    may_be_made |= error.may_be_done();
                    failed = OrderFailed::Unanswered(error);
                }
            }
            if tries < ORDER_TRIES_MAX {
                tokio::time::sleep(OVERLOAD_PAUSE).await;
            }
        }
        // An earlier request may have been accepted.
        let is_unknown = may_be_made && matches!(failed, OrderFailed::Refused(429 | 503, _));
        Err(if is_unknown { OrderFailed::Unanswered(CallError::Broken) } else { failed })
    }
}

#[derive(Deserialize)]
pub(super) struct WithId {
    pub(super) id: String,
}
