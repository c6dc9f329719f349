//! Common parts of payouts and withdrawals: the record, the list, and the order.

use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use payferry_actors::pauses::Scope;
use payferry_actors::{OrderError, OutboundOrder};
use payferry_domain::outbound::{OutboundId, OutboundKind, OutboundStatus, OutboundTransfer};
use payferry_domain::payment::Decision;
use payferry_domain::{Amount, Chain, PspId, Token};
use payferry_entities::sendings::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Money;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fields, QueryFields, Submission, read};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::Instrument;
use utoipa::ToSchema;

use super::payee;
use crate::http::payments::initiate::{METADATA_BYTES_MAX, METADATA_LEVELS_MAX};
use crate::http::state::{AppState, Shared};

/// An outbound transfer from the account's vault.
#[derive(Debug, Serialize, ToSchema)]
pub struct SendingRecord {
    /// `po_` for a payout, `wd_` for a withdrawal; `payment_id` in webhooks.
    #[schema(example = "po_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    id: String,
    /// pending, sent or failed. `sent` means final on the chain.
    status: &'static str,
    /// The recipient; null for a withdrawal.
    customer_id: Option<String>,
    reference: Option<String>,
    #[schema(example = "25.00")]
    amount: String,
    currency: &'static str,
    chain: &'static str,
    token_address: String,
    /// The recipient's address when the order was accepted.
    address: String,
    /// pending, allow, review or block: the screening result of the address. Nothing is sent before it is `allow`.
    kyt_verdict: &'static str,
    /// Hash of the transaction, once sent.
    tx_hash: Option<String>,
    /// address_blocked, customer_not_cleared or send_failed.
    failure_reason: Option<&'static str>,
    /// The failure reason in words.
    failure: Option<String>,
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    #[schema(format = "date-time")]
    created_at: String,
    /// When it was sent or failed.
    #[schema(format = "date-time")]
    finished_at: Option<String>,
}

impl SendingRecord {
    /// The current record of an outbound transfer.
    pub fn of(outbound: &OutboundTransfer) -> Self {
        let order = &outbound.order;
        Self {
            id: order.id.to_string(),
            status: outbound.status.as_str(),
            customer_id: order.customer_id.map(|id| id.to_string()),
            reference: order.reference.clone(),
            amount: order.amount.to_string(),
            currency: order.token.as_str(),
            chain: order.asset.chain.as_str(),
            token_address: checksummed(order.asset.address),
            address: checksummed(order.to),
            kyt_verdict: outbound.decision().map_or("pending", Decision::as_str),
            tx_hash: outbound.tx_hash.map(|hash| hash.to_string()),
            failure_reason: outbound.failure_reason.map(payferry_domain::outbound::FailureReason::as_str),
            failure: outbound.failure.clone(),
            metadata: order.metadata.clone(),
            created_at: order.created_at.to_string(),
            finished_at: outbound.finished_at.map(|at| at.to_string()),
        }
    }
}

/// A page of outbound transfers, newest first.
pub(super) struct OutboundPage {
    pub total: u64,
    pub limit: u64,
    pub offset: u64,
    pub records: Vec<SendingRecord>,
}

/// The fields that both kinds of order have.
pub(super) struct OrderRequest {
    pub amount: Amount,
    pub token: Token,
    pub chain: Chain,
    pub reference: Option<String>,
    pub metadata: Option<Map<String, Value>>,
}

impl OrderRequest {
    /// Reads the fields.
    pub fn read(body: &Fields<'_>) -> Option<Self> {
        let amount = body.required("amount", read::part);
        let token = body.required("currency", |value| read::name(value, "USDC, USDT"));
        let chain = body.required("chain", |value| read::name(value, "base, polygon, arbitrum"));
        let metadata = metadata(body);
        let reference = body.optional("reference", read::text);
        Some(Self { amount: amount?, token: token?, chain: chain?, reference, metadata })
    }
}

/// Reads the PSP's own object.
pub(super) fn metadata(body: &Fields<'_>) -> Option<Map<String, Value>> {
    body.optional("metadata", |value| read::object(value, METADATA_BYTES_MAX, METADATA_LEVELS_MAX))
}

/// Refuses new orders of a paused account.
pub(super) fn check_open(app: &Shared, psp_id: PspId) -> Result<(), ApiError> {
    if app.system.pauses().is_paused(Scope::Psp(psp_id)) { Err(ApiError::psp_paused()) } else { Ok(()) }
}

/// Submits an order. Answers 202 with the record, which the idempotency key also stores.
pub(super) async fn order(
    app: &AppState,
    request: &Submission<Money>,
    mut order: OutboundOrder,
) -> Result<Response, ApiError> {
    payee::check_suitable(app, order.to).await?;
    order.answer = request.idempotency.row_of(|outbound| Answer::accepted(&SendingRecord::of(outbound)));
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
        Err(OrderError::IdempotencyKeyTaken) => request.idempotency.first_answer(app).await,
        Err(error) => Err(error.into()),
    }
}

/// Answers one outbound transfer of the account.
pub(super) async fn one(app: &Shared, psp_id: PspId, kind: OutboundKind, id: &str) -> Result<Answer, ApiError> {
    let not_found = || ApiError::NotFound(kind.as_str());
    let id: OutboundId = id.parse().map_err(|_| not_found())?;
    let row = Entity::find_by_id(id.to_string())
        .filter(Column::PspId.eq(psp_id.to_string()))
        .filter(Column::Kind.eq(kind.as_str()))
        .one(app.database().reader())
        .await?;
    Answer::ok(&SendingRecord::of(&payferry_journal::outbound::outbound_of(&row.ok_or_else(not_found)?)?))
}

/// Reads a page of the account's outbound transfers, newest first.
pub(super) async fn list(app: &Shared, psp_id: PspId, kind: OutboundKind, uri: &Uri) -> Result<OutboundPage, ApiError> {
    let mut query = QueryFields::of(uri);
    let mut wanted = Entity::find().filter(Column::PspId.eq(psp_id.to_string())).filter(Column::Kind.eq(kind.as_str()));
    let statuses = "pending, sent, failed";
    if let Some(status) = query.optional("status", |text| read::name::<OutboundStatus>(&text.into(), statuses)) {
        wanted = wanted.filter(Column::Status.eq(status.as_str()));
    }
    let page = query.page();
    query.finish()?;
    let reader = app.database().reader();
    let total = wanted.clone().count(reader).await?;
    let newest = wanted.order_by_desc(Column::CreatedAt).order_by_desc(Column::Id);
    let rows = newest.limit(page.limit).offset(page.offset).all(reader).await?;
    let record = |row: &Model| Ok(SendingRecord::of(&payferry_journal::outbound::outbound_of(row)?));
    let records = rows.iter().map(record).collect::<Result<_, ApiError>>()?;
    Ok(OutboundPage { total, limit: page.limit, offset: page.offset, records })
}
