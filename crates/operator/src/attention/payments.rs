//! Kinds that are read from payments and transfers, and from operations: refunds that were not sent, and settlements
//! that no other kind lists.
//!
//! Deliberately absent: payouts and withdrawals, which have their own kinds.

use std::collections::HashMap;
use std::sync::LazyLock;

use payferry_actors::System;
use payferry_domain::payment::Status::{Confirmed, Pending};
use payferry_domain::payment::{Decision, LISTED_MAX, Label, Payment, Refund, Transfer, Verdict};
use payferry_domain::{Amount, Timestamp};
use payferry_entities::OperationStatus::{Mined, Queued, Submitted};
use payferry_entities::{operations, payments, transfers};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, Value};

use crate::attention::{
    AttentionItem, AttentionKind, Found, OPERATION_ATTEMPTS_USUAL_MAX, OPERATION_OVERDUE_AFTER_SECS,
    OVERDUE_AFTER_SECS, Part, Position, UNAPPLIED_AFTER_SECS, UNSETTLED_AFTER_SECS,
};
use crate::decisions::aside::{self, SetAsideLine};
use crate::decisions::query::{apply_set_aside, payer_in_review, possible};
use crate::query::{Count, rows};

// Literal states, not bound values: a partial index is used only for a query that contains its condition.
const ATTENTION: &str = "FROM payments WHERE attention = $1";
static CONFIRMED: LazyLock<String> =
    LazyLock::new(|| format!("FROM payments WHERE status = '{Confirmed}' AND updated_at < $1 AND attention IS NULL"));
static PENDING: LazyLock<String> =
    LazyLock::new(|| format!("FROM payments WHERE status = '{Pending}' AND expires_at < $1 AND attention IS NULL"));
const UNAPPLIED: &str = "FROM transfers WHERE applied_revision < revision AND created_at < $1";

/// Overdue operations. An operation that is put into one transaction after another changes often, but is overdue too. A
/// payment that is confirmed and not settled is listed as such, unless a more urgent kind lists it.
static OVERDUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "FROM operations WHERE status IN ('{Queued}', '{Submitted}', '{Mined}') AND created_at < $1 \
         AND (updated_at < $1 OR attempts > 3) AND kind NOT IN ('payout', 'withdrawal') \
         AND NOT (kind IN ('settle', 'deliver') AND EXISTS (SELECT 1 FROM payments WHERE payments.id = operations.payment_id \
             AND payments.status = '{Confirmed}' \
             AND (payments.attention IS NULL OR payments.attention = 'SETTLEMENT_FAILED')))"
    )
});

const BY_CHANGE: [&str; 2] = ["updated_at", "id"];
const BY_DEADLINE: [&str; 2] = ["expires_at", "id"];
const BY_CREATION: [&str; 2] = ["created_at", "id"];
/// Order of transfers, whose key has several columns.
const BY_RECORDING: [&str; 5] = ["created_at", "chain", "tx_hash", "log_index", "block_hash"];

/// Reads one kind.
pub(super) async fn of(system: &System, kind: AttentionKind, part: Part<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().now();
    let before = |secs: i64| Value::from(now.plus_secs(-secs).as_millis());
    let attention = |label: Label| (ATTENTION, Value::from(label.as_str()), BY_CHANGE);
    let (sql, value, order) = match kind {
        AttentionKind::SettlementFailed => attention(Label::SettlementFailed),
        AttentionKind::RefundApproval => attention(Label::RefundApproval),
        AttentionKind::InReview => attention(Label::InReview),
        AttentionKind::FundsBlocked => attention(Label::FundsBlocked),
        AttentionKind::Unsettled => (CONFIRMED.as_str(), before(UNSETTLED_AFTER_SECS), BY_CHANGE),
        AttentionKind::Overdue => (PENDING.as_str(), before(OVERDUE_AFTER_SECS), BY_DEADLINE),
        AttentionKind::TransferUnapplied => return unapplied(system, before(UNAPPLIED_AFTER_SECS), now, part).await,
        AttentionKind::TransferSetAside => return set_aside(system, now, part).await,
        _ => return Ok((Count::default(), Vec::new())),
    };
    let sql = part.open(kind, sql, &order);
    let total = Count::rows(system.database(), &sql, [value.clone()]).await?;
    if total == Count::default() {
        return Ok((total, Vec::new()));
    }
    let rows: Vec<payments::Model> = rows(system.database(), part.sql(&sql, &order), part.values(value)).await?;
    let item = |row: &payments::Model| {
        let (since, reason, can) = match payferry_journal::payments::payment_of(row) {
            Ok(payment) => {
                let (since, reason) = since_and_reason(kind, &payment);
                (since, reason, possible(&payment, now))
            }
            Err(error) => (Timestamp(row.updated_at), error.to_string(), Vec::new()),
        };
        let position_at = if kind == AttentionKind::Overdue { row.expires_at } else { row.updated_at };
        let item = AttentionItem::new(&row.id, Some(since), now, reason).of_payment(&row.id, Some(&row.psp_id));
        let item = item.of_money(&row.chain, Amount(row.amount), &row.token);
        item.with(can).at_position(position_at, &row.id)
    };
    Ok((total, rows.iter().map(item).collect()))
}

/// Start and reason of the problem.
fn since_and_reason(kind: AttentionKind, payment: &Payment) -> (Timestamp, String) {
    let updated = payment.updated_at;
    let chain = payment.terms.chain;
    match kind {
        AttentionKind::SettlementFailed => {
            let settlement = payment.settlement.as_deref();
            let failure = settlement.and_then(|one| one.failure.clone()).unwrap_or_default();
            let times = settlement.map_or(0, |one| one.failures);
            (updated, format!("on {chain}, {times} times so far: {failure}"))
        }
        AttentionKind::RefundApproval => unapproved(payment),
        AttentionKind::InReview => screened(payment, Decision::Review),
        AttentionKind::FundsBlocked => {
            let (since, reason) = screened(payment, Decision::Block);
            (since, format!("{} held: {reason}", held(payment)))
        }
        AttentionKind::Unsettled => {
            let state = payment.settlement.as_deref().map_or("missing", |settlement| settlement.state.as_str());
            (updated, format!("its settlement on {chain} is {state}"))
        }
        _ => (payment.expires_at, format!("on {chain}, with {} transfers", payment.transfers.len())),
    }
}

/// Blocked money, by token and chain.
fn held(payment: &Payment) -> String {
    let due = Some(payment.blocked_held()).filter(|held| !held.is_zero());
    let due = due.map(|held| format!("{held} {}", payment.terms.token));
    let elsewhere = payment.blocked_misdirected().into_iter();
    let elsewhere = elsewhere.map(|(asset, held)| format!("{held} of {} on {}", asset.address, asset.chain));
    due.into_iter().chain(elsewhere).collect::<Vec<_>>().join(" and ")
}

/// Refunds that wait for approval.
fn unapproved(payment: &Payment) -> (Timestamp, String) {
    let waiting = || payment.refunds.iter().filter(|refund| refund.awaits_approval());
    let since = waiting().map(|refund| refund.requested_at).min().unwrap_or(payment.updated_at);
    let line = |refund: &Refund| {
        let asset = refund.asset.unwrap_or_else(|| payment.asset());
        let token = payment.token_of(asset).map_or_else(|| asset.address.to_string(), |token| token.to_string());
        format!("{} {token} on {} to {}", refund.amount, asset.chain, refund.to.checksummed())
    };
    (since, waiting().map(line).collect::<Vec<_>>().join("; "))
}

fn screened(payment: &Payment, decision: Decision) -> (Timestamp, String) {
    let concerned: Vec<&Transfer> =
        payment.transfers.iter().filter(|transfer| transfer.decision() == Some(decision)).collect();
    let refunds =
        payment.refunds.iter().filter(|refund| refund.awaits_screening() && refund.decision() == Some(decision));
    let refunds = refunds.filter_map(|refund| refund.verdict.as_deref());
    let payer = payer_in_review(payment).filter(|payer| payer.decision() == Some(decision));
    let others: Vec<&Verdict> = refunds.chain(payer.and_then(|payer| payer.verdict.as_deref())).collect();
    let verdicts = || concerned.iter().filter_map(|transfer| transfer.verdict.as_deref()).chain(others.iter().copied());
    let since = verdicts().map(|verdict| verdict.checked_at).min().unwrap_or(payment.updated_at);
    let said: Vec<String> =
        verdicts().map(|verdict| format!("{} says {}", verdict.provider, verdict.flags.join(", "))).collect();
    (since, said.join("; "))
}

async fn unapplied(system: &System, before: Value, now: Timestamp, part: Part<'_>) -> Result<Found, DbErr> {
    let unapplied = part.open(AttentionKind::TransferUnapplied, UNAPPLIED, &BY_RECORDING);
    let total = Count::rows(system.database(), &unapplied, [before.clone()]).await?;
    let values = part.values_with(before, |after| {
        let [chain, tx_hash, log_index, block_hash] = after.parts();
        vec![chain.into(), tx_hash.into(), log_index.parse::<i64>().unwrap_or_default().into(), block_hash.into()]
    });
    let rows: Vec<transfers::Model> = rows(system.database(), part.sql(&unapplied, &BY_RECORDING), values).await?;
    let item = |row: &transfers::Model| {
        let id = format!("{}:{}:{}:{}", row.chain, row.tx_hash, row.log_index, row.block_hash);
        let reason = format!("revision {} is recorded, revision {} was applied", row.revision, row.applied_revision);
        let item = AttentionItem::new(id, Some(Timestamp(row.created_at)), now, reason);
        item.of_payment(&row.payment_id, None).on_chain(&row.chain)
    };
    Ok((total, rows.iter().map(item).collect()))
}

async fn set_aside(system: &System, now: Timestamp, part: Part<'_>) -> Result<Found, DbErr> {
    let total = aside::count(system).await?;
    if total == Count::default() {
        return Ok((total, Vec::new()));
    }
    let after = part.after.map(Position::parts::<3>);
    let lines = aside::of_all(system, after, part.read_max()).await?;
    let ids = lines.iter().map(|line| line.payment_id.as_str());
    let whose = payments::Entity::find().filter(payments::Column::Id.is_in(ids));
    let whose: HashMap<String, payments::Model> =
        whose.all(system.database().reader()).await?.into_iter().map(|row| (row.id.clone(), row)).collect();
    let item = |line: &SetAsideLine| {
        let id = &line.payment_id;
        let row = whose.get(id);
        let payment = row.and_then(|row| payferry_journal::payments::payment_of(row).ok());
        let is_full = payment.as_ref().is_some_and(|payment| payment.transfers.len() >= LISTED_MAX);
        let can = payment.filter(|payment| aside::may_be_applied(system, payment, std::slice::from_ref(line)));
        let reason = if is_full { format!("{}; its list is full", line.words()) } else { line.words() };
        AttentionItem::new(id, Some(line.since.0), now, reason)
            .of_payment(id, row.map(|row| row.psp_id.as_str()))
            .with(can.map(|payment| apply_set_aside(payment.id())).into_iter().collect())
            // Items are in the order of the index.
            .at_position(0, format!("{id}:{}:{}", line.chain, line.token_address))
    };
    Ok((total, lines.iter().map(item).collect()))
}

/// Reads the operations that have not finished for too long.
pub(super) async fn operations(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().now();
    let before = Value::from(now.plus_secs(-OPERATION_OVERDUE_AFTER_SECS).as_millis());
    let overdue = part.open(AttentionKind::OperationOverdue, &OVERDUE, &BY_CREATION);
    let total = Count::rows(system.database(), &overdue, [before.clone()]).await?;
    let sql = part.sql(&overdue, &BY_CREATION);
    let rows: Vec<operations::Model> = rows(system.database(), sql, part.values(before)).await?;
    let item = |row: &operations::Model| {
        let item = AttentionItem::new(&row.id, Some(since(row)), now, state_of(system, row));
        let item = item.of_payment(&row.payment_id, Some(&row.psp_id)).at_position(row.created_at, &row.id);
        item.of_money(&row.chain, Amount(row.amount), token_of(system, row))
    };
    Ok((total, rows.iter().map(item).collect()))
}

/// Time since which the operation has made no progress, or its creation if it is retried again and again.
fn since(row: &operations::Model) -> Timestamp {
    Timestamp(if row.attempts > OPERATION_ATTEMPTS_USUAL_MAX { row.created_at } else { row.updated_at })
}

/// Name of the token, or its address if no running chain has it.
fn token_of(system: &System, row: &operations::Model) -> String {
    let spec = system.chains().running().find(|spec| spec.chain.as_str() == row.chain);
    let token = row.token_address.parse().ok().and_then(|address| spec?.token_at(address));
    token.map_or_else(|| format!("of {}", row.token_address), |token| token.to_string())
}

fn state_of(system: &System, row: &operations::Model) -> String {
    let what = match row.kind.as_str() {
        "settle" => "the settlement",
        "collect" | "deposit" => "the authorization",
        "deliver" => "the delivery to the customer",
        _ => "a refund",
    };
    let is_running = system.chains().running().any(|spec| spec.chain.as_str() == row.chain);
    let token = token_of(system, row);
    let mut state = format!("{what} of {} {token} on {} is {}", Amount(row.amount), row.chain, row.status);
    if !is_running {
        state.push_str(", and the chain is not running on this node");
    }
    if row.attempts > 1 {
        state = format!("{state}, after {} transactions", row.attempts);
    }
    row.failure.as_ref().map(|failure| format!("{state}: {failure}")).unwrap_or(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::acknowledged::Acknowledged;
    use crate::query::test_database;
    use payferry_harness::database::query_plan;
    use sea_orm::{DbBackend, Statement};

    #[test]
    fn the_query_uses_the_named_limit_of_attempts() {
        assert!(OVERDUE.contains(&format!("attempts > {OPERATION_ATTEMPTS_USUAL_MAX})")));
    }

    /// Every query reads only matching rows, for any number of payments.
    #[tokio::test]
    async fn every_query_uses_its_own_index() {
        let (database, _test_database) = test_database().await;
        let position = Position::new(Timestamp(1), "base:0x1:1");
        let acknowledged = Acknowledged::default();
        let first = Part { after: None, limit: 5, acknowledged: &acknowledged, is_cause_known: false };
        let next = Part { after: Some(&position), ..first };
        for (from, order, index) in [
            (ATTENTION, BY_CHANGE.as_slice(), "payments_attention"),
            (CONFIRMED.as_str(), BY_CHANGE.as_slice(), "payments_confirmed"),
            (PENDING.as_str(), BY_DEADLINE.as_slice(), "payments_pending"),
            (UNAPPLIED, BY_RECORDING.as_slice(), "transfers_unapplied"),
            (OVERDUE.as_str(), BY_CREATION.as_slice(), "operations_open"),
        ] {
            let counting = format!("SELECT COUNT(*) FROM (SELECT 1 {from} LIMIT 5)");
            for sql in [counting, first.sql(from, order), next.sql(from, order)] {
                let values = vec![Value::from(1_i64); if sql.contains("$2") { order.len() + 1 } else { 1 }];
                let plan =
                    query_plan(database.reader(), Statement::from_sql_and_values(DbBackend::Sqlite, &sql, values))
                        .await;
                assert!(plan.iter().any(|step| step.contains(index)), "{sql}: {plan:?}");
            }
        }
    }
}
