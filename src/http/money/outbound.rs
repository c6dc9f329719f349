//! Payouts and withdrawals: `POST /payouts`, `GET /payouts`, `GET /payouts/{payout_id}`, and the same for
//! `/withdrawals`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use payferry_actors::pauses::Scope;
use payferry_actors::{OrderError, OutboundOrder};
use payferry_domain::outbound::{FailureReason, OutboundId, OutboundKind, OutboundStatus, OutboundTransfer};
use payferry_domain::payment::Decision;
use payferry_domain::{Address, Amount, Chain, CustomerId, PayoutId, PspId, Token, WithdrawalId};
use payferry_entities::sendings::{Column, Entity, Model};
use payferry_entities::{audit_log, payment_details};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::lists::{DateTime, Found, NewestKey, Page, PageParams, read_page};
use payferry_httpkit::{
    Answer, ApiError, Away, Money, Path, Problem, QueryFields, Read, Submission, query, request, rule,
};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::outbound::outbound_of;
use payferry_journal::psps::wallets::withdrawal_wallet;
use payferry_operator::psps::withdrawal::WithdrawalWalletError;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::Instrument;
use utoipa::ToSchema;

use crate::http::payments::initiate::{OwnFields, check_customer};
use crate::http::state::{AppShared, AppState, ListOf, OneOf};

record! {
    /// The current record of an outbound transfer.
    pub fn of(outbound: &OutboundTransfer) {
        let order = &outbound.order;
    }

    /// An outbound transfer from the account's vault.
    #[derive(Debug)]
    pub struct SendingRecord {
        /// `po_` for a payout, `wd_` for a withdrawal; `payment_id` in webhooks.
        #[schema(example = "po_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = order.id.to_string(),
        /// pending, sent or failed. `sent` means final on the chain.
        status: &'static str = outbound.status.as_str(),
        /// The recipient; null for a withdrawal.
        customer_id: Option<String> = order.customer_id.map(|id| id.to_string()),
        reference: Option<String> = order.reference.clone(),
        #[schema(example = "25.00")]
        amount: String = order.amount.to_string(),
        currency: &'static str = order.token.as_str(),
        chain: &'static str = order.asset.chain.as_str(),
        token_address: String = checksummed(order.asset.address),
        /// The recipient's address when the order was accepted.
        address: String = checksummed(order.to),
        /// pending, allow, review or block: the screening result of the address. Nothing is sent before it is `allow`.
        kyt_verdict: &'static str = outbound.decision().map_or("pending", Decision::as_str),
        /// Hash of the transaction, once sent.
        tx_hash: Option<String> = outbound.tx_hash.map(|hash| hash.to_string()),
        /// address_blocked, customer_not_cleared or send_failed.
        failure_reason: Option<&'static str> = outbound.failure_reason.map(FailureReason::as_str),
        /// The failure reason in words.
        failure: Option<String> = outbound.failure.clone(),
        #[schema(value_type = Option<Object>, additional_properties)]
        metadata: Option<Map<String, Value>> = order.metadata.clone(),
        created_at: DateTime = order.created_at.into(),
        updated_at: DateTime = outbound.updated_at.into(),
        /// When it was sent or failed.
        finished_at: Option<DateTime> = outbound.finished_at.map(DateTime::from),
    }
}

request! {
    /// Terms of a payout or a withdrawal.
    pub struct OrderFields {
        ..own: OwnFields,
        /// A decimal string, at most 6 decimals.
        amount: Amount = required(rule::part()).example("25.00"),
        /// The token.
        currency: Token = required(rule::name()).example("USDC"),
        /// The chain of the balance.
        chain: Chain = required(rule::name()).example("base"),
    }
}

/// The wallet in the customer's payment details.
pub(super) async fn wallet_of(app: &AppShared, customer_id: CustomerId) -> Result<Address, ApiError> {
    let details = payment_details::Entity::find_by_id(customer_id.to_string()).one(app.database().reader()).await?;
    let Some(wallet) = details.and_then(|details| details.wallet_address) else {
        let detail = "The customer has no wallet; add one to the payment details.";
        return Err(ApiError::conflict("customer_without_wallet", detail));
    };
    wallet.parse().map_err(ApiError::internal)
}

/// Refuses an address whose money would be lost: the zero address, a token contract, or one of the service's own.
pub(super) async fn check_suitable(app: &AppShared, to: Address) -> Result<(), ApiError> {
    let Some(unsuitable) = app.system.unsuitable(to).await? else { return Ok(()) };
    Err(ApiError::conflict("wallet_unsuitable", format!("The wallet {unsuitable}.")))
}

/// Refuses new orders of a paused account, and on a chain that must be reconciled.
fn check_open(app: &AppShared, psp_id: PspId, chain: Chain) -> Result<(), ApiError> {
    if app.system.pauses().is_paused(Scope::Psp(psp_id)) {
        return Err(ApiError::psp_paused());
    }
    check_reconciled(app, chain)
}

/// Refuses new outbound transfers that may repeat lost ones.
pub(in crate::http) fn check_reconciled(app: &AppShared, chain: Chain) -> Result<(), ApiError> {
    if app.system.pauses().is_unreconciled(chain) {
        return Err(ApiError::Unavailable(Away::Unreconciled, format!("{chain} must be reconciled").into()));
    }
    Ok(())
}

/// Audit entry of a request that sends money. The address is not in it: a customer's wallet is personal data.
pub(super) fn audit_entry(
    app: &AppShared,
    request: &Submission<Money>,
    action: &str,
    subject: &str,
    (amount, token): (Amount, Token),
) -> audit_log::Model {
    let entry = NewAuditEntry {
        action: action.to_owned(),
        psp_id: Some(request.psp_id),
        subject: subject.to_owned(),
        detail: json!({ "amount": amount.to_string(), "currency": token.as_str() }),
    };
    audit::row(entry, &Actor::ApiKey(request.key_id), app.clock().now())
}

/// Submits an order. Answers 202 with the record, which the idempotency key also stores.
async fn order(
    app: &AppState,
    request: &Submission<Money>,
    (id, customer_id, to): (OutboundId, Option<CustomerId>, Address),
    OrderFields { own: OwnFields { metadata, reference }, amount, currency: token, chain }: OrderFields,
) -> Result<Response, ApiError> {
    check_suitable(app, to).await?;
    let answer = request.idempotency.row_of(|outbound| Answer::accepted(&SendingRecord::of(outbound)));
    let psp_id = request.psp_id;
    let action = format!("{}.created", id.kind());
    let audit = Some(audit_entry(app, request, &action, &id.to_string(), (amount, token)));
    let order = OutboundOrder { id, psp_id, customer_id, reference, metadata, amount, token, chain, to, answer, audit };
    // Runs in a task of its own: a disconnecting caller must not interrupt it between the commit and the actor's start.
    let (system, idempotency) = (app.system.clone(), request.idempotency.clone());
    let ordered = tokio::spawn(
        async move {
            let ordered = system.order_outbound(order).await;
            drop(idempotency);
            ordered
        }
        .in_current_span(),
    );
    match ordered.await.map_err(ApiError::internal)? {
        Ok(outbound) => Ok(Answer::accepted(&SendingRecord::of(&outbound))?.into_response()),
        Err(OrderError::IdempotencyKeyTaken) => request.idempotency.first_answer().await,
        Err(error) => Err(error.into()),
    }
}

/// Answers one outbound transfer of the account.
async fn one(app: &AppShared, psp_id: PspId, kind: OutboundKind, id: &str) -> Result<Answer, ApiError> {
    let not_found = || ApiError::NotFound(kind.as_str());
    let id: OutboundId = id.parse().map_err(|_| not_found())?;
    let row = Entity::find_by_id(id.to_string())
        .filter(Column::PspId.eq(psp_id.to_string()))
        .filter(Column::Kind.eq(kind.as_str()))
        .one(app.database().reader())
        .await?;
    Answer::ok(&SendingRecord::of(&outbound_of(&row.ok_or_else(not_found)?)?))
}

/// Reads a page of the account's outbound transfers, newest first.
async fn page(
    app: &AppShared,
    psp_id: PspId,
    kind: OutboundKind,
    query: QueryFields,
    filter: Condition,
) -> Result<(Page<NewestKey>, Found<SendingRecord>), ApiError> {
    let wanted = filter.add(Column::PspId.eq(psp_id.to_string())).add(Column::Kind.eq(kind.as_str()));
    let page = Page::read(kind.as_str(), query)?;
    let (own, order) = (Entity::find().filter(wanted), [Column::CreatedAt, Column::Id]);
    let key = |row: &Model| (row.created_at, row.id.clone());
    let Found { total, rows, next_cursor } = read_page(app.database(), own, order, &page, key).await?;
    let record = |row: &Model| Ok(SendingRecord::of(&outbound_of(row)?));
    let rows = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    Ok((page, Found { total, rows, next_cursor }))
}

request! {
    /// A payout to create.
    pub struct PayoutRequest {
        ..order: OrderFields,
        /// The recipient: an active and cleared customer with a wallet.
        customer_id: CustomerId = required(rule::id()).example("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
    }
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
        (status = 503, description = "`sending_unreconciled`: the operator must reconcile the chain first.", body = Problem),
    ),
)]
pub async fn create_payout(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
    let PayoutRequest { order: terms, customer_id } = request.parse()?;
    check_open(&app, request.psp_id, terms.chain)?;
    check_customer(&app, request.psp_id, customer_id).await?;
    let to = wallet_of(&app, customer_id).await?;
    let id = OutboundId::Payout(PayoutId::generate());
    order(&app, &request, (id, Some(customer_id), to), terms).await
}

query! {
    /// Filters of the list.
    pub struct PayoutFilters {
        /// Only payouts to this customer.
        customer_id: CustomerId = rule::id(),
        /// Only payouts with exactly this reference.
        reference: String = rule::text(),
        /// The status.
        status: OutboundStatus = rule::name(),
    }
}

/// A page of payouts.
#[derive(Serialize, ToSchema)]
pub struct PayoutList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    payouts: Vec<SendingRecord>,
}

/// List payouts
#[utoipa::path(
    get, path = "/payouts", tag = "Money", operation_id = "listPayouts", params(PayoutFilters, PageParams),
    responses((status = 200, description = "A page, newest first.", body = PayoutList)),
)]
pub async fn list_payouts(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let filters = PayoutFilters::read(&mut query);
    let filter = Condition::all()
        .add_option(filters.customer_id.map(|id| Column::CustomerId.eq(id.to_string())))
        .add_option(filters.reference.map(|reference| Column::Reference.eq(reference)))
        .add_option(filters.status.map(|status| Column::Status.eq(status.as_str())));
    let (Page { limit, offset, .. }, Found { total, rows: payouts, next_cursor }) =
        page(&app, caller.psp_id, OutboundKind::Payout, query, filter).await?;
    Answer::ok(&PayoutList { message: "Payouts", total, limit, offset, next_cursor, payouts })
}

/// Read a payout
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/payouts/{payout_id}", tag = "Money", operation_id = "getPayout",
    params(("payout_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "The payout.", body = SendingRecord)),
)]
pub async fn get_payout(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    one(&app, caller.psp_id, OutboundKind::Payout, &id).await
}

request! {
    /// A withdrawal to create.
    pub struct WithdrawalRequest {
        ..order: OrderFields,
    }
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
        (status = 503, description = "`sending_unreconciled`: the operator must reconcile the chain first.", body = Problem),
    ),
)]
pub async fn create_withdrawal(State(app): State<AppState>, request: Submission<Money>) -> Result<Response, ApiError> {
    let WithdrawalRequest { order: terms } = request.parse()?;
    check_open(&app, request.psp_id, terms.chain)?;
    let wallet = withdrawal_wallet(app.database(), request.psp_id, terms.chain, app.clock().now());
    let Some(to) = wallet.await.map_err(WithdrawalWalletError::from)? else {
        let detail = "The operator has registered no withdrawal wallet for this account, or it is not effective yet.";
        return Err(ApiError::conflict("withdrawal_wallet_missing", detail));
    };
    order(&app, &request, (OutboundId::Withdrawal(WithdrawalId::generate()), None, to), terms).await
}

query! {
    /// Filters of the list.
    pub struct WithdrawalFilters {
        /// The status.
        status: OutboundStatus = rule::name(),
    }
}

/// A page of withdrawals.
#[derive(Serialize, ToSchema)]
pub struct WithdrawalList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    withdrawals: Vec<SendingRecord>,
}

/// List withdrawals
#[utoipa::path(
    get, path = "/withdrawals", tag = "Money", operation_id = "listWithdrawals", params(WithdrawalFilters, PageParams),
    responses((status = 200, description = "A page, newest first.", body = WithdrawalList)),
)]
pub async fn list_withdrawals(parts: ListOf) -> Result<Answer, ApiError> {
    let (State(app), caller, mut query) = parts;
    let filters = WithdrawalFilters::read(&mut query);
    let filter = Condition::all().add_option(filters.status.map(|status| Column::Status.eq(status.as_str())));
    let (Page { limit, offset, .. }, Found { total, rows: withdrawals, next_cursor }) =
        page(&app, caller.psp_id, OutboundKind::Withdrawal, query, filter).await?;
    Answer::ok(&WithdrawalList { message: "Withdrawals", total, limit, offset, next_cursor, withdrawals })
}

/// Read a withdrawal
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/withdrawals/{withdrawal_id}", tag = "Money", operation_id = "getWithdrawal",
    params(("withdrawal_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "The withdrawal.", body = SendingRecord)),
)]
pub async fn get_withdrawal(parts: OneOf<Read>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    one(&app, caller.psp_id, OutboundKind::Withdrawal, &id).await
}
