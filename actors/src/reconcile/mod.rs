//! Reconciliation of vaults, treasury and ledger: reports every difference with its owner.
//!
//! The service keeps running meanwhile. A difference is compared with the movements in progress, and checked again
//! after a pause before it is reported. Deliberately absent: fixing differences, and finding missed transfers
//! (`chain::reread`).

mod ledger;
mod metrics;
mod open;
mod report;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use futures::{StreamExt, TryStreamExt, stream};
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Address, Chain, PspId, Timestamp, Token};
use payferry_entities::{Database, psps};
use payferry_evm::client::BATCH_CALLS_MAX;
use payferry_evm::wallet::{Vaults, alloy_address};
use payferry_evm::{ChainClient, ChainSpec, ClientError};
use payferry_runtime::clock::Clock;
use sea_orm::{DbErr, EntityTrait, QuerySelect};

pub(crate) use metrics::describe;
pub use report::{DIFFERENCES_MAX, Difference, FundsPosition, Options, Owner, Part, ReconcileReport, Sums, Unbalanced};

/// Maximum number of checks before a difference is reported.
const LOOKS_MAX: u32 = 4;

/// Reconciles everything. `watch` is called with the number of payments checked so far.
pub async fn reconcile(
    database: &Database,
    chains: &[(ChainSpec, ChainClient)],
    clock: &Clock,
    options: Options,
    watch: impl FnMut(u64),
) -> Result<ReconcileReport, DbErr> {
    reconcile_part(database, chains, clock, options, Part::default(), watch).await
}

/// Reconciles some payments, and all PSPs.
pub async fn reconcile_part(
    database: &Database,
    chains: &[(ChainSpec, ChainClient)],
    clock: &Clock,
    options: Options,
    part: Part,
    mut watch: impl FnMut(u64),
) -> Result<ReconcileReport, DbErr> {
    let mut reconciliation = Reconciliation::new(database, chains, clock.now(), options);
    let mut after = part.after;
    loop {
        let payments = ledger::payments(database, &after).await?;
        let is_last = payments.len() < ledger::PAYMENTS_STEP;
        if let Some(last) = payments.last() {
            after.clone_from(&last.id);
            reconciliation.at_payments(payments).await?;
            watch(reconciliation.report.payments);
        }
        if is_last {
            after.clear();
            break;
        }
        if part.payments_max.is_some_and(|max| reconciliation.report.payments >= max) {
            break;
        }
    }
    reconciliation.report.after = after;
    reconciliation.at_psps().await?;
    if options.whole_ledger || options.treasury_kept {
        reconciliation.at_treasury().await?;
    }
    reconciliation.and(part.known);
    reconciliation.again().await?;
    if !options.whole_ledger {
        return Ok(reconciliation.report);
    }
    reconciliation.report.unbalanced = ledger::unbalanced(database).await?;
    Ok(reconciliation.report)
}

struct Reconciliation<'a> {
    database: &'a Database,
    options: Options,
    chains: BTreeMap<Chain, &'a (ChainSpec, ChainClient)>,
    report: ReconcileReport,
    /// Differences found by the first check.
    doubtful: Vec<Difference>,
}

impl<'a> Reconciliation<'a> {
    fn new(database: &'a Database, chains: &'a [(ChainSpec, ChainClient)], at: Timestamp, options: Options) -> Self {
        let report = ReconcileReport { at, ..ReconcileReport::default() };
        let chains = chains.iter().map(|chain| (chain.0.chain, chain)).collect();
        Self { database, options, chains, report, doubtful: Vec::new() }
    }

    /// Adds differences found by earlier runs, unless their position was just checked.
    fn and(&mut self, known: Vec<Difference>) {
        let checked_len: BTreeSet<FundsPosition> = self.doubtful.iter().map(|one| one.place.clone()).collect();
        self.doubtful.extend(known.into_iter().filter(|one| !checked_len.contains(&one.place)));
    }

    async fn at_payments(&mut self, payments: Vec<ledger::PaymentVault>) -> Result<(), DbErr> {
        let subjects: Vec<&str> = payments.iter().map(|payment| payment.subject.as_str()).collect();
        let mut held = ledger::of_payments(self.database, &subjects).await?;
        self.report.payments += payments.len() as u64;
        let mut expected: BTreeMap<FundsPosition, i64> = BTreeMap::new();
        for payment in payments {
            let holdings = held.remove(&payment.subject).unwrap_or_default();
            let own = self.own_asset(&payment);
            let everywhere = if self.options.thorough { self.every_asset() } else { Vec::new() };
            let owner = Owner::Payment { payment_id: payment.id, subject: payment.subject, psp_id: payment.psp_id };
            for (chain, token_address, units) in everywhere.into_iter().chain(own).chain(holdings) {
                let Ok(chain) = chain.parse() else { continue };
                let place = FundsPosition { owner: owner.clone(), chain, token_address, address: payment.wallet };
                *expected.entry(place).or_default() += units;
            }
        }
        self.compare(expected).await
    }

    async fn at_psps(&mut self) -> Result<(), DbErr> {
        let mut held = self.of_psps(None).await?;
        let ids: Vec<String> = psps::Entity::find()
            .select_only()
            .column(psps::Column::Id)
            .into_tuple()
            .all(self.database.reader())
            .await?;
        let mut expected = BTreeMap::new();
        for id in ids {
            let Ok(psp_id) = id.parse::<PspId>() else { continue };
            let holdings = self.every_asset().into_iter().chain(held.remove(&id).unwrap_or_default());
            let owner = Owner::Psp { psp_id: id };
            self.expect(&mut expected, &owner, holdings, |spec| Vaults::new(spec.contract).of_psp(psp_id));
        }
        self.compare(expected).await
    }

    /// Adds the holdings of an owner with one address per chain.
    fn expect(
        &mut self,
        expected: &mut BTreeMap<FundsPosition, i64>,
        owner: &Owner,
        holdings: impl Iterator<Item = ledger::Holding>,
        address: impl Fn(&ChainSpec) -> Address,
    ) {
        for (chain, token_address, units) in holdings {
            let Ok(chain) = chain.parse() else { continue };
            let Some((spec, _)) = self.chains.get(&chain) else {
                self.leave_out(chain, units);
                continue;
            };
            let place = FundsPosition { owner: owner.clone(), chain, token_address, address: address(spec) };
            *expected.entry(place).or_default() += units;
        }
    }

    async fn of_psps(&self, only: Option<&str>) -> Result<HashMap<String, Vec<ledger::Holding>>, DbErr> {
        if self.options.whole_ledger {
            ledger::of_psps(self.database, only).await
        } else {
            ledger::balances_of_psps(self.database, only).await
        }
    }

    /// The treasury is only reported, not compared, unless `treasury_kept` is set: its owner may move funds.
    async fn at_treasury(&mut self) -> Result<(), DbErr> {
        let mut expected = BTreeMap::new();
        let everywhere = if self.options.treasury_kept { self.every_asset() } else { Vec::new() };
        let holdings = everywhere.into_iter().chain(ledger::of_treasury(self.database).await?);
        self.expect(&mut expected, &Owner::Treasury, holdings, |spec| spec.treasury);
        self.compare(expected).await
    }

    /// The payment's own token and chain; `None` if they are not configured any more.
    fn own_asset(&self, payment: &ledger::PaymentVault) -> Option<ledger::Holding> {
        let (spec, _) = self.chains.get(&payment.chain.parse().ok()?)?;
        Some((payment.chain.clone(), spec.token_address(payment.token.parse().ok()?)?, 0))
    }

    /// Every supported token on every chain.
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

    async fn compare(&mut self, expected: BTreeMap<FundsPosition, i64>) -> Result<(), DbErr> {
        let mut by_chain: BTreeMap<Chain, Vec<(FundsPosition, i64)>> = BTreeMap::new();
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
            let found = match self.balances(client, places.iter().map(|(place, _)| place)).await {
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
                if ledger != on_chain && (place.owner != Owner::Treasury || self.options.treasury_kept) {
                    self.doubtful.push(Difference { place, ledger, on_chain });
                }
            }
        }
        Ok(())
    }

    /// Checks differences again, until they match, are explained by movements in progress, or the checks are used up.
    async fn again(&mut self) -> Result<(), DbErr> {
        for reconciliation in 1..=LOOKS_MAX {
            let mut left = Vec::new();
            for difference in std::mem::take(&mut self.doubtful) {
                let under_way = open::under_way(self.database, &difference.place).await?;
                if under_way.explains(difference.surplus()) {
                    let reason =
                        if under_way.aside == 0 { &mut self.report.under_way } else { &mut self.report.set_aside };
                    *reason += 1;
                } else {
                    left.push(difference);
                }
            }
            if reconciliation == LOOKS_MAX || left.is_empty() {
                self.report.differences_total = left.len() as u64;
                left.truncate(DIFFERENCES_MAX);
                self.report.differences = left;
                return Ok(());
            }
            tokio::time::sleep(self.options.pause).await;
            for difference in left {
                if let Some(still) = self.once_more(difference).await? {
                    self.doubtful.push(still);
                }
            }
        }
        Ok(())
    }

    /// Checks a position again; `None` if it matches.
    async fn once_more(&mut self, before: Difference) -> Result<Option<Difference>, DbErr> {
        let place = before.place;
        let Some((_, client)) = self.chains.get(&place.chain).copied() else { return Ok(None) };
        // The ledger first: later postings are on the chain already.
        let holdings = match &place.owner {
            Owner::Payment { subject, .. } => {
                ledger::of_payments(self.database, &[subject]).await?.remove(subject).unwrap_or_default()
            }
            Owner::Psp { psp_id } => self.of_psps(Some(psp_id)).await?.remove(psp_id).unwrap_or_default(),
            Owner::Treasury => ledger::of_treasury(self.database).await?,
        };
        let here =
            |(chain, token, _): &&ledger::Holding| chain == place.chain.as_str() && *token == place.token_address;
        let ledger = holdings.iter().filter(here).map(|(_, _, units)| *units).sum();
        let Ok(found) = self.balances(client, std::iter::once(&place)).await else {
            return Ok(Some(Difference { place, ..before }));
        };
        let on_chain = found.first().copied().unwrap_or_default();
        Ok((ledger != on_chain).then_some(Difference { place, ledger, on_chain }))
    }

    /// Balances at these positions, in their order.
    async fn balances<'p>(
        &mut self,
        client: &ChainClient,
        places: impl Iterator<Item = &'p FundsPosition>,
    ) -> Result<Vec<i64>, ClientError> {
        let since = Instant::now();
        let found = balances(client, places, self.options).await;
        self.report.chains_ms += u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        found
    }
}

/// Balances at these positions, in their order.
async fn balances<'p>(
    client: &ChainClient,
    places: impl Iterator<Item = &'p FundsPosition>,
    options: Options,
) -> Result<Vec<i64>, ClientError> {
    let calls: Vec<(Address, Vec<u8>)> = places
        .map(|place| {
            let account = alloy_address(place.address);
            (place.token_address, TokenContract::balanceOfCall { account }.abi_encode())
        })
        .collect();
    let read = |some: Vec<(Address, Vec<u8>)>| async move {
        let answers = client.calls(some).await?;
        tokio::time::sleep(options.request_pause).await;
        answers.into_iter().map(|answer| Ok(units(&answer?))).collect::<Result<Vec<i64>, ClientError>>()
    };
    let chunks: Vec<Vec<_>> = calls.chunks(BATCH_CALLS_MAX).map(<[_]>::to_vec).collect();
    let found: Vec<Vec<i64>> =
        stream::iter(chunks.into_iter().map(read)).buffered(options.requests_at_once).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Balance in a response; 0 if there is no contract or no token.
fn units(answer: &[u8]) -> i64 {
    let balance = TokenContract::balanceOfCall::abi_decode_returns(answer).unwrap_or(U256::ZERO);
    i64::try_from(balance).unwrap_or(i64::MAX)
}
