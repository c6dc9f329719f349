//! `GET /sandbox`: addresses on the chains, for clients that inspect the chains themselves. `POST
//! /sandbox/clock/advance`.

use std::sync::Arc;

use axum::Extension;
use payferry_domain::Timestamp;
use payferry_evm::wallet::Vaults;
use payferry_httpkit::{Answer, ApiError, Caller, Payments, Read, read};
use serde_json::{Map, Value, json};

use super::{Body, away, block, fields};
use crate::env::{ADVANCE_SECS_MAX, SandboxEnv};

/// Returns contracts, tokens and addresses of each chain.
pub(super) async fn facts(
    Extension(env): Extension<Arc<SandboxEnv>>,
    caller: Caller<Read>,
) -> Result<Answer, ApiError> {
    let mut chains = Map::new();
    for (name, chain) in env.chains() {
        let spec = chain.spec();
        let tokens: Map<String, Value> =
            spec.tokens.iter().map(|(token, address)| (token.to_string(), json!(address))).collect();
        let facts = json!({
            "chain_id": spec.chain_id,
            "payferry": spec.contract,
            "treasury": spec.treasury,
            "psp_vault": Vaults::new(spec.contract).of_psp(caller.psp_id),
            "tokens": tokens,
            "head": block(&chain.devchain().head()),
        });
        chains.insert(name.to_string(), facts);
    }
    let offset_secs = env.clock().offset_ms() / 1_000;
    Answer::ok(&json!({
        "message": "Sandbox",
        "psp_id": caller.psp_id,
        "clock": {"now": env.clock().now::<Timestamp>().to_string(), "offset_seconds": offset_secs},
        "chains": chains,
        "keeps_ledger": true,
    }))
}

/// Advances the service and the chains. Webhook timestamps keep real time.
pub(super) async fn advance(
    Extension(env): Extension<Arc<SandboxEnv>>,
    _: Caller<Payments>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let secs_max = i64::try_from(ADVANCE_SECS_MAX).unwrap_or(i64::MAX);
    let secs = fields(&body, |fields| fields.required("seconds", |value| read::whole(value, 1, secs_max)))?;
    // Completed even if the client disconnects: the time of the chains and of the service must agree.
    let (moving, secs) = (env.clone(), secs.unsigned_abs());
    let moved = tokio::spawn(async move { moving.advance(secs).await }).await;
    moved.map_err(away)?.map_err(away)?;
    let clock = env.clock();
    let offset_secs = clock.offset_ms() / 1_000;
    let now = clock.now::<Timestamp>().to_string();
    Answer::ok(&json!({"message": "Clock advanced", "now": now, "offset_seconds": offset_secs}))
}
