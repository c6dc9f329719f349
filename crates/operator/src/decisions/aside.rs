//! Transfers that a payment does not list because its list is full: recorded, in its wallet, and not counted until an
//! operator applies them.
//!
//! Anyone can send any number of transfers to a wallet, so no query reads all of them. The queries look up the next
//! payment, chain and token in the index, and sum at most [`SUMMED_MAX`] transfers of each. The transfers of one
//! payment cannot hide those of another.

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_domain::money::UNITS_PER_TOKEN;
use payferry_domain::payment::{LISTED_MAX, Payment};
use payferry_domain::{Amount, PaymentId, Timestamp, Token};
use sea_orm::{DbErr, FromQueryResult, Statement, Value};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::openapi::checksummed_text;
use crate::query::{COUNTED_MAX, Count, rows};

/// Maximum number of transfers of one token on one chain that are summed. A payment can never list more.
pub const SUMMED_MAX: usize = LISTED_MAX;
/// Maximum number of chains and tokens of one payment that are listed.
const LINES_MAX: usize = 100;

/// An amount is summed in two parts, its quotient and its remainder by this number, so that no sum exceeds 64 bits for
/// any claimed amounts.
const PART: i128 = 1 << 32;

// A literal condition, not a bound value: a partial index is used only for a query that contains its condition.
const IS_ASIDE: &str = "applied_version = 0 AND applied_revision > 0 AND presence = 'present'";

/// Transfers of one token on one chain that are set aside.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SetAsideLine {
    #[serde(skip)]
    pub(crate) payment_id: String,
    pub chain: String,
    /// Token, if it is one that payments expect on this chain.
    pub currency: Option<&'static str>,
    #[serde(serialize_with = "with_checksum")]
    pub token_address: String,
    /// Number of transfers, at most [`SUMMED_MAX`].
    pub transfers: i64,
    /// Sum of these transfers.
    pub amount: String,
    /// True if there are more transfers than these.
    pub at_least: bool,
    /// Time at which the first of them was recorded.
    #[schema(value_type = String, format = DateTime)]
    pub since: Moment,
}

fn with_checksum<S: Serializer>(address: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&checksummed_text(address.to_owned()))
}

impl SetAsideLine {
    /// Description of the line.
    pub(crate) fn words(&self) -> String {
        let token = self.currency.unwrap_or(&self.token_address);
        let at_least = if self.at_least { "at least " } else { "" };
        let (transfers, amount, chain) = (self.transfers, &self.amount, &self.chain);
        let noun = if transfers == 1 { "transfer" } else { "transfers" };
        format!("{at_least}{transfers} {noun} of {at_least}{amount} {token} on {chain}")
    }
}

/// Returns true if some of the transfers can be applied now: their chain is running and the payment's list has room.
pub(crate) fn may_be_applied(system: &System, payment: &Payment, lines: &[SetAsideLine]) -> bool {
    let runs = |line: &SetAsideLine| line.chain.parse().is_ok_and(|chain| system.chains().spec(chain).is_some());
    payment.transfers.len() < LISTED_MAX && lines.iter().any(runs)
}

#[derive(FromQueryResult)]
struct Row {
    payment_id: String,
    chain: String,
    token_address: String,
    transfers: i64,
    /// In the format of [`total_units`].
    amount: String,
    since: i64,
}

/// Lines of one payment.
pub(crate) async fn of_payment(system: &System, id: PaymentId) -> Result<Vec<SetAsideLine>, DbErr> {
    lines(system, SetAsideScope::One, vec![id.to_string().into()], LINES_MAX).await
}

/// Lines of all payments in order of payment, chain and token, after the given three values.
pub(crate) async fn of_all(
    system: &System,
    after: Option<[&str; 3]>,
    limit: usize,
) -> Result<Vec<SetAsideLine>, DbErr> {
    match after {
        None => lines(system, SetAsideScope::All, Vec::new(), limit).await,
        Some(after) => lines(system, SetAsideScope::Behind, after.map(Value::from).to_vec(), limit).await,
    }
}

/// Number of combinations of payment, chain and token.
pub(crate) async fn count(system: &System) -> Result<Count, DbErr> {
    let database = system.database();
    Count::read(database, Statement::from_string(database.backend(), counting(COUNTED_MAX + 1))).await
}

/// Payments to read.
#[derive(Clone, Copy)]
enum SetAsideScope {
    /// One payment, with id `$1`.
    One,
    All,
    /// Everything after the payment, chain and token in `$1`, `$2` and `$3`.
    Behind,
}

/// `heads`: each combination of payment, chain and token once, up to the limit. Each step looks up the next different
/// entry of the index, so the number of look-ups does not depend on the number of transfers.
fn heads(whose: SetAsideScope, limit: u64) -> String {
    // `|| ''` removes SQLite's text affinity. With affinity on both sides, SQLite would use only the first column of
    // the index.
    let all = "(payment_id, chain, token_address) > (h.payment_id || '', h.chain || '', h.token_address || '')";
    let (of, after) = match whose {
        SetAsideScope::One => (
            "payment_id = $1 AND",
            "payment_id = $1 AND (chain, token_address) > (h.chain || '', h.token_address || '')",
        ),
        SetAsideScope::All => ("", all),
        SetAsideScope::Behind => ("(payment_id, chain, token_address) > ($1, $2, $3) AND", all),
    };
    let order = "ORDER BY payment_id, chain, token_address LIMIT 1";
    let columns = |place: &str| {
        let column = |name| format!("(SELECT {name} FROM transfers WHERE {place} {IS_ASIDE} {order})");
        ["payment_id", "chain", "token_address"].map(column).join(", ")
    };
    let (first, next) = (columns(of), columns(&format!("{after} AND")));
    format!(
        "WITH RECURSIVE heads(nth, payment_id, chain, token_address) AS (SELECT 1, {first} UNION ALL \
         SELECT h.nth + 1, {next} FROM heads h WHERE h.payment_id IS NOT NULL AND h.nth < {limit})"
    )
}

fn counting(limit: u64) -> String {
    format!("{} SELECT COUNT(*) FROM heads WHERE payment_id IS NOT NULL", heads(SetAsideScope::All, limit))
}

/// Adds the two parts of a sum.
fn total_units(parts: &str) -> Option<i128> {
    let (wholes, rest) = parts.split_once(' ')?;
    Some(i128::from(wholes.parse::<i64>().ok()?) * PART + i128::from(rest.parse::<i64>().ok()?))
}

/// Formats like an [`Amount`], but accepts values that are too large for one.
fn written(units: i128) -> String {
    let one = i128::from(UNITS_PER_TOKEN);
    let fraction = Amount(i64::try_from(units % one).unwrap_or_default()).to_string();
    format!("{}{}", units / one, fraction.trim_start_matches('0'))
}

fn listing(whose: SetAsideScope, limit: usize) -> String {
    let summed = |what: &str, columns: &str, limit: usize| {
        format!(
            "(SELECT {what} FROM (SELECT {columns} FROM transfers t WHERE t.payment_id = h.payment_id \
             AND t.chain = h.chain AND t.token_address = h.token_address AND {IS_ASIDE} LIMIT {limit}) summed)"
        )
    };
    format!(
        "{} SELECT h.payment_id, h.chain, h.token_address, {} AS transfers, {} AS amount, {} AS since \
         FROM heads h WHERE h.payment_id IS NOT NULL ORDER BY h.nth",
        heads(whose, limit as u64),
        summed("COUNT(*)", "1", SUMMED_MAX + 1),
        // Both sums are in one column, because they must cover the same rows.
        summed(
            &format!("CAST(SUM(amount / {PART}) AS TEXT) || ' ' || CAST(SUM(amount % {PART}) AS TEXT)"),
            "amount",
            SUMMED_MAX,
        ),
        summed("MIN(created_at)", "created_at", SUMMED_MAX),
    )
}

async fn lines(
    system: &System,
    whose: SetAsideScope,
    values: Vec<Value>,
    limit: usize,
) -> Result<Vec<SetAsideLine>, DbErr> {
    let rows: Vec<Row> = rows(system.database(), listing(whose, limit), values).await?;
    let summed_max = i64::try_from(SUMMED_MAX).unwrap_or(i64::MAX);
    let line = |row: Row| -> Result<SetAsideLine, DbErr> {
        let units = total_units(&row.amount).ok_or_else(|| DbErr::Type(format!("{} is not a sum", row.amount)))?;
        let spec = row.chain.parse().ok().and_then(|chain| system.chains().spec(chain));
        let token = row.token_address.parse().ok().and_then(|address| spec?.token_at(address));
        Ok(SetAsideLine {
            payment_id: row.payment_id,
            chain: row.chain,
            currency: token.map(Token::as_str),
            token_address: row.token_address,
            transfers: row.transfers.min(summed_max),
            amount: written(units),
            at_least: row.transfers > summed_max,
            since: Moment(Timestamp(row.since)),
        })
    };
    rows.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::test_database;
    use payferry_harness::database::query_plan;

    #[test]
    fn formats_sums_of_any_size() {
        assert_eq!(total_units("0 1"), Some(1));
        assert_eq!(total_units("2 3"), Some(8_589_934_595));
        assert_eq!(total_units("2"), None);
        let listed_max = i128::try_from(SUMMED_MAX).unwrap();
        assert!((i128::from(i64::MAX) / PART + 1) * listed_max < i128::from(i64::MAX));
        for units in [0, 1, 10_000, 1_234_560, 1_000_000, i64::MAX] {
            assert_eq!(written(units.into()), Amount(units).to_string());
        }
        assert_eq!(written(i128::from(i64::MAX) * 3), "27670116110564.327421");
    }

    /// Each step uses the index with every known column: no query walks over all transfers of a payment.
    #[tokio::test]
    async fn every_query_seeks_in_the_index() {
        let (database, _test_database) = test_database().await;
        for (sql, values) in [
            (counting(5), Vec::new()),
            (listing(SetAsideScope::All, 5), Vec::new()),
            (listing(SetAsideScope::One, 5), vec![Value::from("pay_1")]),
            (listing(SetAsideScope::Behind, 5), ["pay_1", "base", "0x1"].map(Value::from).to_vec()),
        ] {
            let plan =
                query_plan(database.reader(), Statement::from_sql_and_values(database.backend(), &sql, values)).await;
            let of_transfers: Vec<_> = plan.iter().filter(|step| step.contains("transfers_set_aside")).collect();
            let others = plan.iter().filter(|step| step.contains("transfers") && !step.contains("transfers_set_aside"));
            assert_eq!(others.count(), 0, "{sql}: {plan:#?}");
            // The first entry of the list needs no seek; the following entries are sought.
            let scans = of_transfers.iter().filter(|step| step.starts_with("SCAN")).count();
            assert_eq!(scans, if sql.contains("$1") { 0 } else { 3 }, "{sql}: {plan:#?}");
            let sought = "(payment_id=? AND (chain,token_address)>(?,?))";
            let is_one = sql.contains("payment_id = $1");
            let next = if is_one { sought } else { "((payment_id,chain,token_address)>(?,?,?))" };
            let seeks = if sql.contains("$3") { 6 } else { 3 };
            assert_eq!(of_transfers.iter().filter(|step| step.contains(next)).count(), seeks, "{sql}: {plan:#?}");
        }
    }
}
