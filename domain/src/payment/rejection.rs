//! Reasons to reject a command of a person. Independent of HTTP.

use super::status::Status;
use crate::money::Amount;

/// Reason for rejecting a command. The payment did not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Only a pending payment can be cancelled.
    #[error("the payment is {status}, not pending")]
    PaymentNotPending {
        /// Current status.
        status: Status,
    },
    /// The payment has no result yet.
    #[error("the payment is still pending; wait until it is mismatched, confirmed or failed")]
    PaymentPending,
    /// Only a mismatched payment can be accepted.
    #[error("the payment is {status}, not mismatched")]
    PaymentNotMismatched {
        /// Current status.
        status: Status,
    },
    /// A transfer is pending or held; a cancelled payment would hide it.
    #[error("a transfer to this payment has been recorded, so it cannot be cancelled")]
    TransferRecorded,
    /// The amount received differs from the amount that the caller expects.
    #[error("the amount received is {received}, not {expected}")]
    ReceivedMoved {
        /// Amount that the caller expects.
        expected: Amount,
        /// Actual amount.
        received: Amount,
    },
    /// The settlement is in progress.
    #[error("a settlement of this payment is in progress; try again when it is complete")]
    SettlementInProgress,
    /// There is no failed settlement to retry.
    #[error("no settlement of this payment has failed")]
    SettlementNotFailed,
    /// The funds are blocked; only the operator decides about them.
    #[error("the funds are blocked by screening")]
    FundsBlocked,
    /// Only the operator may send blocked funds.
    #[error("only the operator may do this")]
    OperatorOnly,
    /// There are no funds to accept.
    #[error("there are no funds to accept")]
    NothingToAccept,
    /// There are no funds to refund.
    #[error("there are no funds to refund")]
    NothingToRefund,
    /// The amount exceeds the refundable amount, or is not positive.
    #[error("{asked} cannot be refunded: at most {refundable} can")]
    RefundTooLarge {
        /// Requested amount.
        asked: Amount,
        /// Refundable amount.
        refundable: Amount,
    },
    /// The refund would need funds from both the payment's wallet and the PSP's vault.
    #[error("refund at most {in_wallet} from the payment's wallet, then the rest in another refund")]
    RefundSpansVaults {
        /// Funds in the payment's wallet.
        in_wallet: Amount,
    },
    /// After a failed settlement, a refund must be of everything, or of at most the excess.
    #[error("the settlement failed: refund {all} (everything), or at most the excess of {excess}")]
    RefundMustBeAll {
        /// Everything.
        all: Amount,
        /// Amount received after confirmation.
        excess: Amount,
    },
    /// A refund needs an address.
    #[error("an address is required: the PSP does not refund to senders, or there is no single plain sender")]
    RefundAddressRequired,
    /// The address is zero, the wallet of the payment, or a token contract.
    #[error("this address cannot receive a refund; use a wallet of the recipient")]
    RefundAddressInvalid,
    /// Another refund has the same id.
    #[error("a different refund with this id exists")]
    RefundExists,
    /// No transfers of the payment are set aside.
    #[error("no transfers of this payment are set aside")]
    NothingSetAside,
    /// The payment already lists the maximum number of transfers.
    #[error("the payment cannot list more than {listed_max} transfers")]
    ListFull {
        /// Maximum number of listed transfers.
        listed_max: usize,
    },
    /// The payment has no such transfer.
    #[error("the payment has no such transfer")]
    UnknownTransfer,
    /// The transfer is not in review.
    #[error("the transfer is not in review")]
    NotInReview,
}

impl Rejection {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::PaymentNotPending { .. } => "payment_not_pending",
            Self::PaymentPending => "payment_pending",
            Self::PaymentNotMismatched { .. } => "payment_not_mismatched",
            Self::TransferRecorded => "transfer_recorded",
            Self::ReceivedMoved { .. } => "received_moved",
            Self::SettlementInProgress => "settlement_in_progress",
            Self::SettlementNotFailed => "settlement_not_failed",
            Self::FundsBlocked => "funds_blocked",
            Self::OperatorOnly => "operator_only",
            Self::NothingToAccept => "nothing_to_accept",
            Self::NothingToRefund => "nothing_to_refund",
            Self::RefundTooLarge { .. } => "refund_too_large",
            Self::RefundSpansVaults { .. } => "refund_spans_vaults",
            Self::RefundMustBeAll { .. } => "refund_must_be_all",
            Self::RefundAddressRequired => "refund_address_required",
            Self::RefundAddressInvalid => "refund_address_invalid",
            Self::RefundExists => "refund_exists",
            Self::NothingSetAside => "nothing_set_aside",
            Self::ListFull { .. } => "list_full",
            Self::UnknownTransfer => "unknown_transfer",
            Self::NotInReview => "not_in_review",
        }
    }
}
