//! Rows of the ledger's postings.
//!
//! Deliberately absent: which event posts what (the domain), and the writing itself (`writer`).

use std::collections::BTreeMap;

use payferry_domain::ledger::{Account, Posting, PostingKind};
use payferry_domain::{PspId, Timestamp};
use payferry_entities::{balances, deposits, ledger_postings};

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The day of a moment, counted from the epoch, UTC.
pub const fn day_of(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(DAY_MS)
}

/// Amount that a posting adds to an account; negative if it debits the account.
pub fn change_of(posting: &ledger_postings::Model, account: Account) -> i64 {
    let gives = if posting.credit == account.as_str() { posting.amount } else { 0 };
    let takes = if posting.debit == account.as_str() { posting.amount } else { 0 };
    gives - takes
}

/// Changes of the balances by these postings, in key order, like all writers.
pub(crate) fn balance_changes<'a>(
    postings: impl IntoIterator<Item = &'a ledger_postings::Model>,
) -> Vec<balances::Model> {
    let mut changes: BTreeMap<_, balances::Model> = BTreeMap::new();
    for posting in postings {
        let (available, reserved) = (change_of(posting, Account::Psp), change_of(posting, Account::InFlight));
        if (available, reserved) == (0, 0) {
            continue;
        }
        let ledger_postings::Model { psp_id, chain, token_address, at, .. } = posting;
        let change = changes.entry((psp_id, chain, token_address)).or_insert_with(|| balances::Model {
            psp_id: psp_id.clone(),
            chain: chain.clone(),
            token_address: token_address.clone(),
            ..balances::Model::default()
        });
        change.available += available;
        change.reserved += reserved;
        change.updated_at = change.updated_at.max(*at);
    }
    changes.into_values().collect()
}

/// Prefix of the subject of a deposit's posting.
pub const DEPOSIT_PREFIX: &str = "dep_";

/// Subject of the postings of a deposit.
pub(crate) fn deposit_subject(chain: &str, tx_hash: &str, log_index: i64) -> String {
    format!("{DEPOSIT_PREFIX}{chain}_{tx_hash}_{log_index}")
}

/// The posting of a transfer from outside to the vault of a PSP, or of its reversal if its block is orphaned.
pub(crate) fn of_deposit(deposit: deposits::Model, version: i64, is_orphaned: bool) -> ledger_postings::Model {
    let deposits::Model { chain, tx_hash, log_index, psp_id, token_address, amount, created_at, .. } = deposit;
    let (debit, credit) =
        if is_orphaned { (Account::Suspense, Account::External) } else { (Account::External, Account::Suspense) };
    ledger_postings::Model {
        position: 0,
        subject: deposit_subject(&chain, &tx_hash, log_index),
        version,
        line: 0,
        psp_id,
        kind: PostingKind::Deposited.as_str().to_owned(),
        debit: debit.as_str().to_owned(),
        credit: credit.as_str().to_owned(),
        chain,
        token_address,
        amount,
        reference: tx_hash,
        at: created_at,
    }
}

/// The rows of one commit's postings.
pub fn rows(
    subject: &str,
    version: u32,
    psp_id: PspId,
    postings: &[Posting],
    at: Timestamp,
) -> Vec<ledger_postings::Model> {
    let row = |(line, posting): (i64, &Posting)| ledger_postings::Model {
        position: 0,
        subject: subject.to_owned(),
        version: i64::from(version),
        line,
        psp_id: psp_id.to_string(),
        kind: posting.kind.as_str().to_owned(),
        debit: posting.debit.as_str().to_owned(),
        credit: posting.credit.as_str().to_owned(),
        chain: posting.asset.chain.as_str().to_owned(),
        token_address: posting.asset.address.to_string(),
        amount: posting.amount.units(),
        reference: posting.reference.clone(),
        at: at.as_millis(),
    };
    (0..).zip(postings).map(row).collect()
}
