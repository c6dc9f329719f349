//! `POST /transfers`, `GET /transfers`, `GET /transfers/{transfer_id}`: a payment whose money is sent on to a customer.
//!
//! The payer's side is a payment's (`http::payments`), and so are the paths of its refunds, its cancellation and its delivery
//! log, by the transfer's id.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use payferry_actors::InitiatePayment;
use payferry_actors::payment::store;
use payferry_actors::wallet::checksummed;
use payferry_domain::payment::{Payment, Purpose};
use payferry_domain::{CustomerId, TransferId};
use payferry_entities::payments::{Column, Entity, Model};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Money, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Path, QueryFields, Submission, read};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use utoipa::ToSchema;

use super::payee;
use super::sendings::metadata;
use crate::http::payments::initiate::{self, InitiateAnswer};
use crate::http::payments::{self, PaymentRecord};
use crate::http::state::{AppState, Shared};

/// A transfer to be made.
#[derive(ToSchema)]
pub struct TransferRequest {
    /// Who is paid: a customer that is active and cleared and has a wallet.
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
    /// The PSP's own object, at most 16 KiB and 32 levels as JSON; comes back in reads and webhooks. Its numbers are 64-bit
    /// integers or IEEE 754 doubles, and larger ones are refused: what has to come back digit by digit is written as a string.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Seconds until it expires.
    #[schema(minimum = 60, maximum = 86_400, default = 1_200)]
    pub expires_in: Option<i64>,
    /// The PSP's own reference.
    #[schema(max_length = 255)]
    pub reference: Option<String>,
}

/// A transfer to a customer: the payment, and where its money is sent on to.
#[derive(Serialize, ToSchema)]
pub struct CustomerTransfer {
    #[serde(flatten)]
    payment: PaymentRecord,
    /// The customer's wallet, as it was when the transfer was made.
    address: String,
}

/// A page of them.
#[derive(Serialize, ToSchema)]
pub struct CustomerTransferList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Newest first.
    transfers: Vec<CustomerTransfer>,
}

/// Transfer to a customer
///
/// Answers like a payment: whoever pays sends exactly `amount` to `intermediary_wallet` in time, and all of it is sent on to the
/// customer's wallet as it is now, without a fee. What is told has `transfer.` names. A surplus stays, and can be refunded.
#[utoipa::path(
    post, path = "/transfers", tag = "Money", operation_id = "createTransfer", request_body = TransferRequest,
    responses(
        (status = 202, description = "The transfer; its wallet is watched from now on.", body = InitiateAnswer),
        (status = 404, description = "`customer_not_found`.", body = Problem),
        (status = 409, description = "`customer_inactive`, `customer_not_cleared`, `customer_without_wallet`, `wallet_unsuitable`, \
            `wallet_blocked` or `wallet_in_review` (by screening), `above_send_limit` or `psp_paused`.", body = Problem),
        (status = 422, description = "Every bad field is named; or `token_unavailable`.", body = Problem),
        (status = 503, description = "`chain_paused`: the operator has paused the chain; `screening_unavailable`: screening did not \
            answer in time about the customer's wallet; the database or the chain is away; or `timed_out`: it may have been \
            carried out.", body = Problem),
    ),
)]
pub async fn create(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
    let (customer_id, chain, amount, token, expires_in_secs, reference, metadata) = request.read(|body| {
        let customer_id = body.required("customer_id", read::id::<CustomerId>);
        let chain = body.required("chain", initiate::chain);
        let amount = body.required("amount", read::amount);
        let token = body.required("currency", |value| read::name(value, "USDC, USDT"));
        let expires_in_secs = initiate::expires_in(body);
        let (reference, metadata) = (body.optional("reference", read::text), metadata(body));
        Some((customer_id?, chain?, amount?, token?, expires_in_secs, reference, metadata))
    })?;
    initiate::check_customer(&app, request.psp_id, customer_id).await?;
    let to = payee::wallet_of(&app, customer_id).await?;
    payee::check_suitable(&app, to).await?;
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
    };
    initiate::make(&app, &request.idempotency, transfer, |answer| Answer::accepted(&answer)).await
}

impl CustomerTransfer {
    fn of(app: &Shared, payment: &Payment) -> Result<Self, ApiError> {
        let Purpose::Transfer { to } = payment.terms.purpose else {
            return Err(ApiError::internal("a transfer's row holds something else"));
        };
        Ok(Self { payment: PaymentRecord::of(app, payment), address: checksummed(to) })
    }
}

/// List transfers
#[utoipa::path(
    get, path = "/transfers", tag = "Money", operation_id = "listTransfers", params(
        ("customer_id" = Option<String>, Query, description = "To this customer."),
        ("reference" = Option<String>, Query, description = "With exactly this reference."),
        ("limit" = Option<u64>, Query, description = "1 to 200; 50 unless given."),
        ("offset" = Option<u64>, Query, description = "How many to skip."),
    ),
    responses((status = 200, description = "A page, newest first.", body = CustomerTransferList)),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Answer, ApiError> {
    let mut query = QueryFields::of(&uri);
    let mut wanted = Entity::find()
        .filter(Column::PspId.eq(caller.psp_id.to_string()))
        .filter(Column::Purpose.eq(payments::TRANSFER));
    if let Some(customer_id) = query.optional::<CustomerId>("customer_id", |text| read::id(&text.into())) {
        wanted = wanted.filter(Column::CustomerId.eq(customer_id.to_string()));
    }
    if let Some(reference) = query.optional("reference", |text| read::text(&text.into())) {
        wanted = wanted.filter(Column::Reference.eq(reference));
    }
    let page = query.page();
    query.finish()?;
    let reader = app.database().reader();
    let total = wanted.clone().count(reader).await?;
    let newest = wanted.order_by_desc(Column::CreatedAt).order_by_desc(Column::Id);
    let rows = newest.limit(page.limit).offset(page.offset).all(reader).await?;
    let record = |row: &Model| CustomerTransfer::of(&app, &store::payment_of(row)?);
    let transfers = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&CustomerTransferList { message: "Transfers", total, limit, offset, transfers })
}

/// Read a transfer
#[utoipa::path(
    get, path = "/transfers/{transfer_id}", tag = "Money", operation_id = "getTransfer",
    params(("transfer_id" = String, Path, description = "As its creation answered it, in `payment_id`.")),
    responses(
        (status = 200, description = "The transfer, whole.", body = CustomerTransfer),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(id): Path<String>,
) -> Result<Answer, ApiError> {
    let missing = || ApiError::NotFound("transfer");
    let id: TransferId = id.parse().map_err(|_| missing())?;
    let row = payments::own(&app, caller.psp_id, &id.to_string()).await.map_err(|error| match error {
        ApiError::NotFound(_) => missing(),
        other => other,
    })?;
    Answer::ok(&CustomerTransfer::of(&app, &store::payment_of(&row)?)?)
}
