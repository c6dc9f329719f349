//! `GET /api/v1/events`: the feed of everything, for those who missed a webhook.

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use payferry_domain::{EventId, PspId};
use payferry_entities::events::{Column, Entity};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::http::answer::Answer;
use crate::http::auth::{Caller, Read};
use crate::http::error::{ApiError, FieldError, Problem};
use crate::http::extract::{Fault, QueryFields, read};
use crate::http::openapi::PageParams;
use crate::http::state::{AppState, Shared};

/// From where on.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FeedParams {
    /// Only events after this `event_id`; from the beginning if absent. Not together with `offset`.
    pub after: Option<String>,
}

/// A page of the feed.
#[derive(Serialize, ToSchema)]
pub struct Feed {
    message: &'static str,
    /// Of the whole feed; null with `after`.
    total: Option<u64>,
    limit: u64,
    offset: u64,
    /// Give it as `after` to go on, now or later; null while there is nothing.
    next_after: Option<String>,
    /// Whether there is more already.
    has_more: bool,
    /// The bodies as they are signed and sent, in the order in which they were committed.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Box<RawValue>>,
}

/// Read the feed of events
///
/// Everything that was announced, whether or not it was delivered or wanted, in an order that never shows a later event
/// before an earlier one.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "Webhooks", operation_id = "listEvents", params(FeedParams, PageParams),
    responses(
        (status = 200, description = "A page of the feed.", body = Feed),
        (status = 400, description = "Parameters that cannot be read, all named.", body = Problem),
    ),
)]
pub async fn events(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Response, ApiError> {
    let mut query = QueryFields::of(&uri);
    let after: Option<EventId> = query.optional("after", |text| read::id(&text.into()));
    let page = query.page();
    if after.is_some() && page.offset > 0 {
        query.fault("offset", Fault::new("not_with_after", "cannot be combined with `after`"));
    }
    query.finish()?;
    let reader = app.database().reader();
    let mut feed = Entity::find().filter(Column::PspId.eq(caller.psp_id.to_string()));
    let total = match after {
        None => Some(feed.clone().count(reader).await?),
        Some(after) => {
            feed = feed.filter(Column::Position.gt(position(&app, caller.psp_id, after).await?));
            None
        }
    };
    let asked = feed.order_by_asc(Column::Position).limit(page.limit + 1).offset(page.offset);
    let mut rows = asked.all(reader).await?;
    let has_more = u64::try_from(rows.len()).unwrap_or(u64::MAX) > page.limit;
    rows.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    let next_after = rows.last().map(|row| row.id.clone()).or_else(|| after.map(|after| after.to_string()));
    let events = rows.into_iter().map(|row| RawValue::from_string(row.payload)).collect::<Result<_, _>>()?;
    let (limit, offset) = (page.limit, page.offset);
    let feed = Feed { message: "Events", total, limit, offset, next_after, has_more, events };
    Ok(Answer::ok(&feed)?.into_response())
}

async fn position(app: &Shared, psp_id: PspId, after: EventId) -> Result<i64, ApiError> {
    let found = Entity::find()
        .filter(Column::Id.eq(after.to_string()))
        .filter(Column::PspId.eq(psp_id.to_string()))
        .one(app.database().reader())
        .await?;
    found.map(|event| event.position).ok_or_else(|| {
        let message = "names no event of this account".to_owned();
        ApiError::BadParameters(vec![FieldError { field: "after".to_owned(), code: "unknown_value".into(), message }])
    })
}
