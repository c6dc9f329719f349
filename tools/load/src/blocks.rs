//! Watches the blocks of a sandbox's chains, to see when a transfer is mined.
//!
//! It sends one request per chain and interval, however many transfers wait.

use std::time::Duration;

use alloy::primitives::B256;
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior};

use payferry_testkit::rpc::Rpc;

/// Polling interval of the newest block: the precision of block times.
pub const POLL: Duration = Duration::from_millis(25);
/// Largest number of blocks that are read in one interval. The rest is read in the next.
const CATCH_UP_MAX: u64 = 64;

#[derive(Deserialize)]
struct Block {
    #[serde(deserialize_with = "quantity")]
    number: u64,
    transactions: Vec<B256>,
}

fn quantity<'de, D: serde::Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    alloy::primitives::U64::deserialize(value).map(|quantity| quantity.to())
}

/// Calls `mined` with each transaction in blocks above `above` and the time at which it was seen, forever. Retries
/// failed requests.
pub async fn watch(rpc: Rpc, above: u64, mut mined: impl FnMut(B256, Instant)) {
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut read = above;
    loop {
        ticks.tick().await;
        let Some(head) = block(&rpc, "\"latest\"").await else { continue };
        let at = Instant::now();
        for number in (read + 1..head.number).take(usize::try_from(CATCH_UP_MAX).unwrap_or(1)) {
            let Some(between) = block(&rpc, &format!("\"0x{number:x}\"")).await else { break };
            between.transactions.into_iter().for_each(|hash| mined(hash, at));
            read = number;
        }
        if head.number == read + 1 {
            head.transactions.into_iter().for_each(|hash| mined(hash, at));
            read = head.number;
        }
    }
}

async fn block(rpc: &Rpc, name: &str) -> Option<Block> {
    let results = rpc.batch("eth_getBlockByNumber", [format!("[{name},false]")]).await.ok()?;
    let result = results.into_iter().next()?.ok()?;
    serde_json::from_str(result.get()).ok()
}
