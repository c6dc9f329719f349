//! Errors of opening a chain, of controlling it, and of JSON-RPC.

use std::path::PathBuf;

use alloy::primitives::Bytes;
use serde_json::Value;

/// Reason why a chain could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DevchainOpenError {
    /// The file could not be read or written.
    #[error("chain file {path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("chain file {0} is in use by another process")]
    InUse(PathBuf),
    /// The file is not a chain file.
    #[error("{0} is not a chain file")]
    NotAChainFile(PathBuf),
    /// The file was created with another chain id, genesis, gas limit, or fee rule.
    #[error("chain file {0} has another chain id, genesis or gas parameters; move it away to start a new chain")]
    OtherChain(PathBuf),
    /// Replaying the records leads to another result.
    #[error("chain file {path}, record {record}: {reason}")]
    Diverged {
        /// Path of the file.
        path: PathBuf,
        /// Position of the record in the file, from 0.
        record: u64,
        /// Description of the difference.
        reason: String,
    },
}

/// Reason why a change of the chain failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The chain was closed.
    #[error("the chain is closed")]
    Closed,
    /// The file could not be written. The chain rejects further changes.
    #[error("the chain file could not be written: {0}")]
    Store(String),
    /// The reorg is deeper than the chain or its undo history.
    #[error("cannot undo {depth} blocks, at most {depth_max}")]
    TooDeep {
        /// Requested depth.
        depth: u64,
        /// Maximum depth.
        depth_max: u64,
    },
    /// There are too many snapshots.
    #[error("there are {snapshots_max} snapshots already: revert to one of them, which discards the later ones")]
    TooManySnapshots {
        /// Maximum number.
        snapshots_max: usize,
    },
    /// The timestamp is before the timestamp of the head.
    #[error("timestamp {timestamp} is lower than the previous block's timestamp {head}")]
    TimeBackwards {
        /// Requested timestamp.
        timestamp: u64,
        /// Timestamp of the head.
        head: u64,
    },
}

/// Error of a JSON-RPC response.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// JSON-RPC code; 3 means that the execution reverted.
    pub code: i64,
    /// Message, with the text that geth uses.
    pub message: String,
    /// Revert data, if any.
    pub data: Option<Value>,
}

impl RpcError {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Creates a server error: code -32000.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::new(-32_000, message)
    }

    pub(crate) fn invalid_params(message: impl std::fmt::Display) -> Self {
        Self::new(-32_602, format!("invalid params: {message}"))
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(-32_603, format!("internal error: {message}"))
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        Self::new(-32_601, format!("the method {method} does not exist/is not available"))
    }

    /// Creates an error with code 3 and the revert data. The message contains the reason if the data is an
    /// `Error(string)` or a `Panic(uint256)`.
    pub(crate) fn reverted(output: &Bytes) -> Self {
        let message = match alloy::sol_types::decode_revert_reason(output) {
            Some(reason) if !output.is_empty() => {
                format!("execution reverted: {}", reason.strip_prefix("revert: ").unwrap_or(&reason))
            }
            _ => "execution reverted".to_owned(),
        };
        Self { code: 3, message, data: Some(Value::String(output.to_string())) }
    }
}

impl From<ChainError> for RpcError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::Closed | ChainError::Store(_) => Self::internal(error),
            ChainError::TooManySnapshots { .. } => Self::server(error.to_string()),
            ChainError::TooDeep { .. } | ChainError::TimeBackwards { .. } => Self::invalid_params(error),
        }
    }
}
