//! Options and results of a reconciliation.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry_domain::{Address, Amount, Chain, Timestamp, Token};
use payferry_evm::wallet::checksummed;
use serde::Serialize;

/// Default number of concurrent requests to a chain.
const REQUESTS_AT_ONCE: usize = 4;
/// Maximum number of reported differences; beyond that, only their number is reported.
pub const DIFFERENCES_MAX: usize = 10_000;

/// Thoroughness of a reconciliation.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Check every token on every chain for each payment's wallet, and not only where funds are expected.
    pub thorough: bool,
    /// Pause between two checks of a difference.
    pub pause: Duration,
    /// Concurrent requests to a chain, each for many balances.
    pub requests_at_once: usize,
    /// Pause after each request, which leaves capacity of the endpoint to other users.
    pub request_pause: Duration,
    /// Check the ledger itself, too: its sums of all postings, and the treasury. Otherwise the running balances are
    /// trusted, which the ledger's auditor checks, and the treasury is skipped unless `treasury_kept` is set.
    pub whole_ledger: bool,
    /// True if the treasury's funds are never moved, so that deviations there are differences, too.
    pub treasury_kept: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            thorough: false,
            pause: Duration::from_secs(5),
            requests_at_once: REQUESTS_AT_ONCE,
            request_pause: Duration::ZERO,
            whole_ledger: true,
            treasury_kept: false,
        }
    }
}

/// Subset of the payments.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Only greater ids; empty: from the first payment on.
    pub after: String,
    /// Maximum number of payments; `None`: all.
    pub payments_max: Option<u64>,
    /// Earlier differences, which are checked again in any case.
    pub known: Vec<Difference>,
}

/// Owner of funds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, derive_more::Display)]
#[serde(rename_all = "snake_case", tag = "of")]
pub enum Owner {
    /// A payment's own vault.
    #[display("{subject}")]
    Payment {
        /// Id of the payment.
        payment_id: String,
        /// Subject in the ledger.
        subject: String,
        /// The PSP.
        psp_id: String,
    },
    /// A PSP's vault.
    Psp {
        /// The PSP.
        psp_id: String,
    },
    /// The treasury.
    #[display("treasury")]
    Treasury,
}

/// Position of funds: owner, chain, token and address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FundsPosition {
    /// Owner.
    #[serde(flatten)]
    pub owner: Owner,
    /// Chain.
    pub chain: Chain,
    /// Token.
    pub token_address: Address,
    /// Address.
    pub address: Address,
}

/// Difference between the ledger and a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Position of the funds.
    #[serde(flatten)]
    pub place: FundsPosition,
    /// Balance according to the ledger, base units.
    pub ledger: i64,
    /// Balance on the chain, base units.
    pub on_chain: i64,
}

impl Difference {
    /// Amount by which the chain has more than the ledger; negative if it has less.
    pub fn surplus(&self) -> i64 {
        self.on_chain.saturating_sub(self.ledger)
    }

    /// Describes the difference for operators; `token` if it is a supported one.
    pub fn words(&self, token: Option<Token>) -> String {
        let Self { place, ledger, on_chain } = self;
        let token = token.map_or_else(|| place.token_address.to_string(), |token| token.to_string());
        let (ledger, on_chain) = (Amount(*ledger), Amount(*on_chain));
        let address = checksummed(place.address);
        format!("on {} at {address}: the ledger has {ledger} {token}, the chain has {on_chain}", place.chain)
    }
}

/// Running balance that differs from the sum of its postings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unbalanced {
    /// The PSP.
    pub psp_id: String,
    /// Chain.
    pub chain: String,
    /// Token.
    pub token_address: Address,
    /// Sum of the postings, base units.
    pub posted: i64,
    /// Running balance, base units.
    pub balance: i64,
}

/// Sums of one token on one chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Payments' vaults according to the ledger, base units.
    pub payments_ledger: i64,
    /// Payments' vaults on the chain.
    pub payments_on_chain: i64,
    /// PSPs' vaults according to the ledger.
    pub psps_ledger: i64,
    /// PSPs' vaults on the chain.
    pub psps_on_chain: i64,
    /// Amount sent to the treasury according to the ledger.
    pub treasury_ledger: i64,
    /// Balance of the treasury's address now; its owner may have moved funds.
    pub treasury_on_chain: i64,
}

/// Result of a reconciliation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReconcileReport {
    /// Time of the start.
    pub at: Timestamp,
    /// Number of payments checked.
    pub payments: u64,
    /// Number of balances read on chains.
    pub balances: u64,
    /// Number of vaults with a deviation that movements in progress explain.
    pub under_way: u64,
    /// Number of payments' vaults with a surplus from transfers that were set aside.
    pub set_aside: u64,
    /// Time spent waiting for chains, milliseconds.
    pub chains_ms: u64,
    /// Id after which the next part continues. Empty after the last payment.
    #[serde(skip)]
    pub after: String,
    /// Sums by chain and token.
    pub sums: BTreeMap<String, Sums>,
    /// Differences with their owners; at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// Number of differences.
    pub differences_total: u64,
    /// Running balances that differ from their postings.
    pub unbalanced: Vec<Unbalanced>,
    /// Chains with funds that could not be read, with the reason.
    pub unread: BTreeMap<Chain, String>,
}

impl ReconcileReport {
    /// True if everything was checked and matches.
    pub fn is_clean(&self) -> bool {
        self.differences_total == 0 && self.unbalanced.is_empty() && self.unread.is_empty()
    }
}

impl Sums {
    pub(super) fn add(&mut self, owner: &Owner, ledger: i64, on_chain: i64) {
        let (of_ledger, of_chain) = match owner {
            Owner::Payment { .. } => (&mut self.payments_ledger, &mut self.payments_on_chain),
            Owner::Psp { .. } => (&mut self.psps_ledger, &mut self.psps_on_chain),
            Owner::Treasury => (&mut self.treasury_ledger, &mut self.treasury_on_chain),
        };
        *of_ledger = of_ledger.saturating_add(ledger);
        *of_chain = of_chain.saturating_add(on_chain);
    }
}
