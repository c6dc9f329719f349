//! Funds that leave the payment's wallet: the settlement, the refunds, and the operations that execute them.

use serde::{Deserialize, Serialize};

use super::state::Payment;
use super::terms::Purpose;
use super::transfer::{Decision, TransferStatus, Verdict};
use crate::chain::{Address, Chain, Hash32};
use crate::ids::{OperationId, RefundId};
use crate::ledger::{Account, Asset, Holdings};
use crate::money::{Amount, FeeBps, split_fee};
use crate::named::named;
use crate::time::Timestamp;

named! {
    /// State of the settlement.
    SettlementState, "queued, settled, failed, withdrawn" {
        /// Queued, or queued again, for the settler.
        Queued = "queued",
        /// Mined, with the required finality.
        Settled = "settled",
        /// Reverted for a permanent reason. Retried with back-off and on request.
        Failed = "failed",
        /// Not to be executed: the funds were orphaned, or the PSP refunds them.
        Withdrawn = "withdrawn",
    }
}

/// The settlement of a payment. `psp_amount + treasury_fee == amount` always holds.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// Id of the operation. It never changes.
    pub operation: OperationId,
    /// Amount, frozen at confirmation.
    pub amount: Amount,
    /// The PSP's share.
    pub psp_amount: Amount,
    /// The treasury's share.
    pub treasury_fee: Amount,
    /// Current state.
    pub state: SettlementState,
    /// Newest applied revision of the settler's row.
    #[serde(default)]
    pub revision: u32,
    /// Final transaction of the settlement.
    pub tx_hash: Option<Hash32>,
    /// Block time of that transaction.
    pub settled_at: Option<Timestamp>,
    /// Number of permanent failures so far.
    #[serde(default)]
    pub failures: u32,
    /// Reason of the last failure, for operators.
    pub failure: Option<String>,
    /// Time of the next automatic retry. Set only while failed.
    pub retry_at: Option<Timestamp>,
    /// True if a person requested the current attempt. In this case a failure is announced again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry_demanded: bool,
}

impl Settlement {
    /// Sets the amount and its shares.
    pub(super) fn carry(&mut self, amount: Amount, fee: FeeBps) {
        let shares = split_fee(amount, fee);
        self.amount = amount;
        (self.psp_amount, self.treasury_fee) = (shares.psp_amount, shares.treasury_fee);
    }
}

named! {
    /// State of a refund.
    RefundState, "pending, sent, failed" {
        /// Accepted; its amount is reserved.
        Pending = "pending",
        /// Sent, with the required finality.
        Sent = "sent",
        /// Will not be sent; the reservation is released.
        Failed = "failed",
    }
}

named! {
    /// Limit that applies to a refund.
    #[derive(Default)]
    RefundLimit, "none, elsewhere, approval" {
        /// None: it goes to the plain account that sent the funds, or the operator or a policy requested it.
        #[default]
        None = "none",
        /// It counts against the PSP's daily limit of refunds to other addresses.
        Elsewhere = "elsewhere",
        /// It is above a limit: the operator must approve it.
        Approval = "approval",
    }
}

named! {
    /// Reason why a refund failed.
    RefundFailure, "address_blocked, not_approved, send_failed" {
        /// Screening blocked the address.
        AddressBlocked = "address_blocked",
        /// The operator rejected it.
        NotApproved = "not_approved",
        /// The chain rejected it for a permanent reason.
        SendFailed = "send_failed",
    }
}

named! {
    /// Funds that a refund uses.
    Funds, "received, blocked, misdirected" {
        /// Funds that count.
        Received = "received",
        /// Funds blocked by screening. Only the operator may use them.
        Blocked = "blocked",
        /// Funds in another token or on another chain.
        Misdirected = "misdirected",
    }
}

named! {
    /// Vault that an operation debits.
    Vault, "payment, psp" {
        /// The payment's own wallet.
        Payment = "payment",
        /// The PSP's vault.
        Psp = "psp",
    }
}

named! {
    /// Requester of an action.
    Requester, "psp, payer, operator, schedule" {
        /// The PSP, by its API key.
        Psp = "psp",
        /// The payer, by the signature of the account that sent the funds.
        Payer = "payer",
        /// The operator of the service.
        Operator = "operator",
        /// The service itself: a timer or a policy.
        Schedule = "schedule",
    }
}

/// Public status of a refund that waits for the operator's approval.
pub const PENDING_APPROVAL: &str = "pending_approval";
/// Failure of a refund to a blocked address.
pub(super) const ADDRESS_BLOCKED: &str = "the address is blocked by screening";
/// Failure of a refund that the operator rejected.
pub(super) const NOT_APPROVED: &str = "the operator did not approve the refund";

/// A refund of the payment.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// Refund id.
    pub id: RefundId,
    /// Operation that sends it.
    pub operation: OperationId,
    /// Amount.
    pub amount: Amount,
    /// Recipient address.
    pub to: Address,
    /// Source vault.
    pub source: Vault,
    /// Funds that it uses.
    pub funds: Funds,
    /// Token and chain, if they differ from the payment's.
    pub asset: Option<Asset>,
    /// Reference from the PSP.
    pub reference: Option<String>,
    /// JSON object from the PSP, returned in events.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Screening verdict about the address, once known. Nothing is sent before it is `allow`.
    pub verdict: Option<Box<Verdict>>,
    /// Requester; `schedule` for the excess policy.
    pub requested_by: Requester,
    /// Limit that applied when it was accepted.
    #[serde(default)]
    pub limit: RefundLimit,
    /// Time of the operator's approval. Only of a refund above a limit.
    pub approved_at: Option<Timestamp>,
    /// Current state.
    pub state: RefundState,
    /// Newest applied revision of the settler's row.
    #[serde(default)]
    pub revision: u32,
    /// Time of acceptance.
    pub requested_at: Timestamp,
    /// Time at which the refund was sent or failed.
    pub finished_at: Option<Timestamp>,
    /// Transaction of the refund, once sent.
    pub tx_hash: Option<Hash32>,
    /// Failure reason, as text.
    pub failure: Option<String>,
}

impl Refund {
    /// Creates a refund of received funds from the payment's wallet: pending and not yet screened.
    pub(super) fn new(id: RefundId, amount: Amount, to: Address, requested_by: Requester, at: Timestamp) -> Self {
        Self {
            id,
            operation: OperationId::refund_of(id),
            amount,
            to,
            source: Vault::Payment,
            funds: Funds::Received,
            asset: None,
            reference: None,
            metadata: None,
            verdict: None,
            requested_by,
            limit: RefundLimit::None,
            approved_at: None,
            state: RefundState::Pending,
            revision: 0,
            requested_at: at,
            finished_at: None,
            tx_hash: None,
            failure: None,
        }
    }

    /// Returns the screening decision about the address, if known.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_ref().map(|verdict| verdict.decision)
    }

    /// Returns true if screening has not yet returned `allow` or `block`.
    pub fn awaits_screening(&self) -> bool {
        self.state == RefundState::Pending && matches!(self.decision(), None | Some(Decision::Review))
    }

    /// Returns true if the operator has not decided about a refund above a limit.
    pub fn awaits_approval(&self) -> bool {
        self.state == RefundState::Pending && self.limit == RefundLimit::Approval && self.approved_at.is_none()
    }

    /// Returns true if the refund may be sent: screening allows the address, and no approval is missing.
    pub fn is_cleared(&self) -> bool {
        self.state == RefundState::Pending && !self.awaits_screening() && !self.awaits_approval()
    }

    /// Returns the public status: the state, or `pending_approval`.
    pub fn public_status(&self) -> &'static str {
        if self.awaits_approval() { PENDING_APPROVAL } else { self.state.as_str() }
    }

    /// Returns the reason of the failure, if the refund is failed. Only its words are stored.
    pub fn failure_reason(&self) -> Option<RefundFailure> {
        let failure = self.failure.as_deref().filter(|_| self.state == RefundState::Failed)?;
        Some(match failure {
            ADDRESS_BLOCKED => RefundFailure::AddressBlocked,
            NOT_APPROVED => RefundFailure::NotApproved,
            _ => RefundFailure::SendFailed,
        })
    }

    /// Returns the time of the last change.
    pub fn updated_at(&self) -> Timestamp {
        let screened_at = self.verdict.as_ref().map(|verdict| verdict.checked_at);
        let later = [screened_at, self.approved_at, self.finished_at];
        later.into_iter().flatten().fold(self.requested_at, Timestamp::max)
    }
}

/// Change of an operation row, made in the same commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationAction {
    /// Insert a new row.
    Queue,
    /// The row exists (failed, cancelled, or not yet executed): queue it again with these amounts.
    Requeue,
    /// Do not execute the row, if that can still be prevented.
    Cancel,
}

/// Effect of an operation on the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum OperationBody {
    /// Split the funds of the payment vault between the PSP's vault and the treasury.
    Settle {
        /// Sum of the two shares.
        amount: Amount,
        /// Share of the PSP's vault.
        psp_amount: Amount,
        /// Share of the treasury.
        treasury_fee: Amount,
    },
    /// Take an authorized amount from the payer to the PSP's vault and the treasury.
    Collect {
        /// Sum of the two shares.
        amount: Amount,
        /// Share of the PSP's vault.
        psp_amount: Amount,
        /// Share of the treasury.
        treasury_fee: Amount,
        /// Terms of the payer.
        payer: PayerTerms,
    },
    /// Submit an authorized transfer from the payer to the payment's wallet.
    Deposit {
        /// Amount.
        amount: Amount,
        /// Terms of the payer.
        payer: PayerTerms,
    },
    /// Forward the funds of a transfer to its recipient.
    Deliver {
        /// Recipient address.
        to: Address,
        /// Amount.
        amount: Amount,
    },
    /// Send from a vault to an address.
    Send {
        /// Refund that the operation executes.
        refund_id: RefundId,
        /// Source vault.
        source: Vault,
        /// Recipient address.
        to: Address,
        /// Amount.
        amount: Amount,
    },
}

/// Identity of an authorization on the chain, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayerTerms {
    /// Payer.
    pub from: Address,
    /// Nonce, unique per payer and token.
    pub nonce: Hash32,
    /// End of the authorization, exclusive.
    pub valid_before: Timestamp,
}

/// A change of the operation queue, written in the same commit as the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewOperation {
    /// Id of the operation.
    pub id: OperationId,
    /// Change of the row.
    pub action: OperationAction,
    /// Chain.
    pub chain: Chain,
    /// Token contract.
    pub token_address: Address,
    /// Wallet of the payment. It is the vault for `Vault::Payment` and for settlements.
    pub wallet: Address,
    /// Effect on the chain.
    pub body: OperationBody,
}

impl Payment {
    /// Returns the balance that the ledger must have in each account for this payment, in each token that it received. It
    /// depends only on the state, not on the postings (`react`), with which the ledger check compares it.
    pub fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for transfer in &self.transfers {
            let account = match transfer.status {
                TransferStatus::Final => Account::Payment,
                TransferStatus::Ignored => Account::Suspense,
                TransferStatus::Seen | TransferStatus::Orphaned => continue,
            };
            // A zero amount is never posted.
            let amount = transfer.amount.max(Amount::ZERO);
            holdings.moved(self.asset_of(transfer), Account::External, account, amount);
        }
        if let Some(settlement) = self.settlement.as_deref().filter(|one| one.state == SettlementState::Settled) {
            let mut share = |credit, amount| holdings.moved(self.asset(), Account::Payment, credit, amount);
            match self.terms.purpose {
                Purpose::Transfer { .. } => share(Account::External, settlement.amount),
                Purpose::PayIn => {
                    share(Account::Psp, settlement.psp_amount);
                    share(Account::Treasury, settlement.treasury_fee);
                }
            }
        }
        for refund in &self.refunds {
            let (debit, credit) = match (refund.source, refund.state) {
                (Vault::Payment, RefundState::Sent) => (Account::Payment, Account::External),
                (Vault::Psp, RefundState::Sent) => (Account::Psp, Account::External),
                (Vault::Psp, RefundState::Pending) => (Account::Psp, Account::InFlight),
                (_, RefundState::Failed) | (Vault::Payment, RefundState::Pending) => continue,
            };
            holdings.moved(refund.asset.unwrap_or_else(|| self.asset()), debit, credit, refund.amount);
        }
        holdings
    }
}
