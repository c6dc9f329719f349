//! `POST /payments/{payment_id}/resolve`: the PSP's decision about mismatched money.

use axum::extract::State;
use axum::response::Response;
use payferry_actors::destination::Unsuitable;
use payferry_domain::payment::{Command, Payment, Requester};
use payferry_domain::{Amount, PaymentId, RefundId};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Money;
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::{Fault, Fields, Path, Submission, read};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::change::Change;
use super::refunds::request::{RefundFields, unsuitable};
use super::{PaymentRecord, own};
use crate::http::state::{AppState, Shared};

/// The field that belongs to `accept` only.
const EXPECTED_RECEIVED: &str = "expected_received";

/// The resolution of a payment.
#[derive(ToSchema)]
pub struct ResolveRequest {
    /// accept: settle what was received; refund: send it back; retry_settlement: retry a failed settlement at once.
    #[schema(example = "accept")]
    pub action: String,
    /// With `accept`: the amount that you believe was received. If it has changed, the request fails.
    #[schema(example = "9.50")]
    pub expected_received: Option<String>,
    /// With `refund`: the amount; everything refundable if absent.
    pub amount: Option<String>,
    /// With `refund`: the recipient; see the endpoint for refunds.
    pub address: Option<String>,
    /// With `refund`: for money on another chain; see the endpoint for refunds.
    pub chain: Option<String>,
    /// With `refund`: for money in another token; see the endpoint for refunds.
    pub token_address: Option<String>,
}

/// The requested resolution.
enum Action {
    Accept { expected_received: Option<Amount> },
    Refund(RefundFields),
    RetrySettlement,
}

/// Resolve a payment
///
/// `accept` confirms a mismatched payment for the received amount (200). `refund` does the same as the endpoint for
/// refunds (202). `retry_settlement` retries a failed settlement at once, before its next scheduled attempt (202).
#[utoipa::path(
    post, path = "/payments/{payment_id}/resolve", tag = "Payments", operation_id = "resolvePayment",
    request_body = ResolveRequest,
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "Accepted: the payment, confirmed.", body = PaymentRecord),
        (status = 202, description = "The payment; its refund or its settlement is in progress.", body = PaymentRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
        (status = 409, description = "`payment_not_mismatched`, `received_moved`, `nothing_to_accept`, `funds_blocked`, \
            `settlement_not_failed`, `settlement_in_progress`, or what the endpoint for refunds says.", body = Problem),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn resolve(
    State(app): State<AppState>,
    Path(payment_id): Path<String>,
    request: Submission<Money>,
) -> Result<Response, ApiError> {
    let row = own(&app, request.psp_id, &payment_id).await?;
    let body = request.json()?;
    let unsuitable = unsuitable(&app, &body).await?;
    let action = Fields::of_body(&body).and_then(|fields| {
        let action = action(&fields, unsuitable);
        fields.finish(action)
    })?;
    let payment_id: PaymentId = row.id.parse().map_err(ApiError::internal)?;
    let accepted = |app: &Shared, payment: &Payment| Answer::accepted(&PaymentRecord::of(app, payment));
    match action {
        Action::Accept { expected_received } => {
            let command = Command::Accept { expected_received };
            let accept = Change { payment_id, command, action: "payment.accepted", detail: json!({}) };
            let answer = |app: &Shared, payment: &Payment| Answer::ok(&PaymentRecord::of(app, payment));
            accept.carry_out(&app, &request, answer).await
        }
        Action::RetrySettlement => {
            let command = Command::RetrySettlement { by: Requester::Psp };
            let retry = Change { payment_id, command, action: "payment.settlement_retried", detail: json!({}) };
            retry.carry_out(&app, &request, accepted).await
        }
        Action::Refund(asked) => {
            let refund = asked.change(&app, &payferry_journal::payments::payment_of(&row)?, RefundId::generate())?;
            refund.carry_out(&app, &request, accepted).await
        }
    }
}

fn action(fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Option<Action> {
    let name = fields.required("action", |value: &Value| match read::string(value)? {
        name @ ("accept" | "refund" | "retry_settlement") => Ok(name),
        _ => Err(Fault::new("unknown_value", "must be one of accept, refund, retry_settlement")),
    });
    let expected_received = fields.optional(EXPECTED_RECEIVED, |value| read::decimal(value, Amount::MAX));
    let refund = RefundFields::read(fields, unsuitable);
    let name = name?;
    let belongs = |field: &str| match name {
        "accept" => field == EXPECTED_RECEIVED,
        "refund" => RefundFields::FIELDS.contains(&field),
        _ => false,
    };
    let known = RefundFields::FIELDS.into_iter().chain([EXPECTED_RECEIVED]);
    for field in known.filter(|field| fields.has(field) && !belongs(field)) {
        fields.fault(field, Fault::new("not_applicable", format!("is not allowed with the action {name}")));
    }
    match name {
        "accept" => Some(Action::Accept { expected_received }),
        "refund" => Some(Action::Refund(refund)),
        _ => Some(Action::RetrySettlement),
    }
}
