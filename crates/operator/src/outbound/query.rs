//! Data of one payout or withdrawal, with the possible decisions about its address.

use payferry_accounts::{Moment, audit};
use payferry_actors::{OutboundView, System};
use payferry_domain::Timestamp;
use payferry_domain::outbound::{Command, OutboundId, OutboundTransfer, decide};
use payferry_domain::payment::Decision;
use payferry_entities::StoreError;
use payferry_evm::wallet::checksummed;
use payferry_journal::webhooks::log::{self, LogEntry};
use payferry_runtime::observe::{ActorKind, Incident};
use serde::Serialize;

use crate::decisions::query::{Possible, by_hand, screening_record};
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

impl OutboundFacts {
    /// The payout or withdrawal in a response.
    pub(crate) fn record(self) -> impl Serialize {
        let Self { outbound, actor, incidents, may, can, history, .. } = self;
        let order = outbound.order;
        record! {
            id: order.id,
            // `payout` or `withdrawal`.
            kind: order.id.kind().as_str(),
            psp_id: order.psp_id,
            customer_id: order.customer_id,
            reference: order.reference,
            // `pending`, `sent` or `failed`.
            status: outbound.status.as_str(),
            amount: order.amount.to_string(),
            currency: order.token.as_str(),
            chain: order.asset.chain.as_str(),
            address: checksummed(order.to),
            #[serde(flatten)]
            screening: screening_record(outbound.verdict.as_deref()),
            tx_hash: outbound.tx_hash,
            failure: outbound.failure,
            created_at: Moment(order.created_at),
            finished_at: outbound.finished_at.map(Moment),
            actor: actor,
            incidents: incidents,
            may: may,
            can: can,
            history: history,
        }
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
