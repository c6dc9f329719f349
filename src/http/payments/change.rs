//! A PSP's decisions about one of its payments: one command, one commit, one answer. `POST /payments/{payment_id}/cancel`
//! and `POST /payments/{payment_id}/resolve`; refunds are in `refunds`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use payferry_actors::destination::Unsuitable;
use payferry_actors::pauses::Scope;
use payferry_actors::payment::ResultRows;
use payferry_domain::payment::{Command, Payment, Requester};
use payferry_domain::{Amount, CommandError, PaymentId, RefundId};
use payferry_httpkit::{Answer, ApiError, Fault, Fields, Money, Path, Payments, Problem, Requires, Submission, read};
use payferry_journal::audit::{Actor, NewAuditEntry};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::refunds::{self, RefundFields};
use super::{PaymentRecord, own};
use crate::http::state::{AppShared, AppState, ChangeOf};

/// A decision.
pub(super) struct Change {
    pub payment_id: PaymentId,
    pub command: Command,
    /// Action in the audit log.
    pub action: &'static str,
    /// Details in the audit log. Never personal data.
    pub detail: Value,
}

impl Change {
    /// Sends the command to the payment's actor, unless the command sends money and the operator has paused the
    /// account. A refund above a limit waits for the operator's approval. Returns `answer` of the committed payment, which the idempotency key also stores.
    pub async fn carry_out<S: Requires>(
        self,
        app: &AppState,
        request: &Submission<S>,
        answer: impl Fn(&AppShared, &Payment) -> Result<Answer, ApiError> + Clone + Send + Sync + 'static,
    ) -> Result<Response, ApiError> {
        let is_money_out = matches!(self.command, Command::RequestRefund(_));
        if is_money_out && app.system.pauses().is_paused(Scope::Psp(request.psp_id)) {
            return Err(ApiError::psp_paused());
        }
        let first: Arc<Mutex<Option<Answer>>> = Arc::default();
        let rows = || {
            let (made, make, state) = (first.clone(), answer.clone(), app.clone());
            let kept = request.idempotency.row_of(move |payment| {
                let answer = make(&state, payment)?;
                *made.lock() = Some(answer.clone());
                Ok(answer)
            });
            let entry = NewAuditEntry {
                action: self.action.to_owned(),
                psp_id: Some(request.psp_id),
                subject: self.payment_id.to_string(),
                detail: self.detail.clone(),
            };
            ResultRows::from(kept).audited(entry, &Actor::ApiKey(request.key_id), app.clock().now())
        };
        match app.system.command_or_hold(self.payment_id, self.command, rows).await {
            Ok(payment) => {
                let first = first.lock().take();
                Ok(first.map_or_else(|| answer(app, &payment), Ok)?.into_response())
            }
            Err(CommandError::IdempotencyKeyTaken) => request.idempotency.first_answer(app).await,
            Err(error) => Err(error.into()),
        }
    }
}

/// Cancel a payment
///
/// Only a pending payment without a recorded transfer can be cancelled. Money that arrives later makes it mismatched,
/// and can be refunded.
#[utoipa::path(
    post, path = "/payments/{payment_id}/cancel", tag = "Payments", operation_id = "cancelPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "The payment, failed with the reason `cancelled`.", body = PaymentRecord),
        (status = 409, description = "`payment_not_pending` or `transfer_recorded`.", body = Problem),
    ),
)]
pub async fn cancel(parts: ChangeOf<Payments>) -> Result<Response, ApiError> {
    let (State(app), Path(payment_id), request) = parts;
    let payment_id = own(&app, request.psp_id, &payment_id).await?.id();
    let cancel = Change { payment_id, command: Command::Cancel, action: "payment.cancelled", detail: json!({}) };
    cancel.carry_out(&app, &request, ok).await
}

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
    /// With `refund`: the PSP's own reference of the refund.
    #[schema(max_length = 255)]
    pub reference: Option<String>,
    /// With `refund`: the PSP's own object; see the endpoint for refunds.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
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
        (status = 409, description = "`payment_not_mismatched`, `received_moved`, `nothing_to_accept`, `funds_blocked`, \
            `settlement_not_failed`, `settlement_in_progress`, or what the endpoint for refunds says.", body = Problem),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn resolve(parts: ChangeOf<Money>) -> Result<Response, ApiError> {
    let (State(app), Path(payment_id), request) = parts;
    let payment = own(&app, request.psp_id, &payment_id).await?;
    let action = refunds::read_with_address(&app, &request, action).await?;
    let change = |command, action| Change { payment_id: payment.id(), command, action, detail: json!({}) };
    match action {
        Action::Accept { expected_received } => {
            let accept = change(Command::Accept { expected_received }, "payment.accepted");
            accept.carry_out(&app, &request, ok).await
        }
        Action::RetrySettlement => {
            let retry = change(Command::RetrySettlement { by: Requester::Psp }, "payment.settlement_retried");
            retry.carry_out(&app, &request, accepted).await
        }
        Action::Refund(asked) => {
            asked.change(&app, &payment, RefundId::generate()).await?.carry_out(&app, &request, accepted).await
        }
    }
}

fn ok(app: &AppShared, payment: &Payment) -> Result<Answer, ApiError> {
    Answer::ok(&PaymentRecord::of(app, payment))
}

fn accepted(app: &AppShared, payment: &Payment) -> Result<Answer, ApiError> {
    Answer::accepted(&PaymentRecord::of(app, payment))
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
