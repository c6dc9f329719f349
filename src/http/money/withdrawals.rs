//! `POST /withdrawals`, `GET /withdrawals`, `GET /withdrawals/{withdrawal_id}`.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use payferry_actors::OutboundOrder;
use payferry_domain::WithdrawalId;
use payferry_domain::outbound::{OutboundId, OutboundKind};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Money, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Path, Submission};
use payferry_journal::psps::wallets::withdrawal_wallet;
use payferry_operator::psps::withdrawal::WithdrawalWalletError;
use serde::Serialize;
use utoipa::ToSchema;

use super::outbound::{self, OrderRequest, OutboundPage, SendingRecord};
use crate::http::state::AppState;

/// A withdrawal to create.
#[derive(ToSchema)]
pub struct WithdrawalRequest {
    /// A decimal string, at most 6 decimals.
    #[schema(example = "250.00")]
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

/// Withdraw from the balance
///
/// Sends to the wallet that the operator registered for the account, which the settings show. The webhook
/// `withdraw.sent` or `withdraw.failed` reports the outcome. The amount of a failed withdrawal returns to the balance.
#[utoipa::path(
    post, path = "/withdrawals", tag = "Money", operation_id = "createWithdrawal", request_body = WithdrawalRequest,
    responses(
        (status = 202, description = "The withdrawal; its amount is reserved.", body = SendingRecord),
        (status = 409, description = "`insufficient_balance`, `above_send_limit`, `above_daily_limit`, \
            `withdrawal_wallet_missing`, `wallet_unsuitable` or `psp_paused`.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `token_unavailable`.", body = Problem),
    ),
)]
pub async fn create(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
    let OrderRequest { amount, token, chain, reference, metadata } = request.read(OrderRequest::read)?;
    outbound::check_open(&app, request.psp_id)?;
    let now = app.clock().now();
    let wallet =
        withdrawal_wallet(app.database(), request.psp_id, chain, now).await.map_err(WithdrawalWalletError::from)?;
    let Some(to) = wallet else {
        let detail = "The operator has registered no withdrawal wallet for this account, or it is not effective yet.";
        return Err(ApiError::Conflict("withdrawal_wallet_missing", detail.to_owned(), Vec::new()));
    };
    let (id, psp_id) = (OutboundId::Withdrawal(WithdrawalId::generate()), request.psp_id);
    let order =
        OutboundOrder { id, psp_id, customer_id: None, reference, metadata, amount, token, chain, to, answer: None };
    outbound::order(&app, &request, order).await
}

/// A page of withdrawals.
#[derive(Serialize, ToSchema)]
pub struct WithdrawalList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Newest first.
    withdrawals: Vec<SendingRecord>,
}

/// List withdrawals
#[utoipa::path(
    get, path = "/withdrawals", tag = "Money", operation_id = "listWithdrawals", params(
        ("status" = Option<String>, Query, description = "pending, sent or failed."),
        ("limit" = Option<u64>, Query, description = "1 to 200; default 50."),
        ("offset" = Option<u64>, Query, description = "Items to skip."),
    ),
    responses((status = 200, description = "A page, newest first.", body = WithdrawalList)),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Read>, uri: Uri) -> Result<Answer, ApiError> {
    let page = outbound::list(&app, caller.psp_id, OutboundKind::Withdrawal, &uri).await?;
    let OutboundPage { total, limit, offset, records } = page;
    Answer::ok(&WithdrawalList { message: "Withdrawals", total, limit, offset, withdrawals: records })
}

/// Read a withdrawal
#[utoipa::path(
    get, path = "/withdrawals/{withdrawal_id}", tag = "Money", operation_id = "getWithdrawal",
    params(("withdrawal_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The withdrawal.", body = SendingRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(id): Path<String>,
) -> Result<Answer, ApiError> {
    outbound::one(&app, caller.psp_id, OutboundKind::Withdrawal, &id).await
}
