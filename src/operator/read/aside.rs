//! Money that payments list no more: recorded, in their wallets, and counted for nothing until a person takes it in.

use payferry_actors::System;
use payferry_domain::payment::{LISTED_MAX, Payment};
use payferry_domain::{Amount, PaymentId, Timestamp, Token};
use sea_orm::{DbErr, FromQueryResult, Statement, Value};
use serde::Serialize;

use super::Moment;

// Spelled out, not bound: a partial index serves only a query that shows its condition.
pub(super) const SET_ASIDE: &str = "FROM transfers WHERE applied_version = 0 AND applied_revision > 0 \
    AND presence = 'present' AND created_at <= $1 GROUP BY payment_id, chain, token_address";
const OF_PAYMENT: &str = "FROM transfers WHERE applied_version = 0 AND applied_revision > 0 \
    AND presence = 'present' AND payment_id = $1 GROUP BY payment_id, chain, token_address";

/// Chains and tokens of one payment that are listed.
const LINES_MAX: usize = 100;

/// What is set aside of one token on one chain.
#[derive(Debug, Clone, Serialize)]
pub struct AsideLine {
    #[serde(skip)]
    pub(super) payment_id: String,
    /// On this chain.
    pub chain: String,
    /// In this token, if it is one of those that are due there.
    pub currency: Option<&'static str>,
    /// Its contract.
    pub token_address: String,
    /// How many transfers.
    pub transfers: i64,
    /// What they bring in all.
    pub amount: String,
    /// Since when the first of them is recorded.
    pub since: Moment,
}

/// Whether some of it can be listed now: its chain runs here, and the list has an end.
pub(super) fn may_be_taken_in(system: &System, payment: &Payment, lines: &[AsideLine]) -> bool {
    let runs = |line: &AsideLine| line.chain.parse().is_ok_and(|chain| system.chains().spec(chain).is_some());
    payment.transfers.len() < LISTED_MAX && lines.iter().any(runs)
}

#[derive(FromQueryResult)]
struct Row {
    payment_id: String,
    chain: String,
    token_address: String,
    transfers: i64,
    amount: i64,
    since: i64,
}

/// Of one payment.
pub(super) async fn of_payment(system: &System, id: PaymentId) -> Result<Vec<AsideLine>, DbErr> {
    lines(system, OF_PAYMENT, id.to_string().into(), LINES_MAX).await
}

/// By payment, chain and token, of what was recorded until `until`.
pub(super) async fn of_all(system: &System, until: Timestamp, limit: usize) -> Result<Vec<AsideLine>, DbErr> {
    lines(system, SET_ASIDE, until.as_millis().into(), limit).await
}

async fn lines(system: &System, from: &str, value: Value, limit: usize) -> Result<Vec<AsideLine>, DbErr> {
    let sql = format!(
        "SELECT payment_id, chain, token_address, COUNT(*) AS transfers, CAST(SUM(amount) AS BIGINT) AS amount, \
         MIN(created_at) AS since {from} ORDER BY payment_id, chain, token_address LIMIT {limit}"
    );
    let database = system.database();
    let statement = Statement::from_sql_and_values(database.backend(), sql, [value]);
    let rows = Row::find_by_statement(statement).all(database.reader()).await?;
    let line = |row: Row| {
        let spec = row.chain.parse().ok().and_then(|chain| system.chains().spec(chain));
        let token = row.token_address.parse().ok().and_then(|address| spec?.token_at(address));
        AsideLine {
            payment_id: row.payment_id,
            chain: row.chain,
            currency: token.map(Token::as_str),
            token_address: row.token_address,
            transfers: row.transfers,
            amount: Amount(row.amount).to_string(),
            since: Moment(Timestamp(row.since)),
        }
    };
    Ok(rows.into_iter().map(line).collect())
}
