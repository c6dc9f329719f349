//! The first pass: each account's balances at both ends of the period, its totals, and the positions of its entries.

use std::collections::BTreeMap;

use payferry_domain::ledger::Account;
use payferry_domain::{Address, Chain, Token};
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, DbErr, QueryResult, Statement, Value};

use super::{Tokens, Wanted};

/// Postings of the PSP that one query of the first pass reads.
const STEP: i64 = 50_000;
/// The accounts whose money is in the PSP's vault.
const VAULT: &str = "'psp', 'in_flight'";

/// A chain and token of a statement.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    pub chain: Chain,
    pub address: Address,
    pub currency: Option<Token>,
    pub opening: i64,
    pub closing: i64,
    pub reserved: i64,
    pub totals: BTreeMap<String, Total>,
    /// Position before its first entry.
    pub after: i64,
    /// Position of its last entry; equal to `after` if there is none.
    pub last: i64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Total {
    pub count: i64,
    pub debit: i64,
    pub credit: i64,
}

impl Summary {
    fn new(chain: Chain, address: Address, currency: Option<Token>) -> Self {
        let totals = BTreeMap::new();
        Self { chain, address, currency, opening: 0, closing: 0, reserved: 0, totals, after: 0, last: 0 }
    }
}

/// All accounts of the statement: those of the enabled tokens, and every other token with postings.
pub(super) async fn summaries(database: &Database, wanted: &Wanted, tokens: &Tokens) -> Result<Vec<Summary>, DbErr> {
    let mut accounts: BTreeMap<(Chain, Address), Summary> = BTreeMap::new();
    for (chain, address, token) in &tokens.0 {
        accounts.insert((*chain, *address), Summary::new(*chain, *address, Some(*token)));
    }
    let psp_id = wanted.psp_id.to_string();
    let newest =
        query(database, "SELECT MAX(position) FROM ledger_postings WHERE psp_id = $1", [psp_id.into()]).await?;
    // Both passes ignore postings after this position, so they read the same data.
    let newest: Option<i64> = newest.first().map_or(Ok(None), |row| row.try_get_by_index(0))?;
    let mut after = 0;
    while let Some(to) = step_end(database, wanted, after, newest.unwrap_or_default(), STEP).await? {
        for row in sums(database, wanted, after, to).await? {
            let (Some(chain), Some(address)) = (parsed(&row, 0)?, parsed(&row, 1)?) else { continue };
            let fresh = || Summary::new(chain, address, tokens.token(chain, address));
            add(accounts.entry((chain, address)).or_insert_with(fresh), &row)?;
        }
        after = to;
    }
    let is_wanted = |one: &Summary| {
        wanted.chain.is_none_or(|chain| one.chain == chain)
            && wanted.currency.is_none_or(|currency| one.currency == Some(currency))
    };
    let mut summaries: Vec<Summary> = accounts.into_values().filter(is_wanted).collect();
    summaries.sort_by_key(|one| (one.chain, one.currency.is_none(), one.currency, one.address));
    Ok(summaries)
}

/// The position at which a step of `step` postings of the PSP ends; `None` if there are none up to `newest`.
pub(super) async fn step_end(
    database: &Database,
    wanted: &Wanted,
    after: i64,
    newest: i64,
    step: i64,
) -> Result<Option<i64>, DbErr> {
    let sql = format!(
        "SELECT MAX(position) FROM (SELECT position FROM ledger_postings \
         WHERE psp_id = $1 AND position > $2 AND position <= $3 ORDER BY position LIMIT {step}) step"
    );
    let values = [wanted.psp_id.to_string().into(), after.into(), newest.into()];
    query(database, &sql, values).await?.first().map_or(Ok(None), |row| row.try_get_by_index(0))
}

async fn sums(database: &Database, wanted: &Wanted, after: i64, to: i64) -> Result<Vec<QueryResult>, DbErr> {
    let sql = format!(
        "SELECT chain, token_address, kind, debit, credit, within, CAST(SUM(amount) AS BIGINT), COUNT(*), MIN(position), \
         MAX(position) FROM (SELECT *, CASE WHEN at >= $4 THEN 1 ELSE 0 END AS within FROM ledger_postings \
         WHERE psp_id = $1 AND position > $2 AND position <= $3 AND at < $5 AND (debit IN ({VAULT}) OR credit IN ({VAULT}))) step \
         GROUP BY chain, token_address, kind, debit, credit, within"
    );
    let period = wanted.period;
    let psp_id = wanted.psp_id.to_string();
    let values =
        [psp_id.into(), after.into(), to.into(), period.from().as_millis().into(), period.to().as_millis().into()];
    query(database, &sql, values).await
}

fn add(summary: &mut Summary, row: &QueryResult) -> Result<(), DbErr> {
    let (kind, debit, credit): (String, String, String) =
        (row.try_get_by_index(2)?, row.try_get_by_index(3)?, row.try_get_by_index(4)?);
    let is_within = row.try_get_by_index::<i32>(5)? == 1;
    let (units, count): (i64, i64) = (row.try_get_by_index(6)?, row.try_get_by_index(7)?);
    if credit == Account::InFlight.as_str() {
        summary.reserved += units;
    }
    if debit == Account::InFlight.as_str() {
        summary.reserved -= units;
    }
    let (takes, gives) = (is_vault(&debit), is_vault(&credit));
    if takes == gives {
        return Ok(());
    }
    let change = if gives { units } else { -units };
    summary.closing += change;
    if !is_within {
        summary.opening += change;
        return Ok(());
    }
    let total = summary.totals.entry(kind).or_default();
    total.count += count;
    *(if gives { &mut total.credit } else { &mut total.debit }) += units;
    let (first, last): (i64, i64) = (row.try_get_by_index(8)?, row.try_get_by_index(9)?);
    summary.after = if summary.last == 0 { first - 1 } else { summary.after.min(first - 1) };
    summary.last = summary.last.max(last);
    Ok(())
}

/// Returns true if the account's money is in the PSP's vault.
pub(super) fn is_vault(account: &str) -> bool {
    matches!(account.parse(), Ok(Account::Psp | Account::InFlight))
}

fn parsed<T: std::str::FromStr>(row: &QueryResult, index: usize) -> Result<Option<T>, DbErr> {
    Ok(row.try_get_by_index::<String>(index)?.parse().ok())
}

pub(super) async fn query<const N: usize>(
    database: &Database,
    sql: &str,
    values: [Value; N],
) -> Result<Vec<QueryResult>, DbErr> {
    database.reader().query_all_raw(Statement::from_sql_and_values(database.backend(), sql, values)).await
}
