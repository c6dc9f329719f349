//! Holds vaults, treasury and ledger against each other, and names every difference with whom it belongs to.
//!
//! The service goes on meanwhile: what differs is held against what is under way, and looked at again after a while before
//! it is called a difference. Deliberately absent: mending anything, and finding missed transfers (`chain::reread`).

mod ledger;
mod open;

use std::collections::BTreeMap;
use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use futures::{StreamExt, TryStreamExt, stream};
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Address, Chain, PspId, Timestamp, Token};
use payferry_entities::{Database, psps};
use sea_orm::{DbErr, EntityTrait, QuerySelect};
use serde::Serialize;

use crate::chain::client::BATCH_CALLS_MAX;
use crate::chain::{ChainClient, ChainSpec, ClientError};
use crate::clock::Clock;
use crate::wallet::{Vaults, alloy_address};

/// Requests to a chain at once, each for [`BATCH_CALLS_MAX`] balances.
const REQUESTS_AT_ONCE: usize = 4;
/// Looks at what differs before it is called a difference.
const LOOKS_MAX: u32 = 4;
/// Differences that are named; of more, only how many there are.
pub const DIFFERENCES_MAX: usize = 10_000;

/// How thoroughly is looked.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Every token on every chain at each payment's wallet, not only where something should be.
    pub thorough: bool,
    /// Between two looks at what differs.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { thorough: false, pause: Duration::from_secs(5) }
    }
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

/// Holds everything against everything. `watch` is told how many payments were looked at.
pub async fn reconcile(
    database: &Database,
    chains: &[(ChainSpec, ChainClient)],
    clock: &Clock,
    options: Options,
    mut watch: impl FnMut(u64),
) -> Result<Report, DbErr> {
    let mut look = Look::new(database, chains, clock.now());
    let mut after = String::new();
    loop {
        let payments = ledger::payments(database, &after).await?;
        let Some(last) = payments.last() else { break };
        after.clone_from(&last.id);
        let read = payments.len();
        look.at_payments(payments, options.thorough).await?;
        watch(look.report.payments);
        if read < ledger::PAYMENTS_STEP {
            break;
        }
    }
    look.at_psps().await?;
    look.at_treasury().await?;
    look.again(options.pause).await?;
    let unequal = ledger::unequal(database).await?;
    look.report.unbalanced = unequal
        .into_iter()
        .map(|one| Unbalanced {
            psp_id: one.psp_id,
            chain: one.chain,
            token_address: one.token_address,
            posted: one.posted,
            balance: one.balance,
        })
        .collect();
    Ok(look.report)
}

struct Look<'a> {
    database: &'a Database,
    chains: BTreeMap<Chain, &'a (ChainSpec, ChainClient)>,
    report: Report,
    /// What differs at the first look.
    doubtful: Vec<Difference>,
}

impl<'a> Look<'a> {
    fn new(database: &'a Database, chains: &'a [(ChainSpec, ChainClient)], at: Timestamp) -> Self {
        let report = Report {
            at,
            payments: 0,
            balances: 0,
            under_way: 0,
            sums: BTreeMap::new(),
            differences: Vec::new(),
            differences_total: 0,
            unbalanced: Vec::new(),
            unread: BTreeMap::new(),
        };
        let chains = chains.iter().map(|chain| (chain.0.chain, chain)).collect();
        Self { database, chains, report, doubtful: Vec::new() }
    }

    async fn at_payments(&mut self, payments: Vec<ledger::PaymentVault>, thorough: bool) -> Result<(), DbErr> {
        let subjects: Vec<&str> = payments.iter().map(|payment| payment.subject.as_str()).collect();
        let mut held = ledger::of_payments(self.database, &subjects).await?;
        self.report.payments += payments.len() as u64;
        let mut expected: BTreeMap<Place, i64> = BTreeMap::new();
        for payment in payments {
            let holdings = held.remove(&payment.subject).unwrap_or_default();
            let own = self.own_asset(&payment);
            let everywhere = if thorough { self.every_asset() } else { Vec::new() };
            let owner = Owner::Payment { payment_id: payment.id, subject: payment.subject, psp_id: payment.psp_id };
            for (chain, token_address, units) in everywhere.into_iter().chain(own).chain(holdings) {
                let Ok(chain) = chain.parse() else { continue };
                let place = Place { owner: owner.clone(), chain, token_address, address: payment.wallet };
                *expected.entry(place).or_default() += units;
            }
        }
        self.compare(expected).await
    }

    async fn at_psps(&mut self) -> Result<(), DbErr> {
        let mut held = ledger::of_psps(self.database).await?;
        let ids: Vec<String> = psps::Entity::find()
            .select_only()
            .column(psps::Column::Id)
            .into_tuple()
            .all(self.database.reader())
            .await?;
        let mut expected: BTreeMap<Place, i64> = BTreeMap::new();
        for id in ids {
            let Ok(psp_id) = id.parse::<PspId>() else { continue };
            let holdings = held.remove(&id).unwrap_or_default();
            for (chain, token_address, units) in self.every_asset().into_iter().chain(holdings) {
                let Ok(chain) = chain.parse() else { continue };
                let Some((spec, _)) = self.chains.get(&chain) else {
                    self.leave_out(chain, units);
                    continue;
                };
                let address = Vaults::new(spec.contract).of_psp(psp_id);
                let place = Place { owner: Owner::Psp { psp_id: id.clone() }, chain, token_address, address };
                *expected.entry(place).or_default() += units;
            }
        }
        self.compare(expected).await
    }

    /// Only told: the treasury's owner moves it as it likes.
    async fn at_treasury(&mut self) -> Result<(), DbErr> {
        let mut expected: BTreeMap<Place, i64> = BTreeMap::new();
        for (chain, token_address, units) in ledger::of_treasury(self.database).await? {
            let Ok(chain) = chain.parse() else { continue };
            let Some((spec, _)) = self.chains.get(&chain) else {
                self.leave_out(chain, units);
                continue;
            };
            let place = Place { owner: Owner::Treasury, chain, token_address, address: spec.treasury };
            expected.insert(place, units);
        }
        self.compare(expected).await
    }

    /// The token that is due, where it is due; nothing if that is not configured any more.
    fn own_asset(&self, payment: &ledger::PaymentVault) -> Option<ledger::Holding> {
        let (spec, _) = self.chains.get(&payment.chain.parse().ok()?)?;
        Some((payment.chain.clone(), spec.token_address(payment.token.parse().ok()?)?, 0))
    }

    /// Every token that is taken, on every chain.
    fn every_asset(&self) -> Vec<ledger::Holding> {
        let of = |(spec, _): &&(ChainSpec, ChainClient)| {
            let chain = spec.chain.as_str().to_owned();
            spec.watched_contracts().map(move |token| (chain.clone(), token, 0)).collect::<Vec<_>>()
        };
        self.chains.values().flat_map(of).collect()
    }

    fn leave_out(&mut self, chain: Chain, units: i64) {
        if units != 0 {
            self.report.unread.insert(chain, "it is not configured".to_owned());
        }
    }

    async fn compare(&mut self, expected: BTreeMap<Place, i64>) -> Result<(), DbErr> {
        let mut by_chain: BTreeMap<Chain, Vec<(Place, i64)>> = BTreeMap::new();
        for (place, units) in expected {
            by_chain.entry(place.chain).or_default().push((place, units));
        }
        for (chain, places) in by_chain {
            if self.report.unread.contains_key(&chain) {
                continue;
            }
            let Some((spec, client)) = self.chains.get(&chain).copied() else {
                let held: i64 = places.iter().map(|(_, units)| units.abs()).sum();
                self.leave_out(chain, held);
                continue;
            };
            let found = match balances(client, places.iter().map(|(place, _)| place)).await {
                Ok(found) => found,
                Err(error) => {
                    self.report.unread.insert(chain, error.to_string());
                    continue;
                }
            };
            self.report.balances += found.len() as u64;
            for ((place, ledger), on_chain) in places.into_iter().zip(found) {
                let name = spec.token_at(place.token_address).map_or("look-alike", Token::as_str);
                let sums = self.report.sums.entry(format!("{chain} {name}")).or_default();
                sums.add(&place.owner, ledger, on_chain);
                if ledger != on_chain && place.owner != Owner::Treasury {
                    self.doubtful.push(Difference { place, ledger, on_chain });
                }
            }
        }
        Ok(())
    }

    /// Looks again at what differs, until it fits, is explained by what is under way, or has differed often enough.
    async fn again(&mut self, pause: Duration) -> Result<(), DbErr> {
        for look in 1..=LOOKS_MAX {
            let mut left = Vec::new();
            for difference in std::mem::take(&mut self.doubtful) {
                let under_way = open::under_way(self.database, &difference.place).await?;
                if under_way.explains(difference.on_chain.saturating_sub(difference.ledger)) {
                    self.report.under_way += 1;
                } else {
                    left.push(difference);
                }
            }
            if look == LOOKS_MAX || left.is_empty() {
                self.report.differences_total = left.len() as u64;
                left.truncate(DIFFERENCES_MAX);
                self.report.differences = left;
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            for difference in left {
                if let Some(still) = self.once_more(difference).await? {
                    self.doubtful.push(still);
                }
            }
        }
        Ok(())
    }

    /// The same place as it is now; `None` if it fits.
    async fn once_more(&self, before: Difference) -> Result<Option<Difference>, DbErr> {
        let place = before.place;
        let Some((_, client)) = self.chains.get(&place.chain).copied() else { return Ok(None) };
        // First the ledger: what comes into it afterwards is on the chain already.
        let holdings = match &place.owner {
            Owner::Payment { subject, .. } => {
                ledger::of_payments(self.database, &[subject]).await?.remove(subject).unwrap_or_default()
            }
            Owner::Psp { psp_id } => ledger::of_psps(self.database).await?.remove(psp_id).unwrap_or_default(),
            Owner::Treasury => Vec::new(),
        };
        let here =
            |(chain, token, _): &&ledger::Holding| chain == place.chain.as_str() && *token == place.token_address;
        let ledger = holdings.iter().filter(here).map(|(_, _, units)| *units).sum();
        let Ok(found) = balances(client, std::iter::once(&place)).await else {
            return Ok(Some(Difference { place, ..before }));
        };
        let on_chain = found.first().copied().unwrap_or_default();
        Ok((ledger != on_chain).then_some(Difference { place, ledger, on_chain }))
    }
}

impl Sums {
    fn add(&mut self, owner: &Owner, ledger: i64, on_chain: i64) {
        let (of_ledger, of_chain) = match owner {
            Owner::Payment { .. } => (&mut self.payments_ledger, &mut self.payments_on_chain),
            Owner::Psp { .. } => (&mut self.psps_ledger, &mut self.psps_on_chain),
            Owner::Treasury => (&mut self.treasury_ledger, &mut self.treasury_on_chain),
        };
        *of_ledger = of_ledger.saturating_add(ledger);
        *of_chain = of_chain.saturating_add(on_chain);
    }
}

/// What is at these places, in their order.
async fn balances<'p>(client: &ChainClient, places: impl Iterator<Item = &'p Place>) -> Result<Vec<i64>, ClientError> {
    let calls: Vec<(Address, Vec<u8>)> = places
        .map(|place| {
            let account = alloy_address(place.address);
            (place.token_address, TokenContract::balanceOfCall { account }.abi_encode())
        })
        .collect();
    let read = |some: Vec<(Address, Vec<u8>)>| async move {
        let answers = client.calls(some).await?;
        answers.into_iter().map(|answer| Ok(units(&answer?))).collect::<Result<Vec<i64>, ClientError>>()
    };
    let chunks: Vec<Vec<_>> = calls.chunks(BATCH_CALLS_MAX).map(<[_]>::to_vec).collect();
    let found: Vec<Vec<i64>> =
        stream::iter(chunks.into_iter().map(read)).buffered(REQUESTS_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// A balance; what is not there, and what is no token, holds nothing.
fn units(answer: &[u8]) -> i64 {
    let balance = TokenContract::balanceOfCall::abi_decode_returns(answer).unwrap_or(U256::ZERO);
    i64::try_from(balance).unwrap_or(i64::MAX)
}
