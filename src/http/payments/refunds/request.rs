//! `POST /payments/{payment_id}/refunds`, and the reading of refund requests for other endpoints.

use axum::extract::State;
use axum::response::Response;
use payferry_actors::destination::Unsuitable;
use payferry_domain::payment::{Command, Funds, Payment, Requester};
use payferry_domain::{Address, Amount, Asset, Chain, RefundId};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Money;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Fault, Fields, Path, Submission, read};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::RefundRecord;
use crate::http::payments::change::Change;
use crate::http::payments::own;
use crate::http::state::{AppState, Shared};

/// The field with the recipient's address.
const ADDRESS: &str = "address";

/// A refund to create.
#[derive(ToSchema)]
pub struct RefundRequest {
    /// A decimal string. If absent, everything in the payment's own wallet is refunded (before the settlement the whole
    /// amount, afterwards money that arrived later). If that wallet is empty, everything that can be refunded from the
    /// account's vault.
    #[schema(example = "10.00")]
    pub amount: Option<String>,
    /// The recipient's address. Optional only if the account's settings have `refund_to_sender` and one plain account
    /// sent everything.
    #[schema(example = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8")]
    pub address: Option<String>,
    /// For money that arrived on another chain than the payment's: that chain. base, polygon or arbitrum.
    #[schema(example = "polygon")]
    pub chain: Option<String>,
    /// For money that arrived in another token than the payment's: its contract. If absent, the payment's own token on
    /// `chain`.
    pub token_address: Option<String>,
}

/// Refund a payment
///
/// Before the settlement, money is refunded from the payment's wallet, afterwards from the account's vault. The webhook
/// `refund.sent` or `refund.failed` reports the outcome. A failed refund can be requested again. One refund takes from
/// one of the two sources. If there is money in both, two refunds return all of it. For money in another token or on
/// another chain, set `token_address` and `chain` as in its transfer. It is refunded from the same wallet on that
/// chain.
#[utoipa::path(
    post, path = "/payments/{payment_id}/refunds", tag = "Payments", operation_id = "refundPayment",
    request_body = RefundRequest,
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 202, description = "The refund; its amount is reserved.", body = RefundRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
        (status = 409, description = "`refund_too_large`, `nothing_to_refund`, `payment_pending`, `settlement_in_progress`, \
            `funds_blocked`, `refund_spans_vaults`, `refund_must_be_all`, `insufficient_balance`, `above_send_limit`, \
            `above_daily_limit`, or `psp_paused`: the operator has paused the account.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `refund_address_required`.", body = Problem),
    ),
)]
pub async fn request(
    State(app): State<AppState>,
    Path(payment_id): Path<String>,
    request: Submission<Money>,
) -> Result<Response, ApiError> {
    let row = own(&app, request.psp_id, &payment_id).await?;
    let body = request.json()?;
    let unsuitable = unsuitable(&app, &body).await?;
    let asked = Fields::of_body(&body).and_then(|fields| {
        let asked = RefundFields::read(&fields, unsuitable);
        fields.finish(Some(asked))
    })?;
    let refund_id = RefundId::generate();
    let answer = move |_: &Shared, payment: &Payment| Answer::accepted(&RefundRecord::find(payment, refund_id)?);
    asked
        .change(&app, &payferry_journal::payments::payment_of(&row)?, refund_id)?
        .carry_out(&app, &request, answer)
        .await
}

/// Checks the address in `body`, if there is one. This happens before the fields are read, so that every fault is
/// reported at once.
pub(in crate::http::payments) async fn unsuitable(app: &Shared, body: &Value) -> Result<Option<Unsuitable>, ApiError> {
    match body.get(ADDRESS).map(read::address) {
        Some(Ok(address)) => Ok(app.system.unsuitable(address).await?),
        _ => Ok(None),
    }
}

/// The fields of a refund request.
pub(in crate::http::payments) struct RefundFields {
    amount: Option<Amount>,
    to: Option<Address>,
    chain: Option<Chain>,
    token_address: Option<Address>,
}

impl RefundFields {
    /// The names of the fields.
    pub const FIELDS: [&str; 4] = ["amount", ADDRESS, "chain", "token_address"];

    /// Reads the fields. `unsuitable` is the result of checking the address.
    pub fn read(fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Self {
        let to = fields.optional(ADDRESS, read::address);
        if let Some(unsuitable) = unsuitable {
            fields.fault(ADDRESS, Fault::new(unsuitable.code(), unsuitable.to_string()));
        }
        let chain = fields.optional("chain", |value| read::name(value, "base, polygon, arbitrum"));
        let token_address = fields.optional("token_address", read::address);
        Self { amount: fields.optional("amount", read::part), to, chain, token_address }
    }

    /// The decision to refund this amount of the payment's money.
    pub fn change(self, app: &Shared, payment: &Payment, refund_id: RefundId) -> Result<Change, ApiError> {
        let asset = self.asset(app, payment)?;
        let funds = if asset.is_some() { Funds::Misdirected } else { Funds::Received };
        let Self { amount, to, .. } = self;
        let command = Command::RequestRefund { refund_id, amount, to, funds, asset, by: Requester::Psp };
        let detail = json!({ "refund_id": refund_id });
        Ok(Change { payment_id: payment.id(), command, action: "payment.refund_requested", detail })
    }

    /// The token and the chain, if they are not the payment's own.
    fn asset(&self, app: &Shared, payment: &Payment) -> Result<Option<Asset>, ApiError> {
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
