//! Watches the blocks of a sandbox's chains, to see when a transfer is mined.
//!
//! It sends one request per chain and interval, however many transfers wait.

use std::time::Duration;

use alloy::primitives::{B256, U64};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use payferry_testkit::rpc::Rpc;

/// Polling interval of the newest block: the precision of block times.
pub const POLL: Duration = Duration::from_millis(25);
/// Largest number of blocks that are read in one interval. The rest is read in the next.
const CATCH_UP_MAX: u64 = 64;

#[derive(Deserialize)]
struct Block {
    number: U64,
    transactions: Vec<B256>,
}

/// Calls `mined` with each transaction in blocks above `above` and the time at which it was seen, forever. Retries
/// failed requests.
pub async fn watch(rpc: Rpc, above: u64, mut mined: impl FnMut(B256, Instant)) {
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut read = above;
    let block = async |name: String| rpc.call::<Block>("eth_getBlockByNumber", &json!([name, false])).await;
    loop {
        ticks.tick().await;
        let Ok(head) = block("latest".to_owned()).await else { continue };
        let (at, newest) = (Instant::now(), head.number.to());
        for number in (read + 1..newest).take(usize::try_from(CATCH_UP_MAX).unwrap_or(1)) {
            let Ok(between) = block(format!("0x{number:x}")).await else { break };
            between.transactions.into_iter().for_each(|hash| mined(hash, at));
            read = number;
        }
        if newest == read + 1 {
            head.transactions.into_iter().for_each(|hash| mined(hash, at));
            read = newest;
        }
    }
}
