//! `POST /transfers`, `GET /transfers`, `GET /transfers/{transfer_id}`: a payment whose money is forwarded to a
//! customer.
//!
//! The payer's side is that of a payment (`crate::http::payments`). Refunds, cancellation and the delivery log use the
//! payment's paths with the transfer's id.

use axum::extract::State;
use axum::response::Response;
use payferry_actors::InitiatePayment;
use payferry_domain::payment::{Payment, Purpose};
use payferry_domain::{CustomerId, TransferId};
use payferry_entities::payments::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{Answer, ApiError, Money, Path, Problem, Read, Submission, read};
use payferry_journal::payments::payment_of;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::outbound::{audit_entry, check_suitable, wallet_of};
use crate::http::lists::{Found, Page, PageParams, id, read_page, text};
use crate::http::payments::initiate;
use crate::http::payments::read::status;
use crate::http::payments::{self, PaymentRecord};
use crate::http::state::{AppShared, AppState, ListOf, OneOf};

/// A transfer to create.
#[derive(ToSchema)]
pub struct TransferRequest {
    /// The recipient: an active and cleared customer with a wallet.
    #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    pub customer_id: String,
    /// A decimal string, 0.01 to 1,000,000, at most 6 decimals.
    #[schema(example = "25.00")]
    pub amount: String,
    /// USDC or USDT.
    #[schema(example = "USDC")]
    pub currency: String,
    /// base, polygon, arbitrum, or best: the service chooses.
    #[schema(example = "base")]
    pub chain: String,
    /// The PSP's own object, at most 16 KiB and 32 levels as JSON; returned in reads and webhooks. Numbers are 64-bit
    /// integers or IEEE 754 doubles, and larger ones are refused. Send a number as a string if its digits must be
    /// preserved.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Seconds until it expires.
    #[schema(minimum = 60, maximum = 86_400, default = 1_200)]
    pub expires_in: Option<i64>,
    /// The PSP's own reference.
    #[schema(max_length = 255)]
    pub reference: Option<String>,
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
    let (customer_id, chain, amount, token, expires_in_secs, reference, metadata) = request.read(|body| {
        let customer_id = body.required("customer_id", read::id::<CustomerId>);
        let chain = body.required("chain", initiate::chain);
        let amount = body.required("amount", read::amount);
        let token = body.required("currency", |value| read::name(value, "USDC, USDT"));
        let expires_in_secs = initiate::expires_in(body);
        let (reference, metadata) = (body.optional("reference", read::text), initiate::metadata(body));
        Some((customer_id?, chain?, amount?, token?, expires_in_secs, reference, metadata))
    })?;
    initiate::check_customer(&app, request.psp_id, customer_id).await?;
    let to = wallet_of(&app, customer_id).await?;
    check_suitable(&app, to).await?;
    let transfer = InitiatePayment {
        psp_id: request.psp_id,
        purpose: Purpose::Transfer { to },
        merchant_id: None,
        customer_id: Some(customer_id),
        reference,
        metadata,
        amount,
        token,
        chain,
        expires_in_secs,
        answer: None,
        audit: Some(audit_entry(&app, &request, "transfer.created", "", (amount, token))),
    };
    let answer = |app: &AppShared, payment: &Payment| Answer::accepted(&CustomerTransfer::of(app, payment)?);
    initiate::make(&app, &request.idempotency, transfer, answer).await
}

/// List transfers
#[utoipa::path(
    get, path = "/transfers", tag = "Money", operation_id = "listTransfers", params(
        ("customer_id" = Option<String>, Query, description = "Only transfers to this customer."),
        ("reference" = Option<String>, Query, description = "Only transfers with exactly this reference."),
        ("status" = Option<String>, Query, description = "pending, confirmed, settled, mismatched or failed."),
        PageParams,
    ),
    responses((status = 200, description = "A page, newest first.", body = CustomerTransferList)),
)]
pub async fn list(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let wanted = Condition::all()
        .add(Column::PspId.eq(caller.psp_id.to_string()))
        .add(Column::Purpose.eq(payments::TRANSFER))
        .add_option(query.optional("customer_id", id::<CustomerId>).map(|id| Column::CustomerId.eq(id)))
        .add_option(query.optional("reference", text).map(|reference| Column::Reference.eq(reference)))
        .add_option(query.optional("status", status).map(|status| Column::Status.eq(status.as_str())));
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
