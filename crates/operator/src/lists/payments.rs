//! `/ops/payments`: payments by status, chain, PSP, label, merchant, customer and time.

use axum::extract::Query;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_actors::System;
use payferry_domain::payment::{Label, Status};
use payferry_domain::{Amount, Chain, CustomerId, MerchantId, PaymentId, PspId, Timestamp};
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, DateTime, Page as ListPage};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, QueryFields, query, rule};
use sea_orm::{DbErr, FromQueryResult};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Operator;
use crate::lists::{Conditions, PAGE_ROWS, SCANNED_MAX, ScannedPage, field, id_at, pages, query as link, select};
use crate::page::words::{Tone, ago, badge, head, payment_link, status};
use crate::page::{Failure, NavSection, Page, PageRequest, id_of, path};
use crate::query::{by, rows, soon};

const COLUMNS: &str =
    "id, psp_id, status, labels, chain, token, amount, amount_received, reference, expires_at, created_at, updated_at";

/// Filter of payments. An unset field matches all.
#[derive(Debug, Clone, Default)]
struct Filter {
    status: Option<Status>,
    chain: Option<Chain>,
    psp_id: Option<PspId>,
    label: Option<Label>,
    merchant_id: Option<MerchantId>,
    customer_id: Option<CustomerId>,
    /// From this time on.
    from: Option<Timestamp>,
    /// Before this time.
    to: Option<Timestamp>,
}

#[derive(Debug, FromQueryResult)]
struct Row {
    id: String,
    psp_id: String,
    status: String,
    labels: Option<String>,
    chain: String,
    token: String,
    amount: i64,
    amount_received: i64,
    reference: Option<String>,
    expires_at: i64,
    created_at: i64,
    updated_at: i64,
}

/// Last row that a page has read.
#[derive(FromQueryResult)]
struct Last {
    id: String,
}

impl Row {
    fn labels(&self) -> Vec<String> {
        self.labels.as_deref().and_then(|labels| serde_json::from_str(labels).ok()).unwrap_or_default()
    }
}

record! {
    fn of(row: Row) {
        let labels = row.labels();
    }

    /// A payment in a list.
    pub struct PaymentLineRecord {
        id: String = row.id.clone(),
        /// The same as `id`.
        payment_id: String = row.id,
        psp_id: String = row.psp_id,
        /// pending, confirmed, settled, mismatched or failed.
        status: String = row.status,
        labels: Vec<String> = labels,
        chain: String = row.chain,
        currency: String = row.token,
        amount: String = Amount(row.amount).to_string(),
        amount_received: String = Amount(row.amount_received).to_string(),
        reference: Option<String> = row.reference,
        expires_at: DateTime = Timestamp(row.expires_at).into(),
        created_at: DateTime = Timestamp(row.created_at).into(),
        updated_at: DateTime = Timestamp(row.updated_at).into(),
    }
}

/// A page of payments.
#[derive(Serialize, ToSchema)]
pub struct PaymentLines {
    /// Newest first. A page reads 100,000 payments at most, so it may be short and have a next page.
    payments: Vec<PaymentLineRecord>,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
}

query! {
    /// Filters of the list, and its page.
    pub struct PaymentListQuery {
        /// Payments with this status.
        status: Status = rule::name(),
        /// Payments on this chain.
        chain: Chain = rule::name(),
        /// Payments of this PSP.
        psp_id: PspId = rule::id(),
        /// Payments with this label.
        label: Label = rule::name(),
        /// Payments to this merchant.
        merchant_id: MerchantId = rule::id(),
        /// Payments of this customer.
        customer_id: CustomerId = rule::id(),
        /// Payments created from this time on.
        from: Timestamp = rule::moment(),
        /// Payments created before this time.
        to: Timestamp = rule::moment(),
        /// Maximum number of payments; 50 if absent.
        limit: u64 = number::<1, 200>(),
        /// The `next_cursor` of the previous page.
        cursor: String = CURSOR,
    }
}

/// List payments
///
/// Newest first.
#[utoipa::path(
    get, path = "/ops/payments", tag = "Money", operation_id = "listPayments", params(PaymentListQuery),
    responses((status = 200, description = "A page of payments.", body = PaymentLines), UnreadableQuery),
)]
pub(crate) async fn data(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let PaymentListQuery { status, chain, psp_id, label, merchant_id, customer_id, from, to, limit, .. } =
        PaymentListQuery::read(&mut query);
    let filter = Filter { status, chain, psp_id, label, merchant_id, customer_id, from, to };
    let page = ListPage::<String>::of_limit("payments", query, limit.unwrap_or(PAGE_ROWS), false)?;
    let found = by(soon(), read(&operator.system, &filter, page.after.as_deref(), page.limit)).await?;
    let next_cursor = found.next.map(|next| page.cursor(&next)).transpose()?;
    let payments = found.rows.into_iter().map(PaymentLineRecord::of).collect();
    Answer::ok(&PaymentLines { payments, next_cursor })
}

/// Reads a page, in the descending order of the ids, which begin with their time.
async fn read(
    system: &System,
    filter: &Filter,
    after: Option<&str>,
    limit: u64,
) -> Result<ScannedPage<Row, String>, DbErr> {
    let mut conditions = Conditions::default();
    conditions.add_some("id < ?", after);
    conditions.add_some("id < ?", filter.to.map(|to| id_at(PaymentId::PREFIX, to)));
    conditions.add_some("id >= ?", filter.from.map(|from| id_at(PaymentId::PREFIX, from)));
    // These have an index with the time or the id.
    conditions.add_some("customer_id = ?", filter.customer_id.map(|id| id.to_string()));
    conditions.add_some("psp_id = ?", filter.psp_id.map(|id| id.to_string()));
    conditions.add_some("merchant_id = ?", filter.merchant_id.map(|id| id.to_string()));
    let scanned = conditions.take();
    conditions.add_some("status = ?", filter.status.map(Status::as_str));
    conditions.add_some("chain = ?", filter.chain.map(Chain::as_str));
    conditions.add_some("labels LIKE ?", filter.label.map(|label| format!("%\"{label}\"%")));
    let wanted = conditions.take();
    let database = system.database();
    let sql = format!(
        "SELECT * FROM (SELECT {COLUMNS} FROM payments WHERE {scanned} ORDER BY id DESC LIMIT {SCANNED_MAX}) AS scanned \
         WHERE {wanted} LIMIT {}",
        limit + 1
    );
    let mut found: Vec<Row> = rows(database, sql, conditions.values.clone()).await?;
    found.sort_by(|one, other| other.id.cmp(&one.id));
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    if found.len() > size {
        found.truncate(size);
        let next = found.last().map(|row| row.id.clone());
        return Ok(ScannedPage { rows: found, next });
    }
    // Perhaps the page ended because it had read enough.
    let sql = format!("SELECT id FROM payments WHERE {scanned} ORDER BY id DESC LIMIT 1 OFFSET {}", SCANNED_MAX - 1);
    let mut values = conditions.values;
    values.truncate(scanned.matches('$').count());
    let last: Vec<Last> = rows(database, sql, values).await?;
    Ok(ScannedPage { rows: found, next: last.into_iter().next().map(|last| last.id) })
}

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    /// Payment to find, as in earlier versions.
    id: Option<String>,
    status: Option<String>,
    chain: Option<String>,
    psp_id: Option<String>,
    label: Option<String>,
    merchant_id: Option<String>,
    customer_id: Option<String>,
    from: Option<String>,
    to: Option<String>,
    after: Option<String>,
}

impl Wanted {
    /// Reads the filters. An empty field is not set.
    fn filter(&self) -> Result<Filter, Failure> {
        fn of<T: std::str::FromStr>(what: &'static str, text: Option<&String>) -> Result<Option<T>, Failure> {
            text.filter(|text| !text.is_empty()).map(|text| id_of(what, text.trim())).transpose()
        }
        Ok(Filter {
            status: of("status", self.status.as_ref())?,
            chain: of("chain", self.chain.as_ref())?,
            psp_id: of("PSP", self.psp_id.as_ref())?,
            label: of("label", self.label.as_ref())?,
            merchant_id: of("merchant", self.merchant_id.as_ref())?,
            customer_id: of("customer", self.customer_id.as_ref())?,
            from: of("time", self.from.as_ref())?,
            to: of("time", self.to.as_ref())?,
        })
    }

    /// Path of the page with these filters that begins after a payment.
    fn here(&self, after: Option<&str>) -> String {
        let set =
            |text: &'static str, value: &'_ Option<String>| (text, value.clone().filter(|value| !value.is_empty()));
        let pairs = [
            set("status", &self.status),
            set("chain", &self.chain),
            set("psp_id", &self.psp_id),
            set("label", &self.label),
            set("merchant_id", &self.merchant_id),
            set("customer_id", &self.customer_id),
            set("from", &self.from),
            set("to", &self.to),
            ("after", after.map(str::to_owned)),
        ];
        let pairs: Vec<(&str, Option<&str>)> = pairs.iter().map(|(name, value)| (*name, value.as_deref())).collect();
        format!("{}{}", path("payments"), link(&pairs))
    }
}

/// `/ops/view/payments`: the list.
pub(crate) async fn show(
    operator: Operator,
    Query(wanted): Query<Wanted>,
    request: PageRequest,
) -> Result<Response, Failure> {
    if let Some(id) = &wanted.id {
        let to = format!("{}{}", path("search"), link(&[("q", Some(id))]));
        return Ok(Redirect::to(&to).into_response());
    }
    let filter = wanted.filter()?;
    let found = by(soon(), read(&operator.system, &filter, wanted.after.as_deref(), PAGE_ROWS)).await?;
    let body = body(&wanted, &found, operator.system.clock().now());
    Ok(request.answer(&Page::still("Payments", NavSection::Payments, body)))
}

fn body(wanted: &Wanted, found: &ScannedPage<Row, String>, now: Timestamp) -> Markup {
    let statuses = Status::ALL.map(Status::as_str);
    let labels = Label::ALL.map(Label::as_str);
    let chains = Chain::ALL.map(Chain::as_str);
    html! {
        div.title { h1 { "Payments" } p { "Newest first." } }
        form.filters method="get" action=(path("payments")) {
            (select("status", "Status", wanted.status.as_deref(), &statuses))
            (select("chain", "Chain", wanted.chain.as_deref(), &chains))
            (select("label", "Label", wanted.label.as_deref(), &labels))
            (field("psp_id", "PSP", wanted.psp_id.as_deref(), "psp_…"))
            (field("merchant_id", "Merchant", wanted.merchant_id.as_deref(), "merch_…"))
            (field("customer_id", "Customer", wanted.customer_id.as_deref(), "cr_…"))
            (field("from", "From", wanted.from.as_deref(), "2026-11-29"))
            (field("to", "Before", wanted.to.as_deref(), "2026-11-30"))
            div { button { "Filter" } " " a.button.quiet href=(path("payments")) { "All" } }
        }
        section.panel aria-labelledby="list" {
            header { h2 #list { "Payments" } }
            @if found.rows.is_empty() { p.none { "No payments." } } @else { (table(&found.rows, now)) }
            (pages("payments", &wanted.here(None), wanted.after.is_none(), found.next.as_deref().map(|next| wanted.here(Some(next))).as_deref(), found.rows.len()))
        }
    }
}

fn table(rows: &[Row], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Payment"), ("", "Status"), ("n", "Amount"), ("wide", "Chain"), ("wide", "Reference"), ("wide", "PSP"), ("n", "Created")]))
            tbody {
                @for row in rows {
                    tr id=(row.id) {
                        th scope="row" { (payment_link(&row.id)) }
                        td { (status(&row.status)) @for label in row.labels() { " " (badge(&label, Tone::Warn)) } }
                        td.n { (Amount(row.amount)) " " (row.token) }
                        td.wide { (row.chain) }
                        td.wide { (row.reference.as_deref().unwrap_or("–")) }
                        td.wide { a.mono href={ (path("psps")) "/" (row.psp_id) } { "…" (row.psp_id[row.psp_id.len().saturating_sub(8)..]) } }
                        td.n { (ago(Timestamp(row.created_at), now)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_time_sorts_before_all_ids_made_then() {
        let id = PaymentId::generate();
        let at = id.made_at();
        assert!(id_at(PaymentId::PREFIX, at) <= id.to_string());
        assert!(id_at(PaymentId::PREFIX, at.plus_millis(1)) > id.to_string());
    }
}
