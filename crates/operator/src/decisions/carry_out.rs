//! Carrying out an operator's decision: the command to the payment, with its audit entry in the same commit; or a proposal, if
//! the decision needs a second operator.

use payferry_actors::payment::ResultRows;
use payferry_domain::payment::{self, Command, Decision, Event, Payment, Rejection, Requester, TransferKey};
use payferry_domain::{Address, Amount, Asset, Chain, CommandError, Hash32, PaymentId, RefundId, Timestamp};
use payferry_httpkit::ApiError;
use payferry_journal::audit::{Actor, NewAuditEntry};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ulid::Ulid;

use super::find;
use crate::Operator;
use crate::actors::quarantine::quarantined;
use crate::approvals::action::ApprovalAction;
use crate::approvals::store::Proposal;
use crate::approvals::{self, Guarded};
use crate::decisions::query as decisions;
use crate::decisions::query::Decisions;

/// Maximum number of transfers that one decision applies, because all of them are written in one commit.
const APPLIED_AT_ONCE_MAX: u64 = 100;

/// Decision of an operator, with its reason.
pub(crate) struct DecisionRequest {
    pub(crate) action: Action,
    pub(crate) reason: String,
}

pub(crate) enum Action {
    Screen { chain: Chain, tx_hash: Hash32, log_index: u32, decision: Decision },
    ScreenRefund { refund_id: RefundId, decision: Decision },
    ScreenPayer { decision: Decision },
    ApproveRefund { refund_id: RefundId, approve: bool },
    RefundBlocked { to: Address, amount: Option<Amount>, asset: Option<Asset>, key: Option<String> },
    RetrySettlement,
    ApplySetAside,
}

/// Carries out a decision for the operator, or proposes it if it needs a second one. Used by the API and the page. Returns
/// the state of the payment afterwards.
pub(crate) async fn carry_out(
    operator: &Operator,
    id: PaymentId,
    request: DecisionRequest,
) -> Result<Guarded<Decisions>, ApiError> {
    if operator.config.four_eyes {
        let before = find(operator, id).await?;
        if let Some((action, subject_state)) = guarded(&before, &request.action, operator.system.clock().now())? {
            let (psp_id, reason) = (before.payment.terms.psp_id, Some(request.reason));
            let proposal = Proposal { action, psp_id, subject_state, reason };
            return Ok(Guarded::Proposed(approvals::propose(operator, proposal).await?));
        }
    }
    Ok(Guarded::CarriedOut(apply(operator, id, request).await?))
}

/// The decision as an action that needs a second operator, with the state that it depends on. `None` if it needs none, or
/// if it repeats a refund that exists and changes nothing. A decision that the domain rejects is an error at once.
fn guarded(before: &Decisions, action: &Action, now: Timestamp) -> Result<Option<(ApprovalAction, Value)>, ApiError> {
    let payment_id = before.payment.id();
    match action {
        &Action::ApproveRefund { refund_id, approve: true } => {
            let state = approvals::action::refund_state(before, refund_id)?;
            decide_now(before, &Command::DecideRefund { refund_id, approve: true }, now)?;
            Ok(Some((ApprovalAction::ApproveRefund { payment_id, refund_id }, state)))
        }
        Action::RefundBlocked { to, amount, asset, key } => {
            let idempotency_key = key.clone().unwrap_or_else(|| next_refund(before));
            let command = blocked_refund(before, *to, *amount, *asset, &idempotency_key).1;
            let events = decide_now(before, &command, now)?;
            let requested = events.iter().find_map(|event| match event {
                Event::RefundRequested { refund, .. } => Some(refund.amount),
                _ => None,
            });
            let Some(amount) = requested else { return Ok(None) };
            let asset = asset.unwrap_or_else(|| before.payment.asset());
            let action = ApprovalAction::RefundBlocked { payment_id, address: *to, amount, asset, idempotency_key };
            Ok(Some((action, approvals::action::blocked_state(before))))
        }
        _ => Ok(None),
    }
}

/// Result of a command if it ran now.
fn decide_now(before: &Decisions, command: &Command, now: Timestamp) -> Result<Vec<Event>, ApiError> {
    payment::decide(&before.payment, command, now)
        .map_err(|rejection| refused(CommandError::Rejected(rejection), before.payment.id()))
}

/// Carries out an approved decision. A repetition changes nothing.
pub(crate) async fn carry_out_approved(
    operator: &Operator,
    approved: &ApprovalAction,
    reason: String,
) -> Result<(), ApiError> {
    let (id, action) = match approved {
        ApprovalAction::ApproveRefund { payment_id, refund_id } => {
            let before = find(operator, *payment_id).await?;
            if before.refund(*refund_id)?.approved_at.is_some() {
                return Ok(());
            }
            (*payment_id, Action::ApproveRefund { refund_id: *refund_id, approve: true })
        }
        ApprovalAction::RefundBlocked { payment_id, address, amount, asset, idempotency_key } => {
            let (amount, asset, key) = (Some(*amount), Some(*asset), Some(idempotency_key.clone()));
            (*payment_id, Action::RefundBlocked { to: *address, amount, asset, key })
        }
        other => return Err(ApiError::internal(format!("{} is no decision about a payment", other.kind()))),
    };
    apply(operator, id, DecisionRequest { action, reason }).await.map(drop)
}

/// Id and command of a refund of blocked money.
fn blocked_refund(
    before: &Decisions,
    to: Address,
    amount: Option<Amount>,
    asset: Option<Asset>,
    key: &str,
) -> (RefundId, Command) {
    let refund_id = refund_under(before.payment.id(), key);
    let asset = asset.filter(|asset| *asset != before.payment.asset());
    (refund_id, decisions::refund_blocked(refund_id, amount, to, asset))
}

/// Carries out a decision. Returns the state of the payment afterwards.
async fn apply(operator: &Operator, id: PaymentId, request: DecisionRequest) -> Result<Decisions, ApiError> {
    let system = &operator.system;
    let now = system.clock().now();
    let before = find(operator, id).await?;
    let DecisionRequest { action, reason } = request;
    let (name, command, mut detail) = match action {
        Action::Screen { chain, tx_hash, log_index, decision } => {
            let is_meant = |key: TransferKey| (key.chain, key.tx_hash, key.log_index) == (chain, tx_hash, log_index);
            // Of several blocks, the one that is in the chain.
            let meant = before.payment.transfers.iter().filter(|transfer| is_meant(transfer.key));
            let transfer = meant.max_by_key(|transfer| transfer.is_present()).ok_or(ApiError::NotFound("transfer"))?;
            let detail = json!({ "chain": chain, "tx_hash": tx_hash, "log_index": log_index, "decision": decision });
            ("payment.transfer_screened_by_hand", decisions::screen(transfer, decision, now), detail)
        }
        Action::ScreenRefund { refund_id, decision } => {
            let refund = before.refund(refund_id)?;
            let detail = json!({ "refund_id": refund_id, "decision": decision });
            ("payment.refund_screened_by_hand", decisions::screen_refund(refund, decision, now), detail)
        }
        Action::ScreenPayer { decision } => {
            let authorization = before.payment.authorization.as_deref().ok_or(ApiError::NotFound("authorization"))?;
            let detail = json!({ "attempt": authorization.attempt, "decision": decision });
            ("payment.payer_screened_by_hand", decisions::screen_payer(authorization, decision, now), detail)
        }
        Action::ApproveRefund { refund_id, approve } => {
            let refund = before.refund(refund_id)?;
            let detail = json!({ "refund_id": refund_id, "amount": refund.amount.to_string() });
            let name = if approve { "payment.refund_approved" } else { "payment.refund_rejected" };
            (name, Command::DecideRefund { refund_id, approve }, detail)
        }
        Action::RefundBlocked { to, amount, asset, key } => {
            let key = key.unwrap_or_else(|| next_refund(&before));
            let (refund_id, command) = blocked_refund(&before, to, amount, asset, &key);
            ("payment.blocked_money_refunded", command, json!({ "refund_id": refund_id }))
        }
        Action::RetrySettlement => {
            ("payment.settlement_retried", Command::RetrySettlement { by: Requester::Operator }, json!({}))
        }
        Action::ApplySetAside => {
            let observed = system.set_aside(id, APPLIED_AT_ONCE_MAX).await?;
            let detail = json!({ "transfers_max": observed.len() });
            ("payment.set_aside_taken_in", Command::TakeIn { observed }, detail)
        }
    };
    detail["reason"] = json!(reason);
    let entry = NewAuditEntry {
        action: name.to_owned(),
        psp_id: Some(before.payment.terms.psp_id),
        subject: id.to_string(),
        detail,
    };
    let carried_out = system.command(id, command, ResultRows::default().audited(entry, &Actor::Operator, now)).await;
    let _: Payment = carried_out.map_err(|error| refused(error, id))?;
    tracing::info!(payment.id = %id, decision = name, "operator decided about payment {id}: {name}");
    find(operator, id).await
}

/// Error of a decision that was not carried out.
fn refused(error: CommandError<Rejection>, id: PaymentId) -> ApiError {
    match error {
        CommandError::Quarantined => quarantined(id),
        CommandError::Rejected(rejection @ Rejection::RefundExists) => {
            let detail = "Another refund of this payment was asked for under the same idempotency_key, or since this page was \
                          read: look at the payment before you ask for more.";
            ApiError::Conflict(rejection.code(), detail.to_owned(), Vec::new())
        }
        other => other.into(),
    }
}

/// Key of a refund without an idempotency key: derived from the next refund after those that are listed. Until that
/// refund is listed, a repeated request means the same one.
pub(super) fn next_refund(decisions: &Decisions) -> String {
    format!("after-{}", decisions.payment.refunds.len())
}

/// Id of the refund of a payment under a key. The same payment and key always give the same id; other payments or keys
/// give another id, except with negligible probability.
fn refund_under(payment: PaymentId, key: &str) -> RefundId {
    let digest = Sha256::new().chain_update(b"payferry refund v1").chain_update(payment.to_bytes()).chain_update(key);
    let random = digest.finalize().iter().take(10).fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
    RefundId::from_ulid(Ulid::from_parts(payment.ulid().timestamp_ms(), random))
}

#[cfg(test)]
mod tests {
    use super::*;
    use payferry_domain::OperationId;

    #[test]
    fn a_key_identifies_one_refund_of_one_payment() {
        let (payment, other) = (PaymentId::generate(), PaymentId::generate());
        let refund = refund_under(payment, "case-17");
        assert_eq!(refund, refund_under(payment, "case-17"));
        assert_ne!(refund, refund_under(payment, "case-18"));
        assert_ne!(refund, refund_under(other, "case-17"));
        // A client cannot choose a key so that the refund gets the id of another movement of money.
        for key in [payment.ulid().to_string(), other.ulid().to_string(), refund.to_string()] {
            let operation = OperationId::refund_of(refund_under(payment, &key));
            let others = [payment, other].map(OperationId::settlement_of);
            assert!(!others.contains(&operation) && operation != OperationId::refund_of(refund), "{key}");
        }
        assert_eq!(refund.ulid().timestamp_ms(), payment.ulid().timestamp_ms());
    }
}
