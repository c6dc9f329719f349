//! Statements: opening balance of a PSP's vaults, every movement in a period, and closing balance, by chain and token.
//!
//! A statement is read in steps from the ledger's postings alone and written as it is read, so a month of a busy PSP is
//! never in memory as a whole. Its balance is what the vault holds, reserved amounts included, so a reservation is not
//! a movement. The closing balance of a period is the opening balance of the next one. Payments before their settlement
//! and fees are excluded, since they never reach the vault (`GET /ledger/entries` has both).

mod csv;
mod entries;
mod json;
mod period;
mod summary;
mod write;

use payferry_domain::{Address, Chain, PspId, Token};
use payferry_evm::ChainSpec;
use serde::Serialize;
use utoipa::ToSchema;

pub use period::{PERIOD_DAYS_MAX, Period, PeriodFault, moment};
pub use write::{Format, Statement, StatementError};

/// The requested statement.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The PSP.
    pub psp_id: PspId,
    /// The period.
    pub period: Period,
    /// Only on this chain.
    pub chain: Option<Chain>,
    /// Only in this token.
    pub currency: Option<Token>,
}

/// Token contracts. A statement has an account for each, and for every other contract with postings.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<(Chain, Address, Token)>);

impl Tokens {
    /// The tokens of these chains.
    pub fn of<'a>(specs: impl IntoIterator<Item = &'a ChainSpec>) -> Self {
        let of_chain = |spec: &'a ChainSpec| spec.tokens.iter().map(|(token, address)| (spec.chain, *address, *token));
        Self(specs.into_iter().flat_map(of_chain).collect())
    }

    /// These tokens.
    pub fn named(tokens: impl IntoIterator<Item = (Chain, Address, Token)>) -> Self {
        Self(tokens.into_iter().collect())
    }

    fn token(&self, chain: Chain, address: Address) -> Option<Token> {
        self.0.iter().find(|(on, at, _)| (*on, *at) == (chain, address)).map(|(_, _, token)| *token)
    }
}

/// A chain and token, without its entries.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StatementAccount {
    #[schema(example = "base")]
    pub(crate) chain: String,
    /// null if the token is not enabled on this chain now.
    #[schema(example = "USDC")]
    pub(crate) currency: Option<&'static str>,
    pub(crate) token_address: String,
    /// Balance of the vault at the beginning of the period.
    #[schema(example = "100.00")]
    pub(crate) opening_balance: String,
    /// Balance of the vault at the end of the period: the opening balance plus all entries.
    #[schema(example = "250.00")]
    pub(crate) closing_balance: String,
    /// Part of the closing balance that was reserved for payouts, withdrawals and refunds in progress.
    #[schema(example = "0.00")]
    pub(crate) closing_reserved: String,
    /// Totals by kind of entry.
    pub(crate) totals: Vec<StatementTotal>,
}

/// All entries of a kind.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StatementTotal {
    #[schema(example = "settled")]
    pub(crate) kind: String,
    /// Number of entries.
    pub(crate) count: i64,
    /// Outgoing amount.
    #[schema(example = "0.00")]
    pub(crate) debit: String,
    /// Incoming amount.
    #[schema(example = "150.00")]
    pub(crate) credit: String,
}

/// One movement of the vault's money.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StatementEntry {
    /// Position in the ledger; increasing.
    pub(crate) position: i64,
    #[schema(format = "date-time")]
    pub(crate) at: String,
    /// settled, sent, or settlement_reversed.
    #[schema(example = "settled")]
    pub(crate) kind: String,
    /// The payment, payout or withdrawal.
    pub(crate) subject: String,
    /// Your own reference of the subject.
    pub(crate) own_reference: Option<String>,
    /// Evidence: a transaction, a refund, or another id.
    pub(crate) reference: String,
    /// Outgoing amount; null for an incoming one.
    pub(crate) debit: Option<String>,
    /// Incoming amount; null for an outgoing one.
    #[schema(example = "9.90")]
    pub(crate) credit: Option<String>,
    /// Balance of the vault after this entry.
    #[schema(example = "109.90")]
    pub(crate) balance: String,
}
