//! Requests of payers for refunds: `GET /refund-requests`, `GET /refund-requests/{refund_request_id}`, and the decision about
//! one: `POST .../approve` and `POST .../decline`. Payers send them on a page (`pages::refund`).
//!
//! An approval is the refund of the payment that the request asks for, and has all of its rules.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::payment::{Command, PayerRequest, Payment, RefundOrder, RefundRequestState, Requester};
use payferry_domain::{PaymentId, PspId, RefundRequestId, Timestamp, Token};
use payferry_entities::refund_requests::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::lists::{DateTime, Found, Page, PageParams, read_page};
use payferry_httpkit::{Answer, ApiError, Money, Path, Problem, Read, query, request, rule};
use payferry_journal::payments as journal;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, Select};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::change::Change;
use super::initiate::OwnFields;
use super::payments_of;
use super::refund_list::PAYMENT;
use super::refunds::{plain_recipient, token_of};
use crate::http::money::outbound::check_reconciled;
use crate::http::state::{AppShared, ChangeOf, ListOf, OneOf};

record! {
    /// The record of one of the payment's requests.
    pub fn of(payment: &Payment, request: &PayerRequest) {
        let asset = request.asset.unwrap_or_else(|| payment.asset());
        let is_approved = request.state == RefundRequestState::Approved;
    }

    /// A payer's request for a refund.
    #[derive(Debug)]
    pub struct RefundRequestRecord {
        #[schema(example = "rr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = request.id.to_string(),
        /// The same as `id`.
        refund_request_id: String = request.id.to_string(),
        payment_id: String = payment.terms.public_id(),
        /// requested (waits for your decision), approved (see the refund) or declined.
        status: &'static str = request.state.as_str(),
        #[schema(example = "10.00")]
        amount: String = request.amount.to_string(),
        /// USDC or USDT; null for a token that the service does not support.
        currency: Option<&'static str> = token_of(payment, asset).map(Token::as_str),
        chain: &'static str = asset.chain.as_str(),
        token_address: String = checksummed(asset.address),
        /// The address that shall receive the refund.
        address: String = checksummed(request.to),
        /// signature: the account at this address sent the money and signed the request. none: the payer only claims the
        /// address, and anyone who has the link of the payment can be the sender of the request.
        address_proof: &'static str = request.proof.as_str(),
        /// Note of the payer, if there is one. It is not checked.
        note: Option<String> = request.note.clone(),
        /// The refund, once approved.
        refund_id: Option<String> = is_approved.then(|| request.refund_id().to_string()),
        created_at: DateTime = request.requested_at.into(),
        updated_at: DateTime = request.updated_at().into(),
    }
}

impl RefundRequestRecord {
    /// All requests, in the order of their arrival.
    pub fn all(payment: &Payment) -> Vec<Self> {
        payment.refund_requests.iter().map(|request| Self::of(payment, request)).collect()
    }
}

/// The request with this id.
fn find(payment: &Payment, id: RefundRequestId) -> Result<&PayerRequest, ApiError> {
    payment.refund_requests.iter().find(|request| request.id == id).ok_or(ApiError::NotFound("refund_request"))
}

query! {
    /// Filters of the list.
    pub struct RefundRequestFilters {
        /// Requests for refunds of this payment (`pay_`) or transfer (`tr_`).
        payment_id: PaymentId = PAYMENT,
        /// The status.
        status: RefundRequestState = rule::name(),
        /// Created at or after this time.
        created_from: Timestamp = rule::moment(),
        /// Created before this time.
        created_to: Timestamp = rule::moment(),
    }
}

/// A page of payers' requests for refunds.
#[derive(Serialize, ToSchema)]
pub struct RefundRequestList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    refund_requests: Vec<RefundRequestRecord>,
}

/// List payers' requests for refunds
///
/// Of all payments and transfers, newest first.
#[utoipa::path(
    get, path = "/refund-requests", tag = "Payments", operation_id = "listRefundRequests",
    params(RefundRequestFilters, PageParams),
    responses((status = 200, description = "A page of requests.", body = RefundRequestList)),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let wanted = wanted(&RefundRequestFilters::read(&mut query), caller.psp_id);
    let page = Page::read("refund_requests", query)?;
    let key = |row: &Model| (row.created_at, row.id.clone());
    let Found { total, rows, next_cursor } =
        read_page(app.database(), wanted, [Column::CreatedAt, Column::Id], &page, key).await?;
    let ids = rows.iter().map(|row| row.payment_id.as_str());
    let of_page = payments_of(&app, ids).await?;
    let record = |row: &Model| {
        let payment = of_page.get(&row.payment_id).ok_or(ApiError::NotFound("payment"))?;
        Ok(RefundRequestRecord::of(payment, find(payment, row.id.parse().map_err(ApiError::internal)?)?))
    };
    let refund_requests = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    let message = "Requests for refunds";
    Answer::ok(&RefundRequestList { message, total, limit, offset, next_cursor, refund_requests })
}

fn wanted(filters: &RefundRequestFilters, psp_id: PspId) -> Select<Entity> {
    let wanted = sea_orm::Condition::all()
        .add(Column::PspId.eq(psp_id.to_string()))
        .add_option(filters.payment_id.map(|id| Column::PaymentId.eq(id.to_string())))
        .add_option(filters.status.map(|status| Column::Status.eq(status.as_str())))
        .add_option(filters.created_from.map(|from| Column::CreatedAt.gte(from.as_millis())))
        .add_option(filters.created_to.map(|to| Column::CreatedAt.lt(to.as_millis())));
    Entity::find().filter(wanted)
}

/// Read a payer's request for a refund
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/refund-requests/{refund_request_id}", tag = "Payments", operation_id = "getRefundRequest",
    params(("refund_request_id" = String, Path, description = "The id from the list or from `refund.requested`.")),
    responses(
        (status = 200, description = "The request.", body = RefundRequestRecord),
        (status = 404, description = "`refund_request_not_found`.", body = Problem),
    ),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    let (payment, id) = own(&app, caller.psp_id, &id).await?;
    Answer::ok(&RefundRequestRecord::of(&payment, find(&payment, id)?))
}

/// The payment of one of the account's requests.
async fn own(app: &AppShared, psp_id: PspId, id: &str) -> Result<(Payment, RefundRequestId), ApiError> {
    let missing = || ApiError::NotFound("refund_request");
    let id: RefundRequestId = id.parse().map_err(|_| missing())?;
    let own = Entity::find_by_id(id.to_string()).filter(Column::PspId.eq(psp_id.to_string()));
    let row = own.one(app.database().reader()).await?.ok_or_else(missing)?;
    let payment_id: PaymentId = row.payment_id.parse().map_err(ApiError::internal)?;
    Ok((journal::load(app.database(), payment_id).await?.ok_or_else(missing)?, id))
}

request! {
    /// The approval of a payer's request.
    pub struct RefundApproval {
        ..own: OwnFields,
    }
}

/// Approve a payer's request for a refund
///
/// Starts the refund that the request asks for, like the endpoint for refunds: its address is screened, and above a limit it
/// waits for the operator. It takes only money that payers may ask for and that is still there. `metadata` and `reference` are
/// those of the refund.
#[utoipa::path(
    post, path = "/refund-requests/{refund_request_id}/approve", tag = "Payments", operation_id = "approveRefundRequest",
    request_body = RefundApproval,
    params(("refund_request_id" = String, Path, description = "The id of the request.")),
    responses(
        (status = 202, description = "The request, with its refund.", body = RefundRequestRecord),
        (status = 404, description = "`refund_request_not_found`.", body = Problem),
        (status = 409, description = "`refund_request_closed`: it is declined, or is another refund already; \
            `nothing_to_refund`, `refund_too_large`, `refund_not_sender`: the money is no longer there; \
            `settlement_in_progress`, `above_send_limit`, or `psp_paused`.", body = Problem),
        (status = 503, description = "`chain_unavailable`: the chain did not say if the sender is a plain account; \
            `sending_unreconciled`: the operator must reconcile the chain first.", body = Problem),
    ),
)]
pub async fn approve(parts: ChangeOf<Money>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    let (payment, id) = own(&app, request.psp_id, &id).await?;
    let RefundApproval { own: OwnFields { metadata, reference } } = request.parse()?;
    let asked = find(&payment, id)?;
    check_reconciled(&app, asked.asset.map_or(payment.terms.chain, |asset| asset.chain))?;
    let plain = plain_recipient(&app, &payment, asked.asset, Some(asked.to)).await?;
    let order = RefundOrder { plain, reference, metadata, ..asked.order(Requester::Psp) };
    let change = Change {
        payment_id: payment.id(),
        detail: json!({ "refund_id": order.id, "refund_request_id": id }),
        command: Command::RequestRefund(Box::new(order)),
        action: "payment.refund_requested",
        authorization: None,
    };
    let answer =
        move |_: &AppShared, payment: &Payment| Answer::accepted(&RefundRequestRecord::of(payment, find(payment, id)?));
    change.carry_out(&app, &request, answer).await
}

/// Decline a payer's request for a refund
///
/// The payer sees that it was declined.
#[utoipa::path(
    post, path = "/refund-requests/{refund_request_id}/decline", tag = "Payments", operation_id = "declineRefundRequest",
    params(("refund_request_id" = String, Path, description = "The id of the request.")),
    responses(
        (status = 200, description = "The request, declined.", body = RefundRequestRecord),
        (status = 404, description = "`refund_request_not_found`.", body = Problem),
        (status = 409, description = "`refund_request_closed`: it is approved or declined already.", body = Problem),
    ),
)]
pub async fn decline(parts: ChangeOf<Money>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    let (payment, id) = own(&app, request.psp_id, &id).await?;
    let change = Change {
        payment_id: payment.id(),
        command: Command::DeclineRefundRequest { request_id: id },
        action: "payment.refund_declined",
        detail: json!({ "refund_request_id": id }),
        authorization: None,
    };
    let answer =
        move |_: &AppShared, payment: &Payment| Answer::ok(&RefundRequestRecord::of(payment, find(payment, id)?));
    change.carry_out(&app, &request, answer).await
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
            ("", "refund_requests_list"),
            ("status=requested", "refund_requests_status"),
            (&payment, "refund_requests_payment"),
            ("created_from=2026-01-31T12:00:00Z", "refund_requests_list"),
        ] {
            let mut fields = QueryFields::of(&format!("/refund-requests?{query}").parse().unwrap());
            let wanted = wanted(&RefundRequestFilters::read(&mut fields), PspId::generate());
            fields.finish().unwrap();
            let page = wanted.order_by_desc(Column::CreatedAt).order_by_desc(Column::Id).limit(50);
            let plan = query_plan(database.reader(), page.build(DbBackend::Sqlite)).await;
            assert!(plan.iter().any(|step| step.contains(index)), "{query}: no {index} in {plan:#?}");
            assert!(plan.iter().all(|step| !step.starts_with("SCAN") && !step.contains("TEMP B-TREE")), "{plan:#?}");
        }
    }
}
