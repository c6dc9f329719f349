//! A payout or withdrawal with its actor, operations and possible decisions.

use payferry_accounts::Moment;
use payferry_accounts::audit::{self, Filter};
use payferry_actors::{OutboundView, System};
use payferry_domain::Timestamp;
use payferry_domain::outbound::{Command, OutboundId, OutboundTransfer, decide};
use payferry_domain::payment::{Decision, Verdict};
use payferry_entities::{StoreError, sendings};
use payferry_evm::wallet::checksummed;
use payferry_journal::webhooks::log::{self, LogEntry};
use payferry_runtime::observe::{ActorKind, Incident};
use sea_orm::{ConnectionTrait, DbErr, FromQueryResult, Statement, Value};
use serde::Serialize;

use crate::attention::{AttentionItem, AttentionKind, Found, OUTBOUND_OVERDUE_AFTER_SECS, StuckPart};
use crate::decisions::query::{Possible, by_hand};
use crate::payment::{Operation, incidents_of, operations_of};
use crate::query::{COUNTED_MAX, Count};

// `live` is in the condition so that the query uses the partial index, which holds few rows.
const IN_REVIEW: &str = "FROM sendings WHERE live AND in_review AND created_at < $1";
const OVERDUE: &str = "FROM sendings WHERE live AND NOT in_review AND created_at < $1";

/// All data of one payout or withdrawal.
#[derive(Debug, Clone, Serialize)]
pub struct OutboundFacts {
    /// Its id.
    pub id: OutboundId,
    /// `payout` or `withdrawal`.
    pub kind: &'static str,
    /// PSP whose money it sends.
    pub psp_id: String,
    /// Customer who is paid, for a payout.
    pub customer_id: Option<String>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// `pending`, `sent` or `failed`.
    pub status: &'static str,
    /// Amount.
    pub amount: String,
    /// Token.
    pub currency: &'static str,
    /// Chain.
    pub chain: &'static str,
    /// Destination address.
    pub address: String,
    /// Screening verdict about the address. `None` while screening has not answered.
    pub verdict: Option<Decision>,
    /// Provider of the verdict.
    pub provider: Option<String>,
    /// Findings of the provider.
    pub flags: Vec<String>,
    /// Time of the verdict.
    pub checked_at: Option<Moment>,
    /// Transaction, once sent.
    pub tx_hash: Option<String>,
    /// Reason of the failure.
    pub failure: Option<String>,
    /// Time of acceptance.
    pub created_at: Moment,
    /// Time at which it was sent or failed.
    pub finished_at: Option<Moment>,
    /// Its actor, if it is running or quarantined. Null once it is finished; the next event starts the actor.
    pub actor: Option<OutboundView>,
    /// Failures of its actor, newest first.
    pub incidents: Vec<Incident>,
    /// Possible decisions of the operator about its address.
    pub may: Vec<Decision>,
    /// Possible actions.
    pub can: Vec<Possible>,
    /// Audit log, oldest first.
    pub history: Vec<audit::Entry>,
    /// On-chain operations that carry it.
    #[serde(skip)]
    pub operations: Vec<Operation>,
    /// Webhooks about it.
    #[serde(skip)]
    pub deliveries: Vec<LogEntry>,
    #[serde(skip)]
    pub(crate) outbound: OutboundTransfer,
}

/// Reads a payout or withdrawal. `None` if the id is unknown.
pub async fn outbound(system: &System, id: OutboundId) -> Result<Option<OutboundFacts>, StoreError> {
    let database = system.database();
    let Some(outbound) = payferry_journal::outbound::load(database, id).await? else { return Ok(None) };
    let filter = Filter { subject: Some(id.to_string()), ..Filter::default() };
    let history = audit::read(database.reader(), &filter, audit::ENTRIES_MAX).await?.entries;
    let order = &outbound.order;
    let said = outbound.verdict.as_deref();
    Ok(Some(OutboundFacts {
        id,
        kind: id.kind().as_str(),
        psp_id: order.psp_id.to_string(),
        customer_id: order.customer_id.map(|id| id.to_string()),
        reference: order.reference.clone(),
        status: outbound.status.as_str(),
        amount: order.amount.to_string(),
        currency: order.token.as_str(),
        chain: order.asset.chain.as_str(),
        address: checksummed(order.to),
        verdict: outbound.decision(),
        provider: said.map(|said| said.provider.clone()),
        flags: said.map(|said| said.flags.clone()).unwrap_or_default(),
        checked_at: said.map(|said| Moment(said.checked_at)),
        tx_hash: outbound.tx_hash.map(|hash| hash.to_string()),
        failure: outbound.failure.clone(),
        created_at: Moment(order.created_at),
        finished_at: outbound.finished_at.map(Moment),
        actor: system.observe_outbound(id).await,
        incidents: incidents_of(system, ActorKind::Sending, &id.to_string()),
        may: may(&outbound, system.clock().now()),
        can: possible(&outbound, system.clock().now()),
        history,
        operations: operations_of(system, &id.to_string()).await?,
        deliveries: log::deliveries_of(database, order.psp_id, &id.to_string()).await?,
        outbound,
    }))
}

/// Command that decides about the address. The findings of the provider are kept.
pub(crate) fn screen(outbound: &OutboundTransfer, decision: Decision, now: Timestamp) -> Command {
    let verdict: Verdict = by_hand(outbound.verdict.as_deref(), decision, now);
    Command::Screen(verdict)
}

/// Possible decisions about the address: those that the domain would accept.
fn may(outbound: &OutboundTransfer, now: Timestamp) -> Vec<Decision> {
    let takes = |decision: &Decision| decide(outbound, &screen(outbound, *decision, now), now).is_ok();
    [Decision::Allow, Decision::Block].into_iter().filter(takes).collect()
}

fn possible(outbound: &OutboundTransfer, now: Timestamp) -> Vec<Possible> {
    let path = format!("/ops/sendings/{}/screen", outbound.id());
    if may(outbound, now).is_empty() { Vec::new() } else { vec![Possible { action: "screen", path }] }
}

/// Payouts and withdrawals that need a decision or have waited too long.
pub(crate) async fn stuck(system: &System, kind: AttentionKind, part: StuckPart<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().now();
    let (from, before) = match kind {
        AttentionKind::SendingInReview => (IN_REVIEW, i64::MAX),
        _ => (OVERDUE, now.plus_secs(-OUTBOUND_OVERDUE_AFTER_SECS).as_millis()),
    };
    let database = system.database();
    let query = |sql: String, values: Vec<Value>| Statement::from_sql_and_values(database.backend(), sql, values);
    let counting = format!("SELECT COUNT(*) FROM (SELECT 1 {from} LIMIT {}) counted", COUNTED_MAX + 1);
    let counting = query(counting, vec![before.into()]);
    let counted = database.reader().query_one_raw(counting).await?;
    let total = Count::of(counted.map_or(Ok(0), |row| row.try_get_by_index(0))?);
    let listing = query(part.sql(from, &["created_at", "id"]), part.values(before.into()));
    let rows = sendings::Model::find_by_statement(listing).all(database.reader()).await?;
    let item = |row: &sendings::Model| {
        let (reason, can) = match payferry_journal::outbound::outbound_of(row) {
            Ok(outbound) => (told(&outbound), possible(&outbound, now)),
            Err(error) => (error.to_string(), Vec::new()),
        };
        let item = AttentionItem::new(&row.id, Some(Timestamp(row.created_at)), now, reason);
        AttentionItem { psp_id: Some(row.psp_id.clone()), can, ..item }
    };
    Ok((total, rows.iter().map(item).collect()))
}

fn told(outbound: &OutboundTransfer) -> String {
    let order = &outbound.order;
    let amount = format!("{} {} on {}", order.amount, order.token, order.asset.chain);
    match outbound.verdict.as_deref() {
        None => format!("{amount}: its address has not been screened"),
        Some(said) if outbound.is_in_review() => format!("{amount}: {} says {}", said.provider, said.flags.join(", ")),
        Some(_) => format!("{amount}: screened but not sent"),
    }
}
