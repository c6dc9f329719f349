//! Scenarios: the parts that take part, how often each event can happen, and the rules that can be undone.

use crate::chain::{Amount, Number};
use crate::service::Service;
use crate::state::State;

/// Amount of every payout.
pub const PAYOUT: Amount = 1_000;

/// When no payouts are accepted or sent until reconciliation has posted the unknown ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Never.
    Never,
    /// The chain has a transaction of ours that the database does not know.
    UnknownTransaction,
}

/// Rules of the service that the model can undo.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// All transfers that become final together are one command. Otherwise each is a command of its own, in any order,
    /// and none holds back the others.
    pub final_together: bool,
    /// The key of a transfer contains the hash of its block.
    pub block_in_key: bool,
    /// A payment applies all recorded rows before it takes a transfer as final.
    pub reads_recorded: bool,
    /// The contract executes an operation id once.
    pub once_only: bool,
    /// Pause of payouts after a restore.
    pub pause: Pause,
    /// An operation fails for good only in a finalized block.
    pub fails_when_finalized: bool,
    /// No transfer counts, and no settlement is queued, while an authorization is submitted.
    pub waits_for_collection: bool,
}

impl Rules {
    /// All rules, as in the service.
    pub const ALL: Self = Self {
        final_together: true,
        block_in_key: true,
        reads_recorded: true,
        once_only: true,
        pause: Pause::UnknownTransaction,
        fails_when_finalized: true,
        waits_for_collection: true,
    };
}

/// Number of times that each event of the environment can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Mined blocks, without those of reorganisations.
    pub blocks: u8,
    /// Reorganisations.
    pub reorgs: u8,
    /// Crashes.
    pub crashes: u8,
    /// Lost messages.
    pub losses: u8,
    /// Restores of the database.
    pub restores: u8,
    /// Authorizations that the payer signs.
    pub authorizations: u8,
    /// Payouts that the PSP requests.
    pub payouts: u8,
}

/// Payers, limits, and the parts of the service that take part.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of payments.
    pub payments: u8,
    /// Transactions of the payers.
    pub payers: Vec<Vec<(u8, Amount)>>,
    /// Number of blocks, with its own, with which a transfer or an operation is final.
    pub tier_blocks: u8,
    /// Limits.
    pub budget: Budget,
    /// Largest depth of a reorganisation.
    pub reorg_blocks_max: u8,
    /// True if screening takes time.
    pub screens: bool,
    /// True if the settler runs.
    pub settles: bool,
    /// Largest number of attempts at a transaction.
    pub attempts_max: u8,
    /// True if payers may use an authorization for another recipient.
    pub elsewhere: bool,
    /// Number of the block from which on an authorization is expired.
    pub valid_before: Number,
    /// Initial balance of the PSP, on the chain and in the ledger.
    pub psp_balance: Amount,
    /// Rules.
    pub rules: Rules,
    /// Situations that must occur, so that the properties are not true for lack of events.
    pub reaches: Vec<Situation>,
}

/// A named situation.
pub type Situation = (&'static str, fn(&Service, &State) -> bool);

impl Default for Scenario {
    fn default() -> Self {
        Self {
            payments: 1,
            payers: Vec::new(),
            tier_blocks: 2,
            budget: Budget::default(),
            reorg_blocks_max: 1,
            screens: false,
            settles: false,
            attempts_max: 1,
            elsewhere: false,
            valid_before: Number::MAX,
            psp_balance: 0,
            rules: Rules::ALL,
            reaches: Vec::new(),
        }
    }
}
