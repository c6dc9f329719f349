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
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::idempotency::{KEY_CHARS_MAX, is_key};
use payferry_httpkit::{
    Answer, ApiError, Fault, Fields, JsonBody, Path, Problem, RequestBody as _, Rule, read, request, rule,
};
use payferry_journal::audit::{Actor, NewAuditEntry};
use sea_orm::DbErr;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ulid::Ulid;
use utoipa::ToSchema;

use crate::Operator;
use crate::actors::quarantine::quarantined;
use crate::approvals::action::ApprovalAction;
use crate::approvals::store::Proposal;
use crate::approvals::{self, Guarded, ProposedAction};
use crate::decisions::query as decisions;
use crate::decisions::query::{Decisions, DecisionsRecord};
use crate::input::{DECISION, payment_id_of, unknown};
use crate::page::form::Sort;

/// Maximum number of transfers that one decision applies, because all of them are written in one commit.
const APPLIED_AT_ONCE_MAX: u64 = 100;
/// Field with the destination address.
const ADDRESS: &str = "address";

/// Read the decisions about a payment
///
/// Returns the record itself: the possible decisions, and the earlier ones.
#[utoipa::path(
    get, path = "/ops/payments/{payment_id}", tag = "Money", operation_id = "getDecisions",
    params(("payment_id" = String, Path, description = PAYMENT_ID)),
    responses((status = 200, description = "The decisions.", body = DecisionsRecord)),
)]
pub(super) async fn get(operator: Operator, Path(payment_id): Path<String>) -> Result<Answer, ApiError> {
    Answer::ok(&DecisionsRecord::of(find(&operator, payment_id_of(&payment_id)?).await?))
}

/// Description of the payment in the path.
const PAYMENT_ID: &str = "The id of the payment, or of the transfer to a customer.";

payferry_domain::named! {
    /// Kind of a decision, and the last segment of its path.
    DecisionKind, "a decision about a payment" {
        /// Allows or blocks a transfer.
        Screen = "screen",
        /// Allows or blocks the address of a refund.
        ScreenRefund = "screen_refund",
        /// Approves or rejects a refund above the limit.
        ApproveRefund = "approve_refund",
        /// Sends blocked money to an address.
        RefundBlocked = "refund_blocked",
        /// Retries a failed settlement now.
        RetrySettlement = "retry_settlement",
        /// Applies transfers that were set aside, the largest first.
        ApplySetAside = "take_in",
    }
}

impl DecisionKind {
    /// Fields of the form of the decision.
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

request! {
    /// A decision about a transfer.
    pub struct ScreenRequest refusing(unknown::<ScreenRequest>) {
        chain: Chain = required(rule::name()),
        tx_hash: Hash32 = required(rule::hash()),
        log_index: i64 = required(rule::whole::<0, { u32::MAX as i64 }>()),
        /// `allow` or `block`.
        decision: Decision = required(DECISION),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

request! {
    /// A decision about the address of a refund.
    pub struct ScreenRefundRequest refusing(unknown::<ScreenRefundRequest>) {
        refund_id: RefundId = required(rule::id()),
        /// `allow` or `block`.
        decision: Decision = required(DECISION),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

request! {
    /// A decision about a refund above the limit.
    pub struct ApproveRefundRequest refusing(unknown::<ApproveRefundRequest>) {
        refund_id: RefundId = required(rule::id()),
        /// `approve` or `reject`.
        decision: bool = required(IS_APPROVED),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

request! {
    /// Blocked money to send.
    pub struct RefundBlockedRequest refusing(unknown::<RefundBlockedRequest>) {
        /// For a token or chain other than the expected one: the chain of the money. Together with `token_address`.
        chain: Option<Chain> = optional(rule::name()),
        /// The contract of the token. Together with `chain`.
        token_address: Option<Address> = optional(rule::address()),
        /// Destination.
        address: Address = required(rule::address()),
        /// Everything if absent.
        amount: Option<Amount> = optional(rule::part()).example("10.00"),
        /// A repeated request with the same key is the same refund.
        idempotency_key: Option<String> = optional(IDEMPOTENCY_KEY).example("case-17"),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

request! {
    /// A decision that needs only a reason.
    pub struct ReasonRequest refusing(unknown::<ReasonRequest>) {
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

/// `approve` or `reject`.
const IS_APPROVED: Rule<bool> = Rule {
    read: |value| word(&[("approve", true), ("reject", false)], value),
    schema: || rule::one_of(["approve", "reject"]),
};

/// An idempotency key with the same format as the header.
const IDEMPOTENCY_KEY: Rule<String> = Rule {
    read: |value| {
        let key = read::string(value)?;
        let malformed = || Fault::new("invalid_key", format!("must be 1 to {KEY_CHARS_MAX} visible ASCII characters"));
        if is_key(key) { Ok(key.to_owned()) } else { Err(malformed()) }
    },
    schema: || rule::string().min_length(Some(1)).max_length(Some(KEY_CHARS_MAX)).pattern(Some("^[!-~]+$")),
};

/// Description of the conflicts.
const CONFLICT: &str = "The domain refuses it: `payment_pending`, `settlement_in_progress`, `settlement_not_failed`, \
    `funds_blocked`, `nothing_to_refund`, `refund_too_large`, `refund_spans_vaults`, `refund_must_be_all`, `refund_exists`, \
    `not_awaiting_approval`, `not_in_review`, `nothing_set_aside` or `list_full`; or `payment_quarantined`, or \
    `approval_open`.";

/// Response to a decision that may need a second operator.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "it describes either response")]
pub enum GuardedDecision {
    /// It is carried out.
    CarriedOut(DecisionsRecord),
    /// It waits for approval.
    Proposed(ProposedAction),
}

/// Declares the handler of a decision.
macro_rules! decision {
    (
        $(#[doc = $about:literal])*
        $handler:ident($kind:ident, $request:ident) at $path:literal as $name:literal,
        $($status:literal = $body:ident)|+
    ) => {
        $(#[doc = $about])*
        #[utoipa::path(
            post, path = $path, tag = "Money", operation_id = $name, request_body = $request,
            params(("payment_id" = String, Path, description = PAYMENT_ID)),
            responses(
                $((status = $status, description = "Done, or waiting for approval.", body = $body),)+
                (status = 404, description = "`payment_not_found`, `transfer_not_found` or `refund_not_found`.", body = Problem),
                (status = 409, description = CONFLICT, body = Problem),
                (status = 422, description = "Invalid fields, all named; or `refund_address_invalid`.", body = Problem),
            ),
        )]
        pub(super) async fn $handler(
            operator: Operator,
            Path(payment_id): Path<String>,
            body: JsonBody,
        ) -> Result<Answer, ApiError> {
            decide(&operator, &payment_id, DecisionKind::$kind, &body).await
        }
    };
}

decision! {
    /// Allow or block a transfer
    screen(Screen, ScreenRequest) at "/ops/payments/{payment_id}/screen" as "screenTransfer",
    200 = DecisionsRecord
}

decision! {
    /// Allow or block the address of a refund
    screen_refund(ScreenRefund, ScreenRefundRequest)
    at "/ops/payments/{payment_id}/screen_refund" as "screenRefund",
    200 = DecisionsRecord
}

decision! {
    /// Approve or reject a refund above the limit
    approve_refund(ApproveRefund, ApproveRefundRequest)
    at "/ops/payments/{payment_id}/approve_refund" as "approveRefund",
    200 = DecisionsRecord | 202 = ProposedAction
}

decision! {
    /// Send blocked money to an address
    refund_blocked(RefundBlocked, RefundBlockedRequest)
    at "/ops/payments/{payment_id}/refund_blocked" as "refundBlockedMoney",
    202 = GuardedDecision
}

decision! {
    /// Retry a failed settlement now
    retry_settlement(RetrySettlement, ReasonRequest)
    at "/ops/payments/{payment_id}/retry_settlement" as "retrySettlement",
    202 = DecisionsRecord
}

decision! {
    /// Apply the transfers that were set aside
    ///
    /// The largest first.
    apply_set_aside(ApplySetAside, ReasonRequest)
    at "/ops/payments/{payment_id}/take_in" as "applySetAside",
    200 = DecisionsRecord
}

/// Carries out a decision.
async fn decide(
    operator: &Operator,
    payment_id: &str,
    kind: DecisionKind,
    body: &JsonBody,
) -> Result<Answer, ApiError> {
    let id = payment_id_of(payment_id)?;
    let unsuitable = kind.unsuitable(operator, body.value()).await?;
    let request = body.read(|fields| DecisionRequest::read(kind, fields, unsuitable))?;
    let decisions = match carry_out(operator, id, request).await? {
        Guarded::CarriedOut(decisions) => DecisionsRecord::of(decisions),
        Guarded::Proposed(approval) => return approvals::proposed(operator, &approval),
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
        let (action, reason) = match kind {
            DecisionKind::Screen => {
                let ScreenRequest { chain, tx_hash, log_index, decision, reason } = ScreenRequest::read(fields)?;
                let key = TransferKey { chain, tx_hash, log_index: log_index.try_into().ok()? };
                (Action::Screen { key, decision }, reason)
            }
            DecisionKind::ScreenRefund => {
                let ScreenRefundRequest { refund_id, decision, reason } = ScreenRefundRequest::read(fields)?;
                (Action::ScreenRefund { refund_id, decision }, reason)
            }
            DecisionKind::ApproveRefund => {
                let ApproveRefundRequest { refund_id, decision, reason } = ApproveRefundRequest::read(fields)?;
                (Action::ApproveRefund { refund_id, approve: decision }, reason)
            }
            DecisionKind::RefundBlocked => refund(fields, unsuitable)?,
            DecisionKind::RetrySettlement => (Action::RetrySettlement, ReasonRequest::read(fields)?.reason),
            DecisionKind::ApplySetAside => (Action::ApplySetAside, ReasonRequest::read(fields)?.reason),
        };
        Some(Self { action, reason })
    }
}

/// Reads a refund of blocked money and its reason.
fn refund(fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Option<(Action, String)> {
    let asked = RefundBlockedRequest::read(fields);
    for (name, other) in [("chain", "token_address"), ("token_address", "chain")] {
        if !fields.has(name) && fields.has(other) {
            fields.fault(name, Fault::new("required", format!("is required together with {other}")));
        }
    }
    if let Some(unsuitable) = unsuitable {
        fields.fault(ADDRESS, Fault::new(unsuitable.code(), unsuitable.to_string()));
    }
    let RefundBlockedRequest { chain, token_address, address: to, amount, idempotency_key: key, reason } = asked?;
    let asset = chain.zip(token_address).map(|(chain, address)| Asset { chain, address });
    Some((Action::RefundBlocked { to, amount, asset, key }, reason))
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
