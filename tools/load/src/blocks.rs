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

/// Largest number of blocks that are read again after a reorganisation: the deepest one of a sandbox.
const REREAD_MAX: u64 = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    number: U64,
    hash: B256,
    parent_hash: B256,
    transactions: Vec<B256>,
}

/// Calls `mined` with each transaction in blocks above `above` and the time at which it was seen, forever. Retries
/// failed requests. After a reorganisation it reads the last blocks again, so that a transaction can be seen twice.
pub async fn watch(rpc: Rpc, above: u64, mut mined: impl FnMut(B256, Instant)) {
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The last block that was read, and its hash if that is known.
    let (mut read, mut hash): (u64, Option<B256>) = (above, None);
    let block = async |name: String| rpc.call::<Block>("eth_getBlockByNumber", &json!([name, false])).await;
    loop {
        ticks.tick().await;
        let Ok(head) = block("latest".to_owned()).await else { continue };
        let (at, newest) = (Instant::now(), head.number.to::<u64>());
        let mut is_reorged = newest < read || (newest == read && hash.is_some_and(|hash| hash != head.hash));
        let mut take = |block: Block, read: &mut u64| {
            is_reorged |= hash.is_some_and(|hash| hash != block.parent_hash);
            if !is_reorged {
                (*read, hash) = (block.number.to(), Some(block.hash));
                block.transactions.into_iter().for_each(|hash| mined(hash, at));
            }
            is_reorged
        };
        for number in (read + 1..newest).take(usize::try_from(CATCH_UP_MAX).unwrap_or(1)) {
            let Ok(between) = block(format!("0x{number:x}")).await else { break };
            if take(between, &mut read) {
                break;
            }
        }
        if newest == read + 1 {
            take(head, &mut read);
        }
        if is_reorged {
            (read, hash) = (read.saturating_sub(REREAD_MAX).max(above), None);
        }
    }
}
