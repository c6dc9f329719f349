//! Balances of vaults, PSPs and the treasury according to the ledger.

use std::collections::HashMap;

use payferry_domain::{Address, PostingKind};
use payferry_entities::{Database, query_all};
use payferry_journal::lists::{text_list, texts_of};
use sea_orm::{DbErr, QueryResult, Value};

use super::Unbalanced;

/// Number of payments per statement.
pub(super) const PAYMENTS_STEP: usize = 2_000;

/// Payment fields that concern its vault.
pub(super) struct PaymentVault {
    /// Id of the payment's row.
    pub id: String,
    /// Subject in the ledger: a transfer to a customer has another prefix than its payment.
    pub subject: String,
    pub psp_id: String,
    pub wallet: Address,
    pub chain: String,
    /// Requested token.
    pub token: String,
}

/// Balance of an account: chain, token and base units.
pub(super) type Holding = (String, Address, i64);

/// The next payments after `after`, by id.
pub(super) async fn payments(database: &Database, after: &str) -> Result<Vec<PaymentVault>, DbErr> {
    let sql = format!(
        "SELECT id, psp_id, wallet, chain, token, purpose FROM payments WHERE id > $1 ORDER BY id LIMIT {PAYMENTS_STEP}"
    );
    let rows = query_all(database.reader(), &sql, [after.into()]).await?;
    rows.iter()
        .map(|row| {
            let id: String = row.try_get_by_index(0)?;
            let purpose: String = row.try_get_by_index(5)?;
            let subject = if purpose == "transfer" { id.replacen("pay_", "tr_", 1) } else { id.clone() };
            Ok(PaymentVault {
                subject,
                id,
                psp_id: row.try_get_by_index(1)?,
                wallet: address(row, 2)?,
                chain: row.try_get_by_index(3)?,
                token: row.try_get_by_index(4)?,
            })
        })
        .collect()
}

/// Balances of the vaults of these payments, by ledger subject. An absent entry means zero.
pub(super) async fn of_payments(
    database: &Database,
    subjects: &[&str],
) -> Result<HashMap<String, Vec<Holding>>, DbErr> {
    let list = texts_of(database.backend(), 1);
    let sql = format!(
        "SELECT subject, chain, token_address, {} FROM (\
         SELECT subject, chain, token_address, debit, credit, amount FROM ledger_postings WHERE subject IN ({list}) \
         AND (debit IN ('payment', 'suspense') OR credit IN ('payment', 'suspense')) \
         UNION ALL SELECT reference, chain, token_address, debit, credit, amount FROM ledger_postings \
         WHERE kind = 'unknown_sent' AND reference IN ({list})) held GROUP BY subject, chain, token_address",
        held("'payment', 'suspense'")
    );
    by_owner(query_all(database.reader(), &sql, [text_list(subjects)?]).await?)
}

/// Balances of the vaults of PSPs according to the postings, with reserved amounts and deposits; of one PSP or of all.
pub(super) async fn of_psps(database: &Database, only: Option<&str>) -> Result<HashMap<String, Vec<Holding>>, DbErr> {
    // The other postings to `suspense` are dust in vaults of payments.
    let (vault, deposited) = ("'psp', 'in_flight', 'suspense'", PostingKind::Deposited);
    let sql = format!(
        "SELECT psp_id, chain, token_address, {} FROM ledger_postings \
         WHERE (debit IN ({vault}) OR credit IN ({vault})) AND (kind = '{deposited}' OR 'suspense' NOT IN (debit, credit)) \
         AND {} GROUP BY psp_id, chain, token_address",
        held(vault),
        whose(only)
    );
    by_owner(query_at_length(database, &sql, [only.unwrap_or_default().into()]).await?)
}

/// Balances of the vaults of PSPs according to the running balances, with the deposits.
pub(super) async fn balances_of_psps(
    database: &Database,
    only: Option<&str>,
) -> Result<HashMap<String, Vec<Holding>>, DbErr> {
    let sql = format!(
        "SELECT psp_id, chain, token_address, CAST(SUM(units) AS BIGINT) FROM (\
         SELECT psp_id, chain, token_address, available + reserved AS units FROM balances \
         UNION ALL SELECT psp_id, chain, token_address, amount FROM deposits WHERE posted) held \
         WHERE {} GROUP BY psp_id, chain, token_address",
        whose(only)
    );
    by_owner(query_all(database.reader(), &sql, [only.unwrap_or_default().into()]).await?)
}

fn whose(only: Option<&str>) -> &'static str {
    // Both variants use the parameter, so that an index on the PSP serves the first.
    if only.is_some() { "psp_id = $1" } else { "$1 = ''" }
}

/// Holdings by the first column.
fn by_owner(rows: Vec<QueryResult>) -> Result<HashMap<String, Vec<Holding>>, DbErr> {
    let mut held: HashMap<String, Vec<Holding>> = HashMap::new();
    for row in rows {
        let holding = (row.try_get_by_index(1)?, address(&row, 2)?, row.try_get_by_index(3)?);
        held.entry(row.try_get_by_index(0)?).or_default().push(holding);
    }
    Ok(held)
}

/// Amounts sent to the treasury.
pub(super) async fn of_treasury(database: &Database) -> Result<Vec<Holding>, DbErr> {
    let sql = format!(
        "SELECT chain, token_address, {} FROM ledger_postings \
         WHERE debit = 'treasury' OR credit = 'treasury' GROUP BY chain, token_address",
        held("'treasury'")
    );
    let rows = query_at_length(database, &sql, []).await?;
    rows.iter().map(|row| Ok((row.try_get_by_index(0)?, address(row, 1)?, row.try_get_by_index(2)?))).collect()
}

/// Differences between `balances` and the postings: available against `psp`, reserved against `in_flight`.
pub(super) async fn unbalanced(database: &Database) -> Result<Vec<Unbalanced>, DbErr> {
    let one = |account: &str, column: &str| {
        format!(
            "SELECT psp_id, chain, token_address, CAST(SUM(posted) AS BIGINT), CAST(SUM(kept) AS BIGINT) FROM (\
             SELECT psp_id, chain, token_address, \
             CASE WHEN credit = '{account}' THEN amount ELSE 0 END - CASE WHEN debit = '{account}' THEN amount ELSE 0 END \
             AS posted, 0 AS kept FROM ledger_postings WHERE debit = '{account}' OR credit = '{account}' \
             UNION ALL SELECT psp_id, chain, token_address, 0, {column} FROM balances) both_sides \
             GROUP BY psp_id, chain, token_address HAVING SUM(posted) <> SUM(kept)"
        )
    };
    let mut found = Vec::new();
    for (account, column) in [("psp", "available"), ("in_flight", "reserved")] {
        for row in query_at_length(database, &one(account, column), []).await? {
            found.push(Unbalanced {
                psp_id: row.try_get_by_index(0)?,
                chain: row.try_get_by_index(1)?,
                token_address: address(&row, 2)?,
                posted: row.try_get_by_index(3)?,
                balance: row.try_get_by_index(4)?,
            });
        }
    }
    Ok(found)
}

/// SQL for the credits of these accounts less their debits.
fn held(accounts: &str) -> String {
    format!(
        "CAST(SUM(CASE WHEN credit IN ({accounts}) THEN amount ELSE 0 END) \
         - SUM(CASE WHEN debit IN ({accounts}) THEN amount ELSE 0 END) AS BIGINT)"
    )
}

/// Runs a query over a ledger of any length, on a snapshot and without a time limit. Only the caller waits.
async fn query_at_length<const N: usize>(
    database: &Database,
    sql: &str,
    values: [Value; N],
) -> Result<Vec<QueryResult>, DbErr> {
    let snapshot = database.snapshot().await?;
    let rows = query_all(&snapshot, sql, values).await?;
    snapshot.rollback().await?;
    Ok(rows)
}

fn address(row: &QueryResult, index: usize) -> Result<Address, DbErr> {
    let text: String = row.try_get_by_index(index)?;
    text.parse().map_err(|error| DbErr::Custom(format!("{text} is not an address: {error}")))
}
