//! The chain as an alloy transport, and the simulated connection, shared with `packet.rs`.

use std::borrow::Cow;
use std::time::Duration;

use alloy::rpc::json_rpc::{ErrorPayload, RequestPacket, Response, ResponsePacket, ResponsePayload, SerializedRequest};
use alloy::transports::{Transport, TransportError, TransportErrorKind, TransportFut};
use axum::http::StatusCode;
use serde_json::value::{RawValue, to_raw_value};

use crate::devchain::Devchain;
use crate::error::RpcError;
use crate::faults::Faults;
use crate::rpc::{self, Session};

impl Devchain {
    /// Returns the chain as an alloy transport: `RpcClient::new(chain.transport(), true)`. Faults apply.
    pub fn transport(&self) -> impl Transport + Clone + use<> {
        let chain = self.clone();
        tower::service_fn(move |packet| -> TransportFut<'static> { Box::pin(chain.clone().answer(packet)) })
    }

    async fn answer(self, packet: RequestPacket) -> Result<ResponsePacket, TransportError> {
        let wire = Wire::of(&self, None, packet.method_names());
        wire.before().await.map_err(WireFailure::transport_error)?;
        let answer = match packet {
            RequestPacket::Single(request) => ResponsePacket::Single(answer_one(&request, &wire).await),
            RequestPacket::Batch(requests) => {
                let methods = requests.iter().map(SerializedRequest::method);
                let answers = requests.iter().map(|request| answer_one(request, &wire));
                ResponsePacket::Batch(in_order(methods, answers).await)
            }
        };
        wire.after().map_err(WireFailure::transport_error)?;
        Ok(answer)
    }
}

async fn answer_one(request: &SerializedRequest, wire: &Wire<'_>) -> Response {
    let payload = match wire.request(request.method(), request.params()).await {
        Ok(result) => ResponsePayload::Success(result),
        Err(RpcError { code, message, data }) => ResponsePayload::Failure(ErrorPayload {
            code,
            message: Cow::Owned(message),
            data: data.and_then(|data| to_raw_value(&data).ok()),
        }),
    };
    Response { id: request.id().clone(), payload }
}

/// Handles the requests of a batch: one after the other like geth, but concurrently if all have the same method, so
/// that many transactions share an fsync.
pub(crate) async fn in_order<'m, A: Future>(
    mut methods: impl Iterator<Item = &'m str>,
    answers: impl Iterator<Item = A>,
) -> Vec<A::Output> {
    let first = methods.next();
    if methods.all(|method| Some(method) == first) {
        return futures::future::join_all(answers).await;
    }
    let mut done = Vec::new();
    for answer in answers {
        done.push(answer.await);
    }
    done
}

/// Handling of one packet on a connection with faults.
pub(crate) struct Wire<'a> {
    chain: &'a Devchain,
    session: Option<&'a Session>,
    faults: std::sync::Arc<Faults>,
    hit: bool,
}

/// An HTTP status instead of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireFailure(pub StatusCode);

impl WireFailure {
    pub(crate) fn body(self) -> String {
        self.0.canonical_reason().unwrap_or_default().to_lowercase()
    }

    fn transport_error(self) -> TransportError {
        TransportErrorKind::http_error(self.0.as_u16(), self.body())
    }
}

impl<'a> Wire<'a> {
    pub(crate) fn of<'m>(
        chain: &'a Devchain,
        session: Option<&'a Session>,
        mut methods: impl Iterator<Item = &'m str>,
    ) -> Self {
        let faults = chain.engine.faults.get();
        let hit = methods.any(|method| faults.hits(method));
        Self { chain, session, faults, hit }
    }

    /// Applies latency, and failures without execution.
    pub(crate) async fn before(&self) -> Result<(), WireFailure> {
        if !self.hit {
            return Ok(());
        }
        let dice = &self.chain.engine.faults;
        let jitter_ms = dice.roll().checked_rem(self.faults.latency_jitter_ms).unwrap_or(0);
        let latency_ms = self.faults.latency_ms.saturating_add(jitter_ms);
        if latency_ms > 0 {
            tokio::time::sleep(Duration::from_millis(latency_ms)).await;
        }
        if dice.happens(self.faults.rate_limited_rate) {
            return Err(WireFailure(StatusCode::TOO_MANY_REQUESTS));
        }
        if dice.happens(self.faults.unavailable_rate) {
            return Err(WireFailure(StatusCode::SERVICE_UNAVAILABLE));
        }
        Ok(())
    }

    pub(crate) async fn request(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let params = rpc::Params::from_raw(params)?;
        if !self.faults.hits(method) {
            return rpc::answer(&self.chain.engine, self.session, method, params, &Faults::default()).await;
        }
        if self.chain.engine.faults.happens(self.faults.error_rate) {
            return Err(RpcError::internal("fault injected"));
        }
        rpc::answer(&self.chain.engine, self.session, method, params, &self.faults).await
    }

    /// Applies failures after execution.
    pub(crate) fn after(&self) -> Result<(), WireFailure> {
        if self.hit && self.chain.engine.faults.happens(self.faults.lost_answer_rate) {
            return Err(WireFailure(StatusCode::SERVICE_UNAVAILABLE));
        }
        Ok(())
    }
}
