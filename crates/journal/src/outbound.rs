//! Mapping between rows and the aggregate of outbound transfers.

use std::fmt;

use payferry_domain::outbound::{
    Command, Event, OutboundAnnouncement, OutboundId, OutboundStatus, OutboundTransfer, Transition, payload,
};
use payferry_domain::payment::EventName;
use payferry_domain::{Amount, Timestamp};
use payferry_entities::{Database, OperationStatus, operations, sending_transitions, sendings};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::payments::{EventSubject, RequestRows, StoreError, new_event};
use crate::postings;
use crate::psps::Destinations;
use crate::{Consequences, JournalWrite, OperationChange, OutboundChange, Reserve, TransfersApplied};

/// Row of an outbound transfer.
pub fn row_of(outbound: &OutboundTransfer) -> Result<sendings::Model, StoreError> {
    let order = &outbound.order;
    let state = serde_json::to_string(outbound);
    Ok(sendings::Model {
        id: order.id.to_string(),
        psp_id: order.psp_id.to_string(),
        kind: order.id.kind().as_str().to_owned(),
        customer_id: order.customer_id.map(|id| id.to_string()),
        reference: order.reference.clone(),
        chain: order.asset.chain.as_str().to_owned(),
        token: order.token.as_str().to_owned(),
        amount: order.amount.units(),
        recipient: order.to.to_string(),
        version: i64::from(outbound.version),
        status: outbound.status.as_str().to_owned(),
        live: outbound.is_live(),
        in_review: outbound.is_in_review(),
        created_at: order.created_at.as_millis(),
        updated_at: outbound.updated_at.as_millis(),
        state: state.map_err(|error| unreadable(&order.id, &error))?,
    })
}

/// Outbound transfer in a row. Its id and version must match the columns.
pub fn outbound_of(row: &sendings::Model) -> Result<OutboundTransfer, StoreError> {
    let outbound: OutboundTransfer = serde_json::from_str(&row.state).map_err(|error| unreadable(&row.id, &error))?;
    if outbound.order.id.to_string() != row.id || i64::from(outbound.version) != row.version {
        return Err(unreadable(&row.id, &"its state belongs to another id or version"));
    }
    Ok(outbound)
}

fn unreadable(id: &dyn fmt::Display, reason: &dyn fmt::Display) -> StoreError {
    StoreError::unreadable("sending", id, reason)
}

/// Loads the outbound transfer with this id.
pub async fn load(database: &Database, id: OutboundId) -> Result<Option<OutboundTransfer>, StoreError> {
    let row = sendings::Entity::find_by_id(id.to_string()).one(database.reader()).await?;
    row.as_ref().map(outbound_of).transpose()
}

/// Page of the live outbound transfers, by id, after `after`. The caller skips and logs unreadable rows: they must not
/// keep the others from starting.
pub async fn load_live(database: &Database, after: &str, limit: u64) -> Result<Vec<sendings::Model>, StoreError> {
    let live = sendings::Entity::find()
        .filter(sendings::Column::Live.eq(true))
        .filter(sendings::Column::Id.gt(after))
        .order_by_asc(sendings::Column::Id)
        .limit(limit);
    Ok(live.all(database.reader()).await?)
}

/// Write of a transition. `real_now` is the wall-clock time from which on deliveries are due; `send_daily_max` is the
/// daily send limit; `to` returns the endpoints that an event is sent to.
pub fn change(
    transition: &Transition,
    rows: RequestRows,
    real_now: Timestamp,
    send_daily_max: Amount,
    to: impl Fn(EventName) -> Destinations,
) -> Result<JournalWrite, StoreError> {
    let outbound = &transition.outbound;
    let (id, psp_id) = (outbound.id().to_string(), outbound.order.psp_id);
    let events = serde_json::to_string(&transition.events).map_err(|error| unreadable(&id, &error))?;
    let event = |announcement: &OutboundAnnouncement| {
        let OutboundAnnouncement { name, sequence, .. } = *announcement;
        let subject = EventSubject { psp_id, id: &id, traceparent: outbound.order.traceparent.as_deref() };
        new_event(subject, name, sequence, |id| payload(outbound, announcement, id), real_now, to(name))
    };
    let queued =
        transition.queues_operation.then(|| OperationChange::Queue(Box::new(operation_row(outbound, real_now))));
    let done = transition.events.iter().filter_map(|event| ended_operation(outbound, event));
    Ok(JournalWrite::OutboundTransfer(Box::new(OutboundChange {
        outbound: row_of(outbound)?,
        transition: sending_transitions::Model {
            sending_id: id.clone(),
            version: i64::from(outbound.version),
            at: outbound.updated_at.as_millis(),
            events,
        },
        consequences: Consequences {
            announcements: transition.announcements.iter().map(event).collect::<Result<_, _>>()?,
            operations: queued.into_iter().chain(done).collect(),
            postings: postings::rows(&id, outbound.version, psp_id, &transition.postings, outbound.updated_at),
            reserve: (outbound.version == 1).then(|| reserve(outbound, real_now, send_daily_max)),
            idempotency: rows.idempotency,
            audit: rows.audit,
            authorization: None,
        },
    })))
}

/// Write that marks the outcome in `command` as applied, if it was already known: otherwise the notification would
/// repeat forever.
pub fn known(outbound: &OutboundTransfer, command: &Command, real_now: Timestamp) -> Option<JournalWrite> {
    let id = outbound.id().operation().to_string();
    let operation = match (command, outbound.status) {
        (Command::Complete { revision, .. }, OutboundStatus::Sent) => {
            OperationChange::Succeeded { id, revision: i64::from(*revision) }
        }
        (Command::Fail { .. }, OutboundStatus::Failed) => OperationChange::Cancel { id },
        _ => return None,
    };
    let (version, at) = (i64::from(outbound.version), real_now.as_millis());
    Some(JournalWrite::TransfersApplied(Box::new(TransfersApplied {
        known_to: None,
        version,
        transfers: Vec::new(),
        operations: vec![operation],
        at,
    })))
}

/// End of an operation that an event applies.
fn ended_operation(outbound: &OutboundTransfer, event: &Event) -> Option<OperationChange> {
    let id = outbound.id().operation().to_string();
    match event {
        Event::Sent { revision, .. } => Some(OperationChange::Succeeded { id, revision: i64::from(*revision) }),
        Event::Failed { .. } => Some(OperationChange::Cancel { id }),
        Event::Accepted { .. } | Event::Screened { .. } => None,
    }
}

fn reserve(outbound: &OutboundTransfer, real_now: Timestamp, send_daily_max: Amount) -> Reserve {
    let order = &outbound.order;
    Reserve {
        psp_id: order.psp_id.to_string(),
        chain: order.asset.chain.as_str().to_owned(),
        token_address: order.asset.address.to_string(),
        amount: order.amount.units(),
        token: order.token.as_str().to_owned(),
        day: postings::day_of(real_now),
        day_amount: order.amount.units(),
        day_amount_max: send_daily_max.units(),
    }
}

fn operation_row(outbound: &OutboundTransfer, real_now: Timestamp) -> operations::Model {
    let order = &outbound.order;
    operations::Model {
        id: order.id.operation().to_string(),
        chain: order.asset.chain.as_str().to_owned(),
        kind: order.id.kind().as_str().to_owned(),
        payment_id: order.id.to_string(),
        psp_id: order.psp_id.to_string(),
        token_address: order.asset.address.to_string(),
        amount: order.amount.units(),
        recipient: Some(order.to.to_string()),
        status: OperationStatus::Queued,
        traceparent: order.traceparent.clone(),
        revision: 1,
        created_at: real_now.as_millis(),
        updated_at: real_now.as_millis(),
        ..operations::Model::default()
    }
}
