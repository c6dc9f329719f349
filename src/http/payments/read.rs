//! Reads of payments: `GET /payments`, `GET /payments/{payment_id}`, and `GET /payments/{payment_id}/events`, which
//! streams a payment's changes as server-sent events.

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use payferry_domain::payment::{Payment, Status};
use payferry_domain::{CustomerId, MerchantId, PaymentId, PspId};
use payferry_entities::payments::{Column, Entity, Model};
use payferry_httpkit::live::{STREAMS_PER_PSP, StreamOwner};
use payferry_httpkit::{Answer, ApiError, Path, QueryFields, Read, read};
use payferry_journal::payments::payment_of;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{PaymentRecord, own, own_row};
use crate::http::lists::{PageParams, id, moment, text};
use crate::http::live;
use crate::http::openapi::UnreadableQuery;
use crate::http::state::{AppShared, ListOf, OneOf};

/// Read a payment
///
/// The authoritative state of a payment, independent of webhooks.
#[utoipa::path(
    get, path = "/payments/{payment_id}", tag = "Payments", operation_id = "getPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses((status = 200, description = "The complete payment.", body = PaymentRecord)),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(payment_id)) = parts;
    Answer::ok(&PaymentRecord::of(&app, &own(&app, caller.psp_id, &payment_id).await?))
}

/// Follow a payment
///
/// Server-sent events. `payment` has the payment as in `GET /payments/{payment_id}`; it is sent at once and after each
/// change (its `id` is the payment's version). `end` is sent once the payment is settled or failed, and ends the
/// stream. The stream also ends after half an hour; open it again. At most 1,024 streams of one account can be open at
/// once.
#[utoipa::path(
    get, path = "/payments/{payment_id}/events", tag = "Payments", operation_id = "followPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses((status = 200, description = "The stream.", body = String, content_type = "text/event-stream")),
)]
pub async fn events(parts: OneOf<Read>) -> Result<Response, ApiError> {
    let (State(app), caller, Path(payment_id)) = parts;
    let payment = own(&app, caller.psp_id, &payment_id).await?;
    let place = app.stream_limits.take(StreamOwner::Psp(caller.psp_id), STREAMS_PER_PSP)?;
    Ok(live::follow(app, payment, place, event))
}

fn event(app: &AppShared, payment: &Payment) -> Event {
    let event = Event::default().event("payment").id(payment.version.to_string());
    event.json_data(PaymentRecord::of(app, payment)).unwrap_or_else(|error| {
        tracing::error!(%error, "a payment could not be serialised for its stream");
        Event::default().comment("unavailable")
    })
}

/// Filters of the list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PaymentFilters {
    /// pending, confirmed, settled, mismatched or failed.
    pub status: Option<String>,
    /// Payments of this merchant.
    pub merchant_id: Option<String>,
    /// Payments of this customer.
    pub customer_id: Option<String>,
    /// Payments with exactly this reference.
    pub reference: Option<String>,
    /// Created at or after this ISO 8601 time.
    pub created_from: Option<String>,
    /// Created before this ISO 8601 time.
    pub created_to: Option<String>,
    /// Only payments older than this one: the `next_after` of the previous page. Not together with `offset`.
    pub after: Option<String>,
}

/// A page of payments.
#[derive(Serialize, ToSchema)]
pub struct PaymentList {
    message: &'static str,
    /// Number of payments in the whole list; null with `after`.
    total: Option<u64>,
    limit: u64,
    offset: u64,
    /// Pass it as `after` to get the next page; null on the last page.
    next_after: Option<String>,
    /// Newest first.
    payments: Vec<PaymentRecord>,
}

/// List payments
///
/// Newest first.
#[utoipa::path(
    get, path = "/payments", tag = "Payments", operation_id = "listPayments", params(PaymentFilters, PageParams),
    responses((status = 200, description = "A page of payments.", body = PaymentList), UnreadableQuery),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let wanted = filters(&mut query, caller.psp_id);
    let after: Option<PaymentId> = query.optional("after", |text| read::id(&text.into()));
    let page = query.finish_page_after(after.as_ref())?;
    let reader = app.database().reader();
    let (total, mut rows) = match after {
        None => {
            let total = wanted.clone().count(reader).await?;
            (Some(total), newest(wanted).limit(page.limit + 1).offset(page.offset).all(reader).await?)
        }
        Some(after) => {
            let older = older_than(&app, caller.psp_id, after).await?;
            (None, newest(wanted.filter(older)).limit(page.limit + 1).all(reader).await?)
        }
    };
    let has_more = u64::try_from(rows.len()).unwrap_or(u64::MAX) > page.limit;
    rows.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    let next_after = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    let record = |row: &Model| Ok(PaymentRecord::of(&app, &payment_of(row)?));
    let payments = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&PaymentList { message: "Payments", total, limit, offset, next_after, payments })
}

fn filters(query: &mut QueryFields, psp_id: PspId) -> Select<Entity> {
    let status = |text: &str| read::name::<Status>(&text.into(), "pending, confirmed, settled, mismatched, failed");
    let wanted = Condition::all()
        .add(Column::PspId.eq(psp_id.to_string()))
        .add(Column::Purpose.eq(super::PAY_IN))
        .add_option(query.optional("status", status).map(|status| Column::Status.eq(status.as_str())))
        .add_option(query.optional("merchant_id", id::<MerchantId>).map(|id| Column::MerchantId.eq(id)))
        .add_option(query.optional("customer_id", id::<CustomerId>).map(|id| Column::CustomerId.eq(id)))
        .add_option(query.optional("reference", text).map(|reference| Column::Reference.eq(reference)))
        .add_option(query.optional("created_from", moment).map(|from| Column::CreatedAt.gte(from.as_millis())))
        .add_option(query.optional("created_to", moment).map(|to| Column::CreatedAt.lt(to.as_millis())));
    Entity::find().filter(wanted)
}

fn newest(payments: Select<Entity>) -> Select<Entity> {
    payments.order_by_desc(Column::CreatedAt).order_by_desc(Column::Id)
}

/// Condition for the payments after the given one in the list.
async fn older_than(app: &AppShared, psp_id: PspId, after: PaymentId) -> Result<SimpleExpr, ApiError> {
    let cursor = own_row(app, psp_id, &after.to_string()).await.map_err(|error| match error {
        ApiError::NotFound(_) => ApiError::parameter("after", "unknown_value", "is not a payment of this account"),
        other => other,
    })?;
    let place = Expr::tuple([Expr::col(Column::CreatedAt), Expr::col(Column::Id)]);
    let cursor = Expr::tuple([Expr::value(cursor.created_at), Expr::value(cursor.id)]);
    Ok(place.lt(cursor))
}
