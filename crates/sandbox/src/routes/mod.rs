//! Routes that control the simulated environment. Production has no such routes.
//!
//! All require the PSP's API key, except the chains' JSON-RPC, incoming webhooks of an inbox, and the verification
//! page: wallets, webhook senders and browsers have no key.

mod chains;
mod environment;
mod forward;
mod identity;
mod inbox;
mod payments;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use payferry_actors::System;
use payferry_actors::system::SignedTerms;
use payferry_devchain::BlockRef;
use payferry_domain::payment::Payment;
use payferry_domain::{Address, Chain, PspId};
use payferry_entities::payments as payment_rows;
use payferry_httpkit::{AnyQuery, ApiError, Away, Fields, HttpState};
use serde_json::{Map, Value, json};
use url::Url;

pub use self::forward::forwarding;
use crate::env::SandboxEnv;
use crate::inbox::BODY_BYTES_MAX;

/// State of the service that the sandbox runs in.
pub trait SandboxHost: HttpState {
    /// The supervision tree.
    fn system(&self) -> &System;

    /// Base URL of the service for PSPs and payers.
    fn public_url(&self) -> &Url;

    /// The row of one of the PSP's own payments or transfers.
    fn own_payment(
        &self,
        psp_id: PspId,
        id: &str,
    ) -> impl Future<Output = Result<payment_rows::Model, ApiError>> + Send;

    /// Accepts an authorization of a payer, and returns its state.
    fn authorize(
        &self,
        payment: &Payment,
        terms: &SignedTerms,
    ) -> impl Future<Output = Result<Option<&'static str>, ApiError>> + Send;

    /// Sets the PSP's withdrawal wallet on a chain, or without one on every chain, as the operator would.
    fn set_withdrawal_wallet(
        &self,
        psp_id: PspId,
        chain: Option<Chain>,
        wallet: Address,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

/// The routes of the sandbox.
pub fn routes<H: SandboxHost>(env: Arc<SandboxEnv>) -> Router<H> {
    let inbox = get(inbox::list).delete(inbox::clear).fallback(inbox::receive::<H>).layer(Extension(AnyQuery));
    let mut router = Router::new()
        .route("/sandbox/payments/{payment_id}/pay", post(payments::pay::<H>))
        .route("/sandbox/payments/{payment_id}/panic", post(payments::panic::<H>))
        .route("/sandbox/chains/{chain}/mine", post(chains::mine))
        .route("/sandbox/chains/{chain}/mining", post(chains::mining))
        .route("/sandbox/chains/{chain}/reorg", post(chains::reorg))
        .route("/sandbox/chains/{chain}/faults", post(chains::faults))
        .route("/sandbox/chains/{chain}/recipients", post(chains::recipients))
        .route("/sandbox/chains/{chain}/settlements", post(chains::settlements))
        .route("/sandbox/withdrawal-wallet", post(environment::withdrawal_wallet::<H>))
        .route("/sandbox", get(environment::facts::<H>))
        .route("/sandbox/clock/advance", post(environment::advance::<H>))
        .route("/sandbox/faucet", post(environment::faucet))
        .route("/sandbox/inbox/{name}", inbox)
        .route("/sandbox/customers/{customer_id}/kyc", post(identity::kyc::<H>))
        .route("/sandbox/verify/{token}", get(identity::page::<H>).post(identity::decide::<H>))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    for (chain, running) in env.chains() {
        router = router.nest_service(&format!("/sandbox/rpc/{chain}"), running.devchain().router());
    }
    router.layer(Extension(env))
}

/// A body within the size limit of its route; errors are JSON instead of axum's plain text.
struct Body(Bytes);

impl<A: Send + Sync> FromRequest<A> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &A) -> Result<Self, ApiError> {
        Bytes::from_request(request, app).await.map(Self).map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge(BODY_BYTES_MAX),
            _ => ApiError::MalformedJson("the body ended early".to_owned()),
        })
    }
}

/// Parses a body: a JSON object, or nothing.
fn object(body: &[u8]) -> Result<Value, ApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_slice(body).map_err(|error| ApiError::MalformedJson(error.to_string()))
}

/// Reads the fields of a body.
fn fields<T>(body: &[u8], read: impl FnOnce(&Fields<'_>) -> Option<T>) -> Result<T, ApiError> {
    let body = object(body)?;
    let fields = Fields::of_body(&body)?;
    let read = read(&fields);
    fields.finish(read)
}

/// A block in an answer.
fn block(block: &BlockRef) -> Value {
    json!({"number": block.number, "hash": block.hash, "timestamp": block.timestamp})
}

/// Error of a chain that did not execute a request.
fn away(error: impl std::fmt::Display) -> ApiError {
    ApiError::Unavailable(Away::Chain, error.to_string().into())
}
