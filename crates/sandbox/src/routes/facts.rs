//! `GET /sandbox`: addresses on the chains, for clients that inspect the chains themselves.

use std::sync::Arc;

use axum::Extension;
use payferry_domain::Timestamp;
use payferry_evm::wallet::Vaults;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::ApiError;
use serde_json::{Map, Value, json};

use crate::env::SandboxEnv;

/// Returns contracts, tokens and addresses of each chain.
pub(super) async fn read(Extension(env): Extension<Arc<SandboxEnv>>, caller: Caller<Read>) -> Result<Answer, ApiError> {
    let mut chains = Map::new();
    for (name, chain) in env.chains() {
        let spec = chain.spec();
        let tokens: Map<String, Value> =
            spec.tokens.iter().map(|(token, address)| (token.to_string(), json!(address))).collect();
        let head = chain.devchain().head();
        let facts = json!({
            "chain_id": spec.chain_id,
            "payferry": spec.contract,
            "treasury": spec.treasury,
            "psp_vault": Vaults::new(spec.contract).of_psp(caller.psp_id),
            "tokens": tokens,
            "head": {"number": head.number, "hash": head.hash, "timestamp": head.timestamp},
        });
        chains.insert(name.to_string(), facts);
    }
    let offset_secs = env.clock().clock().offset_ms() / 1_000;
    Answer::ok(&json!({
        "message": "Sandbox",
        "psp_id": caller.psp_id,
        "clock": {"now": env.clock().clock().now::<Timestamp>().to_string(), "offset_seconds": offset_secs},
        "chains": chains,
        "keeps_ledger": true,
    }))
}
