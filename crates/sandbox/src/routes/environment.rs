//! `GET /sandbox`: addresses on the chains and accounts with their keys, for clients that use the chains themselves. `POST
//! /sandbox/clock/advance`. `POST /sandbox/faucet`. `POST /sandbox/withdrawal-wallet`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use payferry_contracts::MULTICALL3;
use payferry_devchain::DevWallet;
use payferry_domain::payment::Decision;
use payferry_domain::{Amount, Chain, Timestamp};
use payferry_evm::wallet::{Vaults, checksummed};
use payferry_httpkit::{Answer, ApiError, Caller, Payments, Read, read};
use serde_json::{Map, Value, json};

use super::payments::amount;
use super::{Body, SandboxHost, away, block, fields};
use crate::env::{ADVANCE_SECS_MAX, SandboxEnv};

/// Default amount of each token from the faucet.
const FAUCET_TOKENS: Amount = Amount::from_tokens(10_000);
/// Coins of the chain from the faucet, for gas.
const FAUCET_COINS: u64 = 1;

/// Returns contracts, tokens and addresses of each chain, and accounts with their keys.
pub(super) async fn facts<H: SandboxHost>(
    State(app): State<H>,
    Extension(env): Extension<Arc<SandboxEnv>>,
    caller: Caller<Read>,
) -> Result<Answer, ApiError> {
    let base = app.public_url().as_str().trim_end_matches('/');
    // `http` becomes `ws`, and `https` becomes `wss`.
    let socket_base = base.replacen("http", "ws", 1);
    let mut chains = Map::new();
    for (name, chain) in env.chains() {
        let spec = chain.spec();
        let tokens: Map<String, Value> =
            spec.tokens.iter().map(|(token, address)| (token.to_string(), json!(checksummed(*address)))).collect();
        let facts = json!({
            "chain_id": spec.chain_id,
            "rpc_url": format!("{base}/sandbox/rpc/{name}"),
            "ws_url": format!("{socket_base}/sandbox/rpc/{name}"),
            "payferry": checksummed(spec.contract),
            "treasury": checksummed(spec.treasury),
            "psp_vault": checksummed(Vaults::new(spec.contract).of_psp(caller.psp_id)),
            "multicall3": MULTICALL3.to_string(),
            "tokens": tokens,
            "head": block(&chain.devchain().head()),
            "usable": env.is_usable(name, app.system()),
        });
        chains.insert(name.to_string(), facts);
    }
    let offset_secs = env.clock().offset_ms() / 1_000;
    let accounts = env.accounts();
    let clean = accounts.test.iter().map(|wallet| account(wallet, Decision::Allow));
    let others = [account(&accounts.sanctioned, Decision::Block), account(&accounts.review, Decision::Review)];
    Answer::ok(&json!({
        "message": "Sandbox",
        "psp_id": caller.psp_id,
        "clock": {"now": env.clock().now::<Timestamp>().to_string(), "offset_seconds": offset_secs},
        "chains": chains,
        "sanctioned_address": accounts.sanctioned.address().to_string(),
        "review_address": accounts.review.address().to_string(),
        "accounts": clean.chain(others).collect::<Vec<_>>(),
        "keeps_ledger": true,
    }))
}

/// An account with its key. The keys are the same in every sandbox, and the accounts hold nothing anywhere else.
fn account(wallet: &DevWallet, screening: Decision) -> Value {
    json!({
        "address": wallet.address().to_string(),
        "private_key": wallet.signer().to_bytes(),
        "screening": screening,
    })
}

/// Advances the service and the chains. Answers when the service has read the chains up to the new time. Webhook timestamps
/// keep real time.
pub(super) async fn advance<H: SandboxHost>(
    State(app): State<H>,
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
    env.until_usable(app.system()).await.map_err(|error| {
        let offset_secs = clock.offset_ms() / 1_000;
        away(format!("The clock has been advanced, its offset is {offset_secs} s; but {error}."))
    })?;
    let offset_secs = clock.offset_ms() / 1_000;
    let now = clock.now::<Timestamp>().to_string();
    Answer::ok(&json!({"message": "Clock advanced", "now": now, "offset_seconds": offset_secs}))
}

/// Sets the PSP's withdrawal wallet, which otherwise only the operator can do.
pub(super) async fn withdrawal_wallet<H: SandboxHost>(
    State(app): State<H>,
    caller: Caller<Payments>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let (wallet, chain) = fields(&body, |fields| {
        let chain = fields.optional("chain", read::name::<Chain>);
        Some((fields.required("address", read::address)?, chain))
    })?;
    app.set_withdrawal_wallet(caller.psp_id, chain, wallet).await?;
    Answer::ok(&json!({"message": "Withdrawal wallet set", "address": checksummed(wallet), "chain": chain}))
}

/// Sends coins and tokens to an account of the client.
pub(super) async fn faucet(
    Extension(env): Extension<Arc<SandboxEnv>>,
    _: Caller<Payments>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let (chain, to, amount) = fields(&body, |fields| {
        let chain = fields.required("chain", read::name::<Chain>);
        let to = fields.required("address", read::address);
        let amount = fields.optional("amount", amount).unwrap_or(FAUCET_TOKENS);
        Some((chain?, to?, amount))
    })?;
    let running = env.chain(chain);
    let mut sent = vec![json!({
        "currency": "native",
        "amount": FAUCET_COINS.to_string(),
        "tx_hash": running.transfer_coins(to, FAUCET_COINS).await.map_err(away)?,
    })];
    for token in running.spec().tokens.iter().map(|(token, _)| *token) {
        let tx_hash = running.transfer(crate::Payer::Clean, token, to, amount).await.map_err(away)?;
        sent.push(json!({"currency": token, "amount": amount.to_string(), "tx_hash": tx_hash}));
    }
    Answer::ok(&json!({"message": "Sent", "chain": chain, "address": checksummed(to), "sent": sent}))
}
