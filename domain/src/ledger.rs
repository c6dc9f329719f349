//! Types of the double-entry ledger. Each posting moves an amount from one account (debit) to another (credit), so
//! debits equal credits in every row and in every sum of rows.
//!
//! Accounts are per PSP, chain, and token; accounts of a payment are also per payment.
//!
//! - The balances of `Payment` and `Suspense` are in the vault of the payment on that chain.
//! - The balances of `Psp` and `InFlight` are in the vault of the PSP.
//! - The balance of `Treasury` was sent to the treasury.
//! - `External` is everything outside the service. Its balance is the negative sum of all other balances.
//!
//! Not here: rows and running balances (`payferry_journal`), and the mapping from events to postings (`payment`,
//! `outbound`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chain::{Address, Chain};
use crate::money::Amount;
use crate::named::named;

named! {
    /// A ledger account.
    Account, "external, payment, psp, in_flight, treasury, suspense" {
        /// Everything outside the service: the sum of what was received from there, less what was sent there.
        External = "external",
        /// Funds in the vault of a payment that were received for the payment.
        Payment = "payment",
        /// Available funds in the vault of the PSP.
        Psp = "psp",
        /// Reserved funds in the vault of the PSP: payouts, withdrawals, and refunds in progress.
        InFlight = "in_flight",
        /// Funds that were sent to the treasury.
        Treasury = "treasury",
        /// Dust in the vault of a payment, and transfers from outside to the vault of a PSP.
        Suspense = "suspense",
    }
}

named! {
    /// Kind of a posting.
    PostingKind, "the kind of a posting" {
        /// A transfer became final.
        Received = "received",
        /// A final transfer was orphaned.
        Orphaned = "orphaned",
        /// Dust was received.
        Dust = "dust",
        /// Dust was orphaned.
        DustOrphaned = "dust_orphaned",
        /// A transfer from outside to the vault of a PSP became final.
        Deposited = "deposited",
        /// The PSP's share of a settlement.
        Settled = "settled",
        /// The treasury's share of a settlement.
        Fee = "fee",
        /// The funds of a transfer were sent to its recipient.
        Delivered = "delivered",
        /// A settlement was orphaned: the PSP's share.
        SettlementReversed = "settlement_reversed",
        /// A settlement was orphaned: the treasury's share.
        FeeReversed = "fee_reversed",
        /// A delivery was orphaned.
        DeliveryReversed = "delivery_reversed",
        /// Funds of the PSP were reserved.
        Reserved = "reserved",
        /// Funds were sent.
        Sent = "sent",
        /// A reservation was released.
        Returned = "returned",
        /// A sent outbound transfer was orphaned and then failed: the funds are back in their vault.
        SentReversed = "sent_reversed",
        /// An outbound transfer that only the chain knows, because an older copy of the database was restored.
        UnknownSent = "unknown_sent",
    }
}

/// A token contract on a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Asset {
    /// Chain.
    pub chain: Chain,
    /// Token contract.
    pub address: Address,
}

/// One movement between two accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// Kind of the movement.
    pub kind: PostingKind,
    /// Account that is debited.
    pub debit: Account,
    /// Account that is credited.
    pub credit: Account,
    /// Token and chain.
    pub asset: Asset,
    /// Amount, always positive.
    pub amount: Amount,
    /// Evidence: a transaction hash, a refund id, or another id.
    pub reference: String,
}

impl Posting {
    /// Returns the change of the balance of `account`: negative if the posting debits it.
    pub fn change_of(&self, account: Account) -> i64 {
        let units = self.amount.units();
        let gives = if self.credit == account { units } else { 0 };
        let takes = if self.debit == account { units } else { 0 };
        gives - takes
    }
}

/// Balances by token and account: sums of movements. Accounts with a zero balance are not stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings(BTreeMap<(Asset, Account), i64>);

impl Holdings {
    /// Adds a movement.
    pub fn moved(&mut self, asset: Asset, debit: Account, credit: Account, amount: Amount) {
        self.add(asset, debit, -amount.units());
        self.add(asset, credit, amount.units());
    }

    /// Returns the balance of an account in base units; negative if debits exceed credits.
    pub fn on(&self, asset: Asset, account: Account) -> i64 {
        self.0.get(&(asset, account)).copied().unwrap_or_default()
    }

    /// Returns the differences to `others`: token, account, own balance, other balance.
    pub fn differences(&self, others: &Self) -> Vec<(Asset, Account, i64, i64)> {
        let mut places: Vec<_> = self.0.keys().chain(others.0.keys()).copied().collect();
        places.sort_unstable();
        places.dedup();
        let both = places
            .into_iter()
            .map(|(asset, account)| (asset, account, self.on(asset, account), others.on(asset, account)));
        both.filter(|(_, _, here, there)| here != there).collect()
    }

    fn add(&mut self, asset: Asset, account: Account, units: i64) {
        let held = self.0.entry((asset, account)).or_default();
        *held = held.saturating_add(units);
        if *held == 0 {
            self.0.remove(&(asset, account));
        }
    }
}

impl<'a> FromIterator<&'a Posting> for Holdings {
    fn from_iter<I: IntoIterator<Item = &'a Posting>>(postings: I) -> Self {
        let mut holdings = Self::default();
        for posting in postings {
            holdings.moved(posting.asset, posting.debit, posting.credit, posting.amount);
        }
        holdings
    }
}
