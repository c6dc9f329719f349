//! State of the service and its environment, and every step between two states.
//!
//! - The database survives a crash; messages between actors do not. A restored database is older than the chain.
//! - A message can be lost at any time. The sweep and the settler repeat facts that were not applied.
//! - Commits of one component are atomic. Any other action can happen between two commits.

use std::collections::{BTreeMap, BTreeSet};

use crate::chain::{Chain, Number, Operation, Replacement, Tx};
use crate::payment::{Key, Observed, Outcome, Payment};
use crate::scenario::Budget;
use crate::settler::Settler;
use crate::watcher::{Change, Watcher};

/// State of a payout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayoutState {
    /// Its amount is reserved.
    Reserved,
    /// Sent.
    Sent,
    /// Failed; the reserve is released.
    Failed,
}

/// A payout of the PSP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payout {
    /// State.
    pub state: PayoutState,
    /// Newest applied revision of the settler's row.
    pub revision: u8,
}

/// Everything that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Database {
    /// Tables of the watcher.
    pub watcher: Watcher,
    /// Payments.
    pub payments: Vec<Payment>,
    /// Tables of the settler.
    pub settler: Settler,
    /// Payouts.
    pub payouts: BTreeMap<u8, Payout>,
}

/// A message between actors, in memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// To a payment: a row changed.
    Observed(u8, Observed),
    /// To a payment: transfers, by key and revision, have the required finality.
    Final(u8, Vec<(Key, u8)>),
    /// To a payment or a payout: an outcome of the operation, with the revision of its row.
    Outcome(Operation, u8, Outcome),
}

/// The service, its database, and its environment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Chain.
    pub chain: Chain,
    /// Database.
    pub database: Database,
    /// Copy of the database.
    pub backup: Option<Box<Database>>,
    /// Messages that were not handled.
    pub messages: BTreeSet<Message>,
    /// Payouts that were ever accepted, also those that a restored database has lost.
    pub accepted: u8,
    /// Authorizations that the payer has signed.
    pub signed: u8,
    /// Events of the environment that can still happen.
    pub left: Budget,
}

/// One step. Those of the environment come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A block with these transactions; with `true` the token refuses recipients of `send`.
    Mine(Vec<Tx>, bool),
    /// This number of blocks is orphaned.
    Reorganise(u8, Replacement),
    /// The process ends and starts again.
    Crash,
    /// A message is lost.
    Lose(Message),
    /// The database is copied.
    BackUp,
    /// The copy replaces the database.
    Restore,
    /// The payer signs an authorization.
    Authorize(u8),
    /// The PSP requests a payout.
    RequestPayout,

    /// The watcher reverts orphaned blocks, down to this number.
    Unwind(usize),
    /// The watcher reads the blocks below this number.
    Read(Number),
    /// The watcher reports that transfers of a payment are final.
    ReportFinal(u8, Vec<(Key, u8)>),
    /// The sweep reports a row again.
    Sweep(Change),
    /// Screening allows a transfer.
    Screen(u8, Key),
    /// A message is handled.
    Deliver(Message),
    /// The settler signs and stores a transaction.
    Sign(Operation),
    /// The settler sends the last attempt at a transaction.
    Broadcast(u8, Tx),
    /// The settler replaces a transaction by another attempt.
    Replace(u8),
    /// The settler finds a transaction in a block.
    SeeMined(u8),
    /// The settler finds that the block of a transaction was orphaned.
    SeeOrphaned(u8),
    /// The settler fails an operation that the contract refused.
    Fail(Operation),
    /// The settler finds an execution by a transaction that the database does not know.
    FindDone(Operation),
    /// The settler gives up a transaction whose nonce another one has used.
    GiveUp(u8),
    /// The settler reports an outcome.
    Report(Operation, u8, Outcome),
    /// A failed settlement is retried.
    Retry(u8),
    /// Reconciliation posts an unknown transaction.
    Reconcile(u8),
}
