//! JSON-RPC methods: the dispatch table, and the methods that change something. Queries are in `read.rs`, execution in
//! `run.rs`.

mod control;
mod filters;
mod logs;
mod params;
mod read;
mod run;
mod subscriptions;
mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alloy::primitives::{B256, Bytes, U64};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::config::Mining;
use crate::devchain::blocking;
use crate::engine::Engine;
use crate::error::RpcError;
use crate::faults::Faults;
use crate::tx::Tx;

pub(crate) use filters::Filters;
pub(crate) use params::Params;
pub(crate) use subscriptions::{Session, TooFarBehind};
use view::View;

type Answer = Result<Box<RawValue>, RpcError>;

pub(crate) fn json(value: &impl Serialize) -> Answer {
    to_raw_value(value).map_err(RpcError::internal)
}

/// Handles one request. A client without a session cannot subscribe. The faults are those that change a result: a lagging
/// head and distorted logs.
pub(crate) async fn answer(
    engine: &Arc<Engine>,
    session: Option<&Session>,
    method: &str,
    mut params: Params,
    faults: &Faults,
) -> Answer {
    match method {
        "eth_sendRawTransaction" => {
            return json(&send_raw_transaction(engine, params.take(0, "transaction")?).await?);
        }
        _ if method.starts_with("evm_") || method.starts_with("anvil_") || method.starts_with("hardhat_") => {
            return control::answer(engine, method, params).await;
        }
        _ => {}
    }
    let chain = engine.chain.read();
    let view = View::new(engine, &chain, faults);
    match method {
        "eth_chainId" => json(&U64::from(engine.config.chain_id)),
        "net_version" => json(&engine.config.chain_id.to_string()),
        "net_listening" => json(&true),
        "web3_clientVersion" => json(&concat!("payferry-devchain/v", env!("CARGO_PKG_VERSION"))),
        "eth_syncing" => json(&false),
        "eth_accounts" => json(&Vec::<String>::new()),
        "eth_blockNumber" => json(&U64::from(view.head)),
        "eth_getBlockByNumber" => read::block_by_number(&view, params),
        "eth_getBlockByHash" => read::block_by_hash(&view, params),
        "eth_getBlockReceipts" => read::block_receipts(&view, params),
        "eth_getTransactionByHash" => read::transaction(&view, params),
        "eth_getTransactionReceipt" => read::receipt(&view, params),
        "eth_getLogs" => logs::by_filter(&view, params),
        "eth_newFilter" => filters::of_logs(&view, params),
        "eth_newBlockFilter" => filters::of_blocks(&view),
        "eth_newPendingTransactionFilter" => filters::of_transactions(&view, params),
        "eth_getFilterChanges" => filters::changes(&view, params),
        "eth_getFilterLogs" => filters::all_logs(&view, params),
        "eth_uninstallFilter" => filters::uninstall(&view, params),
        "eth_subscribe" | "eth_unsubscribe" => match session {
            Some(session) if method == "eth_subscribe" => session.subscribe(&view, params),
            Some(session) => session.unsubscribe(params),
            None => Err(RpcError::new(-32_601, "notifications not supported")),
        },
        "eth_getBalance" => read::balance(&view, params),
        "eth_getCode" => read::code(&view, params),
        "eth_getStorageAt" => read::storage_at(&view, params),
        "eth_getTransactionCount" => read::transaction_count(&view, params),
        "eth_call" => run::call(&view, params),
        "eth_estimateGas" => run::estimate_gas(&view, params),
        "eth_gasPrice" => run::gas_price(&view),
        "eth_maxPriorityFeePerGas" => json(&U64::from(engine.config.priority_fee_wei)),
        "eth_feeHistory" => run::fee_history(&view, params),
        "txpool_status" => read::pool_status(&view),
        _ => Err(RpcError::method_not_found(method)),
    }
}

pub(crate) async fn send_raw_transaction(engine: &Arc<Engine>, raw: Bytes) -> Result<B256, RpcError> {
    // Decode before taking any lock, because decoding and recovery are expensive.
    let tx = Tx::decode(&raw)?;
    let hash = tx.hash;
    engine.accept(raw.into(), tx)?.wait().await?;
    let mining = *engine.mining.borrow();
    if mining == Mining::PerTransaction && !engine.paused.load(Ordering::Acquire) {
        let _queue = engine.sealing.lock().await;
        if engine.is_ready(&hash) {
            blocking(engine, move |engine| engine.mine_if_ready(&hash)).await?;
        }
    }
    Ok(hash)
}
