//! What reconciling is asked for, and what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use payferry_domain::{Address, Amount, Chain, Timestamp, Token};
use payferry_evm::wallet::checksummed;
use serde::Serialize;

/// Requests to a chain at once, unless said otherwise.
const REQUESTS_AT_ONCE: usize = 4;
/// Differences that are named; of more, only how many there are.
pub const DIFFERENCES_MAX: usize = 10_000;

/// How thoroughly is looked.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Every token on every chain at each payment's wallet, not only where something should be.
    pub thorough: bool,
    /// Between two looks at what differs.
    pub pause: Duration,
    /// Requests to a chain at once, each for many balances.
    pub requests_at_once: usize,
    /// After each request: what others want of the endpoint comes in between.
    pub request_pause: Duration,
    /// Whether the ledger itself is looked at, too: its sums of all that was ever posted, and the treasury's. Without it the
    /// running balances are believed, which the ledger's auditor looks after, and the treasury is left out unless it is kept.
    pub whole_ledger: bool,
    /// Whether nobody has moved the treasury's money, so that what differs there is a difference, too.
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

/// Which payments are looked at.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Those with greater ids; empty: from the first on.
    pub after: String,
    /// At most so many; `None`: all.
    pub payments_max: Option<u64>,
    /// Differences that are looked at again, wherever they are.
    pub known: Vec<Difference>,
}

/// Whose money it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub enum Owner {
    /// A payment's own vault.
    Payment {
        /// Which.
        payment_id: String,
        /// What it is called in the ledger.
        subject: String,
        /// Whose.
        psp_id: String,
    },
    /// A PSP's vault.
    Psp {
        /// Whose.
        psp_id: String,
    },
    /// The treasury.
    Treasury,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Payment { subject, .. } => subject,
            Self::Psp { psp_id } => psp_id,
            Self::Treasury => "treasury",
        })
    }
}

/// Where money is, and in what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Whose it is.
    #[serde(flatten)]
    pub owner: Owner,
    /// On this chain.
    pub chain: Chain,
    /// In this token.
    pub token_address: Address,
    /// At this address.
    pub address: Address,
}

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What the ledger says, base units.
    pub ledger: i64,
    /// What is there, base units.
    pub on_chain: i64,
}

impl Difference {
    /// What differs, for people; `token` if it is one of ours.
    pub fn words(&self, token: Option<Token>) -> String {
        let Self { place, ledger, on_chain } = self;
        let token = token.map_or_else(|| place.token_address.to_string(), |token| token.to_string());
        let (ledger, on_chain) = (Amount(*ledger), Amount(*on_chain));
        let address = checksummed(place.address);
        format!("on {} at {address}: the ledger says {ledger} {token}, there are {on_chain}", place.chain)
    }
}

/// A running balance that is not the sum of its postings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unbalanced {
    /// Whose.
    pub psp_id: String,
    /// On this chain.
    pub chain: String,
    /// In this token.
    pub token_address: Address,
    /// What the postings add up to, base units.
    pub posted: i64,
    /// What the balance says, base units.
    pub balance: i64,
}

/// Sums of one token on one chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// In payments' vaults by the ledger, base units.
    pub payments_ledger: i64,
    /// In payments' vaults on the chain.
    pub payments_on_chain: i64,
    /// In PSPs' vaults by the ledger.
    pub psps_ledger: i64,
    /// In PSPs' vaults on the chain.
    pub psps_on_chain: i64,
    /// Sent to the treasury by the ledger.
    pub treasury_ledger: i64,
    /// At the treasury's address now: its owner may have moved it on.
    pub treasury_on_chain: i64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// When it was begun.
    pub at: Timestamp,
    /// Payments that were looked at.
    pub payments: u64,
    /// Balances that were read on chains.
    pub balances: u64,
    /// Vaults that differ by no more than what is under way.
    pub under_way: u64,
    /// Vaults of payments that hold more because of transfers that their payments have no room for.
    pub set_aside: u64,
    /// How long was waited for answers of chains, milliseconds.
    pub chains_ms: u64,
    /// Where a part ended: the next one goes on behind it. Empty after the last payment.
    #[serde(skip)]
    pub after: String,
    /// By chain and token.
    pub sums: BTreeMap<String, Sums>,
    /// What does not fit, and whose it is; at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// How many there are.
    pub differences_total: u64,
    /// Running balances that are not what was posted.
    pub unbalanced: Vec<Unbalanced>,
    /// Chains that money is on and that could not be read, and why.
    pub unread: BTreeMap<Chain, String>,
}

impl Report {
    /// Whether everything was looked at and fits.
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
