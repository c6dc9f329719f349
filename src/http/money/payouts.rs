//! `POST /payouts`, `GET /payouts`, `GET /payouts/{payout_id}`.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use payferry_actors::OutboundOrder;
use payferry_domain::outbound::{OutboundId, OutboundKind};
use payferry_domain::{CustomerId, PayoutId};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Money, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Path, Submission, read};
use serde::Serialize;
use utoipa::ToSchema;

use super::outbound::{self, OrderRequest, OutboundPage, SendingRecord};
use super::payee;
use crate::http::payments::initiate::check_customer;
use crate::http::state::AppState;

/// A payout to create.
#[derive(ToSchema)]
pub struct PayoutRequest {
    /// The recipient: an active and cleared customer with a wallet.
    #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    pub customer_id: String,
    /// A decimal string, at most 6 decimals.
    #[schema(example = "25.00")]
    pub amount: String,
    /// USDC or USDT.
    #[schema(example = "USDC")]
    pub currency: String,
    /// base, polygon or arbitrum: the chain of the balance.
    #[schema(example = "base")]
    pub chain: String,
    /// The PSP's own reference.
    #[schema(max_length = 255)]
    pub reference: Option<String>,
    /// The PSP's own object, at most 16 KiB and 32 levels as JSON. Numbers are 64-bit integers or IEEE 754 doubles, and
    /// larger ones are refused. Send a number as a string if its digits must be preserved.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Pay a customer
///
/// Sends to the customer's current wallet. The amount is deducted from the available balance at once. The webhook
/// `payout.sent` or `payout.failed` reports the outcome. The amount of a failed payout returns to the balance.
#[utoipa::path(
    post, path = "/payouts", tag = "Money", operation_id = "createPayout", request_body = PayoutRequest,
    responses(
        (status = 202, description = "The payout; its amount is reserved.", body = SendingRecord),
        (status = 404, description = "`customer_not_found`.", body = Problem),
        (status = 409, description = "`insufficient_balance`, `above_send_limit`, `above_daily_limit`, `customer_inactive`, \
            `customer_not_cleared`, `customer_without_wallet`, `wallet_unsuitable` or `psp_paused`.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `token_unavailable`.", body = Problem),
    ),
)]
pub async fn create(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
    let (customer_id, order_request) = request.read(|body| {
        let customer_id = body.required("customer_id", read::id::<CustomerId>);
        let order_request = OrderRequest::read(body);
        Some((customer_id?, order_request?))
    })?;
    outbound::check_open(&app, request.psp_id)?;
    check_customer(&app, request.psp_id, customer_id).await?;
    let to = payee::wallet_of(&app, customer_id).await?;
    let OrderRequest { amount, token, chain, reference, metadata } = order_request;
    let (id, psp_id, customer_id) = (OutboundId::Payout(PayoutId::generate()), request.psp_id, Some(customer_id));
    let order = OutboundOrder { id, psp_id, customer_id, reference, metadata, amount, token, chain, to, answer: None };
    outbound::order(&app, &request, order).await
}

/// A page of payouts.
#[derive(Serialize, ToSchema)]
pub struct PayoutList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Newest first.
    payouts: Vec<SendingRecord>,
}

/// List payouts
#[utoipa::path(
    get, path = "/payouts", tag = "Money", operation_id = "listPayouts", params(
        ("status" = Option<String>, Query, description = "pending, sent or failed."),
        ("limit" = Option<u64>, Query, description = "1 to 200; default 50."),
        ("offset" = Option<u64>, Query, description = "Items to skip."),
    ),
    responses((status = 200, description = "A page, newest first.", body = PayoutList)),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Answer, ApiError> {
    let page = outbound::list(&app, caller.psp_id, OutboundKind::Payout, &uri).await?;
    let OutboundPage { total, limit, offset, records } = page;
    Answer::ok(&PayoutList { message: "Payouts", total, limit, offset, payouts: records })
}

/// Read a payout
#[utoipa::path(
    get, path = "/payouts/{payout_id}", tag = "Money", operation_id = "getPayout",
    params(("payout_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The payout.", body = SendingRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(id): Path<String>,
) -> Result<Answer, ApiError> {
    outbound::one(&app, caller.psp_id, OutboundKind::Payout, &id).await
}
