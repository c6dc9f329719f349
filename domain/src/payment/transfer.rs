//! One token movement to the payment's wallet, as far as the payment knows it.
//!
//! Deliberately absent: whether it counts, which depends on the whole payment (`judge`).

use serde::{Deserialize, Serialize};

use crate::chain::{Address, Chain, Hash32};
use crate::money::{Amount, Token};
use crate::named::named;
use crate::time::Timestamp;

/// What makes a transfer unique for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransferKey {
    /// The chain.
    pub chain: Chain,
    /// The transaction.
    pub tx_hash: Hash32,
    /// The log's index in its block.
    pub log_index: u32,
}

/// The block that holds a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRef {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: Hash32,
    /// Its timestamp, in milliseconds as all times here.
    pub time: Timestamp,
}

/// Which token contract moved, seen from the payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferToken {
    /// The contract that the payment's terms name, on the payment's chain.
    Right,
    /// Another token that the service knows, or any known token on another chain.
    Other {
        /// Which.
        token: Token,
        /// Its contract.
        address: Address,
    },
    /// A contract that is watched only because it is mistaken for the right one.
    LookAlike {
        /// Its contract.
        address: Address,
    },
}

named! {
    /// How far a transfer has come.
    TransferStatus, "seen, final, orphaned, ignored" {
        /// In a block that may still be taken back.
        Seen = "seen",
        /// In a block that is final by the payment's tier.
        Final = "final",
        /// Its block was taken back.
        Orphaned = "orphaned",
        /// Zero or dust.
        Ignored = "ignored",
    }
}

named! {
    /// What screening says.
    Decision, "allow, review, block" {
        /// Clean.
        Allow = "allow",
        /// Undecided: hold, and ask again or ask the operator.
        Review = "review",
        /// Tainted: it never counts.
        Block = "block",
    }
}

/// A screening result, or the operator's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it says.
    pub decision: Decision,
    /// Whether a person decided: that stands above the provider's `review`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_operator: bool,
    /// The provider's level, such as `low` or `severe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_level: Option<String>,
    /// The provider's score, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// The provider's categories, such as `sanctions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Who said so.
    pub provider: String,
    /// The provider's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<String>,
    /// The version of the list it was held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_version: Option<String>,
    /// Whether the sender is a plain account (no code); `None` if that was not looked at, which counts as no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_sender: Option<bool>,
    /// When.
    pub checked_at: Timestamp,
}

/// Whether an observed transfer is in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It is in the block that the fact names.
    Present,
    /// The block that the fact names was taken back.
    Orphaned,
}

/// The watcher's row about one transfer, as a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTransfer {
    /// Which transfer.
    pub key: TransferKey,
    /// Grows by one with every change of the watcher's row; a fact that is not newer than the one applied changes nothing.
    pub revision: u32,
    /// The block that holds it, or held it last.
    pub block: BlockRef,
    /// The time of the first block that ever held this transaction's transfer, if the watcher knows an earlier one.
    pub first_block_time: Option<Timestamp>,
    /// Who sent it.
    pub from: Address,
    /// The contract that emitted the log.
    pub token_address: Address,
    /// Which token that contract is; `None` for a look-alike.
    pub token: Option<Token>,
    /// How much.
    pub amount: Amount,
    /// Whether it is in the chain.
    pub presence: Presence,
}

/// A transfer as the payment holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Which transfer.
    pub key: TransferKey,
    /// The newest revision that was applied.
    pub revision: u32,
    /// The revision from which on sender, token and amount are as they are: older screening is about something else.
    #[serde(default)]
    pub content_revision: u32,
    /// The block that holds it, or held it last.
    pub block: BlockRef,
    /// The time of the first block that held it: the one that decides whether it is in time.
    pub first_block_time: Timestamp,
    /// Who sent it.
    pub from: Address,
    /// Which token moved.
    pub token: TransferToken,
    /// How much.
    pub amount: Amount,
    /// How far it has come.
    pub status: TransferStatus,
    /// What screening says, once it has spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Box<Verdict>>,
    /// Whether it is part of what was received.
    #[serde(default)]
    pub counted: bool,
    /// Whether it came after the settled amount was frozen; only if it counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excess: bool,
}

impl Transfer {
    /// Whether it is in the chain and more than dust.
    pub fn is_present(&self) -> bool {
        matches!(self.status, TransferStatus::Seen | TransferStatus::Final)
    }

    /// Whether it is the payment's own token on the payment's own chain.
    pub fn is_right(&self) -> bool {
        self.token == TransferToken::Right
    }

    /// Its token contract, given the right one.
    pub(crate) fn token_address(&self, right: Address) -> Address {
        match self.token {
            TransferToken::Right => right,
            TransferToken::Other { address, .. } | TransferToken::LookAlike { address } => address,
        }
    }

    /// What screening says so far.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_ref().map(|verdict| verdict.decision)
    }

    /// Whether screening blocked it.
    pub fn is_blocked(&self) -> bool {
        self.decision() == Some(Decision::Block)
    }

    /// Whether screening still has to say `allow` or `block`.
    pub fn awaits_screening(&self) -> bool {
        self.is_present() && matches!(self.decision(), None | Some(Decision::Review))
    }
}
