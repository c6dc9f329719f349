//! `/ops/deliveries`: webhooks by status and PSP, the newest event first.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::System;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::DeliveryStatus;
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, DateTime, Page as ListPage};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, QueryFields, query, rule};
use payferry_webhook::endpoints::ENDPOINTS_MAX;
use sea_orm::{DbErr, FromQueryResult};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Operator;
use crate::lists::{Conditions, PAGE_ROWS, SCANNED_MAX, ScannedPage, field, pages, query as link, select};
use crate::page::words::{ago, count, head, outbound_link, payment_link, status};
use crate::page::{Failure, NavSection, Page, PageRequest, id_of, path};
use crate::query::{by, rows, soon};

/// Filter of deliveries. An unset field matches all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filter {
    pub(crate) status: Option<DeliveryStatus>,
    pub(crate) psp_id: Option<PspId>,
}

#[derive(Debug, FromQueryResult)]
pub(crate) struct Row {
    pub(crate) id: String,
    event_id: String,
    pub(crate) name: String,
    pub(crate) psp_id: String,
    pub(crate) payment_id: String,
    position: i64,
    status: String,
    attempt_count: i64,
    next_attempt_at: Option<i64>,
    response_code: Option<i64>,
    pub(crate) error: Option<String>,
    created_at: i64,
    updated_at: i64,
}

/// Last row that a page has read.
#[derive(FromQueryResult)]
struct Last {
    position: i64,
}

record! {
    fn of(row: Row) {}

    /// A delivery in a list.
    pub struct DeliveryLineRecord {
        id: String = row.id.clone(),
        /// The same as `id`.
        delivery_id: String = row.id,
        event_id: String = row.event_id,
        event: String = row.name,
        psp_id: String = row.psp_id,
        /// Id of the payment, transfer, payout, withdrawal or customer.
        subject: String = row.payment_id,
        /// queued, failed, delivered, exhausted or cancelled.
        status: String = row.status,
        attempt_count: i64 = row.attempt_count,
        next_attempt_at: Option<DateTime> = row.next_attempt_at.map(DateTime),
        response_code: Option<i64> = row.response_code,
        error: Option<String> = row.error,
        created_at: DateTime = DateTime(row.created_at),
        updated_at: DateTime = DateTime(row.updated_at),
    }
}

/// A page of deliveries.
#[derive(Serialize, ToSchema)]
pub struct DeliveryLines {
    /// The newest event first. A page reads the deliveries of 100,000 events at most, so it may be short and have a next page.
    deliveries: Vec<DeliveryLineRecord>,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
}

query! {
    /// Filters of the list, and its page.
    pub struct DeliveryListQuery {
        /// Deliveries with this status.
        status: DeliveryStatus = rule::name(),
        /// Deliveries to this PSP.
        psp_id: PspId = rule::id(),
        /// Maximum number of deliveries; 50 if absent.
        limit: u64 = number::<1, 200>(),
        /// The `next_cursor` of the previous page.
        cursor: String = CURSOR,
    }
}

/// List deliveries
///
/// The newest event first.
#[utoipa::path(
    get, path = "/ops/deliveries", tag = "Money", operation_id = "listDeliveries", params(DeliveryListQuery),
    responses((status = 200, description = "A page of deliveries.", body = DeliveryLines), UnreadableQuery),
)]
pub(crate) async fn data(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let DeliveryListQuery { status, psp_id, limit, .. } = DeliveryListQuery::read(&mut query);
    let page = ListPage::<i64>::of_limit("deliveries", query, limit.unwrap_or(PAGE_ROWS), false)?;
    let found = by(soon(), read(&operator.system, Filter { status, psp_id }, page.after, page.limit)).await?;
    let next_cursor = found.next.map(|next| page.cursor(&next)).transpose()?;
    let deliveries = found.rows.into_iter().map(DeliveryLineRecord::of).collect();
    Answer::ok(&DeliveryLines { deliveries, next_cursor })
}

/// Reads a page in the descending order of the events. An event with several deliveries is never split over two pages.
pub(crate) async fn read(
    system: &System,
    filter: Filter,
    after: Option<i64>,
    limit: u64,
) -> Result<ScannedPage<Row, i64>, DbErr> {
    let mut conditions = Conditions::default();
    conditions.add_some("position < ?", after);
    conditions.add_some("psp_id = ?", filter.psp_id.map(|id| id.to_string()));
    let scanned = conditions.take();
    let scanned_values = conditions.values.len();
    conditions.add_some("d.status = ?", filter.status.map(DeliveryStatus::as_str));
    let wanted = conditions.take();
    let database = system.database();
    let sql = format!(
        "SELECT d.id, d.event_id, e.name, d.psp_id, d.payment_id, e.position, d.status, d.attempt_count, d.next_attempt_at, \
         d.response_code, d.error, d.created_at, d.updated_at \
         FROM (SELECT id, name, position FROM events WHERE {scanned} ORDER BY position DESC LIMIT {SCANNED_MAX}) AS e \
         JOIN deliveries AS d ON d.event_id = e.id WHERE {wanted} \
         ORDER BY e.position DESC, d.id LIMIT {}",
        limit + ENDPOINTS_MAX
    );
    let mut found: Vec<Row> = rows(database, sql, conditions.values.clone()).await?;
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    if found.len() > size {
        let cut = found[size].position;
        // The event that may be incomplete begins the next page, unless it is the only one, of which everything was read.
        let kept = found.iter().filter(|row| row.position > cut).count();
        found.truncate(if kept == 0 { found.len() } else { kept });
        let next = found.last().map(|row| row.position);
        return Ok(ScannedPage { rows: found, next });
    }
    let sql = format!(
        "SELECT position FROM events WHERE {scanned} ORDER BY position DESC LIMIT 1 OFFSET {}",
        SCANNED_MAX - 1
    );
    let mut values = conditions.values;
    values.truncate(scanned_values);
    let last: Vec<Last> = rows(database, sql, values).await?;
    Ok(ScannedPage { rows: found, next: last.into_iter().next().map(|last| last.position) })
}

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    status: Option<String>,
    psp_id: Option<String>,
    after: Option<i64>,
}

impl Wanted {
    fn here(&self, after: Option<i64>) -> String {
        fn set(value: Option<&String>) -> Option<&str> {
            value.map(String::as_str).filter(|value| !value.is_empty())
        }
        let after = after.map(|after| after.to_string());
        let pairs =
            [("status", set(self.status.as_ref())), ("psp_id", set(self.psp_id.as_ref())), ("after", after.as_deref())];
        format!("{}{}", path("deliveries"), link(&pairs))
    }
}

/// `/ops/view/deliveries`: the list.
pub(crate) async fn show(
    operator: Operator,
    Query(wanted): Query<Wanted>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let status = given(&wanted.status).map(|name| id_of("status of a delivery", &name)).transpose()?;
    let psp_id: Option<PspId> = given(&wanted.psp_id).map(|id| id_of("PSP", id.trim())).transpose()?;
    let found = by(soon(), read(&operator.system, Filter { status, psp_id }, wanted.after, PAGE_ROWS)).await?;
    let body = body(&wanted, &found, operator.system.clock().real_now());
    Ok(request.answer(&Page::still("Deliveries", NavSection::Overview, body)))
}

fn body(wanted: &Wanted, found: &ScannedPage<Row, i64>, now: Timestamp) -> Markup {
    let next = found.next.map(|next| wanted.here(Some(next)));
    html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(path("webhooks")) { "webhooks" } span { "deliveries" } }
        div.title { h1 { "Deliveries" } p { "The newest event first." } }
        form.filters method="get" action=(path("deliveries")) {
            (select("status", "Status", wanted.status.as_deref(), &DeliveryStatus::ALL.map(DeliveryStatus::as_str)))
            (field("psp_id", "PSP", wanted.psp_id.as_deref(), "psp_…"))
            div { button { "Filter" } " " a.button.quiet href=(path("deliveries")) { "All" } }
        }
        section.panel aria-labelledby="list" {
            header { h2 #list { "Deliveries" } }
            @if found.rows.is_empty() { p.none { "No deliveries." } } @else { (table(&found.rows, now)) }
            (pages("deliveries", &wanted.here(None), wanted.after.is_none(), next.as_deref(), found.rows.len()))
        }
    }
}

fn table(rows: &[Row], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Event"), ("", "About"), ("", "Status"), ("n wide", "Attempts"), ("wide", "Response"), ("n", "Created")]))
            tbody {
                @for row in rows {
                    tr id=(row.id) {
                        th scope="row" { (row.name) br; small.mono { (row.id) } }
                        td { (subject(&row.payment_id)) }
                        td { (status(&row.status)) @if let Some(at) = row.next_attempt_at { br; small { "next " (ago(Timestamp(at), now)) } } }
                        td.n.wide { (count(row.attempt_count)) }
                        td.wide {
                            @match (row.response_code, &row.error) {
                                (Some(code), _) => (code),
                                (None, Some(error)) => (error),
                                (None, None) => "–",
                            }
                        }
                        td.n { (ago(Timestamp(row.created_at), now)) }
                    }
                }
            }
        }
    }
}

/// Link to the page of the subject of an event.
pub(crate) fn subject(id: &str) -> Markup {
    html! {
        @match id.split_once('_') {
            Some(("pay" | "tr", _)) => (payment_link(id)),
            Some(("po" | "wd", _)) => (outbound_link(id)),
            Some(("cr", _)) => a.mono href={ (path("customers")) "/" (id) } { (id) },
            _ => span.mono { (id) },
        }
    }
}
