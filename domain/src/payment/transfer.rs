//! One token movement to the wallet of the payment, as the payment stores it.
//!
//! Not here: the decision whether it counts, which depends on the whole payment (`judge`).
//!
//! # Limits on listed transfers
//!
//! Anyone can send any number of transfers to a wallet, and every transition writes the whole list. Without limits, one
//! payer could slow down all writes. A transfer beyond the limit does not change the payment, is not posted, and exists
//! only in the watcher's rows.
//!
//! Transfers of lower value have lower limits, so that they cannot displace transfers of higher value. A person can
//! have more transfers listed, up to a separate limit.

use serde::{Deserialize, Serialize};

use super::state::Payment;
use crate::chain::{Address, Chain, Hash32};
use crate::money::{Amount, Token};
use crate::named::named;
use crate::time::Timestamp;

/// Unique key of a transfer. A transaction that is mined again in another block has other transfers, possibly under
/// other log indexes. Everything else about a transfer follows from its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransferKey {
    /// Chain.
    pub chain: Chain,
    /// Hash of the block.
    pub block_hash: Hash32,
    /// Transaction.
    pub tx_hash: Hash32,
    /// Index of the log in its block.
    pub log_index: u32,
}

/// The block that contains a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRef {
    /// Block number.
    pub number: u64,
    /// Block timestamp, in milliseconds.
    pub time: Timestamp,
}

/// Token contract of a transfer, relative to the payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferToken {
    /// The token contract from the terms, on the chain of the payment.
    Right,
    /// Another supported token, or any supported token on another chain.
    Other {
        /// Token.
        token: Token,
        /// Token contract.
        address: Address,
    },
    /// A contract that is watched only because payers mistake it for the due token.
    LookAlike {
        /// Token contract.
        address: Address,
    },
}

named! {
    /// State of a transfer.
    TransferStatus, "seen, final, orphaned, ignored" {
        /// In a block that may still be orphaned.
        Seen = "seen",
        /// In a block with the finality that the payment requires.
        Final = "final",
        /// Its block was orphaned.
        Orphaned = "orphaned",
        /// A zero amount or dust.
        Ignored = "ignored",
    }
}

named! {
    /// Result of screening, in increasing strictness.
    Decision, "allow, review, block" {
        /// The funds are clean.
        Allow = "allow",
        /// Undecided: hold the funds, and screen again or ask the operator.
        Review = "review",
        /// The funds are tainted and never count.
        Block = "block",
    }
}

/// A screening result, or the decision of the operator.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Decision.
    pub decision: Decision,
    /// True if a person decided. Such a verdict outranks a `review` of the provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_operator: bool,
    /// Risk level from the provider, such as `low` or `severe`.
    pub risk_level: Option<String>,
    /// Score from the provider, 0 to 100.
    pub score: Option<u8>,
    /// Categories from the provider, such as `sanctions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Provider that returned the verdict.
    pub provider: String,
    /// Reference of the provider.
    pub provider_ref: Option<String>,
    /// Version of the list that was used.
    pub list_version: Option<String>,
    /// True if the sender is a plain account (without code). `None` means that this was not checked; it is treated as
    /// false.
    pub plain_sender: Option<bool>,
    /// Time of screening.
    pub checked_at: Timestamp,
}

/// Presence of an observed transfer in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// The transfer is in the block of this fact.
    Present,
    /// The block of this fact was orphaned.
    Orphaned,
}

/// The watcher's row about one transfer, as a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTransfer {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Incremented with every change of the watcher's row. A fact that is not newer than the applied revision changes
    /// nothing.
    pub revision: u32,
    /// The block that contains the transfer.
    pub block: BlockRef,
    /// Time of the first block that contained a transfer of this transaction, if the watcher knows an earlier block.
    pub first_block_time: Option<Timestamp>,
    /// Sender.
    pub from: Address,
    /// Contract that emitted the log.
    pub token_address: Address,
    /// Token of that contract; `None` for a look-alike.
    pub token: Option<Token>,
    /// Amount.
    pub amount: Amount,
    /// Presence in the chain.
    pub presence: Presence,
}

/// A transfer as the payment stores it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Newest applied revision.
    pub revision: u32,
    /// The block that contains the transfer.
    pub block: BlockRef,
    /// Time of the first block that contained its transaction. It determines whether the transfer is in time.
    pub first_block_time: Timestamp,
    /// Sender.
    pub from: Address,
    /// Token.
    pub token: TransferToken,
    /// Amount.
    pub amount: Amount,
    /// Current state.
    pub status: TransferStatus,
    /// Screening verdict, once known.
    pub verdict: Option<Box<Verdict>>,
    /// True if the transfer is part of the amount received.
    #[serde(default)]
    pub counted: bool,
    /// True if the transfer counts and arrived after the settled amount was frozen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excess: bool,
}

impl Transfer {
    /// Returns the position in the order of the chain. Chains are independent of each other.
    pub(crate) fn position(&self) -> (Chain, u64, u32, TransferKey) {
        (self.key.chain, self.block.number, self.key.log_index, self.key)
    }

    /// Returns true if both are of one transaction.
    pub(crate) fn is_of_transaction(&self, key: TransferKey) -> bool {
        (self.key.chain, self.key.tx_hash) == (key.chain, key.tx_hash)
    }

    /// Returns true if the transfer is in the chain and above dust.
    pub fn is_present(&self) -> bool {
        matches!(self.status, TransferStatus::Seen | TransferStatus::Final)
    }

    /// Returns true if the transfer moved the due token on the payment's own chain.
    pub fn is_right(&self) -> bool {
        self.token == TransferToken::Right
    }

    /// Returns the token contract, given the contract of the due token.
    pub(crate) fn token_address(&self, right: Address) -> Address {
        match self.token {
            TransferToken::Right => right,
            TransferToken::Other { address, .. } | TransferToken::LookAlike { address } => address,
        }
    }

    /// Returns the screening decision, if known.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_ref().map(|verdict| verdict.decision)
    }

    /// Returns true if screening blocked the transfer.
    pub fn is_blocked(&self) -> bool {
        self.decision() == Some(Decision::Block)
    }

    /// Returns true if screening has not yet returned `allow` or `block`.
    pub fn awaits_screening(&self) -> bool {
        self.is_present() && matches!(self.decision(), None | Some(Decision::Review))
    }
}

/// Limit on listed dust. Enough to diagnose the payment.
pub const DUST_LISTED_MAX: usize = 20;
/// Limit on listed transfers of other tokens or on other chains.
pub const MISDIRECTED_LISTED_MAX: usize = 100;
/// Limit on listed transfers of the due token that are too small to pay the payment alone.
pub const PARTS_LISTED_MAX: usize = 500;
/// Limit on listed transfers that pay the payment alone. It is separate, so that small transfers cannot displace the
/// one that pays.
pub const WHOLES_LISTED_MAX: usize = 100;

/// Limit on the length of the list up to which the operator can have more transfers listed.
pub const LISTED_MAX: usize = 2_000;

/// Value class of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueClass {
    Dust,
    Misdirected,
    Part,
    Whole,
}

impl ValueClass {
    fn of(payment: &Payment, transfer: &Transfer) -> Self {
        if payment.is_dust(transfer) {
            Self::Dust
        } else if !transfer.is_right() {
            Self::Misdirected
        } else if transfer.amount < payment.terms.tolerance.least_for(payment.terms.amount) {
            Self::Part
        } else {
            Self::Whole
        }
    }

    const fn listed_max(self) -> usize {
        match self {
            Self::Dust => DUST_LISTED_MAX,
            Self::Misdirected => MISDIRECTED_LISTED_MAX,
            Self::Part => PARTS_LISTED_MAX,
            Self::Whole => WHOLES_LISTED_MAX,
        }
    }
}

/// Returns true if a new transfer fits into the list. An orphaned transfer makes room only for the transfer that
/// replaces it.
pub(super) fn has_room(payment: &Payment, transfer: &Transfer) -> bool {
    let worth = ValueClass::of(payment, transfer);
    let is_gone = |t: &Transfer| t.status == TransferStatus::Orphaned;
    let alike = || payment.transfers.iter().filter(|t| ValueClass::of(payment, t) == worth);
    let taking = alike().filter(|t| is_gone(transfer) || !is_gone(t));
    if taking.count() < worth.listed_max() {
        return true;
    }
    // The list may exceed the limit if a person had more transfers listed. For each transaction, as many transfers
    // return as were orphaned, independent of the number of other transfers.
    let of_same = |t: &&Transfer| t.is_of_transaction(transfer.key);
    let (gone, present): (Vec<_>, Vec<_>) = alike().filter(of_same).partition(|t| is_gone(t));
    !is_gone(transfer) && present.len() < gone.len()
}

/// Returns how many more transfers a person can have listed.
pub(super) fn room_for_more(payment: &Payment) -> usize {
    LISTED_MAX.saturating_sub(payment.transfers.len())
}

impl Payment {
    /// Returns true if this transfer, which was already evaluated, is not listed because the list is full and is more
    /// than dust. An operator must be informed about it.
    pub fn sets_aside(&self, observed: &ObservedTransfer) -> bool {
        self.transfer(observed.key).is_none() && !self.is_dust_amount(observed.amount)
    }

    /// Returns true if an amount is small enough to be ignored.
    pub(crate) fn is_dust_amount(&self, amount: Amount) -> bool {
        let floor = self.terms.dust_floor.min(self.terms.amount);
        amount.units() <= 0 || amount < floor
    }
}
