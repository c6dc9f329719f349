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

use payferry_domain::{Address, Amount, Chain, PspId, Timestamp, Token};
use payferry_entities::ledger_postings;
use payferry_evm::ChainSpec;
use payferry_evm::wallet::checksummed;

use summary::{Summary, Total};

pub use period::{PERIOD_DAYS_MAX, Period, PeriodFault};
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

    /// The token of a contract.
    pub fn token(&self, chain: Chain, address: Address) -> Option<Token> {
        self.0.iter().find(|(on, at, _)| (*on, *at) == (chain, address)).map(|(_, _, token)| *token)
    }
}

record! {
    /// The account in the format of the interface.
    fn of(summary: &Summary) {
        let text = |units: i64| Amount(units).to_string();
    }

    /// A chain and token, without its entries.
    #[derive(Debug, Clone)]
    pub struct StatementAccount {
        #[schema(example = "base")]
        pub(crate) chain: String = summary.chain.as_str().to_owned(),
        /// null if the token is not enabled on this chain now.
        #[schema(example = "USDC")]
        pub(crate) currency: Option<&'static str> = summary.currency.map(Token::as_str),
        pub(crate) token_address: String = checksummed(summary.address),
        /// Balance of the vault at the beginning of the period.
        #[schema(example = "100.00")]
        pub(crate) opening_balance: String = text(summary.opening),
        /// Balance of the vault at the end of the period: the opening balance plus all entries.
        #[schema(example = "250.00")]
        pub(crate) closing_balance: String = text(summary.closing),
        /// Part of the closing balance that was reserved for payouts, withdrawals and refunds in progress.
        #[schema(example = "0.00")]
        pub(crate) closing_reserved: String = text(summary.reserved),
        /// Totals by kind of entry.
        pub(crate) totals: Vec<StatementTotal> =
            summary.totals.iter().map(|(kind, total)| StatementTotal::of(kind, total)).collect(),
    }
}

record! {
    fn of(kind: &str, total: &Total) {}

    /// All entries of a kind.
    #[derive(Debug, Clone)]
    pub struct StatementTotal {
        #[schema(example = "settled")]
        pub(crate) kind: String = kind.to_owned(),
        /// Number of entries.
        pub(crate) count: i64 = total.count,
        /// Outgoing amount.
        #[schema(example = "0.00")]
        pub(crate) debit: String = Amount(total.debit).to_string(),
        /// Incoming amount.
        #[schema(example = "150.00")]
        pub(crate) credit: String = Amount(total.credit).to_string(),
    }
}

record! {
    /// The entry of a posting that leaves this balance. `gives` is true if the vault received its amount.
    fn of(row: ledger_postings::Model, own_reference: Option<String>, gives: bool, balance: i64) {
        let amount = Amount(row.amount).to_string();
        let (debit, credit) = if gives { (None, Some(amount)) } else { (Some(amount), None) };
    }

    /// One movement of the vault's money.
    #[derive(Debug, Clone)]
    pub struct StatementEntry {
        /// Position in the ledger; increasing.
        pub(crate) position: i64 = row.position,
        #[schema(format = "date-time")]
        pub(crate) at: String = Timestamp(row.at).to_string(),
        /// settled, sent, or settlement_reversed.
        #[schema(example = "settled")]
        pub(crate) kind: String = row.kind,
        /// The payment, payout or withdrawal.
        pub(crate) subject: String = row.subject,
        /// Your own reference of the subject.
        pub(crate) own_reference: Option<String> = own_reference,
        /// Evidence: a transaction, a refund, or another id.
        pub(crate) reference: String = row.reference,
        /// Outgoing amount; null for an incoming one.
        pub(crate) debit: Option<String> = debit,
        /// Incoming amount; null for an outgoing one.
        #[schema(example = "9.90")]
        pub(crate) credit: Option<String> = credit,
        /// Balance of the vault after this entry.
        #[schema(example = "109.90")]
        pub(crate) balance: String = Amount(balance).to_string(),
    }
}
