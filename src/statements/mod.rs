//! Statements: what a PSP's vaults held at the beginning of a period, every movement in it, and what they held at its end, by
//! chain and token.
//!
//! A statement is read off the ledger's postings alone, in steps, and written as it is read: a month of a busy PSP is never in
//! memory as a whole. Its balance is what the PSP's vault holds, what is promised included, so that money that is only set
//! aside moves nothing. One period's closing is the next one's opening. Deliberately absent: payments before their settlement,
//! and fees, which never reach the vault (`GET /ledger/entries` has both).

mod csv;
mod entries;
mod json;
mod period;
mod summary;
mod write;

use payferry_actors::chain::ChainSpec;
use payferry_domain::{Address, Chain, PspId, Token};
use serde::Serialize;
use utoipa::ToSchema;

pub use period::{PERIOD_DAYS_MAX, Period, PeriodFault, moment};
pub use write::{Format, Statement, StatementError};

/// What a statement is asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Whose.
    pub psp_id: PspId,
    /// Of which time.
    pub period: Period,
    /// On this chain only.
    pub chain: Option<Chain>,
    /// In this token only.
    pub currency: Option<Token>,
}

/// Which contract is which token. A statement has an account for each, and for what was posted in others.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<(Chain, Address, Token)>);

impl Tokens {
    /// Those that these chains take.
    pub fn of<'a>(specs: impl IntoIterator<Item = &'a ChainSpec>) -> Self {
        let of_chain = |spec: &'a ChainSpec| spec.tokens.iter().map(|(token, address)| (spec.chain, *address, *token));
        Self(specs.into_iter().flat_map(of_chain).collect())
    }

    /// These.
    pub fn named(tokens: impl IntoIterator<Item = (Chain, Address, Token)>) -> Self {
        Self(tokens.into_iter().collect())
    }

    fn token(&self, chain: Chain, address: Address) -> Option<Token> {
        self.0.iter().find(|(on, at, _)| (*on, *at) == (chain, address)).map(|(_, _, token)| *token)
    }
}

/// A chain and token, before its entries.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StatementAccount {
    #[schema(example = "base")]
    pub(crate) chain: String,
    /// null if the token is not one that is taken there now.
    #[schema(example = "USDC")]
    pub(crate) currency: Option<&'static str>,
    pub(crate) token_address: String,
    /// What the vault held when the period began.
    #[schema(example = "100.00")]
    pub(crate) opening_balance: String,
    /// What it held when the period ended: the opening balance, and all entries.
    #[schema(example = "250.00")]
    pub(crate) closing_balance: String,
    /// How much of that was promised to payouts, withdrawals and refunds under way.
    #[schema(example = "0.00")]
    pub(crate) closing_reserved: String,
    /// By kind of entry.
    pub(crate) totals: Vec<StatementTotal>,
}

/// All entries of a kind.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StatementTotal {
    #[schema(example = "settled")]
    pub(crate) kind: String,
    /// How many.
    pub(crate) count: i64,
    /// Money out.
    #[schema(example = "0.00")]
    pub(crate) debit: String,
    /// Money in.
    #[schema(example = "150.00")]
    pub(crate) credit: String,
}

/// One movement of the vault's money.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StatementEntry {
    /// Place in the ledger; grows.
    pub(crate) position: i64,
    #[schema(format = "date-time")]
    pub(crate) at: String,
    /// settled, sent, or settlement_reversed.
    #[schema(example = "settled")]
    pub(crate) kind: String,
    /// The payment, payout or withdrawal.
    pub(crate) subject: String,
    /// Your own reference of it.
    pub(crate) own_reference: Option<String>,
    /// What proves it: a transaction, a refund, or another id.
    pub(crate) reference: String,
    /// Money out; null if it came in.
    pub(crate) debit: Option<String>,
    /// Money in; null if it went out.
    #[schema(example = "9.90")]
    pub(crate) credit: Option<String>,
    /// What the vault held afterwards.
    #[schema(example = "109.90")]
    pub(crate) balance: String,
}
