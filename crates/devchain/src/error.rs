//! Errors by layer: opening a chain, driving it, and answering JSON-RPC.

use std::path::PathBuf;

use alloy::primitives::Bytes;
use serde_json::Value;

/// Why a chain did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file could not be read or written.
    #[error("chain file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("chain file {0} is in use by another process")]
    InUse(PathBuf),
    /// Not a chain file.
    #[error("{0} is not a chain file")]
    NotAChainFile(PathBuf),
    /// The file was made with another chain id, genesis, gas limit or fee rule.
    #[error("chain file {0} was made with another chain id, genesis or gas parameters; move it away to start anew")]
    OtherChain(PathBuf),
    /// The file's records do not lead where they did.
    #[error("chain file {path}, record {record}: {reason}")]
    Diverged {
        /// The file.
        path: PathBuf,
        /// The record's place in the file, from 0.
        record: u64,
        /// What did not fit.
        reason: String,
    },
}

/// Why a chain could not be driven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The chain was closed.
    #[error("the chain is closed")]
    Closed,
    /// The file could not be written; the chain takes no more changes.
    #[error("the chain's file could not be written: {0}")]
    Store(String),
    /// A reorg deeper than the chain or than its undo history.
    #[error("cannot undo {depth} blocks, at most {depth_max}")]
    TooDeep {
        /// What was asked.
        depth: u64,
        /// What is possible.
        depth_max: u64,
    },
    /// A timestamp before the head's.
    #[error("timestamp {timestamp} is lower than the previous block's timestamp {head}")]
    TimeBackwards {
        /// What was asked.
        timestamp: u64,
        /// The head's.
        head: u64,
    },
}

/// An error of the JSON-RPC answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// JSON-RPC code; 3 is an execution that reverted.
    pub code: i64,
    /// As geth says it.
    pub message: String,
    /// The revert data, for one.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// What the server refuses or cannot do: code -32000.
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

    /// Code 3 with the revert data, and the reason when the data is an `Error(string)` or a `Panic(uint256)`.
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
            ChainError::TooDeep { .. } | ChainError::TimeBackwards { .. } => Self::invalid_params(error),
        }
    }
}
