//! The ledger's words: double entry, one posting a movement. A posting takes from one account (debit) what it gives to
//! another (credit), so that debits equal credits in every row, and in every sum of rows.
//!
//! Accounts are per PSP, chain and token; those of a payment are per payment as well. What stands on `Payment` and
//! `Suspense` is in the payment's own vault on that chain, what stands on `Psp` and `InFlight` in the PSP's, what stands on
//! `Treasury` was sent to the treasury; `External` is the world outside, which owes what all others hold.
//! Deliberately absent: rows and running balances (`actors::ledger`), and which event posts what (`payment`, `sending`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chain::{Address, Chain};
use crate::money::Amount;
use crate::named::named;

named! {
    /// An account.
    Account, "external, payment, psp, in_flight, treasury, suspense" {
        /// The world outside: what came from there, less what went there.
        External = "external",
        /// What a payment's own vault holds of money that was received for it.
        Payment = "payment",
        /// What the PSP's vault holds and nobody has asked for.
        Psp = "psp",
        /// What the PSP's vault holds and is promised: payouts, withdrawals and refunds on their way.
        InFlight = "in_flight",
        /// What was sent to the treasury.
        Treasury = "treasury",
        /// What a payment's own vault holds of dust.
        Suspense = "suspense",
    }
}

named! {
    /// Why something was posted.
    PostingKind, "the kind of a posting" {
        /// A transfer is final.
        Received = "received",
        /// The chain took a final transfer back.
        Orphaned = "orphaned",
        /// Dust was seen.
        Dust = "dust",
        /// The chain took dust back.
        DustOrphaned = "dust_orphaned",
        /// The PSP's share of a settlement.
        Settled = "settled",
        /// The treasury's share of a settlement.
        Fee = "fee",
        /// A transfer's money went to its recipient.
        Delivered = "delivered",
        /// The chain took a settlement back: the PSP's share.
        SettlementReversed = "settlement_reversed",
        /// The chain took a settlement back: the treasury's share.
        FeeReversed = "fee_reversed",
        /// The chain took a delivery back.
        DeliveryReversed = "delivery_reversed",
        /// Money of the PSP was promised.
        Reserved = "reserved",
        /// Money left.
        Sent = "sent",
        /// What was promised is free again.
        Returned = "returned",
        /// The chain took a sending back and refused it then: the money is where it was.
        SentReversed = "sent_reversed",
    }
}

/// A token contract on a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Asset {
    /// The chain.
    pub chain: Chain,
    /// The contract.
    pub address: Address,
}

/// One movement between two accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// Why.
    pub kind: PostingKind,
    /// What it is taken from.
    pub debit: Account,
    /// What it is given to.
    pub credit: Account,
    /// In what.
    pub asset: Asset,
    /// How much, always positive.
    pub amount: Amount,
    /// What proves it: a transaction, a refund, or another id.
    pub reference: String,
}

impl Posting {
    /// What the posting adds to an account: negative if it takes from it.
    pub fn change_of(&self, account: Account) -> i64 {
        let units = self.amount.units();
        let gives = if self.credit == account { units } else { 0 };
        let takes = if self.debit == account { units } else { 0 };
        gives - takes
    }
}

/// What stands on accounts, by token: sums of movements. An account that holds nothing is not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings(BTreeMap<(Asset, Account), i64>);

impl Holdings {
    /// Adds a movement.
    pub fn moved(&mut self, asset: Asset, debit: Account, credit: Account, amount: Amount) {
        self.add(asset, debit, -amount.units());
        self.add(asset, credit, amount.units());
    }

    /// Base units on an account; negative if more was taken from it than given.
    pub fn on(&self, asset: Asset, account: Account) -> i64 {
        self.0.get(&(asset, account)).copied().unwrap_or_default()
    }

    /// Where these and `others` differ: token, account, what stands here and what there.
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
