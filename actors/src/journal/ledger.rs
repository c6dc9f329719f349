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
use crate::ledger::change_of;

#[derive(Serialize)]
struct ReserveRow<'a> {
    psp_id: &'a str,
    chain: &'a str,
    token_address: &'a str,
    amount: i64,
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
    /// Takes what is promised off the balances. At most one unit of a group promises money of a PSP.
    pub(super) async fn reserve(&self, units: &[&Unit], gates: &mut Gates) -> Result<(), DbErr> {
        let reserving: Vec<(usize, &Reserve)> =
            units.iter().enumerate().filter_map(|(place, unit)| Some((place, unit.reserve()?))).collect();
        if reserving.is_empty() {
            return Ok(());
        }
        let off_balances = reserving.iter().filter(|(_, reserve)| reserve.amount > 0);
        let rows: Vec<_> = off_balances
            .clone()
            .map(|(_, Reserve { psp_id, chain, token_address, amount, .. })| ReserveRow {
                psp_id,
                chain,
                token_address,
                amount: *amount,
            })
            .collect();
        let passed = self.passed(&self.statements.balances_reserve, &rows).await?;
        gates.lose(off_balances.map(|(place, reserve)| (*place, reserve.psp_id.as_str())), &passed, || {
            JournalError::InsufficientBalance
        });
        let days: Vec<_> = reserving
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
        let passed: HashSet<String> = self.passed(&self.statements.sends_per_day_add, &days).await?;
        gates.lose(reserving.iter().map(|(place, reserve)| (*place, reserve.psp_id.as_str())), &passed, || {
            JournalError::AboveDailyLimit
        });
        Ok(())
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
