//! Reads the PSP's balances and the postings of its ledger over HTTP.
//!
//! Both are read at a moment without postings in between, so that they are comparable even if others move money of the
//! same PSP. Deliberately absent: the expected content.

use std::collections::HashMap;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::Context;
use serde::Deserialize;

use crate::psp::{PAGE, Psp};
use crate::wire::{Amount, Chain, Token};

/// Attempts to find a moment without postings, and the pause between two of them.
const REST_TRIES_MAX: usize = 50;
const REST_PAUSE: Duration = Duration::from_millis(50);

/// One posting.
#[derive(Debug, Clone, Deserialize)]
pub struct LedgerEntry {
    /// Position in the ledger.
    pub position: i64,
    /// Subject, for example the id of a payment.
    pub subject: String,
    /// Id of the outbound transfer that it belongs to, for example.
    #[serde(default)]
    pub reference: String,
    /// Kind, such as `settled`.
    pub kind: String,
    /// Account that is debited.
    pub debit: String,
    /// Account that is credited.
    pub credit: String,
    /// Amount.
    pub amount: Amount,
    /// Chain.
    pub chain: Chain,
    /// Token contract.
    pub token_address: Address,
}

impl LedgerEntry {
    /// Returns the change of these accounts, in base units. Negative if the posting debits them.
    pub fn change_of(&self, accounts: &[&str]) -> i64 {
        let units = |account: &str| if accounts.contains(&account) { self.amount.units() } else { 0 };
        units(&self.credit) - units(&self.debit)
    }
}

/// One balance.
#[derive(Debug, Clone, Deserialize)]
pub struct Balance {
    chain: Chain,
    currency: Token,
    available: Amount,
    reserved: Amount,
}

/// Ledger position and balances at one moment.
#[derive(Debug, Clone, Default)]
pub struct LedgerReading {
    /// Position of the last posting that was read.
    pub position: i64,
    /// Balance of each token including reserved money, in base units. `None` if postings arrived all the time, so that
    /// there was no moment to read both.
    pub balances: Option<HashMap<(Chain, Token), i64>>,
}

impl LedgerReading {
    /// Reads the current state.
    pub async fn now(psp: &Psp) -> anyhow::Result<Self> {
        read_on(psp, newest(psp).await?, |_| {}).await
    }

    /// Reads the current state. Calls `each` with every posting since `self`, oldest first.
    pub async fn since(&self, psp: &Psp, each: impl FnMut(&LedgerEntry)) -> anyhow::Result<Self> {
        read_on(psp, self.position, each).await
    }
}

async fn read_on(psp: &Psp, mut position: i64, mut each: impl FnMut(&LedgerEntry)) -> anyhow::Result<LedgerReading> {
    for _ in 0..REST_TRIES_MAX {
        loop {
            let page = psp.entries(position, PAGE).await?;
            page.iter().for_each(&mut each);
            let Some(last) = page.last() else { break };
            position = last.position;
        }
        let balances = psp.balances().await?;
        if psp.entries(position, 1).await?.is_empty() {
            let held = |balance: Balance| {
                let Balance { chain, currency, available, reserved } = balance;
                ((chain, currency), available.units().saturating_add(reserved.units()))
            };
            return Ok(LedgerReading { position, balances: Some(balances.into_iter().map(held).collect()) });
        }
        tokio::time::sleep(REST_PAUSE).await;
    }
    Ok(LedgerReading { position, balances: None })
}

/// Returns the position of the newest posting, 0 if there is none. Needs few requests, however long the ledger is.
async fn newest(psp: &Psp) -> anyhow::Result<i64> {
    if psp.entries(0, 1).await?.is_empty() {
        return Ok(0);
    }
    let (mut some_after, mut none_after) = (0, 1_i64);
    while !psp.entries(none_after, 1).await?.is_empty() {
        some_after = none_after;
        none_after = none_after.checked_mul(2).context("the positions of the ledger do not end")?;
    }
    while none_after - some_after > 1 {
        let middle = some_after + (none_after - some_after) / 2;
        if psp.entries(middle, 1).await?.is_empty() {
            none_after = middle;
        } else {
            some_after = middle;
        }
    }
    Ok(none_after)
}
