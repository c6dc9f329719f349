//! The service's own books, read: what the PSP's balances are, and which postings its ledger has.
//!
//! Both are read at a moment at which nothing is posted in between, so that they can be held against each other whoever else
//! moves money of the same PSP. Deliberately absent: what must be in them (`audit::books`).

use std::collections::HashMap;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::Context;
use payferry_domain::{Amount, Chain, Token};
use serde::Deserialize;

use super::api::{Api, PAGE};

/// How often it is looked for a moment at which nothing is posted.
const REST_TRIES_MAX: usize = 50;
const REST_PAUSE: Duration = Duration::from_millis(50);

/// One posting, as the interface shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// Its place in the ledger.
    pub position: i64,
    /// What it is about: a payment, say.
    pub subject: String,
    /// Why it was made, such as settled.
    pub kind: String,
    /// The account that it takes from.
    pub debit: String,
    /// The account that it gives to.
    pub credit: String,
    /// How much.
    #[serde(deserialize_with = "amount")]
    pub amount: Amount,
    /// On which chain.
    pub chain: Chain,
    /// Of which token.
    pub token_address: Address,
}

impl Entry {
    /// What it adds to these accounts, in base units; less than nothing if it takes from them.
    pub fn change_of(&self, accounts: &[&str]) -> i64 {
        let units = |account: &str| if accounts.contains(&account) { self.amount.units() } else { 0 };
        units(&self.credit) - units(&self.debit)
    }
}

/// One balance, as the interface shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct Balance {
    chain: Chain,
    currency: Token,
    #[serde(deserialize_with = "amount")]
    available: Amount,
    #[serde(deserialize_with = "amount")]
    reserved: Amount,
}

/// An amount that may be below nothing.
fn amount<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Amount, D::Error> {
    let text = String::deserialize(value)?;
    let (sign, digits) = text.strip_prefix('-').map_or((1, text.as_str()), |digits| (-1, digits));
    let amount = digits.parse::<Amount>().map_err(serde::de::Error::custom)?;
    Ok(Amount(sign * amount.units()))
}

/// How the books stood at one moment.
#[derive(Debug, Clone, Default)]
pub struct Stand {
    /// The place of the last posting that was read.
    pub position: i64,
    /// What the PSP has of each token, promised money included, in base units. `None` if postings came all the time, so
    /// that there was no moment to read both.
    pub balances: Option<HashMap<(Chain, Token), i64>>,
}

impl Stand {
    /// As they stand now.
    pub async fn now(api: &Api) -> anyhow::Result<Self> {
        read_on(api, newest(api).await?, |_| {}).await
    }

    /// As they stand now; `each` is given every posting since `self`, oldest first.
    pub async fn since(&self, api: &Api, each: impl FnMut(&Entry)) -> anyhow::Result<Self> {
        read_on(api, self.position, each).await
    }
}

async fn read_on(api: &Api, mut position: i64, mut each: impl FnMut(&Entry)) -> anyhow::Result<Stand> {
    for _ in 0..REST_TRIES_MAX {
        loop {
            let page = api.entries(position, PAGE).await?;
            page.iter().for_each(&mut each);
            let Some(last) = page.last() else { break };
            position = last.position;
        }
        let balances = api.balances().await?;
        if api.entries(position, 1).await?.is_empty() {
            let held = |balance: Balance| {
                let Balance { chain, currency, available, reserved } = balance;
                ((chain, currency), available.units().saturating_add(reserved.units()))
            };
            return Ok(Stand { position, balances: Some(balances.into_iter().map(held).collect()) });
        }
        tokio::time::sleep(REST_PAUSE).await;
    }
    Ok(Stand { position, balances: None })
}

/// The place of the newest posting, 0 if there is none: found in few requests, however long the ledger is.
async fn newest(api: &Api) -> anyhow::Result<i64> {
    if api.entries(0, 1).await?.is_empty() {
        return Ok(0);
    }
    let (mut some_after, mut none_after) = (0, 1_i64);
    while !api.entries(none_after, 1).await?.is_empty() {
        some_after = none_after;
        none_after = none_after.checked_mul(2).context("positions in the ledger have no end")?;
    }
    while none_after - some_after > 1 {
        let middle = some_after + (none_after - some_after) / 2;
        if api.entries(middle, 1).await?.is_empty() {
            none_after = middle;
        } else {
            some_after = middle;
        }
    }
    Ok(none_after)
}
