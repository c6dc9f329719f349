//! A PSP's decision about one of its payments: one command, one commit, one answer.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use payferry_actors::CommandError;
use payferry_actors::pauses::Scope;
use payferry_actors::payment::ResultRows;
use payferry_domain::PaymentId;
use payferry_domain::payment::{Command, Payment};
use payferry_httpkit::Answer;
use payferry_httpkit::caller::Requires;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::Submission;
use payferry_journal::audit::{Actor, Entry};
use serde_json::Value;

use crate::http::state::{AppState, Shared};

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
    /// account. Returns `answer` of the committed payment, which the idempotency key also stores.
    pub async fn carry_out<S: Requires>(
        self,
        app: &AppState,
        request: &Submission<S>,
        answer: impl Fn(&Shared, &Payment) -> Result<Answer, ApiError> + Clone + Send + Sync + 'static,
    ) -> Result<Response, ApiError> {
        let is_money_out = matches!(self.command, Command::RequestRefund { .. });
        if is_money_out && app.system.pauses().is_paused(Scope::Psp(request.psp_id)) {
            return Err(ApiError::psp_paused());
        }
        let first: Arc<Mutex<Option<Answer>>> = Arc::default();
        let (made, make, state) = (first.clone(), answer.clone(), app.clone());
        let kept = request.idempotency.row_of(move |payment| {
            let answer = make(&state, payment)?;
            *made.lock() = Some(answer.clone());
            Ok(answer)
        });
        let entry = Entry {
            action: self.action.to_owned(),
            psp_id: Some(request.psp_id),
            subject: self.payment_id.to_string(),
            detail: self.detail,
        };
        let result_rows = ResultRows::from(kept).audited(entry, &Actor::ApiKey(request.key_id), app.clock().now());
        match app.system.command(self.payment_id, self.command, result_rows).await {
            Ok(payment) => {
                let first = first.lock().take();
                Ok(first.map_or_else(|| answer(app, &payment), Ok)?.into_response())
            }
            Err(CommandError::IdempotencyKeyTaken) => request.idempotency.first_answer(app).await,
            Err(error) => Err(error.into()),
        }
    }
}
