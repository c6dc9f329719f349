//! Public events of customers, which a PSP gets if one of its endpoints subscribes to them.
//!
//! Only the journal writes the feed, because it keeps the feed in order. So a change of a customer records its events in
//! `customer_events`, in its own transaction, and [`announce`] lets the journal move them into the feed.

use std::collections::HashSet;

use payferry_domain::customer::{Announcement, Customer, announced, payload};
use payferry_domain::{PspId, Timestamp};
use payferry_entities::customer_events::{self, Column, Entity, Model};
use payferry_entities::{Database, customers};
use sea_orm::{ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, NotSet, QueryOrder, QuerySelect};

use super::StoreError;
use crate::payments::{EventSubject, new_event};
use crate::psps::{PspDirectory, PspError, destinations};
use crate::writer::{Journal, JournalError, JournalWrite, NewEvent};

/// Events that are read together.
pub const PAGE: u64 = 256;

/// Reason why an event was not moved. It stays recorded.
#[derive(Debug, thiserror::Error)]
pub enum AnnounceError {
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] DbErr),
    /// A row cannot be read.
    #[error(transparent)]
    Row(#[from] StoreError),
    /// The settings of the PSP cannot be read.
    #[error(transparent)]
    Psp(#[from] PspError),
    /// They were not committed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Records the public events of a change to which an endpoint of the PSP subscribes, and numbers them in `row`.
pub(super) async fn record(
    connection: &impl ConnectionTrait,
    before: &Customer,
    after: &Customer,
    row: &mut customers::Model,
) -> Result<(), DbErr> {
    let names = announced(before, after);
    if names.is_empty() {
        return Ok(());
    }
    let destinations =
        destinations(connection, after.psp_id).await.map_err(|error| DbErr::Custom(error.to_string()))?;
    for name in names.into_iter().filter(|name| destinations.iter().any(|to| to.wants(*name))) {
        row.event_sequence += 1;
        let event = Model {
            number: 0,
            customer_id: row.id.clone(),
            psp_id: row.psp_id.clone(),
            sequence: row.event_sequence,
            name: name.as_str().to_owned(),
            kyc_status: row.kyc_status.clone(),
            is_active: row.is_active,
            at: row.updated_at,
        };
        let event = customer_events::ActiveModel { number: NotSet, ..event.into_active_model() };
        Entity::insert(event).exec_without_returning(connection).await?;
    }
    Ok(())
}

/// Moves recorded events into the feed, the oldest first, with a delivery to each endpoint that subscribes to them. Returns
/// true if there may be more. `real_now` is the wall-clock time from which on the deliveries are due. An event that cannot be
/// read holds back only those of its customer.
pub async fn announce(
    database: &Database,
    journal: &Journal,
    psps: &PspDirectory,
    real_now: Timestamp,
) -> Result<bool, AnnounceError> {
    let recorded = Entity::find().order_by_asc(Column::Number).limit(PAGE).all(database.reader()).await?;
    let is_last = (recorded.len() as u64) < PAGE;
    let (mut events, mut held_back) = (Vec::with_capacity(recorded.len()), HashSet::new());
    for row in recorded {
        if held_back.contains(&row.customer_id) {
            continue;
        }
        match new_event_of(&row, psps, real_now).await {
            Ok(event) => events.push(event),
            Err(AnnounceError::Psp(error @ PspError::Unavailable(_))) => return Err(error.into()),
            Err(error) => {
                let customer = row.customer_id;
                tracing::error!(customer.id = customer, %error, "an event of {customer} cannot be announced: {error}");
                held_back.insert(customer);
            }
        }
    }
    if events.is_empty() {
        return Ok(false);
    }
    match journal.submit(JournalWrite::CustomerEvents(events.into())).await {
        Ok(_) => Ok(!is_last),
        // Another node moved some of them.
        Err(JournalError::Conflict) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn new_event_of(row: &Model, psps: &PspDirectory, real_now: Timestamp) -> Result<NewEvent, AnnounceError> {
    let unreadable = |column: &str| StoreError::unreadable("customer event", &row.number, &column);
    let psp_id: PspId = row.psp_id.parse().map_err(|_| unreadable("psp_id"))?;
    let announcement = Announcement {
        name: row.name.parse().map_err(|_| unreadable("name"))?,
        customer_id: row.customer_id.parse().map_err(|_| unreadable("customer_id"))?,
        sequence: row.sequence.try_into().map_err(|_| unreadable("sequence"))?,
        at: Timestamp(row.at),
        kyc_status: row.kyc_status.parse().map_err(|_| unreadable("kyc_status"))?,
        is_active: row.is_active,
    };
    let to = psps.get(psp_id).await?.destinations_of(announcement.name);
    let Announcement { name, sequence, .. } = announcement;
    let subject = EventSubject { psp_id, id: &row.customer_id, traceparent: None };
    Ok(new_event(subject, name, sequence, |id| payload(&announcement, id), real_now, to)?)
}
