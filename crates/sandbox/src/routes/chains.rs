//! `POST /sandbox/chains/{chain}/mine`, `.../mining`, `.../reorg`, `.../faults`, `.../recipients` and `.../settlements`.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::Bytes;
use axum::http::HeaderName;
use axum::response::IntoResponse;
use payferry_devchain::{BlockRef, Dropped, Faults};
use payferry_domain::Chain;
use payferry_evm::wallet::{Vaults, checksummed};
use payferry_httpkit::{Answer, ApiError, Caller, Fault, Path, Payments, read};
use serde_json::{Value, json};

use super::{Body, away, block, fields, object};
use crate::chain::{FOUNDATION_BLOCKS, SandboxChain};
use crate::env::SandboxEnv;

/// Header with the duration of the request's steps, in milliseconds.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Maximum number of blocks per request.
const MINE_BLOCKS_MAX: i64 = 10_000;
/// Maximum depth of a reorg: the undo limit of the chains.
const REORG_DEPTH_MAX: u64 = 1_000;
/// Maximum injected latency, in milliseconds.
const LATENCY_MS_MAX: u64 = 60_000;

/// Parts of a request to a chain: the environment, the caller, the chain's name, and the body.
type ChainRequest = (Extension<Arc<SandboxEnv>>, Caller<Payments>, Path<String>, Body);

/// Returns the requested chain and the body.
fn chain(request: ChainRequest) -> Result<(Chain, Arc<SandboxChain>, Bytes), ApiError> {
    let (Extension(env), _, Path(name), Body(body)) = request;
    let name: Chain = name.parse().map_err(|_| ApiError::NotFound("chain"))?;
    Ok((name, env.chain(name).clone(), body))
}

fn answer(message: &str, chain: Chain, head: BlockRef) -> Result<Answer, ApiError> {
    Answer::ok(&json!({"message": message, "chain": chain, "head": block(&head)}))
}

/// Mines blocks at once. `Server-Timing` in the answer reports the time until the last block was sealed.
pub(super) async fn mine(request: ChainRequest) -> Result<impl IntoResponse, ApiError> {
    let asked = Instant::now();
    let (name, chain, body) = chain(request)?;
    let blocks = fields(&body, |fields| {
        Some(fields.optional("blocks", |value| read::whole(value, 1, MINE_BLOCKS_MAX)).unwrap_or(1))
    })?;
    chain.devchain().mine(blocks.unsigned_abs()).await.map_err(away)?;
    let made_in = chain.devchain().sealed_at().saturating_duration_since(asked);
    let timing = format!("block;dur={:.3}", made_in.as_secs_f64() * 1_000.0);
    Ok(([(SERVER_TIMING, timing)], answer("Mined", name, chain.devchain().head())?))
}

/// Pauses or resumes interval mining, to hold a chain still during a test; `mine` still works.
pub(super) async fn mining(request: ChainRequest) -> Result<Answer, ApiError> {
    let (name, chain, body) = chain(request)?;
    let paused = fields(&body, |fields| fields.required("paused", read::flag))?;
    if paused {
        chain.devchain().pause_mining();
    } else {
        chain.devchain().resume_mining();
    }
    answer(if paused { "Paused" } else { "Mining" }, name, chain.devchain().head())
}

/// Makes USDC refuse a recipient, so that payouts, withdrawals, refunds and transfers to it fail; or accept it again.
pub(super) async fn recipients(request: ChainRequest) -> Result<Answer, ApiError> {
    let (name, chain, body) = chain(request)?;
    let (address, refused) = fields(&body, |fields| {
        let (address, refused) = (fields.required("address", read::address), fields.required("refused", read::flag));
        Some((address?, refused?))
    })?;
    let tx_hash = chain.refuse(address, refused).await.map_err(away)?;
    let message = if refused { "USDC refuses the recipient" } else { "USDC accepts the recipient" };
    Answer::ok(&json!({"message": message, "chain": name, "address": checksummed(address), "tx_hash": tx_hash}))
}

/// Makes settlements of the PSP's payments in USDC revert, because the token refuses the PSP's vault; or succeed again.
pub(super) async fn settlements(request: ChainRequest) -> Result<Answer, ApiError> {
    let psp_id = request.1.psp_id;
    let (name, chain, body) = chain(request)?;
    let revert = fields(&body, |fields| fields.required("revert", read::flag))?;
    let vault = Vaults::new(chain.spec().contract).of_psp(psp_id);
    let tx_hash = chain.refuse(vault, revert).await.map_err(away)?;
    let message = if revert { "Settlements in USDC revert" } else { "Settlements in USDC succeed" };
    Answer::ok(&json!({"message": message, "chain": name, "psp_vault": checksummed(vault), "tx_hash": tx_hash}))
}

/// Reorgs the last blocks. Their transactions are mined again later, or dropped.
pub(super) async fn reorg(request: ChainRequest) -> Result<Answer, ApiError> {
    let (name, chain, body) = chain(request)?;
    let depth_max = chain.devchain().head().number.saturating_sub(FOUNDATION_BLOCKS).min(REORG_DEPTH_MAX);
    let depth_max = i64::try_from(depth_max).unwrap_or(i64::MAX);
    let (depth, dropped) = fields(&body, |fields| {
        let depth = fields.required("depth", |value| read::whole(value, 1, depth_max));
        let dropped = fields.optional("dropped", dropped).unwrap_or(Dropped::Remine);
        Some((depth?, dropped))
    })?;
    let head = chain.devchain().reorg(depth.unsigned_abs(), dropped).await.map_err(away)?;
    answer("Reorganised", name, head)
}

fn dropped(value: &Value) -> Result<Dropped, Fault> {
    match read::string(value)? {
        "remine" => Ok(Dropped::Remine),
        "discard" => Ok(Dropped::Discard),
        _ => Err(Fault::new("unknown_value", "must be one of remine, discard")),
    }
}

/// Replaces the injected faults of the chain's JSON-RPC; an empty body removes them.
pub(super) async fn faults(request: ChainRequest) -> Result<Answer, ApiError> {
    let (name, chain, body) = chain(request)?;
    let faults: Faults = serde_json::from_value(object(&body)?)
        .map_err(|error| ApiError::field("faults", "invalid_faults", format!("cannot be read: {error}")))?;
    check(&faults)?;
    chain.devchain().set_faults(faults.clone());
    Answer::ok(&json!({"message": "Faults replaced", "chain": name, "faults": faults}))
}

fn check(faults: &Faults) -> Result<(), ApiError> {
    let rates = [
        ("rate_limited_rate", faults.rate_limited_rate),
        ("unavailable_rate", faults.unavailable_rate),
        ("error_rate", faults.error_rate),
        ("lost_answer_rate", faults.lost_answer_rate),
        ("empty_logs_rate", faults.empty_logs_rate),
        ("missing_log_rate", faults.missing_log_rate),
        ("duplicate_log_rate", faults.duplicate_log_rate),
        ("stale_log_rate", faults.stale_log_rate),
        ("forged_log_rate", faults.forged_log_rate),
    ];
    if let Some((name, _)) = rates.into_iter().find(|(_, rate)| !(0.0..=1.0).contains(rate)) {
        return Err(ApiError::field(name, "out_of_range", "must be between 0 and 1"));
    }
    let delays = [("latency_ms", faults.latency_ms), ("latency_jitter_ms", faults.latency_jitter_ms)];
    if let Some((name, _)) = delays.into_iter().find(|(_, millis)| *millis > LATENCY_MS_MAX) {
        return Err(ApiError::field(name, "out_of_range", format!("must be at most {LATENCY_MS_MAX}")));
    }
    Ok(())
}
