//! Funds of PSPs in a group: reservations (a precondition) and postings.
//!
//! A balance is the running sum of its ledger postings, changed in the same commit. The precondition itself deducts
//! reserved funds, so that two reservations cannot use the same funds. All other postings are added afterwards.

use std::collections::{BTreeMap, HashSet};

use payferry_domain::ledger::{Account, PostingKind};
use payferry_entities::ledger_postings;
use sea_orm::DbErr;
use serde::Serialize;

use super::insert::Unplaced;
use super::preconditions::Preconditions;
use super::write::Writer;
use super::{JournalError, JournalWrite, Reserve};
use crate::postings::change_of;

/// Position of a write in the group, and its reservation.
type Promise<'a> = (usize, &'a Reserve);

#[derive(Serialize)]
struct ReserveRow<'a> {
    psp_id: &'a str,
    chain: &'a str,
    token_address: &'a str,
    amount: i64,
}

impl<'a> From<&'a Reserve> for ReserveRow<'a> {
    fn from(Reserve { psp_id, chain, token_address, amount, .. }: &'a Reserve) -> Self {
        Self { psp_id, chain, token_address, amount: *amount }
    }
}

#[derive(Serialize)]
struct DayRow<'a> {
    psp_id: &'a str,
    token: &'a str,
    day: i64,
    amount: i64,
    amount_max: i64,
}

#[derive(Serialize)]
struct BalanceRow<'a> {
    psp_id: &'a str,
    chain: &'a str,
    token_address: &'a str,
    available: i64,
    reserved: i64,
    updated_at: i64,
}

impl Writer<'_> {
    /// Deducts the reservations from the balances. Reservations of the same PSP run one after the other, so that each
    /// sees the remaining balance.
    pub(super) async fn reserve(
        &self,
        writes: &[&JournalWrite],
        preconditions: &mut Preconditions,
    ) -> Result<(), DbErr> {
        let reserving = writes.iter().enumerate().filter_map(|(place, write)| Some((place, write.reserve()?)));
        // A write that failed a precondition is not committed, so it reserves nothing.
        let mut waiting: Vec<Promise<'_>> =
            reserving.filter(|(place, _)| !preconditions.lost.contains_key(place)).collect();
        let mut promised: HashSet<&str> = HashSet::new();
        while !waiting.is_empty() {
            let mut psps = HashSet::new();
            let (turn, rest): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(_, reserve)| psps.insert(reserve.psp_id.as_str()));
            self.reserve_turn(&turn, preconditions).await?;
            for (place, reserve) in turn {
                if !preconditions.lost.contains_key(&place) {
                    promised.insert(&reserve.psp_id);
                } else if promised.contains(reserve.psp_id.as_str()) {
                    preconditions.outdone.insert(place);
                }
            }
            waiting = rest;
        }
        Ok(())
    }

    /// Runs at most one reservation per PSP.
    async fn reserve_turn(&self, turn: &[Promise<'_>], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let off_balances: Vec<&Promise<'_>> = turn.iter().filter(|(_, reserve)| reserve.amount > 0).collect();
        let rows: Vec<_> = off_balances.iter().map(|(_, reserve)| ReserveRow::from(*reserve)).collect();
        let taken = self.passed(&self.statements.balances_reserve, &rows).await?;
        preconditions.lose(
            off_balances.iter().map(|(place, reserve)| (*place, reserve.psp_id.as_str())),
            &taken,
            || JournalError::InsufficientBalance,
        );
        let covered: Vec<_> = turn.iter().filter(|(place, _)| !preconditions.lost.contains_key(place)).collect();
        let days: Vec<_> = covered
            .iter()
            .map(|(_, Reserve { psp_id, day, .. })| DayRow {
                psp_id,
                token: &day.token,
                day: day.day,
                amount: day.amount,
                amount_max: day.amount_max,
            })
            .collect();
        self.run(&self.statements.sends_per_day_begin, &days).await?;
        let within: HashSet<String> = self.passed(&self.statements.sends_per_day_add, &days).await?;
        preconditions.lose(covered.iter().map(|(place, reserve)| (*place, reserve.psp_id.as_str())), &within, || {
            JournalError::AboveDailyLimit
        });
        // A write that exceeds the daily limit releases its funds, so that later writes see the balance without it.
        let back: Vec<_> = covered
            .iter()
            .filter(|(_, reserve)| reserve.amount > 0 && !within.contains(&reserve.psp_id))
            .map(|(_, reserve)| ReserveRow { amount: -reserve.amount, ..ReserveRow::from(*reserve) })
            .collect();
        self.run(&self.statements.balances_reserve, &back).await
    }

    /// Writes the postings and updates the balances.
    pub(super) async fn post(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let postings: Vec<&ledger_postings::Model> = writes.iter().flat_map(|write| write.postings()).collect();
        if postings.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = postings.iter().map(|posting| Unplaced(*posting)).collect();
        self.insert(&self.statements.ledger_postings_insert, &rows.iter().collect::<Vec<_>>()).await?;
        // In key order, like all writers.
        let mut balances: BTreeMap<(&str, &str, &str), BalanceRow<'_>> = BTreeMap::new();
        for posting in postings {
            let (available, reserved) = (change_of(posting, Account::Psp), change_of(posting, Account::InFlight));
            if (available, reserved) == (0, 0) || posting.kind == PostingKind::Reserved.as_str() {
                continue;
            }
            let ledger_postings::Model { psp_id, chain, token_address, at, .. } = posting;
            let row = balances.entry((psp_id, chain, token_address)).or_insert(BalanceRow {
                psp_id,
                chain,
                token_address,
                available: 0,
                reserved: 0,
                updated_at: *at,
            });
            row.available += available;
            row.reserved += reserved;
            row.updated_at = row.updated_at.max(*at);
        }
        self.run(&self.statements.balances_add, &balances.into_values().collect::<Vec<_>>()).await
    }
}
