//! The actions that need a second operator, as values: their subject, role, wording and execution.

use payferry_accounts::operators::OperatorRole;
use payferry_accounts::tenants::{self, LimitChange, PspRecord};
use payferry_domain::ledger::Asset;
use payferry_domain::{Address, Amount, ApprovalId, Chain, PaymentId, PspId, RefundId, Timestamp};
use payferry_entities::Transaction;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;
use payferry_journal::psps::wallets::{self, WalletState};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::approvals::store::{Approval, Outcome, finish};
use crate::decisions::query::Decisions;
use crate::input::tenant_failure;
use crate::psps::withdrawal::{self, EVERY_CHAIN, NONE, WithdrawalWalletError};
use crate::{Operator, decisions, psps};

/// An action that needs a second operator if `[operators] four_eyes` is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ApprovalAction {
    /// Sends blocked money to an address.
    RefundBlocked { payment_id: PaymentId, address: Address, amount: Amount, asset: Asset, idempotency_key: String },
    /// Approves a refund above the PSP's limit.
    ApproveRefund { payment_id: PaymentId, refund_id: RefundId },
    /// Raises limits of a PSP.
    RaiseLimits { psp_id: PspId, limits: LimitChange },
    /// Sets or removes a withdrawal wallet.
    WithdrawalWallet { psp_id: PspId, chain: Option<Chain>, address: Option<Address> },
}

impl ApprovalAction {
    /// Name of the kind, as in the JSON.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::RefundBlocked { .. } => "refund_blocked",
            Self::ApproveRefund { .. } => "approve_refund",
            Self::RaiseLimits { .. } => "raise_limits",
            Self::WithdrawalWallet { .. } => "withdrawal_wallet",
        }
    }

    /// Role that approves it: the one that may carry it out without four eyes.
    pub(crate) const fn role(&self) -> OperatorRole {
        match self {
            Self::RefundBlocked { .. } | Self::ApproveRefund { .. } => OperatorRole::Operator,
            Self::RaiseLimits { .. } | Self::WithdrawalWallet { .. } => OperatorRole::Admin,
        }
    }

    /// Key of the subject. There is at most one open approval of a subject.
    pub(crate) fn key(&self) -> String {
        let kind = self.kind();
        match self {
            Self::RefundBlocked { payment_id, idempotency_key, .. } => format!("{kind}:{payment_id}:{idempotency_key}"),
            Self::ApproveRefund { refund_id, .. } => format!("{kind}:{refund_id}"),
            Self::RaiseLimits { psp_id, .. } => format!("{kind}:{psp_id}"),
            Self::WithdrawalWallet { psp_id, chain, .. } => format!("{kind}:{psp_id}:{}", on(*chain)),
        }
    }

    /// The payment that the action concerns, if it concerns one.
    pub(crate) const fn payment(&self) -> Option<PaymentId> {
        match self {
            Self::RefundBlocked { payment_id, .. } | Self::ApproveRefund { payment_id, .. } => Some(*payment_id),
            Self::RaiseLimits { .. } | Self::WithdrawalWallet { .. } => None,
        }
    }

    /// The action in a response and in the audit log.
    pub(crate) fn shown(&self) -> Value {
        match self {
            Self::RefundBlocked { address, amount, asset, idempotency_key, .. } => json!({
                "address": checksummed(*address),
                "amount": amount.to_string(),
                "chain": asset.chain,
                "token_address": checksummed(asset.address),
                "idempotency_key": idempotency_key,
            }),
            Self::ApproveRefund { refund_id, .. } => json!({ "refund_id": refund_id }),
            Self::RaiseLimits { limits, .. } => json!(limits),
            Self::WithdrawalWallet { chain, address, .. } => json!({
                "chain": on(*chain),
                "address": address.map_or_else(|| NONE.to_owned(), checksummed),
            }),
        }
    }

    /// Description of the action.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::RefundBlocked { address, amount, asset, .. } => {
                format!("send {amount} of blocked money on {} to {}", asset.chain, checksummed(*address))
            }
            Self::ApproveRefund { refund_id, .. } => format!("approve the refund {refund_id}"),
            Self::RaiseLimits { limits, .. } => {
                let raised = [
                    ("send_max", limits.send_max),
                    ("send_daily_max", limits.send_daily_max),
                    ("refund_elsewhere_daily_max", limits.refund_elsewhere_daily_max),
                ];
                let each = raised.into_iter().filter_map(|(name, to)| Some(format!("{name} to {}", to?)));
                format!("raise {}", each.collect::<Vec<_>>().join(", "))
            }
            Self::WithdrawalWallet { chain, address, .. } => {
                let to = address.map_or_else(|| NONE.to_owned(), checksummed);
                format!("set the withdrawal wallet on {} to {to}", on(*chain))
            }
        }
    }

    /// State of the subject that the action depends on. If it differs from the state at the proposal, the approval is out
    /// of date.
    pub(crate) async fn subject_state(
        &self,
        operator: &Operator,
        transaction: &Transaction,
        now: Timestamp,
    ) -> Result<Value, ApiError> {
        match self {
            Self::RefundBlocked { payment_id, .. } => Ok(blocked_state(&decisions::find(operator, *payment_id).await?)),
            Self::ApproveRefund { payment_id, refund_id } => {
                refund_state(&decisions::find(operator, *payment_id).await?, *refund_id)
            }
            Self::RaiseLimits { psp_id, .. } => {
                Ok(limits_state(operator, &tenants::lock_psp(transaction, *psp_id).await.map_err(tenant_failure)?))
            }
            Self::WithdrawalWallet { psp_id, chain, .. } => {
                tenants::lock_psp(transaction, *psp_id).await.map_err(tenant_failure)?;
                wallet_state(transaction, *psp_id, *chain, now).await
            }
        }
    }

    /// Carries out an approved action, once. The functions are those that run it without four eyes.
    ///
    /// A change of a PSP and the end of its approval are one commit. A decision about a payment has a commit of its own,
    /// which a repetition does not repeat: a refund has the id of its key, and is approved only while it waits.
    pub(super) async fn carry_out(&self, operator: &Operator, approval: &Approval) -> Result<(), ApiError> {
        let now = operator.system.clock().real_now();
        match self {
            Self::RefundBlocked { .. } | Self::ApproveRefund { .. } => {
                let reason = approval.reason.clone().unwrap_or_default();
                decisions::carry_out_approved(operator, self, reason).await?;
                let transaction = operator.system.database().begin().await?;
                finish(&transaction, approval, Outcome::CarriedOut, now).await?;
                transaction.commit().await?;
            }
            Self::RaiseLimits { psp_id, limits } => {
                let transaction = operator.system.database().begin().await?;
                self.assert_unchanged(operator, &transaction, approval, now).await?;
                if finish(&transaction, approval, Outcome::CarriedOut, now).await? {
                    psps::set_in(&transaction, *psp_id, None, (*limits).into(), now).await.map_err(tenant_failure)?;
                    transaction.commit().await?;
                    psps::changed(operator, *psp_id).await;
                }
            }
            Self::WithdrawalWallet { psp_id, chain, address } => {
                withdrawal::suitable_for(operator, *address).await?;
                let transaction = operator.system.database().begin().await?;
                self.assert_unchanged(operator, &transaction, approval, now).await?;
                if finish(&transaction, approval, Outcome::CarriedOut, now).await? {
                    let mode = operator.config.key_mode;
                    withdrawal::set_in(&transaction, mode, *psp_id, (*chain, *address), now).await?;
                    transaction.commit().await?;
                    withdrawal::changed(*psp_id);
                }
            }
        }
        Ok(())
    }

    /// Refuses the action if its subject has changed since the proposal.
    pub(super) async fn assert_unchanged(
        &self,
        operator: &Operator,
        transaction: &Transaction,
        approval: &Approval,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        if self.subject_state(operator, transaction, now).await? == approval.subject_state {
            return Ok(());
        }
        Err(out_of_date(approval.id))
    }
}

/// Code of [`out_of_date`].
pub(super) const OUT_OF_DATE: &str = "approval_out_of_date";

fn out_of_date(id: ApprovalId) -> ApiError {
    let detail = format!("The subject of {id} has changed since the proposal. Propose the action again.");
    ApiError::conflict("approval_out_of_date", detail)
}

fn on(chain: Option<Chain>) -> &'static str {
    chain.map_or(EVERY_CHAIN, Chain::as_str)
}

/// Blocked money of a payment.
pub(crate) fn blocked_state(decisions: &Decisions) -> Value {
    let line = |line: crate::decisions::query::BlockedLine| {
        let token = line.misdirected.or_else(|| line.currency.map(str::to_owned)).unwrap_or_default();
        format!("{} {token} on {}", line.amount, line.chain)
    };
    json!({ "blocked": decisions.blocked().into_iter().map(line).collect::<Vec<_>>().join(", ") })
}

/// A refund that waits for approval.
pub(crate) fn refund_state(decisions: &Decisions, id: RefundId) -> Result<Value, ApiError> {
    let refund = decisions.refund(id)?;
    let asset = refund.asset.unwrap_or_else(|| decisions.payment.asset());
    let token = decisions.payment.token_of(asset).map_or_else(|| checksummed(asset.address), |token| token.to_string());
    Ok(json!({
        "refund_status": refund.public_status(),
        "refund_amount": format!("{} {token} on {}", refund.amount, asset.chain),
        "refund_address": checksummed(refund.to),
    }))
}

/// Limits of a PSP.
pub(crate) fn limits_state(operator: &Operator, psp: &PspRecord) -> Value {
    let ceilings = psp.policies.ceilings(operator.system.psps().ceilings());
    json!({
        "send_max": ceilings.send_max.to_string(),
        "send_daily_max": ceilings.send_daily_max.to_string(),
        "refund_elsewhere_daily_max": ceilings.refund_elsewhere_daily_max.to_string(),
    })
}

/// Current and pending withdrawal wallet.
pub(crate) async fn wallet_state(
    transaction: &Transaction,
    psp_id: PspId,
    chain: Option<Chain>,
    now: Timestamp,
) -> Result<Value, ApiError> {
    let wallets = wallets::load(transaction, psp_id, now).await.map_err(WithdrawalWalletError::from)?;
    let WalletState { current, pending } = wallets.get(&chain).copied().unwrap_or_default();
    let [current, pending] = [current, pending].map(|wallet| wallet.map(|wallet| checksummed(wallet.address)));
    Ok(json!({ "current_wallet": current, "pending_wallet": pending }))
}
