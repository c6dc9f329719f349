//! `GET /api/v1/events`: the feed of all events, for clients that missed webhooks or prefer polling.
//! `GET /api/v1/events/{event_id}`: one of them.
//!
//! Events are in commit order. Only the journal writes events, one group after the other, and each event takes the next
//! position in its group. A commit wakes the waiting requests, so they do not poll the database.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_domain::outbound::OutboundId;
use payferry_domain::{CustomerId, EventId, PaymentId, PayoutId, PspId, Timestamp, TransferId, WithdrawalId};
use payferry_entities::event_floors;
use payferry_entities::events::{self, Column, Entity, Model};
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::live::StreamOwner;
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Path, Problem, Read, Rule, query, read, rule};
use sea_orm::sea_query::Query;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::catalogue::Event;
use crate::http::state::{AppShared, ListOf, OneOf};

/// Maximum wait of a request, seconds.
pub const WAIT_SECS_MAX: u64 = 30;
/// Time by which a wait ends before the request's own time limit.
const WAIT_MARGIN: Duration = Duration::from_secs(2);

/// The id of a payment, transfer, payout, withdrawal or customer, as events store it.
const SUBJECT: Rule<String> = Rule {
    read: |value| {
        let text = value.as_str().unwrap_or_default();
        let of_transfer = || text.parse::<TransferId>().map(|id| id.to_string());
        let of_outbound = || text.parse::<OutboundId>().map(|id| id.to_string());
        let id = read::id::<PaymentId>(value).map(|id| id.to_string());
        let of_customer = || read::id::<CustomerId>(value).map(|id| id.to_string());
        id.or_else(|fault| of_transfer().map_err(|_| fault))
            .or_else(|fault| of_outbound().map_err(|_| fault))
            .or_else(|fault| of_customer().map_err(|_| fault))
    },
    schema: || rule::id_of(&SUBJECTS),
};

const SUBJECTS: [&str; 5] =
    [PaymentId::PREFIX, TransferId::PREFIX, PayoutId::PREFIX, WithdrawalId::PREFIX, CustomerId::PREFIX];

query! {
    /// Parameters of the feed.
    pub struct FeedParams {
        /// Only events after this `event_id`; from the beginning if absent. Not together with `offset`.
        after: EventId = rule::id(),
        /// Only events of this payment, transfer, payout, withdrawal or customer.
        payment_id: String = SUBJECT,
        /// If there is no event yet, wait up to this many seconds for one. A wait may end up to two seconds early.
        wait: u64 = number::<0, WAIT_SECS_MAX>(),
    }
}

/// A page of the feed.
#[derive(Serialize, ToSchema)]
pub struct Feed {
    message: &'static str,
    /// Number of events in the whole feed; null with `after` or `cursor`.
    total: Option<u64>,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page. To continue later, use `next_after`.
    next_cursor: Option<String>,
    /// Pass it as `after` to continue, now or later; null if there is no event.
    next_after: Option<String>,
    /// True if there are more events already.
    has_more: bool,
    /// Delivered events up to this time have been deleted; null while none were, and with `after` or `cursor`.
    forgotten_until: Option<DateTime>,
    /// The bodies as they are signed and sent, in commit order.
    #[schema(value_type = Vec<Event>)]
    events: Vec<Box<RawValue>>,
}

/// Read the feed of events
///
/// All events in commit order, regardless of their delivery and of the subscribed patterns; `customer.*` events exist only
/// if an endpoint subscribed to them. A page never contains a
/// later event before an earlier one. With `wait`, the answer comes as soon as there is an event; at most 8 requests of
/// an account can wait at once.
///
/// Events are kept for a time (400 days unless configured otherwise). A client whose `after` is older gets 410.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "Webhooks", operation_id = "listEvents", params(FeedParams, PageParams),
    responses(
        (status = 200, description = "A page of the feed.", body = Feed),
        UnreadableQuery,
        (status = 410, description = "`events_forgotten`: events after `after` have been deleted.", body = Problem),
    ),
)]
pub async fn events(parts: ListOf) -> Result<Response, ApiError> {
    let (State(app), caller, mut query) = parts;
    let FeedParams { after, payment_id: subject, wait } = FeedParams::read(&mut query);
    let wait_secs = wait.unwrap_or(0);
    let page = Page::read_after("events", query, after.is_some())?;
    let reader = app.database().reader();
    let mut feed = Entity::find().filter(Column::PspId.eq(caller.psp_id.to_string()));
    if let Some(subject) = subject {
        // The events of one subject are few, and this uses their index on both databases.
        let is_of_subject = Column::PaymentId.eq(subject);
        let of_subject = Query::select().column(Column::Position).from(Entity).and_where(is_of_subject).take();
        feed = feed.filter(Column::Position.in_subquery(of_subject));
    }
    let floor = event_floors::Entity::find_by_id(caller.psp_id.to_string()).one(reader).await?;
    let (mut total, mut forgotten_until) = (None, None);
    let position = match (page.after, after) {
        (Some(position), _) => Some(kept(position, floor.as_ref())?),
        (None, Some(after)) => Some(position(&app, caller.psp_id, after, floor.as_ref()).await?),
        (None, None) => None,
    };
    if let Some(position) = position {
        feed = feed.filter(Column::Position.gt(position));
    } else {
        total = Some(feed.clone().count(reader).await?);
        forgotten_until = floor.map(|floor| DateTime(floor.created_at));
    }
    let feed = feed.order_by_asc(Column::Position).limit(page.rows_max()).offset(page.offset);
    let mut rows = rows(&app, caller.psp_id, feed, Duration::from_secs(wait_secs)).await?;
    let next_cursor = page.next_cursor(&mut rows, |row| row.position)?;
    let has_more = next_cursor.is_some();
    let next_after = rows.last().map(|row| row.id.clone()).or_else(|| after.map(|after| after.to_string()));
    let events = rows.into_iter().map(|row| RawValue::from_string(row.payload)).collect::<Result<_, _>>()?;
    let (limit, offset) = (page.limit, page.offset);
    let message = "Events";
    let feed = Feed { message, total, limit, offset, next_cursor, next_after, has_more, forgotten_until, events };
    Ok(Answer::ok(&feed)?.into_response())
}

record! {
    fn of(event: Model) -> Result<Self, ApiError> {}

    /// An event.
    #[derive(Debug)]
    pub struct EventRecord {
        #[schema(example = "evt_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = event.id.clone(),
        /// The same as `id`.
        event_id: String = event.id,
        #[schema(example = "payment.confirmed")]
        event: String = event.name,
        /// The id of the payment, transfer, payout, withdrawal or customer.
        payment_id: String = event.payment_id,
        /// Sequence number of the event, without gaps per payment in the feed.
        sequence: i64 = event.sequence,
        /// The body, as it is signed and sent.
        #[schema(value_type = Event)]
        payload: Box<RawValue> = RawValue::from_string(event.payload)?,
        created_at: DateTime = DateTime(event.created_at),
        /// The same as `created_at`: events do not change.
        updated_at: DateTime = DateTime(event.created_at),
    }
}

/// Read an event
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/api/v1/events/{event_id}", tag = "Webhooks", operation_id = "getEvent",
    params(("event_id" = String, Path, description = "The `webhook-id` of a delivery, or an `event_id` of the feed.")),
    responses(
        (status = 200, description = "The event.", body = EventRecord),
        (status = 404, description = "`event_not_found`: it never existed, or was deleted because of its age.",
            body = Problem),
    ),
)]
pub async fn event(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(event_id)) = parts;
    let missing = || ApiError::NotFound("event");
    let event_id = event_id.parse::<EventId>().map_err(|_| missing())?;
    let found = find(&app, caller.psp_id, event_id).await?;
    Answer::ok(&EventRecord::of(found.ok_or_else(missing)?)?)
}

/// The PSP's event with this id.
async fn find(app: &AppShared, psp_id: PspId, event_id: EventId) -> Result<Option<Model>, ApiError> {
    let own = Entity::find().filter(Column::Id.eq(event_id.to_string())).filter(Column::PspId.eq(psp_id.to_string()));
    Ok(own.one(app.database().reader()).await?)
}

/// Reads events, waiting up to `wait` for the first one.
async fn rows(
    app: &AppShared,
    psp_id: PspId,
    asked: Select<events::Entity>,
    wait: Duration,
) -> Result<Vec<Model>, ApiError> {
    let reader = app.database().reader();
    if wait.is_zero() {
        return Ok(asked.all(reader).await?);
    }
    let _place = app.waits.take(StreamOwner::Psp(psp_id), app.config.limits.waits_per_psp)?;
    let wait = wait.min(app.config.limits.request_timeout.saturating_sub(WAIT_MARGIN));
    let until = Instant::now() + wait;
    // Subscribe before the first read, so that no event between the two is missed.
    let mut wake = app.system.journal().wake_on(psp_id);
    loop {
        let (rows, read_at) = (asked.clone().all(reader).await?, Instant::now());
        if !rows.is_empty() {
            return Ok(rows);
        }
        tokio::select! {
            () = wake.woken() => {}
            () = app.may_have_missed(read_at) => {}
            () = tokio::time::sleep_until(until) => return Ok(rows),
            () = app.config.closing.cancelled() => return Ok(rows),
        }
    }
}

/// The position, if all events after it still exist.
fn kept(position: i64, floor: Option<&event_floors::Model>) -> Result<i64, ApiError> {
    match floor {
        Some(floor) if position < floor.position => Err(forgotten(floor)),
        _ => Ok(position),
    }
}

/// The position of the event in the feed, if all events after it still exist.
async fn position(
    app: &AppShared,
    psp_id: PspId,
    after: EventId,
    floor: Option<&event_floors::Model>,
) -> Result<i64, ApiError> {
    match (find(app, psp_id, after).await?, floor) {
        // An undelivered event is kept even when later events were deleted.
        (Some(event), floor) => kept(event.position, floor),
        (None, Some(floor)) if is_the_last(after, floor) => Ok(floor.position),
        (None, Some(floor)) if is_older(after, floor) => Err(forgotten(floor)),
        (None, _) => Err(ApiError::parameter("after", "unknown_value", "is not an event of this account")),
    }
}

/// A client that has read all deleted events has missed none.
fn is_the_last(after: EventId, floor: &event_floors::Model) -> bool {
    after.to_string() == floor.event_id
}

/// Compares the time in the ids, since the owner of a deleted event is not stored.
fn is_older(after: EventId, floor: &event_floors::Model) -> bool {
    let floor = floor.event_id.parse::<EventId>().map(|floor| floor.ulid().timestamp_ms());
    floor.is_ok_and(|floor| after.ulid().timestamp_ms() <= floor)
}

fn forgotten(floor: &event_floors::Model) -> ApiError {
    let until = Timestamp(floor.created_at);
    let detail = format!(
        "Events up to {until} have been deleted. Read the feed from its beginning (without `after`), and \
         `GET /payments` for the time before."
    );
    ApiError::Gone("events_forgotten", detail)
}
