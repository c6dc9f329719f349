//! Refunds of all payments of an account: `GET /refunds` and `GET /refunds/{refund_id}`.
//!
//! The rows of refunds select a page. The records come from the states of their payments.

use axum::extract::State;
use payferry_domain::{PaymentId, PspId, RefundId, Timestamp, TransferId};
use payferry_entities::refunds::{Column, Entity, Model};
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::lists::{Found, Page, PageParams, read_page};
use payferry_httpkit::{Answer, ApiError, Path, Problem, Read, Rule, query, read, rule};
use payferry_journal::payments as journal;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, Select};
use serde::Serialize;
use utoipa::ToSchema;

use super::payments_of;
use super::refunds::RefundRecord;
use crate::http::state::{ListOf, OneOf};

/// Order of the list.
const ORDER: [Column; 2] = [Column::CreatedAt, Column::Id];

/// The id of a payment or a transfer.
pub(super) const PAYMENT: Rule<PaymentId> = Rule {
    read: |value| match value.as_str().unwrap_or_default().parse::<TransferId>() {
        Ok(transfer) => Ok(transfer.payment()),
        Err(_) => read::id(value),
    },
    schema: || rule::id_of(&[PaymentId::PREFIX, TransferId::PREFIX]),
};

/// A public status of refunds.
const STATUS: Rule<&'static str> =
    Rule { read: |value| word(&STATUSES.map(|status| (status, status)), value), schema: || rule::one_of(STATUSES) };
const STATUSES: [&str; 4] = ["pending_approval", "pending", "sent", "failed"];

query! {
    /// Filters of the list.
    pub struct RefundFilters {
        /// Refunds of this payment (`pay_`) or transfer (`tr_`).
        payment_id: PaymentId = PAYMENT,
        /// The status.
        status: &'static str = STATUS,
        /// Refunds with exactly this reference.
        reference: String = rule::text(),
        /// Created at or after this time.
        created_from: Timestamp = rule::moment(),
        /// Created before this time.
        created_to: Timestamp = rule::moment(),
    }
}

/// A page of refunds of the account.
#[derive(Serialize, ToSchema)]
pub struct AccountRefundList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    refunds: Vec<RefundRecord>,
}

/// List refunds
///
/// Refunds of all payments and transfers, newest first.
#[utoipa::path(
    get, path = "/refunds", tag = "Payments", operation_id = "listAccountRefunds", params(RefundFilters, PageParams),
    responses((status = 200, description = "A page of refunds, including failed ones.", body = AccountRefundList)),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let wanted = wanted(RefundFilters::read(&mut query), caller.psp_id);
    let page = Page::read("refunds", query)?;
    let key = |row: &Model| (row.created_at, row.id.clone());
    let Found { total, rows, next_cursor } = read_page(app.database(), wanted, ORDER, &page, key).await?;
    let ids = rows.iter().map(|row| row.payment_id.as_str());
    let of_page = payments_of(&app, ids).await?;
    let record = |row: &Model| {
        let payment = of_page.get(&row.payment_id).ok_or(ApiError::NotFound("payment"))?;
        RefundRecord::find(payment, row.id.parse().map_err(ApiError::internal)?)
    };
    let refunds = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&AccountRefundList { message: "Refunds", total, limit, offset, next_cursor, refunds })
}

fn wanted(filters: RefundFilters, psp_id: PspId) -> Select<Entity> {
    let wanted = sea_orm::Condition::all()
        .add(Column::PspId.eq(psp_id.to_string()))
        .add_option(filters.payment_id.map(|id| Column::PaymentId.eq(id.to_string())))
        .add_option(filters.status.map(|status| Column::Status.eq(status)))
        .add_option(filters.reference.map(|reference| Column::Reference.eq(reference)))
        .add_option(filters.created_from.map(|from| Column::CreatedAt.gte(from.as_millis())))
        .add_option(filters.created_to.map(|to| Column::CreatedAt.lt(to.as_millis())));
    Entity::find().filter(wanted)
}

/// Read a refund of the account
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/refunds/{refund_id}", tag = "Payments", operation_id = "getAccountRefund",
    params(("refund_id" = String, Path, description = "The id from the refund request.")),
    responses(
        (status = 200, description = "The refund.", body = RefundRecord),
        (status = 404, description = "`refund_not_found`.", body = Problem),
    ),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    let missing = || ApiError::NotFound("refund");
    let id: RefundId = id.parse().map_err(|_| missing())?;
    let own = Entity::find_by_id(id.to_string()).filter(Column::PspId.eq(caller.psp_id.to_string()));
    let row = own.one(app.database().reader()).await?.ok_or_else(missing)?;
    let payment_id: PaymentId = row.payment_id.parse().map_err(ApiError::internal)?;
    let payment = journal::load(app.database(), payment_id).await?.ok_or_else(missing)?;
    Answer::ok(&RefundRecord::find(&payment, id)?)
}

#[cfg(test)]
mod tests {
    use payferry_harness::database::{TestDatabase, query_plan};
    use payferry_httpkit::QueryFields;
    use sea_orm::{DbBackend, QueryOrder, QuerySelect, QueryTrait};

    use super::*;

    #[tokio::test]
    async fn every_filter_uses_an_index() {
        let test_database = TestDatabase::create().await;
        let database = payferry_entities::Database::open(test_database.url()).await.unwrap();
        if database.backend() != DbBackend::Sqlite {
            return;
        }
        let payment = format!("payment_id={}", PaymentId::generate());
        for (query, index) in [
            ("", "refunds_list"),
            ("status=sent", "refunds_status"),
            ("reference=R", "refunds_reference"),
            (&payment, "refunds_payment"),
            ("created_from=2026-01-31T12:00:00Z", "refunds_list"),
        ] {
            let mut fields = QueryFields::of(&format!("/refunds?{query}").parse().unwrap());
            let wanted = wanted(RefundFilters::read(&mut fields), PspId::generate());
            fields.finish().unwrap();
            let [first, then] = ORDER;
            let page = wanted.order_by_desc(first).order_by_desc(then).limit(50);
            let plan = query_plan(database.reader(), page.build(DbBackend::Sqlite)).await;
            assert!(plan.iter().any(|step| step.contains(index)), "{query}: no {index} in {plan:#?}");
            assert!(plan.iter().all(|step| !step.starts_with("SCAN") && !step.contains("TEMP B-TREE")), "{plan:#?}");
        }
    }
}
