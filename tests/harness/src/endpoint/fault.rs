//! Faults of an endpoint and their conditions.

use std::time::Duration;

use alloy::primitives::{B256, U256, keccak256};
use payferry_domain::Address;
use serde_json::{Value, json};

/// One fault: its kind, its methods and its time window.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(super) what: What,
    methods: Vec<&'static str>,
    after: Duration,
    lasting: Option<Duration>,
    times: Option<u32>,
    pub(super) one_in: u32,
}

/// Kind of a fault.
#[derive(Clone, Debug)]
pub enum What {
    /// Closes the connection without an answer.
    Closed,
    /// Delays the answer by this time.
    Slow(Duration),
    /// Answers with an HTTP status, and with `Retry-After` in seconds if given.
    Status(u16, Option<u64>),
    /// Answers with an HTTP status and a JSON-RPC error in the body.
    StatusError(u16, Option<u64>, i64, &'static str),
    /// Answers with a JSON-RPC error.
    Error(i64, &'static str),
    /// Answers with a body that is not JSON.
    Garbage,
    /// Answers with an HTML page and status 200.
    Html,
    /// Truncates the answer.
    Truncated,
    /// Refuses batches as a whole.
    NoBatches,
    /// Refuses `eth_getLogs` over more blocks than this with this error; code 413 is sent as an HTTP status.
    RangeMax(u64, i64, &'static str),
    /// Omits every nth log; 1 omits all.
    MissingLogs(usize),
    /// Returns every log twice.
    DuplicateLogs,
    /// Adds a log of a transfer that no transaction made.
    ForgedLog {
        /// The token.
        contract: Address,
        /// Apparent recipient.
        to: Address,
        /// Amount in base units.
        units: u64,
    },
    /// Answers `eth_chainId` with this id.
    ChainId(u64),
    /// Shows a head other than the chain's.
    Head(ReportedHead),
    /// Answers every block request with `null`.
    NullBlocks,
    /// Answers every request of a receipt with `null`, like an endpoint on another branch.
    NullReceipts,
}

/// The head that is shown.
#[derive(Clone, Copy, Debug)]
pub enum ReportedHead {
    /// A fixed block, or the real head if it is lower.
    At(u64),
    /// This number of blocks behind the real head.
    Behind(u64),
    /// Alternates between two distances behind the real head, like two nodes behind one address.
    Alternating(u64, u64),
}

impl Fault {
    /// A permanent fault on every method.
    pub fn of(what: What) -> Self {
        Self { what, methods: Vec::new(), after: Duration::ZERO, lasting: None, times: None, one_in: 1 }
    }

    /// Limits the fault to requests that contain one of these methods.
    #[must_use]
    pub fn on(mut self, methods: impl IntoIterator<Item = &'static str>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Limits the number of times the fault is applied.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Limits the fault to a time window: its start and its length.
    #[must_use]
    pub fn between(mut self, after: Duration, lasting: Duration) -> Self {
        (self.after, self.lasting) = (after, Some(lasting));
        self
    }

    /// Applies the fault randomly, once in this number of requests on average.
    #[must_use]
    pub fn one_in(mut self, one_in: u32) -> Self {
        self.one_in = one_in;
        self
    }

    pub(super) fn fits(&self, methods: &[&str], elapsed: Duration, shown: u32) -> bool {
        let in_time = elapsed >= self.after && self.lasting.is_none_or(|lasting| elapsed < self.after + lasting);
        let hit = self.methods.is_empty() || methods.iter().any(|method| self.methods.contains(method));
        in_time && hit && self.times.is_none_or(|times| shown < times)
    }
}

impl ReportedHead {
    pub(super) fn number(self, head: u64, exchange: u64) -> u64 {
        match self {
            Self::At(number) => head.min(number),
            Self::Behind(blocks) => head.saturating_sub(blocks),
            Self::Alternating(one, other) => head.saturating_sub(if exchange.is_multiple_of(2) { one } else { other }),
        }
    }
}

impl What {
    /// JSON-RPC error that the fault answers a call with, if any.
    pub(super) fn error(&self, method: &str, params: &Value) -> Option<(i64, String)> {
        match self {
            Self::Error(code, message) => Some((*code, (*message).to_owned())),
            Self::RangeMax(blocks, code, message) if method == "eth_getLogs" => {
                let number = |key: &str| {
                    let text = params[0][key].as_str()?.strip_prefix("0x")?;
                    u64::from_str_radix(text, 16).ok()
                };
                let (from, to) = (number("fromBlock")?, number("toBlock")?);
                (to.saturating_sub(from) >= *blocks).then(|| (*code, (*message).to_owned()))
            }
            _ => None,
        }
    }

    /// Changes the correct logs, if the fault does that. A log without a block is later placed in the last requested
    /// block.
    pub(super) fn distort(&self, logs: &[Value], dice: u64) -> Option<Vec<Value>> {
        match self {
            Self::MissingLogs(every) if !logs.is_empty() => {
                let kept = logs.iter().enumerate().filter(|(place, _)| (place + 1) % every != 0);
                Some(kept.map(|(_, log)| log.clone()).collect())
            }
            Self::DuplicateLogs => Some(logs.iter().flat_map(|log| [log.clone(), log.clone()]).collect()),
            Self::ForgedLog { contract, to, units } => {
                let topic = |address: &Address| B256::left_padding_from(&address.0);
                let forged = json!({
                    "address": contract,
                    "topics": [
                        keccak256("Transfer(address,address,uint256)"),
                        topic(&Address([0xfa; 20])),
                        topic(to),
                    ],
                    "data": B256::from(U256::from(*units)),
                    "blockHash": Value::Null,
                    "blockNumber": Value::Null,
                    "transactionHash": keccak256(dice.to_be_bytes()),
                    "transactionIndex": "0x0",
                    "logIndex": "0xf4240",
                    "removed": false,
                });
                Some(logs.iter().cloned().chain([forged]).collect())
            }
            _ => None,
        }
    }
}
