//! Money of PSPs in a group: what is promised (a gate), and what is posted.
//!
//! A balance is the running sum of the ledger's postings about it, changed in their commit. Promised money is taken off by
//! the gate, which is what keeps two promises from using the same money; every other posting is added up afterwards.

use std::collections::{BTreeMap, HashSet};

use payferry_domain::ledger::{Account, PostingKind};
use payferry_entities::ledger_postings;
use sea_orm::DbErr;
use serde::Serialize;

use super::gates::Gates;
use super::insert::Unplaced;
use super::write::Writer;
use super::{JournalError, Reserve, Unit};
use crate::postings::change_of;

/// A unit's place in the group, and what it promises.
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
    /// Takes what is promised off the balances. Those of one PSP have a turn each, so that everyone sees what the one
    /// before left.
    pub(super) async fn reserve(&self, units: &[&Unit], gates: &mut Gates) -> Result<(), DbErr> {
        let reserving = units.iter().enumerate().filter_map(|(place, unit)| Some((place, unit.reserve()?)));
        // What lost a gate is not written: it promises nothing.
        let mut waiting: Vec<Promise<'_>> = reserving.filter(|(place, _)| !gates.lost.contains_key(place)).collect();
        let mut promised: HashSet<&str> = HashSet::new();
        while !waiting.is_empty() {
            let mut psps = HashSet::new();
            let (turn, rest): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(_, reserve)| psps.insert(reserve.psp_id.as_str()));
            self.reserve_turn(&turn, gates).await?;
            for (place, reserve) in turn {
                if !gates.lost.contains_key(&place) {
                    promised.insert(&reserve.psp_id);
                } else if promised.contains(reserve.psp_id.as_str()) {
                    gates.outdone.insert(place);
                }
            }
            waiting = rest;
        }
        Ok(())
    }

    /// One promise of each PSP.
    async fn reserve_turn(&self, turn: &[Promise<'_>], gates: &mut Gates) -> Result<(), DbErr> {
        let off_balances: Vec<&Promise<'_>> = turn.iter().filter(|(_, reserve)| reserve.amount > 0).collect();
        let rows: Vec<_> = off_balances.iter().map(|(_, reserve)| ReserveRow::from(*reserve)).collect();
        let taken = self.passed(&self.statements.balances_reserve, &rows).await?;
        gates.lose(off_balances.iter().map(|(place, reserve)| (*place, reserve.psp_id.as_str())), &taken, || {
            JournalError::InsufficientBalance
        });
        let covered: Vec<_> = turn.iter().filter(|(place, _)| !gates.lost.contains_key(place)).collect();
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
        gates.lose(covered.iter().map(|(place, reserve)| (*place, reserve.psp_id.as_str())), &within, || {
            JournalError::AboveDailyLimit
        });
        // What met the day's ceiling gives its money back, so that those behind it see what is there without it.
        let back: Vec<_> = covered
            .iter()
            .filter(|(_, reserve)| reserve.amount > 0 && !within.contains(&reserve.psp_id))
            .map(|(_, reserve)| ReserveRow { amount: -reserve.amount, ..ReserveRow::from(*reserve) })
            .collect();
        self.run(&self.statements.balances_reserve, &back).await
    }

    /// Writes the postings, and brings the balances up to date with them.
    pub(super) async fn post(&self, units: &[&Unit]) -> Result<(), DbErr> {
        let postings: Vec<&ledger_postings::Model> = units.iter().flat_map(|unit| unit.postings()).collect();
        if postings.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = postings.iter().map(|posting| Unplaced(*posting)).collect();
        self.insert(&self.statements.ledger_postings_insert, &rows.iter().collect::<Vec<_>>()).await?;
        // In the order of their keys, as every writer changes them.
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
