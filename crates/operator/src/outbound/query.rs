//! Data of one payout or withdrawal, with the possible decisions about its address.

use payferry_accounts::audit;
use payferry_actors::{OutboundView, System};
use payferry_domain::Timestamp;
use payferry_domain::outbound::{Command, FailureReason, OutboundId, OutboundTransfer, decide};
use payferry_domain::payment::Decision;
use payferry_entities::StoreError;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;
use payferry_httpkit::lists::DateTime;
use payferry_journal::webhooks::log::{self, LogEntry};
use payferry_runtime::observe::{ActorKind, Incident};

use crate::actors::ActorRecord;
use crate::audit::AuditRecord;
use crate::decisions::query::{Possible, ScreeningRecord, by_hand};
use crate::payment::{Operation, incidents_of, operations_of};

/// All data of one payout or withdrawal.
pub(crate) struct OutboundFacts {
    pub(crate) outbound: OutboundTransfer,
    /// Its actor, if it is running or quarantined. Null once it is finished; the next event starts the actor.
    pub(crate) actor: Option<OutboundView>,
    /// Failures of its actor, newest first.
    pub(crate) incidents: Vec<Incident>,
    /// Possible decisions of the operator about its address.
    pub(crate) may: Vec<Decision>,
    pub(crate) can: Vec<Possible>,
    /// Audit log, oldest first.
    pub(crate) history: Vec<audit::AuditEntry>,
    /// On-chain operations that carry it.
    pub(crate) operations: Vec<Operation>,
    /// Webhooks about it.
    pub(crate) deliveries: Vec<LogEntry>,
}

record! {
    /// The payout or withdrawal in a response.
    pub(crate) fn of(facts: OutboundFacts) -> Result<Self, ApiError> {
        let outbound = facts.outbound;
        let order = outbound.order;
    }

    /// A payout or withdrawal.
    pub struct OutboundRecord {
        #[schema(example = "po_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = order.id.to_string(),
        /// payout or withdrawal.
        kind: &'static str = order.id.kind().as_str(),
        psp_id: String = order.psp_id.to_string(),
        customer_id: Option<String> = order.customer_id.map(|id| id.to_string()),
        reference: Option<String> = order.reference,
        /// pending, sent or failed.
        status: &'static str = outbound.status.as_str(),
        amount: String = order.amount.to_string(),
        /// USDC or USDT.
        currency: &'static str = order.token.as_str(),
        chain: &'static str = order.asset.chain.as_str(),
        address: String = checksummed(order.to),
        #[serde(flatten)]
        screening: ScreeningRecord = ScreeningRecord::of(outbound.verdict.as_deref()),
        tx_hash: Option<String> = outbound.tx_hash.map(|hash| hash.to_string()),
        /// Code of the failure.
        failure_reason: Option<&'static str> = outbound.failure_reason.map(FailureReason::as_str),
        /// The failure in words.
        failure: Option<String> = outbound.failure,
        created_at: DateTime = order.created_at.into(),
        updated_at: DateTime = outbound.updated_at.into(),
        finished_at: Option<DateTime> = outbound.finished_at.map(DateTime::from),
        /// Null if no work is pending. The next event starts the actor.
        actor: Option<ActorRecord> = facts.actor.map(ActorRecord::of).transpose()?,
        /// Failures of its actor, newest first.
        incidents: Vec<Incident> = facts.incidents,
        /// Possible decisions about its address: allow, block.
        may: Vec<&'static str> = facts.may.into_iter().map(Decision::as_str).collect(),
        can: Vec<Possible> = facts.can,
        /// Audit entries, oldest first.
        history: Vec<AuditRecord> = AuditRecord::all(facts.history),
    }
}

/// Reads a payout or withdrawal. `None` if the id is unknown.
pub(crate) async fn outbound(system: &System, id: OutboundId) -> Result<Option<OutboundFacts>, StoreError> {
    let (database, now) = (system.database(), system.clock().now());
    let Some(outbound) = payferry_journal::outbound::load(database, id).await? else { return Ok(None) };
    let text = id.to_string();
    Ok(Some(OutboundFacts {
        actor: system.observe_outbound(id).await,
        incidents: incidents_of(system, ActorKind::Sending, &text),
        may: may(&outbound, now),
        can: possible(&outbound, now),
        operations: operations_of(system, &text).await?,
        deliveries: log::deliveries_of(database, outbound.order.psp_id, &text, log::Slice::ALL_OF_A_PAYMENT).await?.1,
        history: audit::of_subject(database.reader(), text).await?,
        outbound,
    }))
}

/// Command that decides about the address. The findings of the provider are kept.
pub(super) fn screening(outbound: &OutboundTransfer, decision: Decision, now: Timestamp) -> Command {
    Command::Screen(by_hand(outbound.verdict.as_deref(), decision, now))
}

/// Possible decisions about the address: those that the domain would accept.
fn may(outbound: &OutboundTransfer, now: Timestamp) -> Vec<Decision> {
    let takes = |decision: &Decision| decide(outbound, &screening(outbound, *decision, now), now).is_ok();
    [Decision::Allow, Decision::Block].into_iter().filter(takes).collect()
}

pub(crate) fn possible(outbound: &OutboundTransfer, now: Timestamp) -> Vec<Possible> {
    let path = format!("/ops/sendings/{}/screen", outbound.id());
    if may(outbound, now).is_empty() { Vec::new() } else { vec![Possible { action: "screen", path }] }
}
