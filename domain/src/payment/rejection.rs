//! Why a person's command does not fit. Knows no HTTP.

use super::status::Status;
use crate::money::Amount;

/// Why a command was refused; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Only a pending payment can be cancelled.
    #[error("the payment is {status}, not pending")]
    PaymentNotPending {
        /// Where it stands.
        status: Status,
    },
    /// The payment has not come to a result yet.
    #[error("the payment is still pending")]
    PaymentPending,
    /// Only a mismatched payment can be accepted.
    #[error("the payment is {status}, not mismatched")]
    PaymentNotMismatched {
        /// Where it stands.
        status: Status,
    },
    /// Money is on its way or held: cancelling would lose sight of it.
    #[error("a transfer to this payment has been recorded")]
    TransferRecorded,
    /// More or less was received than the caller believes.
    #[error("the amount received is {received}, not {expected}")]
    ReceivedMoved {
        /// What the caller believes.
        expected: Amount,
        /// What it is.
        received: Amount,
    },
    /// The settlement is under way.
    #[error("a settlement of this payment is in progress")]
    SettlementInProgress,
    /// There is no failed settlement to try again.
    #[error("no settlement of this payment has failed")]
    SettlementNotFailed,
    /// The money is blocked; only the operator decides about it.
    #[error("the funds are blocked by screening")]
    FundsBlocked,
    /// Only the operator sends blocked money.
    #[error("only the operator may do this")]
    OperatorOnly,
    /// Nothing is left that could be accepted.
    #[error("nothing is left to accept")]
    NothingToAccept,
    /// Nothing is left that could be refunded.
    #[error("nothing is left to refund")]
    NothingToRefund,
    /// More than can be refunded, or not positive.
    #[error("{asked} cannot be refunded: at most {refundable} can")]
    RefundTooLarge {
        /// What was asked for.
        asked: Amount,
        /// What can be.
        refundable: Amount,
    },
    /// The amount would have to come from the payment's wallet and the PSP's vault at once.
    #[error("refund at most {in_wallet} from the payment's wallet first, the rest by another refund")]
    RefundSpansVaults {
        /// What the payment's wallet holds.
        in_wallet: Amount,
    },
    /// A payment whose settlement failed is refunded whole, or only its excess.
    #[error("refund {all} (everything), or at most the excess of {excess}")]
    RefundMustBeAll {
        /// Everything.
        all: Amount,
        /// What came after confirmation.
        excess: Amount,
    },
    /// A refund needs an address.
    #[error("an address is required: the PSP does not refund to senders, or no single plain account sent everything")]
    RefundAddressRequired,
    /// The wallet of the payment itself, or zero, is no address for a refund.
    #[error("the address cannot receive a refund")]
    RefundAddressInvalid,
    /// A refund with this id exists and is a different one.
    #[error("a refund with this id exists")]
    RefundExists,
    /// No money of the payment is set aside.
    #[error("no money of this payment is set aside")]
    NothingSetAside,
    /// The payment lists as many transfers as it ever may.
    #[error("the payment cannot list more than {listed_max} transfers")]
    ListFull {
        /// So many.
        listed_max: usize,
    },
    /// There is no such transfer.
    #[error("the payment has no such transfer")]
    UnknownTransfer,
    /// Screening has been decided, and not for review.
    #[error("the transfer is not in review")]
    NotInReview,
}

impl Rejection {
    /// The stable name of the refusal.
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
