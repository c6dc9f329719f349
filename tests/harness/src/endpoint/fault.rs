//! What an endpoint can be made to do wrong, and when.

use std::time::Duration;

use alloy::primitives::{B256, U256, keccak256};
use payferry_domain::Address;
use serde_json::{Value, json};

/// One fault: what, on which methods, and when.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(super) what: What,
    methods: Vec<&'static str>,
    after: Duration,
    lasting: Option<Duration>,
    times: Option<u32>,
    pub(super) one_in: u32,
}

/// What is wrong.
#[derive(Clone, Debug)]
pub enum What {
    /// The connection is closed without an answer.
    Closed,
    /// The answer takes this long.
    Slow(Duration),
    /// An HTTP status in place of an answer, with `Retry-After` in seconds if there is one.
    Status(u16, Option<u64>),
    /// An HTTP status with a JSON-RPC error in its body.
    StatusError(u16, Option<u64>, i64, &'static str),
    /// A JSON-RPC error.
    Error(i64, &'static str),
    /// Something that is no JSON.
    Garbage,
    /// A page for people, with status 200.
    Html,
    /// The answer breaks off in the middle.
    Truncated,
    /// Batches are refused as a whole.
    NoBatches,
    /// `eth_getLogs` over more blocks than this is refused with this error; code 413 is HTTP's.
    RangeMax(u64, i64, &'static str),
    /// Every nth log is left out; 1 for all of them.
    MissingLogs(usize),
    /// Every log is there twice.
    DuplicateLogs,
    /// One log more, of a transfer that no transaction made.
    ForgedLog {
        /// The token.
        contract: Address,
        /// Who seems to get it.
        to: Address,
        /// How much, base units.
        units: u64,
    },
    /// `eth_chainId` answers this.
    ChainId(u64),
    /// The chain shows another head than it has.
    Head(HeadShown),
    /// Every block is `null`.
    NullBlocks,
}

/// Which head is shown.
#[derive(Clone, Copy, Debug)]
pub enum HeadShown {
    /// Always this one.
    At(u64),
    /// So many blocks behind.
    Behind(u64),
    /// In turns, as of two nodes behind one address that are so many blocks behind.
    Alternating(u64, u64),
}

impl Fault {
    /// On every method, from now on, always.
    pub fn of(what: What) -> Self {
        Self { what, methods: Vec::new(), after: Duration::ZERO, lasting: None, times: None, one_in: 1 }
    }

    /// On requests that have one of these methods.
    #[must_use]
    pub fn on(mut self, methods: impl IntoIterator<Item = &'static str>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// So many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Not before this much time has passed, and for so long.
    #[must_use]
    pub fn between(mut self, after: Duration, lasting: Duration) -> Self {
        (self.after, self.lasting) = (after, Some(lasting));
        self
    }

    /// By chance, one time in so many.
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

impl HeadShown {
    pub(super) fn number(self, head: u64, exchange: u64) -> u64 {
        match self {
            Self::At(number) => head.min(number),
            Self::Behind(blocks) => head.saturating_sub(blocks),
            Self::Alternating(one, other) => head.saturating_sub(if exchange.is_multiple_of(2) { one } else { other }),
        }
    }
}

impl What {
    /// The JSON-RPC error that it answers a call with, if it does.
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

    /// What it makes of the right logs, if it does anything. A log without a block is put into the last one asked for.
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
