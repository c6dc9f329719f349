//! Possible operator decisions about a payment. The domain decides which commands it would accept, so that this list
//! and the domain always agree.

use payferry_accounts::audit;
use payferry_actors::System;
use payferry_domain::payment::{
    Authorization, AuthorizationState, Command, Decision, Funds, Label, Payment, Refund, RefundOrder, Requester,
    Settlement, Transfer, TransferToken, Verdict, decide,
};
use payferry_domain::{Address, Amount, Asset, PaymentId, RefundId, Timestamp, Token};
use payferry_entities::StoreError;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;
use payferry_httpkit::lists::DateTime;
use serde::Serialize;
use utoipa::ToSchema;

use crate::audit::AuditRecord;
use crate::decisions::aside::{self, SetAsideLine};

/// Provider name in an operator's verdict.
const OPERATOR: &str = "operator";

/// Action that an operator can take on a payment now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Possible {
    /// `screen`, `screen_refund`, `screen_payer`, `approve_refund`, `refund_blocked`, `retry_settlement`, `take_in` or `release`.
    pub action: &'static str,
    /// Path of the POST request.
    pub path: String,
}

/// State of a payment for operator decisions.
pub(crate) struct Decisions {
    pub(crate) payment: Payment,
    /// Transfers that are not listed because the list is full. They are not counted until they are applied.
    pub(crate) set_aside: Vec<SetAsideLine>,
    pub(crate) can: Vec<Possible>,
    /// Audit log, oldest first.
    pub(crate) history: Vec<audit::AuditEntry>,
    now: Timestamp,
}

/// Blocked money of one token on one chain.
#[derive(Serialize, ToSchema)]
pub(crate) struct BlockedLine {
    pub(crate) chain: &'static str,
    /// Token, if it is one that payments expect on any chain.
    pub(crate) currency: Option<&'static str>,
    pub(crate) amount: String,
    /// Token contract, if the token is not the expected one. The decision must then name the contract and the chain.
    pub(crate) misdirected: Option<String>,
}

/// Reads the decisions about a payment. `None` if the id is unknown.
pub(crate) async fn decisions(system: &System, id: PaymentId) -> Result<Option<Decisions>, StoreError> {
    let database = system.database();
    let Some(payment) = payferry_journal::payments::load(database, id).await? else { return Ok(None) };
    let history = audit::of_subject(database.reader(), id.to_string()).await?;
    let now = system.clock().now();
    let set_aside = aside::of_payment(system, id).await?;
    let can = possible_of_all(system, &payment, &set_aside, now);
    Ok(Some(Decisions { payment, set_aside, can, history, now }))
}

record! {
    /// The state in a response.
    pub(crate) fn of(decisions: Decisions) {
        let payment = &decisions.payment;
        let (terms, now) = (&payment.terms, decisions.now);
    }

    /// The decisions about the money of a payment.
    pub struct DecisionsRecord {
        /// The id of the payment.
        id: String = terms.id.to_string(),
        /// The same as `id`.
        payment_id: String = terms.id.to_string(),
        psp_id: String = terms.psp_id.to_string(),
        /// pending, confirmed, settled, mismatched or failed.
        status: &'static str = payment.status.as_str(),
        labels: Vec<&'static str> = payment.labels.iter().map(Label::as_str).collect(),
        chain: &'static str = terms.chain.as_str(),
        /// USDC or USDT.
        currency: &'static str = terms.token.as_str(),
        /// Blocked funds in the wallet of the payment that were not sent back.
        blocked_held: String = payment.blocked_held().to_string(),
        /// The same by token and chain, with blocked money of other tokens and on other chains.
        blocked: Vec<BlockedLine> = decisions.blocked(),
        /// Transfers that are not listed because the list is full.
        set_aside: Vec<SetAsideLine> = decisions.set_aside.clone(),
        /// Every transfer, with its possible decisions.
        transfers: Vec<DecidableTransfer> =
            payment.transfers.iter().map(|one| DecidableTransfer::of(one, may(payment, one, now))).collect(),
        /// Refunds whose address is in screening or that wait for approval, each with its possible decisions.
        refunds: Vec<DecidableRefund> =
            held(payment).map(|one| DecidableRefund::of(one, may_refund(payment, one, now))).collect(),
        settlement: Option<SettlementState> = payment.settlement.as_deref().map(SettlementState::of),
        can: Vec<Possible> = decisions.can.clone(),
        /// Audit entries, oldest first.
        history: Vec<AuditRecord> = AuditRecord::all(decisions.history.clone()),
        created_at: DateTime = terms.created_at.into(),
        updated_at: DateTime = payment.updated_at.into(),
    }
}

record! {
    fn of(settlement: &Settlement) {}

    /// State of a settlement.
    pub struct SettlementState {
        /// queued, settled, failed or withdrawn.
        status: &'static str = settlement.state.as_str(),
        amount: String = settlement.amount.to_string(),
        /// Number of persistent failures.
        failures: u32 = settlement.failures,
        failure: Option<String> = settlement.failure.clone(),
        /// Time of the next automatic attempt.
        retry_at: Option<DateTime> = settlement.retry_at.map(DateTime::from),
    }
}

record! {
    fn of(transfer: &Transfer, may: Vec<Decision>) {}

    /// A transfer with its possible decisions.
    pub struct DecidableTransfer {
        chain: &'static str = transfer.key.chain.as_str(),
        tx_hash: String = transfer.key.tx_hash.to_string(),
        log_index: u32 = transfer.key.log_index,
        from: String = checksummed(transfer.from),
        amount: String = transfer.amount.to_string(),
        /// seen, final, orphaned or ignored.
        status: &'static str = transfer.status.as_str(),
        #[serde(flatten)]
        screening: ScreeningRecord = ScreeningRecord::of(transfer.verdict.as_deref()),
        /// Possible decisions: allow, block.
        may: Vec<&'static str> = may.into_iter().map(Decision::as_str).collect(),
    }
}

record! {
    fn of(refund: &Refund, may: Vec<Decision>) {}

    /// A refund with its possible decisions.
    pub struct DecidableRefund {
        refund_id: String = refund.id.to_string(),
        amount: String = refund.amount.to_string(),
        address: String = checksummed(refund.to),
        #[serde(flatten)]
        screening: ScreeningRecord = ScreeningRecord::of(refund.verdict.as_deref()),
        /// Possible decisions about its address: allow, block.
        may: Vec<&'static str> = may.into_iter().map(Decision::as_str).collect(),
        awaits_approval: bool = refund.awaits_approval(),
    }
}

record! {
    /// Screening of a transfer or an address. All fields are empty while screening has not answered.
    pub(crate) fn of(said: Option<&Verdict>) {}

    /// Result of screening. All fields are empty while screening has not answered.
    pub struct ScreeningRecord {
        /// allow, review or block.
        verdict: Option<&'static str> = said.map(|said| said.decision.as_str()),
        provider: Option<String> = said.map(|said| said.provider.clone()),
        /// Findings of the provider.
        flags: Vec<String> = said.map(|said| said.flags.clone()).unwrap_or_default(),
        checked_at: Option<DateTime> = said.map(|said| said.checked_at.into()),
    }
}

/// Action that applies transfers that were set aside.
pub(crate) fn apply_set_aside(id: PaymentId) -> Possible {
    Possible { action: "take_in", path: format!("/ops/payments/{id}/take_in") }
}

/// Possible actions on a payment, including its transfers that were set aside.
pub(crate) fn possible_of_all(
    system: &System,
    payment: &Payment,
    set_aside: &[SetAsideLine],
    now: Timestamp,
) -> Vec<Possible> {
    let mut can = possible(payment, now);
    can.extend(aside::may_be_applied(system, payment, set_aside).then(|| apply_set_aside(payment.id())));
    can
}

/// Possible actions on the listed transfers, refunds and settlement.
pub(crate) fn possible(payment: &Payment, now: Timestamp) -> Vec<Possible> {
    let path = |what: &str| format!("/ops/payments/{}/{what}", payment.id());
    let screen = payment.transfers.iter().any(|transfer| !may(payment, transfer, now).is_empty());
    let address = held(payment).any(|refund| !may_refund(payment, refund, now).is_empty());
    let can_refund =
        |asset| decide(payment, &refund_blocked(RefundId::generate(), None, SOMEWHERE, asset), now).is_ok();
    let assets = payment.blocked_misdirected().into_iter().map(|(asset, _)| Some(asset));
    let refund = std::iter::once(None).chain(assets).any(can_refund);
    let retry = decide(payment, &Command::RetrySettlement { by: Requester::Operator }, now).is_ok();
    let approve = payment.refunds.iter().any(Refund::awaits_approval);
    let payer = payer_in_review(payment).is_some();
    let all = [
        (screen, "screen"),
        (address, "screen_refund"),
        (payer, "screen_payer"),
        (approve, "approve_refund"),
        (refund, "refund_blocked"),
        (retry, "retry_settlement"),
    ];
    all.into_iter().filter(|(can, _)| *can).map(|(_, action)| Possible { action, path: path(action) }).collect()
}

/// Arbitrary address, to test if there is anything to send.
const SOMEWHERE: Address = Address([0x5e; 20]);

/// Command that sends blocked money back.
pub(crate) fn refund_blocked(
    refund_id: RefundId,
    amount: Option<Amount>,
    to: Address,
    asset: Option<Asset>,
) -> Command {
    let (to, funds) = (Some(to), Funds::Blocked);
    let order = RefundOrder { amount, to, funds, asset, ..RefundOrder::new(refund_id, Requester::Operator) };
    Command::RequestRefund(Box::new(order))
}

impl Decisions {
    /// The payment's refund with this id.
    pub(crate) fn refund(&self, id: RefundId) -> Result<&Refund, ApiError> {
        self.payment.refunds.iter().find(|refund| refund.id == id).ok_or(ApiError::NotFound("refund"))
    }

    /// Blocked money by token and chain.
    pub(crate) fn blocked(&self) -> Vec<BlockedLine> {
        let payment = &self.payment;
        let terms = &payment.terms;
        let due = Some(payment.blocked_held()).filter(|held| !held.is_zero()).map(|held| BlockedLine {
            chain: terms.chain.as_str(),
            currency: Some(terms.token.as_str()),
            amount: held.to_string(),
            misdirected: None,
        });
        let elsewhere = payment.blocked_misdirected().into_iter().map(|(asset, held)| {
            let of_it =
                payment.transfers.iter().find(|transfer| !transfer.is_right() && payment.asset_of(transfer) == asset);
            let token = of_it.and_then(|transfer| match transfer.token {
                TransferToken::Right => Some(terms.token),
                TransferToken::Other { token, .. } => Some(token),
                TransferToken::LookAlike { .. } => None,
            });
            BlockedLine {
                chain: asset.chain.as_str(),
                currency: token.map(Token::as_str),
                amount: held.to_string(),
                misdirected: Some(checksummed(asset.address)),
            }
        });
        due.into_iter().chain(elsewhere).collect()
    }
}

/// Possible decisions about a transfer: those that the domain would accept and that change something.
pub(crate) fn may(payment: &Payment, transfer: &Transfer, now: Timestamp) -> Vec<Decision> {
    let takes = |decision: &Decision| {
        let changes = decide(payment, &screen(transfer, *decision, now), now).is_ok_and(|events| !events.is_empty());
        changes && transfer.decision() != Some(*decision)
    };
    [Decision::Allow, Decision::Block].into_iter().filter(takes).collect()
}

/// Command that decides about a transfer. The findings of the provider are kept.
pub(crate) fn screen(transfer: &Transfer, decision: Decision, now: Timestamp) -> Command {
    let verdict = by_hand(transfer.verdict.as_deref(), decision, now);
    Command::ScreenTransfer { key: transfer.key, verdict }
}

/// Command that decides about the address of a refund.
pub(crate) fn screen_refund(refund: &Refund, decision: Decision, now: Timestamp) -> Command {
    let verdict = by_hand(refund.verdict.as_deref(), decision, now);
    Command::ScreenRefund { refund_id: refund.id, verdict }
}

/// Command that decides about the payer of an authorization.
pub(crate) fn screen_payer(authorization: &Authorization, decision: Decision, now: Timestamp) -> Command {
    let verdict = by_hand(authorization.verdict.as_deref(), decision, now);
    Command::ScreenAuthorization { operation: authorization.operation, verdict }
}

/// Authorization whose payer is in review.
pub(crate) fn payer_in_review(payment: &Payment) -> Option<&Authorization> {
    payment.authorization.as_deref().filter(|authorization| authorization.state == AuthorizationState::Review)
}

pub(crate) fn by_hand(said: Option<&Verdict>, decision: Decision, now: Timestamp) -> Verdict {
    Verdict {
        decision,
        by_operator: true,
        risk_level: said.and_then(|said| said.risk_level.clone()),
        score: said.and_then(|said| said.score),
        flags: said.map(|said| said.flags.clone()).unwrap_or_default(),
        provider: OPERATOR.to_owned(),
        provider_ref: None,
        list_version: None,
        plain_sender: said.and_then(|said| said.plain_sender),
        checked_at: now,
    }
}

/// Refunds whose address is in screening or that wait for approval.
pub(crate) fn held(payment: &Payment) -> impl Iterator<Item = &Refund> {
    payment.refunds.iter().filter(|refund| refund.awaits_screening() || refund.awaits_approval())
}

/// Possible decisions about the address of a refund.
pub(crate) fn may_refund(payment: &Payment, refund: &Refund, now: Timestamp) -> Vec<Decision> {
    let takes = |decision: &Decision| {
        decide(payment, &screen_refund(refund, *decision, now), now).is_ok_and(|events| !events.is_empty())
    };
    [Decision::Allow, Decision::Block].into_iter().filter(takes).collect()
}
