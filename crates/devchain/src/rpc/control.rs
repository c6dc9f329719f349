//! Development controls with the names of anvil's, so that a test can use either node.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U64, U256};
use serde_json::Value;

use super::{Answer, Params, json};
use crate::config::Mining;
use crate::devchain::blocking;
use crate::engine::Engine;
use crate::error::RpcError;
use crate::state::Control;

pub(super) async fn answer(engine: &Arc<Engine>, method: &str, mut params: Params) -> Answer {
    match method.split_once('_').map_or(method, |(_, name)| name) {
        "mine" => mine(engine, method, params).await,
        "increaseTime" => {
            let secs = params.quantity(0, "seconds")?.unwrap_or(0);
            let offset = blocking(engine, move |engine| engine.shift_clock(secs)).await?;
            json(&offset)
        }
        "setNextBlockTimestamp" | "setTime" => {
            let timestamp = params.take_quantity(0, "timestamp")?;
            blocking(engine, move |engine| engine.set_next_timestamp(timestamp)).await?;
            json(&Value::Null)
        }
        "setNextBlockBaseFeePerGas" => {
            let wei = params.take_quantity(0, "base fee")?;
            blocking(engine, move |engine| engine.set_next_base_fee(wei)).await?;
            json(&Value::Null)
        }
        "setBalance" => {
            let address: Address = params.take(0, "address")?;
            set(engine, Control::Balance(address, params.take::<U256>(1, "balance")?)).await
        }
        "setNonce" => {
            let address: Address = params.take(0, "address")?;
            let nonce = params.take_quantity(1, "nonce")?;
            set(engine, Control::Nonce(address, nonce)).await
        }
        "setCode" => {
            let address: Address = params.take(0, "address")?;
            set(engine, Control::Code(address, params.take::<Bytes>(1, "code")?)).await
        }
        "setStorageAt" => {
            let address: Address = params.take(0, "address")?;
            let slot: U256 = params.take(1, "slot")?;
            set(engine, Control::Slot(address, slot, params.take::<U256>(2, "value")?)).await?;
            json(&true)
        }
        "snapshot" => json(&U64::from(blocking(engine, Engine::snapshot).await?)),
        "revert" => {
            let snapshot = params.take_quantity(0, "snapshot")?;
            json(&blocking(engine, move |engine| engine.revert(snapshot)).await?)
        }
        "reorg" => reorg(engine, params).await,
        "dropTransaction" => {
            let hash: B256 = params.take(0, "transaction hash")?;
            let removed = blocking(engine, move |engine| engine.remove(&hash)).await?;
            json(&removed.then_some(hash))
        }
        "setAutomine" => {
            let on: bool = params.take(0, "enabled")?;
            // As in anvil, disabling automine does not change an interval.
            engine.mining.send_if_modified(|mining| {
                let wanted = match (on, *mining) {
                    (true, _) => Mining::PerTransaction,
                    (false, Mining::PerTransaction) => Mining::OnDemand,
                    (false, other) => other,
                };
                std::mem::replace(mining, wanted) != wanted
            });
            json(&Value::Null)
        }
        "setIntervalMining" => {
            let secs = params.take_quantity(0, "seconds")?;
            let interval = Mining::Interval(Duration::from_secs(secs));
            engine.mining.send_replace(if secs == 0 { Mining::OnDemand } else { interval });
            json(&Value::Null)
        }
        _ => Err(RpcError::method_not_found(method)),
    }
}

/// `evm_mine` takes a timestamp or `{timestamp, blocks}`; `anvil_mine` takes a count and the seconds before each block.
async fn mine(engine: &Arc<Engine>, method: &str, mut params: Params) -> Answer {
    if method == "evm_mine" {
        let mut options = match params.optional::<Value>(0, "options")? {
            Some(Value::Object(options)) => options,
            Some(timestamp) => [("timestamp".to_owned(), timestamp)].into_iter().collect(),
            None => serde_json::Map::new(),
        };
        let values = ["timestamp", "blocks"].map(|name| options.remove(name).unwrap_or_default());
        let mut params = Params::from_value(Value::Array(values.into()))?;
        let (timestamp, blocks) = (params.quantity(0, "timestamp")?, params.quantity(1, "blocks")?);
        blocking(engine, move |engine| {
            timestamp.map_or(Ok(()), |timestamp| engine.set_next_timestamp(timestamp))?;
            engine.mine(blocks.unwrap_or(1))
        })
        .await?;
        return json(&"0x0");
    }
    let blocks = params.quantity(0, "blocks")?.unwrap_or(1);
    let interval = params.quantity(1, "interval")?.unwrap_or(0);
    blocking(engine, move |engine| {
        if interval == 0 {
            return engine.mine(blocks).map(drop);
        }
        engine.advance(interval.saturating_mul(blocks), interval).map(drop)
    })
    .await?;
    json(&Value::Null)
}

/// Parameters as in anvil: the depth, and pairs of transactions and blocks, which must be empty here. The transactions
/// of removed blocks are discarded, unless the third parameter (an extension) is `true`: then they return to the
/// mempool.
async fn reorg(engine: &Arc<Engine>, mut params: Params) -> Answer {
    let depth = params.take_quantity(0, "depth")?;
    if params.optional::<Vec<Value>>(1, "transactions")?.is_some_and(|pairs| !pairs.is_empty()) {
        return Err(RpcError::invalid_params("transactions for the new blocks are not supported"));
    }
    let remine = params.optional::<bool>(2, "remine")?.unwrap_or(false);
    blocking(engine, move |engine| engine.reorg(|_| depth, remine)).await?;
    json(&Value::Null)
}

async fn set(engine: &Arc<Engine>, control: Control) -> Answer {
    blocking(engine, move |engine| engine.control(control)).await?;
    json(&Value::Null)
}
