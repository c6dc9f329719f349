//! `POST /payments/{payment_id}/refunds`, and how a refund is asked for wherever it can be.

use axum::extract::State;
use axum::response::Response;
use payferry_actors::destination::Unsuitable;
use payferry_domain::payment::{Command, Funds, Payment, Requester};
use payferry_domain::{Address, Amount, PaymentId, RefundId};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::RefundRecord;
use crate::http::answer::Answer;
use crate::http::auth::Money;
use crate::http::error::{ApiError, Problem};
use crate::http::extract::{Fault, Fields, Path, Submission, read};
use crate::http::payments::change::Change;
use crate::http::payments::own;
use crate::http::state::{AppState, Shared};

/// The field that says where money goes.
const ADDRESS: &str = "address";

/// A refund to be made.
#[derive(ToSchema)]
pub struct RefundRequest {
    /// A decimal string; all that can be refunded, if it is left out.
    #[schema(example = "10.00")]
    pub amount: Option<String>,
    /// Where it goes. May be left out only if the account's settings say `refund_to_sender` and one plain account sent
    /// everything.
    #[schema(example = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8")]
    pub address: Option<String>,
}

/// Refund a payment
///
/// Before its settlement a payment's money goes back from its wallet, afterwards from the account's own vault. What
/// becomes of it is told by `refund.sent` or `refund.failed`; what failed can be asked for again.
#[utoipa::path(
    post, path = "/payments/{payment_id}/refunds", tag = "Payments", operation_id = "refundPayment",
    request_body = RefundRequest,
    params(("payment_id" = String, Path, description = "As `initiate` answered it.")),
    responses(
        (status = 202, description = "The refund; its amount is reserved.", body = RefundRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
        (status = 409, description = "`refund_too_large`, `nothing_to_refund`, `payment_pending`, `settlement_in_progress`, \
            `funds_blocked`, `refund_spans_vaults`, `refund_must_be_all`, or `psp_paused`: the operator has paused the account.", body = Problem),
        (status = 422, description = "Every bad field is named; or `refund_address_required`.", body = Problem),
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
        let asked = RefundAsked::read(&fields, unsuitable);
        fields.finish(Some(asked))
    })?;
    let (id, refund_id): (PaymentId, _) = (row.id.parse().map_err(ApiError::internal)?, RefundId::generate());
    let answer = move |_: &Shared, payment: &Payment| Answer::accepted(&RefundRecord::find(payment, refund_id)?);
    asked.change(id, refund_id).carry_out(&app, &request, answer).await
}

/// Whether the address in `body`, if there is one, is none to send money to. Looked up before the fields are read, so that
/// every fault is named at once.
pub(in crate::http::payments) async fn unsuitable(app: &Shared, body: &Value) -> Result<Option<Unsuitable>, ApiError> {
    match body.get(ADDRESS).map(read::address) {
        Some(Ok(address)) => Ok(app.system.unsuitable(address).await?),
        _ => Ok(None),
    }
}

/// What a caller wants to have refunded.
pub(in crate::http::payments) struct RefundAsked {
    amount: Option<Amount>,
    to: Option<Address>,
}

impl RefundAsked {
    /// The names of the fields.
    pub const FIELDS: [&str; 2] = ["amount", ADDRESS];

    /// Reads the fields; `unsuitable` is what was found of the address.
    pub fn read(fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Self {
        let to = fields.optional(ADDRESS, read::address);
        if let Some(unsuitable) = unsuitable {
            fields.fault(ADDRESS, Fault::new(unsuitable.code(), unsuitable.to_string()));
        }
        Self { amount: fields.optional("amount", read::part), to }
    }

    /// The decision to refund so much.
    pub fn change(self, payment_id: PaymentId, refund_id: RefundId) -> Change {
        let Self { amount, to } = self;
        let (funds, by) = (Funds::Received, Requester::Psp);
        let command = Command::RequestRefund { refund_id, amount, to, funds, asset: None, by };
        let detail = json!({ "refund_id": refund_id });
        Change { payment_id, command, action: "payment.refund_requested", detail }
    }
}
