//! `/ops/payments`: operator decisions about a payment's money: transfers that screening flagged for review, refunds above
//! the limit, blocked money, transfers that were set aside, and failed settlements.
//!
//! Every decision has a reason and is recorded in the same commit (`carry_out`). Deliberately absent: decisions of the PSP (accept,
//! cancel, refund of received money).

pub(crate) mod aside;
mod carry_out;
pub(crate) mod page;
pub(crate) mod query;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use payferry_actors::destination::Unsuitable;
use payferry_domain::payment::Decision;
use payferry_domain::{Address, Amount, Asset, Chain, Hash32, PaymentId, RefundId};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::idempotency::{KEY_CHARS_MAX, is_key};
use payferry_httpkit::{
    Answer, ApiError, Fault, Fields, JsonBody, Path, Problem, RequestBody as _, Rule, read, request, rule,
};
use sea_orm::DbErr;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::Operator;
use crate::approvals::{self, Guarded, ProposedAction};
use crate::decisions::query as decisions;
use crate::decisions::query::{Decisions, DecisionsRecord};
use crate::input::{DECISION, payment_id_of, unknown};
use crate::page::form::Sort;

pub(crate) use carry_out::carry_out_approved;
pub(crate) use carry_out::{Action, DecisionRequest, carry_out};

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
        /// Allows or blocks the payer of an authorization.
        ScreenPayer = "screen_payer",
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
            Self::ScreenPayer => &[("decision", Sort::Text), ("reason", Sort::Text)],
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
    /// A decision about the payer of an authorization.
    pub struct ScreenPayerRequest refusing(unknown::<ScreenPayerRequest>) {
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

/// Description of the missing objects.
const NOT_FOUND: &str = "`payment_not_found`, `transfer_not_found`, `refund_not_found` or `authorization_not_found`.";

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
                (status = 404, description = NOT_FOUND, body = Problem),
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
    /// Allow or block the payer of an authorization
    screen_payer(ScreenPayer, ScreenPayerRequest)
    at "/ops/payments/{payment_id}/screen_payer" as "screenPayer",
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
        | DecisionKind::ScreenPayer
        | DecisionKind::ApproveRefund
        | DecisionKind::ApplySetAside => Answer::ok(&decisions),
    }
}

/// Reads the possible decisions about a payment, and the earlier ones.
pub(super) async fn find(operator: &Operator, id: PaymentId) -> Result<Decisions, ApiError> {
    decisions::decisions(&operator.system, id).await?.ok_or(ApiError::NotFound("payment"))
}

impl DecisionRequest {
    /// Reads the fields of a decision. `unsuitable` is the result of the check of its address.
    fn read(kind: DecisionKind, fields: &Fields<'_>, unsuitable: Option<Unsuitable>) -> Option<Self> {
        let (action, reason) = match kind {
            DecisionKind::Screen => {
                let ScreenRequest { chain, tx_hash, log_index, decision, reason } = ScreenRequest::read(fields)?;
                (Action::Screen { chain, tx_hash, log_index: log_index.try_into().ok()?, decision }, reason)
            }
            DecisionKind::ScreenRefund => {
                let ScreenRefundRequest { refund_id, decision, reason } = ScreenRefundRequest::read(fields)?;
                (Action::ScreenRefund { refund_id, decision }, reason)
            }
            DecisionKind::ScreenPayer => {
                let ScreenPayerRequest { decision, reason } = ScreenPayerRequest::read(fields)?;
                (Action::ScreenPayer { decision }, reason)
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
