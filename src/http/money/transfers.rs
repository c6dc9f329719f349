//! `POST /transfers`, `GET /transfers`, `GET /transfers/{transfer_id}`: a payment whose money is forwarded to a
//! customer.
//!
//! The payer's side is that of a payment (`crate::http::payments`). Refunds, cancellation and the delivery log use the
//! payment's paths with the transfer's id.

use axum::extract::State;
use axum::response::Response;
use payferry_actors::{ChainChoiceRequest, InitiatePayment};
use payferry_domain::payment::{Payment, Purpose, Status};
use payferry_domain::{CustomerId, TransferId};
use payferry_entities::payments::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::FieldError;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::lists::{Found, Page, PageParams, read_page};
use payferry_httpkit::{Answer, ApiError, Money, Path, Problem, Read, Submission, query, request, rule};
use payferry_journal::payments::payment_of;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::outbound::{audit_entry, check_suitable, wallet_of};
use crate::http::payments::initiate::{self, TermsFields};
use crate::http::payments::{self, PaymentRecord};
use crate::http::state::{AppShared, AppState, ListOf, OneOf};

request! {
    /// A transfer to create.
    pub struct TransferRequest {
        ..terms: TermsFields,
        /// The recipient: an active and cleared customer with a wallet.
        customer_id: CustomerId = required(rule::id()).example("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
    }
}

record! {
    fn of(app: &AppShared, payment: &Payment) -> Result<Self, ApiError> {
        let Purpose::Transfer { to } = payment.terms.purpose else {
            return Err(ApiError::internal("a transfer's row has another purpose"));
        };
    }

    /// A transfer to a customer: the payment, and the address that its money is forwarded to.
    pub struct CustomerTransfer {
        #[serde(flatten)]
        payment: PaymentRecord = PaymentRecord::of(app, payment),
        /// The customer's wallet when the transfer was created.
        address: String = checksummed(to),
    }
}

/// A page of transfers.
#[derive(Serialize, ToSchema)]
pub struct CustomerTransferList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    transfers: Vec<CustomerTransfer>,
}

/// Transfer to a customer
///
/// Answers with the whole record, like a payment: the payer sends exactly `amount` to `intermediary_wallet` in time. The whole amount is then
/// forwarded to the customer's current wallet, without a fee. Webhook events have `transfer.` names. A surplus is held
/// and can be refunded.
#[utoipa::path(
    post, path = "/transfers", tag = "Money", operation_id = "createTransfer", request_body = TransferRequest,
    responses(
        (status = 202, description = "The transfer; its wallet is now watched.", body = CustomerTransfer),
        (status = 404, description = "`customer_not_found`.", body = Problem),
        (status = 409, description = "`customer_inactive`, `customer_not_cleared`, `customer_without_wallet`, `wallet_unsuitable`, \
            `wallet_blocked` or `wallet_in_review` (by screening), `above_send_limit` or `psp_paused`.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `token_unavailable`.", body = Problem),
        (status = 503, description = "`chain_paused`: the operator has paused the chain; `screening_unavailable`: \
            screening of the customer's wallet did not finish in time; the database or the chain is unavailable; or \
            `timed_out`: the request may have been carried out.", body = Problem),
    ),
)]
pub async fn create(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
    let TransferRequest { terms, customer_id } = request.parse()?;
    if terms.chain == ChainChoiceRequest::Payer {
        let error = FieldError::new("chain", "unknown_value", "must be one of: base, polygon, arbitrum, best");
        return Err(ApiError::Validation(vec![error]));
    }
    initiate::check_customer(&app, request.psp_id, customer_id).await?;
    let to = wallet_of(&app, customer_id).await?;
    check_suitable(&app, to).await?;
    let audit = audit_entry(&app, &request, "transfer.created", "", (terms.amount, terms.currency));
    let transfer = InitiatePayment {
        customer_id: Some(customer_id),
        audit: Some(audit),
        ..terms.initiate(request.psp_id, Purpose::Transfer { to })
    };
    let answer = |app: &AppShared, payment: &Payment| Answer::accepted(&CustomerTransfer::of(app, payment)?);
    initiate::make(&app, &request.idempotency, transfer, answer).await
}

query! {
    /// Filters of the list.
    pub struct TransferFilters {
        /// Only transfers to this customer.
        customer_id: CustomerId = rule::id(),
        /// Only transfers with exactly this reference.
        reference: String = rule::text(),
        /// The status of the payment.
        status: Status = rule::name(),
    }
}

/// List transfers
#[utoipa::path(
    get, path = "/transfers", tag = "Money", operation_id = "listTransfers", params(TransferFilters, PageParams),
    responses((status = 200, description = "A page, newest first.", body = CustomerTransferList)),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let filters = TransferFilters::read(&mut query);
    let wanted = Condition::all()
        .add(Column::PspId.eq(caller.psp_id.to_string()))
        .add(Column::Purpose.eq(payments::TRANSFER))
        .add_option(filters.customer_id.map(|id| Column::CustomerId.eq(id.to_string())))
        .add_option(filters.reference.map(|reference| Column::Reference.eq(reference)))
        .add_option(filters.status.map(|status| Column::Status.eq(status.as_str())));
    let page = Page::read("transfers", query)?;
    let (own, order) = (Entity::find().filter(wanted), [Column::CreatedAt, Column::Id]);
    let key = |row: &Model| (row.created_at, row.id.clone());
    let Found { total, rows, next_cursor } = read_page(app.database(), own, order, &page, key).await?;
    let record = |row: &Model| CustomerTransfer::of(&app, &payment_of(row)?);
    let transfers = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&CustomerTransferList { message: "Transfers", total, limit, offset, next_cursor, transfers })
}

/// Read a transfer
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/transfers/{transfer_id}", tag = "Money", operation_id = "getTransfer",
    params(("transfer_id" = String, Path, description = "The `payment_id` from its creation.")),
    responses((status = 200, description = "The complete transfer.", body = CustomerTransfer)),
)]
pub async fn get(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    let missing = || ApiError::NotFound("transfer");
    let id: TransferId = id.parse().map_err(|_| missing())?;
    let payment = payments::own(&app, caller.psp_id, &id.to_string()).await.map_err(|error| match error {
        ApiError::NotFound(_) => missing(),
        other => other,
    })?;
    Answer::ok(&CustomerTransfer::of(&app, &payment)?)
}
