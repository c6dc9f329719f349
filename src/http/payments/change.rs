//! A PSP's decisions about one of its payments: one command, one commit, one answer. `POST /payments/{payment_id}/cancel`
//! and `POST /payments/{payment_id}/resolve`; refunds are in `refunds`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use payferry_actors::pauses::Scope;
use payferry_actors::payment::ResultRows;
use payferry_domain::payment::{Command, Payment, Requester};
use payferry_domain::{Amount, CommandError, PaymentId, RefundId, named};
use payferry_entities::authorizations;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::extract::{Field as _, RequestBody as _};
use payferry_httpkit::{
    Answer, ApiError, Fault, Fields, Money, Path, Payments, Problem, Requires, Submission, read, request, rule,
};
use payferry_journal::audit::{Actor, NewAuditEntry};
use serde_json::{Value, json};

use super::refunds::{self, RefundRequest};
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
    /// Signature of the authorization that the command requests.
    pub authorization: Option<authorizations::Model>,
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
            let rows = ResultRows::from(kept).audited(entry, &Actor::ApiKey(request.key_id), app.clock().now());
            ResultRows { authorization: self.authorization.clone(), ..rows }
        };
        match app.system.command_or_hold(self.payment_id, self.command, rows).await {
            Ok(payment) => {
                let first = first.lock().take();
                Ok(first.map_or_else(|| answer(app, &payment), Ok)?.into_response())
            }
            Err(CommandError::IdempotencyKeyTaken) => request.idempotency.first_answer().await,
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
        (status = 409, description = "`payment_not_pending`, `transfer_recorded` or `authorization_in_progress`.", body = Problem),
    ),
)]
pub async fn cancel(parts: ChangeOf<Payments>) -> Result<Response, ApiError> {
    let (State(app), Path(payment_id), request) = parts;
    let payment_id = own(&app, request.psp_id, &payment_id).await?.id();
    let cancel = Change {
        payment_id,
        command: Command::Cancel,
        action: "payment.cancelled",
        detail: json!({}),
        authorization: None,
    };
    cancel.carry_out(&app, &request, ok).await
}

/// The field that belongs to `accept` only.
const EXPECTED_RECEIVED: &str = "expected_received";

named! {
    /// Decision about a payment.
    ResolveAction, "accept, refund, retry_settlement" {
        /// Settle what was received.
        Accept = "accept",
        /// Send it back.
        Refund = "refund",
        /// Retry a failed settlement at once.
        RetrySettlement = "retry_settlement",
    }
}

request! {
    /// The resolution of a payment. The fields of a refund are allowed with the action `refund` only.
    pub struct ResolveRequest {
        ..refund: RefundRequest,
        /// accept: settle what was received; refund: send it back; retry_settlement: retry a failed settlement at once.
        action: ResolveAction = required(rule::name()).example("accept"),
        /// With `accept`: the amount that you believe was received. If it has changed, the request fails.
        expected_received: Option<Amount> = optional(rule::amount_up_to::<{ i64::MAX }>()).example("9.50"),
    }
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
            `settlement_not_failed`, `settlement_in_progress`; with `refund`, also those of the endpoint for refunds: `refund_too_large`, \
            `nothing_to_refund`, `payment_pending`, `refund_spans_vaults`, `refund_must_be_all`, `insufficient_balance`, \
            `psp_paused`.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `refund_address_required`.", body = Problem),
    ),
)]
pub async fn resolve(parts: ChangeOf<Money>) -> Result<Response, ApiError> {
    let (State(app), Path(payment_id), request) = parts;
    let payment = own(&app, request.psp_id, &payment_id).await?;
    let asked = refunds::read_with_address(&app, &request, read_resolution).await?;
    let change =
        |command, action| Change { payment_id: payment.id(), command, action, detail: json!({}), authorization: None };
    match asked.action {
        ResolveAction::Accept => {
            let accept = Command::Accept { expected_received: asked.expected_received };
            let accept = change(accept, "payment.accepted");
            accept.carry_out(&app, &request, ok).await
        }
        ResolveAction::RetrySettlement => {
            let retry = change(Command::RetrySettlement { by: Requester::Psp }, "payment.settlement_retried");
            retry.carry_out(&app, &request, accepted).await
        }
        ResolveAction::Refund => {
            asked.refund.change(&app, &payment, RefundId::generate()).await?.carry_out(&app, &request, accepted).await
        }
    }
}

fn ok(app: &AppShared, payment: &Payment) -> Result<Answer, ApiError> {
    Answer::ok(&PaymentRecord::of(app, payment))
}

fn accepted(app: &AppShared, payment: &Payment) -> Result<Answer, ApiError> {
    Answer::accepted(&PaymentRecord::of(app, payment))
}

/// Reads a resolution. Refuses the fields of other actions.
fn read_resolution(fields: &Fields<'_>) -> Option<ResolveRequest> {
    let asked = ResolveRequest::read(fields);
    if let Some(action) = fields.valid("action", read::name::<ResolveAction>) {
        let refund = RefundRequest::names();
        let others = ResolveRequest::names().into_iter().filter(|name| match action {
            ResolveAction::Accept => refund.contains(name),
            ResolveAction::Refund => *name == EXPECTED_RECEIVED,
            ResolveAction::RetrySettlement => *name != "action",
        });
        for field in others.filter(|field| fields.has(field)) {
            fields.fault(field, Fault::new("not_applicable", format!("is not allowed with the action {action}")));
        }
    }
    asked
}
