//! `/ops/payments`: operator decisions about a payment's money: transfers that screening flagged for review, refunds above
//! the limit, blocked money, transfers that were set aside, and failed settlements.
//!
//! Every decision has a reason and is recorded in the same commit. Deliberately absent: decisions of the PSP (accept,
//! cancel, refund of received money).

pub(crate) mod aside;
pub(crate) mod page;
pub(crate) mod query;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use payferry_actors::destination::Unsuitable;
use payferry_actors::payment::ResultRows;
use payferry_domain::payment::{self, Command, Decision, Event, Payment, Rejection, Requester, TransferKey};
use payferry_domain::{Address, Amount, Asset, Chain, CommandError, Hash32, PaymentId, RefundId, Timestamp};
use payferry_httpkit::idempotency::{KEY_CHARS_MAX, is_key};
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, read};
use payferry_journal::audit::{Actor, NewAuditEntry};
use sea_orm::DbErr;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ulid::Ulid;

use crate::Operator;
use crate::actors::quarantine::quarantined;
use crate::approvals::action::ApprovalAction;
use crate::approvals::store::Proposal;
use crate::approvals::{self, Guarded};
use crate::decisions::query as decisions;
use crate::decisions::query::Decisions;
use crate::input::{only, payment_id_of};
use crate::page::form::{Sort, names};

/// Maximum number of transfers that one decision applies, because all of them are written in one commit.
const APPLIED_AT_ONCE_MAX: u64 = 100;
/// Field with the destination address.
const ADDRESS: &str = "address";

/// Returns the possible decisions about a payment, and the earlier ones.
pub(super) async fn get(operator: Operator, Path(payment_id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&find(&operator, payment_id_of(&payment_id)?).await?.record())
}

payferry_domain::named! {
    /// Kind of a decision, and the last segment of its path.
    DecisionKind, "a decision about a payment" {
        /// Allows or blocks a transfer: `{"chain", "tx_hash", "log_index", "decision": "allow" | "block", "reason"}`.
        Screen = "screen",
        /// Allows or blocks the address of a refund: `{"refund_id", "decision": "allow" | "block", "reason"}`.
        ScreenRefund = "screen_refund",
        /// Approves or rejects a refund above the limit: `{"refund_id", "decision": "approve" | "reject", "reason"}`.
        ApproveRefund = "approve_refund",
        /// Sends blocked money to an address: `{"address", "amount"?, "idempotency_key"?, "reason"}`. Without an
        /// amount, sends everything. For a token or chain other than the expected one, `"chain"` and `"token_address"`
        /// select the money. A repeated request with the same key is the same refund.
        RefundBlocked = "refund_blocked",
        /// Retries a failed settlement now: `{"reason"}`.
        RetrySettlement = "retry_settlement",
        /// Applies transfers that were set aside, the largest first: `{"reason"}`.
        ApplySetAside = "take_in",
    }
}

impl DecisionKind {
    /// Fields of the decision, in the API and in the form.
    fn fields(self) -> &'static [(&'static str, Sort)] {
        match self {
            Self::Screen => &[
                ("chain", Sort::Text),
                ("tx_hash", Sort::Text),
                ("log_index", Sort::Whole),
                ("decision", Sort::Text),
                ("reason", Sort::Text),
            ],
            Self::ScreenRefund | Self::ApproveRefund => {
                &[("refund_id", Sort::Text), ("decision", Sort::Text), ("reason", Sort::Text)]
            }
            Self::RefundBlocked => &[
                ("chain", Sort::Text),
                ("token_address", Sort::Text),
                (ADDRESS, Sort::Text),
                ("amount", Sort::Text),
                ("idempotency_key", Sort::Text),
                ("reason", Sort::Text),
            ],
            Self::RetrySettlement | Self::ApplySetAside => &[("reason", Sort::Text)],
        }
    }
}

impl<S: Sync> FromRequestParts<S> for DecisionKind {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let segment = parts.uri.path().rsplit('/').next().unwrap_or_default();
        segment.parse().map_err(ApiError::internal)
    }
}

/// Carries out a decision.
pub(super) async fn decide(
    operator: Operator,
    Path(payment_id): Path<String>,
    kind: DecisionKind,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let id = payment_id_of(&payment_id)?;
    let unsuitable = kind.unsuitable(&operator, body.value()).await?;
    let request = body.read(|fields| DecisionRequest::read(kind, fields, unsuitable))?;
    let decisions = match carry_out(&operator, id, request).await? {
        Guarded::CarriedOut(decisions) => decisions.record(),
        Guarded::Proposed(approval) => return approvals::proposed(&operator, &approval),
    };
    match kind {
        DecisionKind::RefundBlocked | DecisionKind::RetrySettlement => Answer::accepted(&decisions),
        DecisionKind::Screen
        | DecisionKind::ScreenRefund
        | DecisionKind::ApproveRefund
        | DecisionKind::ApplySetAside => Answer::ok(&decisions),
    }
}

/// Reads the possible decisions about a payment, and the earlier ones.
pub(super) async fn find(operator: &Operator, id: PaymentId) -> Result<Decisions, ApiError> {
    decisions::decisions(&operator.system, id).await?.ok_or(ApiError::NotFound("payment"))
}

/// Decision of an operator, with its reason.
pub(super) struct DecisionRequest {
    action: Action,
    reason: String,
}

enum Action {
    Screen { key: TransferKey, decision: Decision },
    ScreenRefund { refund_id: RefundId, decision: Decision },
    ApproveRefund { refund_id: RefundId, approve: bool },
    RefundBlocked { to: Address, amount: Option<Amount>, asset: Option<Asset>, key: Option<String> },
    RetrySettlement,
    ApplySetAside,
}

impl DecisionRequest {
    /// Reads the fields of a decision. `unsuitable` is the result of the check of its address.
    fn read(kind: DecisionKind, fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Option<Self> {
        only(fields, &names(kind.fields()));
        let action = match kind {
            DecisionKind::Screen => screening(fields),
            DecisionKind::ScreenRefund => {
                let refund_id = fields.required("refund_id", read::id);
                let decision = fields.required("decision", decision);
                refund_id.zip(decision).map(|(refund_id, decision)| Action::ScreenRefund { refund_id, decision })
            }
            DecisionKind::ApproveRefund => {
                let refund_id = fields.required("refund_id", read::id);
                let approve = fields.required("decision", approval);
                refund_id.zip(approve).map(|(refund_id, approve)| Action::ApproveRefund { refund_id, approve })
            }
            DecisionKind::RefundBlocked => refund(fields, unsuitable),
            DecisionKind::RetrySettlement => Some(Action::RetrySettlement),
            DecisionKind::ApplySetAside => Some(Action::ApplySetAside),
        };
        let reason = fields.required("reason", read::text);
        Some(Self { action: action?, reason: reason? })
    }
}

/// Reads the fields of a decision about a transfer.
fn screening(fields: &Fields<'_>) -> Option<Action> {
    let chain = fields.required("chain", read::name::<Chain>);
    let tx_hash = fields.required("tx_hash", |value| {
        let malformed = |_| Fault::new("invalid_hash", "must be 0x and 64 hexadecimal digits");
        read::string(value)?.parse::<Hash32>().map_err(malformed)
    });
    let log_index = fields.required("log_index", |value| read::whole(value, 0, u32::MAX.into()));
    let decision = fields.required("decision", decision);
    let key = TransferKey { chain: chain?, tx_hash: tx_hash?, log_index: log_index.and_then(|at| at.try_into().ok())? };
    Some(Action::Screen { key, decision: decision? })
}

/// Reads the fields of a refund of blocked money.
fn refund(fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Option<Action> {
    let chain = fields.optional("chain", read::name::<Chain>);
    let token_address = fields.optional("token_address", read::address);
    for (name, other) in [("chain", "token_address"), ("token_address", "chain")] {
        if !fields.has(name) && fields.has(other) {
            fields.fault(name, Fault::new("required", format!("is required together with {other}")));
        }
    }
    let to = fields.required(ADDRESS, read::address);
    if let Some(unsuitable) = unsuitable {
        fields.fault(ADDRESS, Fault::new(unsuitable.code(), unsuitable.to_string()));
    }
    let amount = fields.optional("amount", read::part);
    let key = fields.optional("idempotency_key", idempotency_key);
    let asset = chain.zip(token_address).map(|(chain, address)| Asset { chain, address });
    Some(Action::RefundBlocked { to: to?, amount, asset, key })
}

/// Reads `allow` or `block`.
pub(super) fn decision(value: &Value) -> Result<Decision, Fault> {
    match read::string(value)? {
        "allow" => Ok(Decision::Allow),
        "block" => Ok(Decision::Block),
        _ => Err(Fault::new("unknown_value", "must be one of allow, block")),
    }
}

/// Reads `approve` or `reject`.
fn approval(value: &Value) -> Result<bool, Fault> {
    match read::string(value)? {
        "approve" => Ok(true),
        "reject" => Ok(false),
        _ => Err(Fault::new("unknown_value", "must be one of approve, reject")),
    }
}

/// Reads an idempotency key with the same format as the header.
fn idempotency_key(value: &Value) -> Result<String, Fault> {
    let key = read::string(value)?;
    let malformed = || Fault::new("invalid_key", format!("must be 1 to {KEY_CHARS_MAX} visible ASCII characters"));
    if is_key(key) { Ok(key.to_owned()) } else { Err(malformed()) }
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

impl DecisionKind {
    /// Reason why money must not be sent to the destination address in the body, if it has a valid one.
    async fn unsuitable(self, operator: &Operator, body: &Value) -> Result<Option<Unsuitable>, DbErr> {
        let to = body.get(ADDRESS).filter(|_| self == Self::RefundBlocked).and_then(|to| read::address(to).ok());
        match to {
            Some(to) => operator.system.unsuitable(to).await,
            None => Ok(None),
        }
    }
}

/// Carries out a decision for the operator, or proposes it if it needs a second one. Used by the API and the page. Returns
/// the state of the payment afterwards.
pub(super) async fn carry_out(
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
pub(super) async fn carry_out_approved(
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
        Action::Screen { key, decision } => {
            let transfer = before.payment.transfer(key).ok_or(ApiError::NotFound("transfer"))?;
            let TransferKey { chain, tx_hash, log_index } = key;
            let detail = json!({ "chain": chain, "tx_hash": tx_hash, "log_index": log_index, "decision": decision });
            ("payment.transfer_screened_by_hand", decisions::screen(transfer, decision, now), detail)
        }
        Action::ScreenRefund { refund_id, decision } => {
            let refund = before.refund(refund_id)?;
            let detail = json!({ "refund_id": refund_id, "decision": decision });
            ("payment.refund_screened_by_hand", decisions::screen_refund(refund, decision, now), detail)
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
