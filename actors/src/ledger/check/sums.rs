//! Sums of postings by PSP, chain, and token, updated incrementally.

use std::collections::BTreeMap;
use std::ops::Bound;

use payferry_domain::ledger::{Account, Asset, PostingKind};
use payferry_entities::{Transaction, query_all};
use sea_orm::{DbErr, QueryResult};

/// Postings per step.
pub(super) const STEP: i64 = 10_000;

/// PSP, chain, and token, as stored and in the order of the rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Key {
    pub psp_id: String,
    pub chain: String,
    pub token_address: String,
}

impl Key {
    pub fn read(row: &QueryResult) -> Result<Self, DbErr> {
        let (psp_id, chain) = (row.try_get_by_index(0)?, row.try_get_by_index(1)?);
        Ok(Self { psp_id, chain, token_address: row.try_get_by_index(2)? })
    }

    /// Returns `None` for values that this program did not write.
    pub fn asset(&self) -> Option<Asset> {
        Some(Asset { chain: self.chain.parse().ok()?, address: self.token_address.parse().ok()? })
    }
}

/// Balances of the accounts of a PSP (not of a payment).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub psp: i64,
    pub in_flight: i64,
    pub treasury: i64,
    /// Amount debited from `psp` without a check of the balance: orphaned settlements, refunds that were sent after
    /// they had failed, and unknown outbound transfers. The balance can be negative by at most this amount.
    pub ungated: i64,
}

impl Sum {
    fn add(&mut self, debit: &str, credit: &str, kind: &str, units: i64) {
        for (account, units) in [(debit, -units), (credit, units)] {
            let held = match account.parse() {
                Ok(Account::Psp) => &mut self.psp,
                Ok(Account::InFlight) => &mut self.in_flight,
                Ok(Account::Treasury) => &mut self.treasury,
                _ => continue,
            };
            *held = held.saturating_add(units);
        }
        if debit == Account::Psp.as_str() && kind != PostingKind::Reserved.as_str() {
            self.ungated = self.ungated.saturating_add(units);
        }
    }
}

/// Sums of all postings read so far.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<Key, Sum>);

/// Progress of a step.
pub(super) struct Step {
    pub postings: i64,
    pub position: i64,
}

// Grouped by everything that determines the account, so that the result has few rows for any number of postings.
const GROUPED: &str = "psp_id, chain, token_address, debit, credit, kind";

impl Sums {
    /// Adds the next postings after a position.
    pub async fn step(&mut self, snapshot: &Transaction, after: i64) -> Result<Step, DbErr> {
        let sql = format!(
            "SELECT {GROUPED}, CAST(SUM(amount) AS BIGINT), COUNT(*), MAX(position) FROM \
             (SELECT * FROM ledger_postings WHERE position > $1 ORDER BY position LIMIT {STEP}) step GROUP BY {GROUPED}"
        );
        let rows = query_all(snapshot, &sql, [after.into()]).await?;
        let mut step = Step { postings: 0, position: after };
        let mut lines = Vec::with_capacity(rows.len());
        for row in &rows {
            lines.push(Line::read(row)?);
            step.postings += row.try_get_by_index::<i64>(7)?;
            step.position = step.position.max(row.try_get_by_index(8)?);
        }
        // Applied only after everything was read, so that a step is atomic.
        for line in lines {
            line.add_to(self.0.entry(line.key.clone()).or_default());
        }
        Ok(step)
    }

    /// Sums up one key from the beginning. On PostgreSQL, a posting can become visible after others with higher
    /// positions.
    pub async fn again(&mut self, snapshot: &Transaction, key: &Key) -> Result<(), DbErr> {
        let sql = format!(
            "SELECT {GROUPED}, CAST(SUM(amount) AS BIGINT) FROM ledger_postings \
             WHERE psp_id = $1 AND chain = $2 AND token_address = $3 GROUP BY {GROUPED}"
        );
        let values = [&key.psp_id, &key.chain, &key.token_address].map(|text| text.as_str().into());
        let mut sum = Sum::default();
        for row in query_all(snapshot, &sql, values).await? {
            Line::read(&row)?.add_to(&mut sum);
        }
        self.0.insert(key.clone(), sum);
        Ok(())
    }

    pub fn of(&self, key: &Key) -> Sum {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Returns the keys after `after`, up to `last` if set.
    pub fn keys<'a>(&'a self, after: &'a Key, last: Option<&'a Key>) -> impl Iterator<Item = &'a Key> {
        let last = last.map_or(Bound::Unbounded, Bound::Included);
        // The range is empty if its end is not after its start.
        let is_range = !matches!(last, Bound::Included(last) if last <= after);
        is_range.then(|| self.0.range((Bound::Excluded(after), last)).map(|(key, _)| key)).into_iter().flatten()
    }
}

struct Line {
    key: Key,
    debit: String,
    credit: String,
    kind: String,
    units: i64,
}

impl Line {
    fn read(row: &QueryResult) -> Result<Self, DbErr> {
        Ok(Self {
            key: Key::read(row)?,
            debit: row.try_get_by_index(3)?,
            credit: row.try_get_by_index(4)?,
            kind: row.try_get_by_index(5)?,
            units: row.try_get_by_index(6)?,
        })
    }

    fn add_to(&self, sum: &mut Sum) {
        sum.add(&self.debit, &self.credit, &self.kind, self.units);
    }
}
