//! Injectable faults of the connection to a chain. They affect the transport and the router, but not
//! [`crate::Devchain::call`] and not the controls `evm_*` and `anvil_*`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy::primitives::{B256, Bytes, Log, LogData, U256, keccak256};
use alloy::rpc::types::{Filter, Log as RpcLog};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// Faults by name. A rate is between 0 (never) and 1 (always).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Affected methods; empty means all.
    pub methods: Vec<String>,
    /// Delay before each response, in milliseconds.
    pub latency_ms: u64,
    /// Maximum additional random delay, in milliseconds.
    pub latency_jitter_ms: u64,
    /// Rate of HTTP 429 responses, without execution.
    pub rate_limited_rate: f64,
    /// Rate of HTTP 503 responses, without execution.
    pub unavailable_rate: f64,
    /// Rate of JSON-RPC internal errors, without execution.
    pub error_rate: f64,
    /// Rate of HTTP 503 responses after execution, so that the outcome is unknown to the caller.
    pub lost_answer_rate: f64,
    /// Number of blocks by which the visible head is behind.
    pub head_lag_blocks: u64,
    /// Rate of empty `eth_getLogs` results.
    pub empty_logs_rate: f64,
    /// Rate of logs that are missing from the result.
    pub missing_log_rate: f64,
    /// Rate of logs that are in the result twice.
    pub duplicate_log_rate: f64,
    /// Rate of logs with a block hash that does not exist.
    pub stale_log_rate: f64,
    /// Rate of forged logs: from the requested contract, in a real block, but without a transaction.
    pub forged_log_rate: f64,
    /// Maximum number of blocks for `eth_getLogs`; more is an error. 0 means no limit.
    pub logs_range_blocks_max: u64,
    /// Code of that error; 0 means -32005.
    pub logs_range_error_code: i64,
}

impl Faults {
    /// Returns true if faults apply to this method.
    pub(crate) fn hits(&self, method: &str) -> bool {
        let control = ["evm_", "anvil_", "hardhat_"].iter().any(|prefix| method.starts_with(prefix));
        !control && (self.methods.is_empty() || self.methods.iter().any(|name| name == method))
    }
}

/// The current faults and a random generator.
#[derive(Debug, Default)]
pub(crate) struct FaultInjector {
    faults: RwLock<Arc<Faults>>,
    rolls: AtomicU64,
}

/// Resolution of rates.
const SIDES: u32 = 1_000_000;

impl FaultInjector {
    pub(crate) fn set(&self, faults: Faults) {
        *self.faults.write() = Arc::new(faults);
    }

    pub(crate) fn get(&self) -> Arc<Faults> {
        Arc::clone(&self.faults.read())
    }

    /// Returns a pseudo-random number from a sequence that is the same in every run.
    pub(crate) fn roll(&self) -> u64 {
        // splitmix64
        let mut x = self.rolls.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn happens(&self, rate: f64) -> bool {
        rate > 0.0 && f64::from(u32::try_from(self.roll() % u64::from(SIDES)).unwrap_or(0)) < rate * f64::from(SIDES)
    }

    /// Distorts correct logs like a faulty node. `block` is a requested block, if any.
    pub(crate) fn distort(
        &self,
        faults: &Faults,
        filter: &Filter,
        block: Option<crate::BlockRef>,
        logs: Vec<RpcLog>,
    ) -> Vec<RpcLog> {
        if self.happens(faults.empty_logs_rate) {
            return Vec::new();
        }
        let mut answer = Vec::with_capacity(logs.len());
        for mut log in logs {
            if self.happens(faults.missing_log_rate) {
                continue;
            }
            if self.happens(faults.stale_log_rate) {
                log.block_hash = log.block_hash.map(keccak256);
            }
            if self.happens(faults.duplicate_log_rate) {
                answer.push(log.clone());
            }
            answer.push(log);
        }
        if let Some(block) = block
            && self.happens(faults.forged_log_rate)
        {
            answer.push(self.forge(filter, block, answer.last()));
        }
        answer
    }

    fn forge(&self, filter: &Filter, block: crate::BlockRef, model: Option<&RpcLog>) -> RpcLog {
        let inner = model.map_or_else(
            || {
                let topics = filter.topics.iter().map_while(|topic| topic.iter().next().copied()).collect();
                let data = Bytes::from(U256::from(1_000_000).to_be_bytes::<32>());
                Log {
                    address: filter.address.iter().next().copied().unwrap_or_default(),
                    data: LogData::new_unchecked(topics, data),
                }
            },
            |model| model.inner.clone(),
        );
        RpcLog {
            inner,
            block_hash: Some(block.hash),
            block_number: Some(block.number),
            block_timestamp: Some(block.timestamp),
            transaction_hash: Some(B256::from(keccak256(self.roll().to_be_bytes()))),
            transaction_index: Some(0),
            log_index: Some(1_000_000),
            removed: false,
        }
    }
}
