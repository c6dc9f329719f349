//! Journal writes of domain transitions.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry_domain::payment::{
    Alarm, Announcement, AuthorizationState, Command, Effect, Event, EventName, NewOperation, OperationAction,
    OperationBody, PayerRequest, PayerTerms, Payment, Refund, RefundLimit, RefundState, SettlementState, TransferKey,
    Transition, Vault, ended_alarms, payload,
};
use payferry_domain::{Amount, DeliveryId, EndpointId, EventId, OperationId, PspId, RefundId, Timestamp};
use payferry_entities::{
    OperationStatus, alarms, audit_log, authorizations, events, idempotency_keys, operations, payment_transitions,
    refund_requests, refunds,
};

use super::{StoreError, json, row_of};
use crate::postings;
use crate::psps::Destinations;
use crate::writer::{
    self, AppliedTransfer, Consequences, Initiation, JournalWrite, NewEvent, OperationChange, PaymentMove, Reserve,
    TransfersApplied,
};

/// Version in the rows of transfers that their payment has set aside.
pub const SET_ASIDE: i64 = 0;

/// Write of a new payment.
pub fn initiation_write(
    transition: &Transition,
    RequestRows { idempotency, audit, .. }: RequestRows,
) -> Result<Initiation, StoreError> {
    let (payment, moved) = (row_of(&transition.payment)?, Some(PaymentMove::made(&transition.payment)));
    Ok(Initiation { payment, transition: transition_row(transition)?, idempotency, audit, moved })
}

/// Rows that a request adds to a transition.
#[derive(Debug, Clone, Default)]
pub struct RequestRows {
    /// The caller's idempotency key with the response.
    pub idempotency: Option<idempotency_keys::Model>,
    /// Audit entry of the requester; its `number` is ignored.
    pub audit: Option<audit_log::Model>,
    /// Signature of the authorization that was requested.
    pub authorization: Option<authorizations::Model>,
}

/// A command that changed a payment.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutcome<'a> {
    /// Payment before it.
    pub before: &'a Payment,
    /// The command.
    pub command: &'a Command,
    /// The transition that it led to.
    pub transition: &'a Transition,
    /// Time that the decision took.
    pub took: Duration,
}

/// Write of a transition. Every announcement goes into the feed; `to` returns the endpoints that it is sent to. `real_now` is
/// the wall-clock time from which on deliveries are due; `elsewhere_daily_max` is the daily limit of refunds to other addresses
/// than the payer's.
pub fn transition_write(
    outcome: CommandOutcome<'_>,
    request_rows: RequestRows,
    real_now: Timestamp,
    elsewhere_daily_max: Amount,
    to: impl Fn(EventName) -> Destinations,
) -> Result<JournalWrite, StoreError> {
    let CommandOutcome { before, command, transition, took } = outcome;
    let payment = &transition.payment;
    let (psp_id, public_id) = (payment.terms.psp_id, payment.terms.public_id());
    let event = |announcement: &Announcement| {
        let Announcement { name, sequence, .. } = *announcement;
        let payload = |id| payload(payment, announcement, id);
        let subject = EventSubject { psp_id, id: &public_id, traceparent: payment.terms.traceparent.as_deref() };
        new_event(subject, name, sequence, payload, real_now, to(name))
    };
    let queue = transition.operations.iter().map(|operation| operation_change(payment, operation, real_now));
    Ok(JournalWrite::Transition(Box::new(writer::JournalTransition {
        payment: row_of(payment)?,
        transition: payment_transitions::Model {
            command: Some(json(command).map_err(|error| StoreError::unreadable("payment", &payment.id(), &error))?),
            decided_us: Some(i64::try_from(took.as_micros()).unwrap_or(i64::MAX)),
            ..transition_row(transition)?
        },
        consequences: Consequences {
            announcements: transition.announcements.iter().map(event).collect::<Result<_, _>>()?,
            operations: queue.chain(transition.events.iter().filter_map(|event| ended(payment, event))).collect(),
            postings: postings::rows(&public_id, payment.version, psp_id, &transition.postings, payment.updated_at),
            reserve: transition.events.iter().find_map(|event| reserve(payment, event, real_now, elsewhere_daily_max)),
            idempotency: request_rows.idempotency,
            audit: request_rows.audit,
            authorization: request_rows.authorization,
        },
        refunds: changed_refunds(before, payment),
        refund_requests: changed_requests(before, payment),
        alarms: transition.effects.iter().filter_map(|effect| alarm(payment, effect)).collect(),
        ended_alarms: ended_alarms(before, payment, &transition.events),
        applied: applied(&transition.events, command),
        is_urgent: false,
        moved: Some(PaymentMove::between(before, payment)),
    })))
}

/// Write that marks the fact in `command` as applied, if it has a row and changed nothing: otherwise the
/// notification would repeat forever. Transfers that the payment has set aside are marked with version [`SET_ASIDE`].
pub fn applied_write(payment: &Payment, command: &Command, real_now: Timestamp) -> Option<JournalWrite> {
    let transfers = applied(&[], command);
    let operations: Vec<_> = known_outcome(payment, command).into_iter().collect();
    let is_aside = matches!(command, Command::ObserveTransfer(observed) if payment.sets_aside(observed));
    let version = if is_aside { SET_ASIDE } else { i64::from(payment.version) };
    let at = real_now.as_millis();
    if transfers.is_empty() && operations.is_empty() {
        return None;
    }
    let known_to = Some((payment.id().to_string(), i64::from(payment.version)));
    let applied = TransfersApplied { known_to, version, transfers, operations, at };
    Some(JournalWrite::TransfersApplied(Box::new(applied)))
}

/// Outcome that the payment already knows: mined again elsewhere, notified twice, or of a settlement that is no longer
/// wanted.
fn known_outcome(payment: &Payment, command: &Command) -> Option<OperationChange> {
    let authorization =
        |operation| payment.authorization.as_deref().filter(|authorization| authorization.operation == operation);
    let refund = |id: RefundId| payment.refunds.iter().find(|refund| refund.id == id);
    match command {
        Command::CompleteRefund { refund_id, revision, .. } => {
            let known = refund(*refund_id).filter(|refund| refund.state == RefundState::Sent)?;
            Some(OperationChange::Succeeded { id: known.operation.to_string(), revision: i64::from(*revision) })
        }
        Command::FailRefund { refund_id, .. } => {
            let known = refund(*refund_id).filter(|refund| refund.state == RefundState::Failed)?;
            Some(OperationChange::Cancel { id: known.operation.to_string() })
        }
        Command::FailSettlement { operation, .. } => {
            let known = payment.settlement.as_deref().filter(|known| known.state == SettlementState::Withdrawn)?;
            (known.operation == *operation).then(|| OperationChange::Cancel { id: operation.to_string() })
        }
        Command::CompleteAuthorization { operation, revision, .. } => {
            authorization(*operation).filter(|known| known.state == AuthorizationState::Final)?;
            Some(OperationChange::Succeeded { id: operation.to_string(), revision: i64::from(*revision) })
        }
        Command::FailAuthorization { operation, .. } => {
            authorization(*operation).filter(|known| !known.is_valid())?;
            Some(OperationChange::Cancel { id: operation.to_string() })
        }
        _ => None,
    }
}

/// Rows of the refunds that are new in `after` or have another status.
fn changed_refunds(before: &Payment, after: &Payment) -> Vec<refunds::Model> {
    let status_of = |id| before.refunds.iter().find(|refund| refund.id == id).map(Refund::public_status);
    let changed = after.refunds.iter().filter(|refund| status_of(refund.id) != Some(refund.public_status()));
    let row = |refund: &Refund| refunds::Model {
        id: refund.id.to_string(),
        payment_id: after.id().to_string(),
        psp_id: after.terms.psp_id.to_string(),
        reference: refund.reference.clone(),
        status: refund.public_status().to_owned(),
        created_at: refund.requested_at.as_millis(),
    };
    changed.map(row).collect()
}

/// Rows of the requests for refunds that are new in `after` or have another status.
fn changed_requests(before: &Payment, after: &Payment) -> Vec<refund_requests::Model> {
    let state_of = |id| before.refund_requests.iter().find(|request| request.id == id).map(|request| request.state);
    let changed = after.refund_requests.iter().filter(|request| state_of(request.id) != Some(request.state));
    let row = |request: &PayerRequest| refund_requests::Model {
        id: request.id.to_string(),
        payment_id: after.id().to_string(),
        psp_id: after.terms.psp_id.to_string(),
        status: request.state.as_str().to_owned(),
        created_at: request.requested_at.as_millis(),
    };
    changed.map(row).collect()
}

/// Amount that a refund takes from the PSP's balance, and adds to its daily total of refunds to other addresses if that
/// limit applies. An unsupported token counts as much as the due one.
fn reserve(payment: &Payment, event: &Event, real_now: Timestamp, elsewhere_daily_max: Amount) -> Option<Reserve> {
    let Event::RefundRequested { refund, .. } = event else { return None };
    let off_balance = if refund.source == Vault::Psp { refund.amount } else { Amount::ZERO };
    let counted = if refund.limit == RefundLimit::Elsewhere { refund.amount } else { Amount::ZERO };
    if off_balance.is_zero() && counted.is_zero() {
        return None;
    }
    let asset = refund.asset.unwrap_or_else(|| payment.asset());
    let token = payment.token_of(asset).unwrap_or(payment.terms.token);
    Some(Reserve {
        psp_id: payment.terms.psp_id.to_string(),
        chain: asset.chain.as_str().to_owned(),
        token_address: asset.address.to_string(),
        amount: off_balance.units(),
        token: format!("refund:{token}"),
        day: postings::day_of(real_now),
        day_amount: counted.units(),
        day_amount_max: elsewhere_daily_max.units(),
    })
}

fn transition_row(transition: &Transition) -> Result<payment_transitions::Model, StoreError> {
    let payment = &transition.payment;
    let events = json(&transition.events);
    Ok(payment_transitions::Model {
        payment_id: payment.id().to_string(),
        version: i64::from(payment.version),
        at: payment.updated_at.as_millis(),
        events: events.map_err(|error| StoreError::unreadable("payment", &payment.id(), &error))?,
        command: None,
        decided_us: None,
    })
}

/// Row of an alarm that no label shows.
fn alarm(payment: &Payment, effect: &Effect) -> Option<alarms::Model> {
    let Effect::Alarm(alarm) = effect else { return None };
    let kind = alarm.stored_kind()?;
    let settlement = payment.settlement.as_deref();
    let (amount, detail) = match alarm {
        Alarm::ReceivedMoneyOrphaned { key } => {
            (payment.transfer(*key).map(|transfer| transfer.amount), format!("transaction {}", key.tx_hash))
        }
        Alarm::SettlementOrphaned { operation } => {
            (settlement.map(|settlement| settlement.amount), format!("operation {operation}"))
        }
        Alarm::Overdrawn { amount } => (Some(*amount), "refunds exceed the received amount".to_owned()),
        Alarm::SettlementFailed { .. } | Alarm::FundsBlocked { .. } => return None,
    };
    Some(alarms::Model {
        payment_id: payment.id().to_string(),
        version: i64::from(payment.version),
        kind: kind.as_str().to_owned(),
        psp_id: payment.terms.psp_id.to_string(),
        amount: amount.unwrap_or_default().units(),
        detail,
        raised_at: payment.updated_at.as_millis(),
        ended_at: None,
    })
}

/// Subject of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventSubject<'a> {
    pub(crate) psp_id: PspId,
    pub(crate) id: &'a str,
    /// Trace that the subject belongs to.
    pub(crate) traceparent: Option<&'a str>,
}

/// Event about a subject, with a delivery to each of these endpoints.
pub(crate) fn new_event(
    subject: EventSubject<'_>,
    name: EventName,
    sequence: u32,
    payload: impl FnOnce(EventId) -> serde_json::Result<String>,
    real_now: Timestamp,
    to: Destinations,
) -> Result<NewEvent, StoreError> {
    let id = EventId::generate();
    let event = events::Model {
        position: 0,
        id: id.to_string(),
        psp_id: subject.psp_id.to_string(),
        payment_id: subject.id.to_owned(),
        sequence: i64::from(sequence),
        name: name.as_str().to_owned(),
        payload: payload(id).map_err(|error| StoreError::unreadable("event", &id, &error))?,
        traceparent: subject.traceparent.map(ToOwned::to_owned),
        created_at: real_now.as_millis(),
    };
    let delivery = |to: Option<EndpointId>| (DeliveryId::generate().to_string(), to.map(|id| id.to_string()));
    Ok(NewEvent { event, deliveries: to.into_iter().map(delivery).collect() })
}

fn operation_change(payment: &Payment, operation: &NewOperation, real_now: Timestamp) -> OperationChange {
    match operation.action {
        OperationAction::Queue | OperationAction::Requeue => {
            OperationChange::Queue(Box::new(operation_row(payment, operation, real_now)))
        }
        OperationAction::Cancel => OperationChange::Cancel { id: operation.id.to_string() },
    }
}

fn operation_row(payment: &Payment, operation: &NewOperation, real_now: Timestamp) -> operations::Model {
    let mut payer: Option<PayerTerms> = None;
    let (kind, amount, psp_amount, treasury_fee, recipient) = match operation.body {
        OperationBody::Collect { amount, psp_amount, treasury_fee, payer: terms } => {
            payer = Some(terms);
            ("collect", amount.units(), psp_amount.units(), treasury_fee.units(), None)
        }
        OperationBody::Deposit { amount, payer: terms } => {
            payer = Some(terms);
            ("deposit", amount.units(), 0, 0, None)
        }
        OperationBody::Settle { amount, psp_amount, treasury_fee } => {
            ("settle", amount.units(), psp_amount.units(), treasury_fee.units(), None)
        }
        OperationBody::Deliver { to, amount } => ("deliver", amount.units(), 0, 0, Some(to)),
        OperationBody::Send { source: Vault::Payment, to, amount, .. } => ("send", amount.units(), 0, 0, Some(to)),
        OperationBody::Send { source: Vault::Psp, to, amount, .. } => ("send_psp", amount.units(), 0, 0, Some(to)),
    };
    operations::Model {
        id: operation.id.to_string(),
        chain: operation.chain.as_str().to_owned(),
        kind: kind.to_owned(),
        payment_id: payment.id().to_string(),
        psp_id: payment.terms.psp_id.to_string(),
        max_fee_bps: payment.terms.fee_bps.get().into(),
        token_address: operation.token_address.to_string(),
        amount,
        psp_amount,
        treasury_fee,
        recipient: recipient.map(|to| to.to_string()),
        payer: payer.map(|terms| terms.from.to_string()),
        nonce: payer.map(|terms| terms.nonce.to_string()),
        valid_before: payer.map(|terms| terms.valid_before.as_millis().div_euclid(1_000)),
        status: OperationStatus::Queued,
        traceparent: payment.terms.traceparent.clone(),
        revision: 1,
        created_at: real_now.as_millis(),
        updated_at: real_now.as_millis(),
        ..operations::Model::default()
    }
}

/// End of an operation that an event applies.
fn ended(payment: &Payment, event: &Event) -> Option<OperationChange> {
    let (id, revision) = match event {
        Event::SettlementCompleted { revision, .. } => (OperationId::settlement_of(payment.id()), *revision),
        Event::RefundSent { refund_id, revision, .. } => (OperationId::refund_of(*refund_id), *revision),
        Event::AuthorizationCollected { revision, .. } => (payment.authorization.as_deref()?.operation, *revision),
        Event::AuthorizationEnded { revision: 1.., .. } => {
            return Some(OperationChange::Cancel { id: payment.authorization.as_deref()?.operation.to_string() });
        }
        Event::RefundFailed { refund_id, .. } => {
            return Some(OperationChange::Cancel { id: OperationId::refund_of(*refund_id).to_string() });
        }
        _ => return None,
    };
    Some(OperationChange::Succeeded { id: id.to_string(), revision: i64::from(revision) })
}

/// Transfer rows that the events, or the command itself, applied: each once, at its latest revision.
fn applied(events: &[Event], command: &Command) -> Vec<AppliedTransfer> {
    let mut revisions: BTreeMap<TransferKey, u32> = BTreeMap::new();
    let mut apply = |key: TransferKey, revision: u32| {
        let latest = revisions.entry(key).or_default();
        *latest = (*latest).max(revision);
    };
    for event in events {
        if let Event::TransferRecorded { transfer, .. } = event {
            apply(transfer.key, transfer.revision);
        }
    }
    if let Command::ObserveTransfer(observed) = command {
        apply(observed.key, observed.revision);
    }
    let row = |(key, revision): (TransferKey, u32)| AppliedTransfer {
        chain: key.chain.as_str().to_owned(),
        block_hash: key.block_hash.to_string(),
        tx_hash: key.tx_hash.to_string(),
        log_index: i64::from(key.log_index),
        revision: i64::from(revision),
    };
    revisions.into_iter().map(row).collect()
}
