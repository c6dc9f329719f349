//! Refunds: `POST` and `GET /payments/{payment_id}/refunds`, `GET /payments/{payment_id}/refunds/{refund_id}`.
//!
//! They are part of their payment: creating one is one call to the payment's actor, and reading them reads the payment.
//! `GET /refunds` is in `refund_list`.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::payment::{
    Command, Decision, Funds, Payment, Refund, RefundFailure, RefundOrder, Requester, TransferToken,
};
use payferry_domain::{Address, Amount, Asset, Chain, RefundId, Token};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::extract::field::optional;
use payferry_httpkit::extract::{Field as _, RequestBody};
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::{
    Answer, ApiError, Away, Fault, Fields, Money, Path, Problem, QueryFields, Read, Submission, read, request, rule,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::change::Change;
use super::initiate::OwnFields;
use super::own;
use crate::http::money::outbound::check_reconciled;
use crate::http::state::{AppShared, ChangeOf, OneOf};

record! {
    /// The record of one of the payment's refunds.
    pub fn of(payment: &Payment, refund: &Refund) {
        let asset = refund.asset.unwrap_or_else(|| payment.asset());
        let failure_reason = refund.failure_reason();
    }

    /// A refund.
    #[derive(Debug)]
    pub struct RefundRecord {
        #[schema(example = "rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = refund.id.to_string(),
        /// The same as `id`.
        refund_id: String = refund.id.to_string(),
        payment_id: String = payment.terms.public_id(),
        /// pending_approval (above a limit: waits for the operator), pending, sent or failed. Only a failed refund can be
        /// requested again.
        status: &'static str = refund.public_status(),
        #[schema(example = "10.00")]
        amount: String = refund.amount.to_string(),
        /// USDC or USDT; null for a token that the service does not support.
        currency: Option<&'static str> = token_of(payment, asset).map(Token::as_str),
        chain: &'static str = asset.chain.as_str(),
        token_address: String = checksummed(asset.address),
        /// The recipient's address.
        address: String = checksummed(refund.to),
        /// payment or psp: taken from the payment's wallet or, once settled, from the PSP's vault.
        source: &'static str = refund.source.as_str(),
        /// received; misdirected (arrived in another token or on another chain); or blocked (by screening; only the
        /// operator can refund it).
        funds: &'static str = refund.funds.as_str(),
        /// psp, payer (who signed a request), operator, or schedule: the service itself, by the PSP's settings.
        requested_by: &'static str = refund.requested_by.as_str(),
        /// pending, allow, review or block: the screening result of the address. Nothing is sent before it is `allow`.
        kyt_verdict: &'static str = refund.decision().map_or("pending", Decision::as_str),
        /// The PSP's own reference of the refund.
        reference: Option<String> = refund.reference.clone(),
        /// As submitted.
        #[schema(value_type = Option<Object>, additional_properties)]
        metadata: Option<Map<String, Value>> = refund.metadata.clone(),
        /// Hash of the transaction, once sent.
        tx_hash: Option<String> = refund.tx_hash.map(|hash| hash.to_string()),
        /// address_blocked, not_approved or send_failed, while it is failed.
        failure_reason: Option<&'static str> = failure_reason.map(RefundFailure::as_str),
        /// The failure reason in words.
        failure: Option<String> = refund.failure.clone().filter(|_| failure_reason.is_some()),
        created_at: DateTime = refund.requested_at.into(),
        updated_at: DateTime = refund.updated_at().into(),
        /// The same as `created_at`.
        requested_at: DateTime = refund.requested_at.into(),
        /// When it was sent or failed.
        finished_at: Option<DateTime> = refund.finished_at.map(DateTime::from),
    }
}

impl RefundRecord {
    /// All refunds, in the order in which they were accepted.
    pub fn all(payment: &Payment) -> Vec<Self> {
        payment.refunds.iter().map(|refund| Self::of(payment, refund)).collect()
    }

    /// The refund with this id.
    pub fn find(payment: &Payment, id: RefundId) -> Result<Self, ApiError> {
        let refund = payment.refunds.iter().find(|refund| refund.id == id);
        refund.map(|refund| Self::of(payment, refund)).ok_or(ApiError::NotFound("refund"))
    }
}

/// The sender of the money, if the refund goes to it and the chain says that it is a plain account.
pub(in crate::http) async fn plain_recipient(
    app: &AppShared,
    payment: &Payment,
    asset: Option<Asset>,
    to: Option<Address>,
) -> Result<Option<Address>, ApiError> {
    let plain = app.system.plain_recipient(payment, asset, to).await;
    plain.map_err(|away| ApiError::Unavailable(Away::Chain, away.to_string().into()))
}

/// The token of an asset of the payment; `None` if it is not a supported one.
pub(in crate::http) fn token_of(payment: &Payment, asset: Asset) -> Option<Token> {
    if asset == payment.asset() {
        return Some(payment.terms.token);
    }
    let came = payment.transfers.iter().find(|transfer| payment.asset_of(transfer) == asset)?;
    match came.token {
        TransferToken::Other { token, .. } => Some(token),
        TransferToken::Right | TransferToken::LookAlike { .. } => None,
    }
}

/// The field with the recipient's address.
const ADDRESS: &str = "address";

request! {
    /// A refund to create.
    pub struct RefundRequest {
        ..own: OwnFields,
        /// A decimal string. If absent, everything in the payment's own wallet is refunded (before the settlement the whole
        /// amount, afterwards money that arrived later). If that wallet is empty, everything that can be refunded from the
        /// account's vault.
        amount: Option<Amount> = optional(rule::part()).example("10.00"),
        /// The recipient's address. Optional only if the account's settings have `refund_to_sender` and one plain account
        /// sent everything. An address in mixed case must match its EIP-55 checksum.
        address: Option<Address> =
            optional(rule::address()).example("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
        /// For money that arrived on another chain than the payment's: that chain.
        chain: Option<Chain> = optional(rule::name()).example("polygon"),
        /// For money that arrived in another token than the payment's: its contract. If absent, the payment's own token on
        /// `chain`.
        token_address: Option<Address> = optional(rule::address()),
    }
}

/// Refund a payment
///
/// Before the settlement, money is refunded from the payment's wallet, afterwards from the account's vault. The webhook
/// `refund.sent` or `refund.failed` reports the outcome. A failed refund can be requested again. A refund to the plain
/// account (not a contract) that sent all of the money is limited only by what was received. Refunds to other addresses
/// above `limits.refund_elsewhere_daily_max` of the settings, or a single one above `limits.send_max`, are
/// `pending_approval` until the operator approves them. One refund takes from one of the two sources. If there is money in both, two refunds return all of it. For money in another token or on
/// another chain, set `token_address` and `chain` as in its transfer. It is refunded from the same wallet on that
/// chain.
#[utoipa::path(
    post, path = "/payments/{payment_id}/refunds", tag = "Payments", operation_id = "refundPayment",
    request_body = RefundRequest,
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 202, description = "The refund; its amount is reserved.", body = RefundRecord),
        (status = 409, description = "`refund_too_large`, `nothing_to_refund`, `payment_pending`, `settlement_in_progress`, \
            `funds_blocked`, `refund_spans_vaults`, `refund_must_be_all`, `insufficient_balance`, or `psp_paused`: the \
            operator has paused the account.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `refund_address_required`.", body = Problem),
        (status = 503, description = "`chain_unavailable`: the chain did not say if the sender is a plain account; \
            `sending_unreconciled`: the operator must reconcile the chain first.", body = Problem),
    ),
)]
pub async fn request(parts: ChangeOf<Money>) -> Result<Response, ApiError> {
    let (State(app), Path(payment_id), request) = parts;
    let payment = own(&app, request.psp_id, &payment_id).await?;
    let asked = read_with_address(&app, &request, RefundRequest::read).await?;
    let refund_id = RefundId::generate();
    let answer = move |_: &AppShared, payment: &Payment| Answer::accepted(&RefundRecord::find(payment, refund_id)?);
    asked.change(&app, &payment, refund_id).await?.carry_out(&app, &request, answer).await
}

/// Reads the fields of the body with `read`. The address in it is checked before, so that every fault is reported at
/// once.
pub(super) async fn read_with_address<T>(
    app: &AppShared,
    request: &Submission<Money>,
    read: impl FnOnce(&Fields<'_>) -> Option<T>,
) -> Result<T, ApiError> {
    let body = request.json()?;
    let unsuitable = match body.get(ADDRESS).map(read::address) {
        Some(Ok(address)) => app.system.unsuitable(address).await?,
        _ => None,
    };
    let fields = Fields::of_body(body)?;
    if let Some(unsuitable) = unsuitable {
        fields.fault(ADDRESS, Fault::new(unsuitable.code(), unsuitable.to_string()));
    }
    let asked = read(&fields);
    fields.finish(asked)
}

impl RefundRequest {
    /// The decision to refund this amount of the payment's money. Asks the chain if the sender is a plain account.
    pub(super) async fn change(
        self,
        app: &AppShared,
        payment: &Payment,
        refund_id: RefundId,
    ) -> Result<Change, ApiError> {
        let asset = self.asset(app, payment)?;
        check_reconciled(app, asset.map_or(payment.terms.chain, |asset| asset.chain))?;
        let funds = if asset.is_some() { Funds::Misdirected } else { Funds::Received };
        let Self { own: OwnFields { metadata, reference }, amount, address: to, .. } = self;
        let plain = plain_recipient(app, payment, asset, to).await?;
        let order = RefundOrder::new(refund_id, Requester::Psp);
        let order = RefundOrder { amount, to, funds, asset, plain, reference, metadata, ..order };
        let command = Command::RequestRefund(Box::new(order));
        let detail = json!({ "refund_id": refund_id });
        Ok(Change {
            payment_id: payment.id(),
            command,
            action: "payment.refund_requested",
            detail,
            authorization: None,
        })
    }

    /// The token and the chain, if they are not the payment's own.
    fn asset(&self, app: &AppShared, payment: &Payment) -> Result<Option<Asset>, ApiError> {
        let terms = &payment.terms;
        if self.chain.is_none() && self.token_address.is_none() {
            return Ok(None);
        }
        let chain = self.chain.unwrap_or(terms.chain);
        let spec = app
            .system
            .chains()
            .spec(chain)
            .ok_or_else(|| ApiError::field("chain", "chain_unavailable", "is not available at the moment"))?;
        let address = self.token_address.or_else(|| spec.token_address(terms.token)).ok_or_else(|| {
            ApiError::field("token_address", "required", "is required: this chain does not have the payment's token")
        })?;
        Ok(Some(Asset { chain, address }).filter(|asset| *asset != payment.asset()))
    }
}

/// Refunds of one payment.
#[derive(Serialize, ToSchema)]
pub struct RefundList {
    message: &'static str,
    /// Number of refunds.
    total: usize,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// In the order in which they were accepted.
    refunds: Vec<RefundRecord>,
}

/// List the refunds of a payment
#[utoipa::path(
    get, path = "/payments/{payment_id}/refunds", tag = "Payments", operation_id = "listRefunds",
    params(
        ("payment_id" = String, Path, description = "The id from `initiate`."),
        PageParams,
    ),
    responses(
        (status = 200, description = "The refunds, including failed ones.", body = RefundList),
        (status = 404, description = "There is no payment with this id.", body = Problem),
    ),
)]
pub async fn list(parts: OneOf<Read>, query: QueryFields) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(payment_id)) = parts;
    let page = Page::read("payment_refunds", query)?;
    let all = RefundRecord::all(&own(&app, caller.psp_id, &payment_id).await?);
    let total = all.len();
    let bound = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    // Refunds are only appended, so their number before a page does not change.
    let first = page.after.unwrap_or(page.offset);
    let mut refunds: Vec<_> = all.into_iter().skip(bound(first)).take(bound(page.rows_max())).collect();
    let next_cursor = page.next_cursor(&mut refunds, |_| first + page.limit)?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&RefundList { message: "Refunds", total, limit, offset, next_cursor, refunds })
}

/// Read a refund
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/payments/{payment_id}/refunds/{refund_id}", tag = "Payments", operation_id = "getRefund",
    params(
        ("payment_id" = String, Path, description = "The id from `initiate`."),
        ("refund_id" = String, Path, description = "The id from the refund request."),
    ),
    responses(
        (status = 200, description = "The refund.", body = RefundRecord),
        (status = 404, description = "`payment_not_found` or `refund_not_found`.", body = Problem),
    ),
)]
pub async fn get(parts: OneOf<Read, (String, String)>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path((payment_id, refund_id))) = parts;
    let payment = own(&app, caller.psp_id, &payment_id).await?;
    let refund_id = refund_id.parse().map_err(|_| ApiError::NotFound("refund"))?;
    Answer::ok(&RefundRecord::find(&payment, refund_id)?)
}
