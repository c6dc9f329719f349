//! Lenient wire formats, and the classification of RPC errors: by remedy, and by kind for metrics and alerts.

use std::time::Duration;

use alloy::primitives::{B256, Bloom, BloomInput, Bytes, U128};
use alloy::rpc::json_rpc::ErrorPayload;
use alloy::serde::{null_as_default, quantity};
use alloy::transports::{RpcError, TransportError, TransportErrorKind};
use payferry_domain::{Hash32, Timestamp, named};
use serde::{Deserialize, Deserializer};

use super::client::FeeMarket;

/// JSON-RPC code: the endpoint failed.
const INTERNAL_ERROR: i64 = -32_603;
/// Maximum length of an endpoint's message that is kept.
const MESSAGE_CHARS_MAX: usize = 200;

/// Error of a call, classified by remedy. Never contains an endpoint's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Too many blocks or logs in one query: request fewer.
    #[error("the endpoint requires a smaller block range: {0}")]
    RangeTooLarge(String),
    /// Too many requests: wait.
    #[error("the endpoint limits the rate of requests")]
    RateLimited {
        /// Time to wait, if the endpoint gave one.
        retry_after: Option<Duration>,
    },
    /// The node does not know the block: it lags, or the block was orphaned.
    #[error("the endpoint does not know the block")]
    UnknownBlock,
    /// The node already has the transaction, which counts as sent.
    #[error("the transaction is already known")]
    AlreadyKnown,
    /// The nonce of the account is already used.
    #[error("the nonce is already used")]
    NonceTooLow,
    /// The fees are below those of the existing transaction, or below the node's minimum.
    #[error("the fees are too low: {0}")]
    Underpriced(String),
    /// The balance of the account does not cover the transaction.
    #[error("the account cannot pay for the transaction")]
    InsufficientFunds,
    /// A call reverted.
    #[error("the call reverted: {reason}")]
    Reverted {
        /// The endpoint's message, truncated.
        reason: String,
        /// Revert data; empty if the endpoint sent none.
        data: Bytes,
    },
    /// The request timed out.
    #[error("the endpoint did not respond in time")]
    Timeout,
    /// The endpoint cannot be reached or is failing.
    #[error("the endpoint is unavailable: {0}")]
    Unavailable(String),
    /// The endpoint serves another chain; its responses are discarded.
    #[error("the endpoint serves chain {found}, expected chain id {expected}")]
    WrongChain {
        /// Configured chain id.
        expected: u64,
        /// Reported chain id.
        found: u64,
    },
    /// The endpoint rejected the request.
    #[error("the endpoint rejected the request: {message} (code {code})")]
    Refused {
        /// JSON-RPC code.
        code: i64,
        /// The endpoint's message, truncated.
        message: String,
    },
    /// The response is malformed.
    #[error("the endpoint sent a malformed response: {0}")]
    Malformed(String),
}

impl ClientError {
    /// True if another endpoint may succeed.
    pub fn is_about_the_endpoint(&self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::UnknownBlock
                | Self::Timeout
                | Self::Unavailable(_)
                | Self::Malformed(_)
                | Self::WrongChain { .. }
                | Self::Refused { .. }
        )
    }

    /// True if the same call may succeed at once: an internal error, or a response that was lost on the way.
    pub(super) fn is_momentary(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Refused { code: INTERNAL_ERROR, .. })
    }

    /// True if the endpoint should be skipped for a while, whatever the request.
    pub(super) fn discredits_the_endpoint(&self) -> bool {
        self.is_about_the_endpoint() && !matches!(self, Self::UnknownBlock | Self::Refused { .. })
    }
}

named! {
    /// Reason why a chain cannot be read, as a label of metrics and alerts.
    Degradation, "the kind of a chain's degradation" {
        /// No endpoint is reachable, or the reachable ones fail.
        Away = "away",
        /// Requests time out.
        Slow = "slow",
        /// The endpoints limit the rate of requests.
        RateLimited = "rate_limited",
        /// The endpoints are behind the cursor.
        Lagging = "lagging",
        /// The endpoints serve another chain.
        WrongChain = "wrong_chain",
        /// Contracts differ from the configuration.
        Misconfigured = "misconfigured",
        /// Responses are malformed or contradict each other.
        Inconsistent = "inconsistent",
        /// Even the smallest range is rejected.
        Range = "range",
        /// The endpoints reject the request.
        Refused = "refused",
        /// The service's own database failed.
        Database = "database",
    }
}

impl Degradation {
    /// Kind of a failed call.
    pub fn of_call(error: &ClientError) -> Self {
        match error {
            ClientError::Unavailable(_) => Self::Away,
            ClientError::Timeout => Self::Slow,
            ClientError::RateLimited { .. } => Self::RateLimited,
            ClientError::UnknownBlock => Self::Lagging,
            ClientError::WrongChain { .. } => Self::WrongChain,
            ClientError::Malformed(_) => Self::Inconsistent,
            ClientError::RangeTooLarge(_) => Self::Range,
            ClientError::AlreadyKnown
            | ClientError::NonceTooLow
            | ClientError::Underpriced(_)
            | ClientError::InsufficientFunds
            | ClientError::Reverted { .. }
            | ClientError::Refused { .. } => Self::Refused,
        }
    }
}

pub(super) fn classify(method: &str, error: &TransportError) -> ClientError {
    match error {
        RpcError::ErrorResp(payload) => classify_payload(method, payload),
        RpcError::NullResp => ClientError::UnknownBlock,
        RpcError::SerError(_) | RpcError::LocalUsageError(_) | RpcError::UnsupportedFeature(_) => {
            ClientError::Malformed("the request could not be serialised".to_owned())
        }
        RpcError::DeserError { err, .. } => ClientError::Malformed(err.to_string()),
        RpcError::Transport(kind) => classify_transport(method, kind),
    }
}

fn classify_transport(method: &str, kind: &TransportErrorKind) -> ClientError {
    if matches!(kind, TransportErrorKind::MissingBatchResponse(_)) {
        return ClientError::Malformed("a response is missing".to_owned());
    }
    // The text of a connection error contains the endpoint's address with its API key, so it is dropped.
    let Some(http) = kind.as_http_error() else {
        return ClientError::Unavailable("no connection".to_owned());
    };
    match http.status {
        429 => ClientError::RateLimited { retry_after: kind.retry_after() },
        413 if method == "eth_getLogs" => ClientError::RangeTooLarge("HTTP 413".to_owned()),
        status => {
            // Some providers put the JSON-RPC error into the body of a 4xx.
            #[derive(Deserialize)]
            struct Body {
                error: ErrorPayload,
            }
            match serde_json::from_str::<Body>(&http.body) {
                Ok(Body { error }) if status < 500 => classify_payload(method, &error),
                _ => ClientError::Unavailable(format!("HTTP {status}")),
            }
        }
    }
}

fn classify_payload(method: &str, payload: &ErrorPayload) -> ClientError {
    match classify_answer(method, payload.code, &payload.message) {
        ClientError::Reverted { reason, .. } => {
            ClientError::Reverted { reason, data: payload.as_revert_data().unwrap_or_default() }
        }
        error => error,
    }
}

fn classify_answer(method: &str, code: i64, message: &str) -> ClientError {
    let text = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    if says(&["rate limit", "rate exceeded", "too many requests", "request limit", "credits", "daily request"])
        || code == 429
    {
        return ClientError::RateLimited { retry_after: None };
    }
    // Checked before the range: a smaller range does not help if the block is beyond the node's head.
    let unknown_block = [
        "unknown block",
        "header not found",
        "block not found",
        "resource not found",
        "missing trie node",
        "state unavailable",
        "blockoutofrange",
        "beyond current head",
    ];
    if says(&unknown_block) {
        return ClientError::UnknownBlock;
    }
    if method == "eth_getLogs" {
        let too_much =
            ["range", "too many", "query returned more", "response size", "limited to", "exceed", "timed out"];
        if matches!(code, -32_005 | -32_614) || says(&too_much) {
            return ClientError::RangeTooLarge(message);
        }
    }
    if code == -32_005 {
        return ClientError::RateLimited { retry_after: None };
    }
    if method == "eth_sendRawTransaction" {
        if says(&["already known", "already imported", "known transaction", "already exists"]) {
            return ClientError::AlreadyKnown;
        }
        if says(&["nonce too low", "nonce is too low", "old nonce"]) {
            return ClientError::NonceTooLow;
        }
        if says(&["underpriced", "fee too low", "less than block base fee", "fee cap"]) {
            return ClientError::Underpriced(message);
        }
        if says(&["insufficient funds"]) {
            return ClientError::InsufficientFunds;
        }
    }
    if code == 3 || says(&["execution reverted"]) {
        return ClientError::Reverted { reason: message, data: Bytes::new() };
    }
    ClientError::Refused { code, message }
}

/// The fields of a block header that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockHeader {
    /// Block number.
    #[serde(with = "quantity")]
    pub number: u64,
    /// Block hash.
    pub hash: Hash32,
    /// Hash of the parent block.
    pub parent_hash: Hash32,
    /// Block time.
    #[serde(rename = "timestamp", deserialize_with = "block_time")]
    pub time: Timestamp,
    /// Base fee, wei per gas; 0 if the block has none.
    #[serde(default, rename = "baseFeePerGas", deserialize_with = "base_fee")]
    pub base_fee_wei: u128,
    /// Bloom filter of the block's logs.
    #[serde(default, rename = "logsBloom", deserialize_with = "null_as_default")]
    pub bloom: Bloom,
}

fn block_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let secs: u64 = quantity::deserialize(deserializer)?;
    Ok(Timestamp::from_secs(i64::try_from(secs).unwrap_or(i64::MAX)))
}

fn base_fee<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    quantity::opt::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl BlockHeader {
    /// True if, by its bloom filter, the block may contain a log of one of `contracts` with this topic.
    pub fn may_log(&self, contracts: &[alloy::primitives::Address], topic: B256) -> bool {
        self.bloom.contains_input(BloomInput::Raw(topic.as_slice()))
            && contracts.iter().any(|contract| self.bloom.contains_input(BloomInput::Raw(contract.as_slice())))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FeeHistory {
    base_fee_per_gas: Vec<U128>,
    #[serde(default)]
    reward: Option<Vec<Vec<U128>>>,
}

impl FeeHistory {
    pub(super) fn market(self) -> Option<FeeMarket> {
        let base_fee_wei = self.base_fee_per_gas.last()?.to();
        let mut tips: Vec<u128> =
            self.reward.unwrap_or_default().iter().filter_map(|tips| tips.first()).map(|tip| tip.to()).collect();
        tips.sort_unstable();
        let priority_fee_wei = tips.get(tips.len() / 2).copied().unwrap_or_default();
        Some(FeeMarket { base_fee_wei, priority_fee_wei })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of anvil and of the devchain, which uses geth's, are in pairs; `crates/devchain/tests/it/against_anvil`
    /// asserts them.
    #[test]
    fn classifies_errors_of_nodes_and_providers() {
        use ClientError as Is;
        type Expected<'a> = &'a dyn Fn(i64, &str) -> ClientError;
        const SEND: &str = "eth_sendRawTransaction";
        const LOGS: &str = "eth_getLogs";
        let limited = |_: i64, _: &str| Is::RateLimited { retry_after: None };
        let range = |_: i64, words: &str| Is::RangeTooLarge(words.to_owned());
        let unknown = |_: i64, _: &str| Is::UnknownBlock;
        let known = |_: i64, _: &str| Is::AlreadyKnown;
        let nonce = |_: i64, _: &str| Is::NonceTooLow;
        let underpriced = |_: i64, words: &str| Is::Underpriced(words.to_owned());
        let poor = |_: i64, _: &str| Is::InsufficientFunds;
        let reverted = |_: i64, words: &str| Is::Reverted { reason: words.to_owned(), data: Bytes::new() };
        let refused = |code: i64, words: &str| Is::Refused { code, message: words.to_owned() };
        let cases: &[(&str, i64, &str, Expected<'_>)] = &[
            (LOGS, -32_005, "query returned more than 10000 results", &range),
            (LOGS, -32_602, "block range is too wide", &range),
            (LOGS, -32_614, "eth_getLogs is limited to a 10,000 range", &range),
            (LOGS, -32_000, "exceed maximum block range: 5000", &range),
            (
                LOGS,
                -32_600,
                "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range.",
                &range,
            ),
            (LOGS, -32_005, "daily request count exceeded, request rate limited", &limited),
            (SEND, -32_003, "transaction already imported", &known),
            (SEND, -32_000, "already known", &known),
            (SEND, -32_003, "nonce too low", &nonce),
            (SEND, -32_000, "nonce too low: next nonce 1, tx nonce 0", &nonce),
            (SEND, -32_000, "nonce too low: next nonce 4, tx nonce 3", &nonce),
            (SEND, -32_003, "replacement transaction underpriced", &underpriced),
            (SEND, -32_000, "replacement transaction underpriced", &underpriced),
            (SEND, -32_003, "max fee per gas less than block base fee", &underpriced),
            (SEND, -32_000, "max fee per gas less than block base fee", &underpriced),
            (SEND, -32_003, "Insufficient funds for gas * price + value", &poor),
            (SEND, -32_000, "insufficient funds for gas * price + value: balance 0, tx cost 6, overshot 6", &poor),
            (SEND, -32_000, "insufficient funds for gas * price + value: balance 0", &poor),
            ("eth_call", -32_602, "BlockOutOfRangeError: block height is 5 but requested was 152", &unknown),
            ("eth_call", -32_000, "header not found", &unknown),
            ("eth_getBalance", -32_001, "Resource not found", &unknown),
            ("eth_getBalance", -32_000, "header not found", &unknown),
            (LOGS, -32_000, "unknown block", &unknown),
            (LOGS, -32_602, "BlockOutOfRangeError: block height is 5 but requested was 152", &unknown),
            (LOGS, -32_000, "block range extends beyond current head block", &unknown),
            ("eth_call", 3, "execution reverted: not today", &reverted),
            (SEND, -32_003, "invalid chain id for signer", &refused),
            (SEND, -32_000, "invalid chain id for signer: have 1 want 8453", &refused),
            (SEND, -32_000, "intrinsic gas too low", &refused),
            (SEND, -32_000, "intrinsic gas too low: gas 1, minimum needed 21000", &refused),
            (SEND, -32_000, "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit", &refused),
            (SEND, -32_000, "exceeds block gas limit", &refused),
            (SEND, -32_602, "Failed to decode transaction", &refused),
            (SEND, -32_000, "rlp: transaction could not be decoded", &refused),
            ("eth_call", -32_603, "EVM error OutOfGas", &refused),
            ("eth_call", -32_000, "out of gas", &refused),
            ("eth_nothing", -32_601, "Method not found", &refused),
            ("eth_nothing", -32_601, "the method eth_nothing does not exist", &refused),
        ];
        for (method, code, words, meaning) in cases {
            assert_eq!(classify_answer(method, *code, words), meaning(*code, words), "{method} {words}");
        }
    }

    #[test]
    fn connection_error_omits_the_endpoint_address() {
        let error = TransportErrorKind::custom_str("error sending request for url (https://rpc.example/v2/secret-key)");
        assert!(!classify("eth_call", &error).to_string().contains("secret"));
        let error = TransportErrorKind::http_error(429, String::new());
        assert!(matches!(classify("eth_call", &error), ClientError::RateLimited { .. }));
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32614,"message":"limited to a 10,000 range"}}"#;
        let error = TransportErrorKind::http_error(400, body.to_owned());
        assert!(matches!(classify("eth_getLogs", &error), ClientError::RangeTooLarge(_)));
    }
}
