//! Reasons for rejecting commands of people, with their codes.

use super::authorization::{AUTHORIZATION_WINDOW_MIN_SECS, AUTHORIZATIONS_MAX};
use super::payer_request::{REFUND_REQUESTS_MAX, REFUND_REQUESTS_OPEN_MAX};
use super::status::Status;
use super::transfer::LISTED_MAX;
use crate::chain::Chain;
use crate::money::Amount;
use crate::time::Timestamp;

/// Reason for rejecting a command of a person, independent of HTTP. The payment did not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Only a pending payment can be cancelled.
    #[error("the payment is {0}, not pending")]
    PaymentNotPending(Status),
    /// The payment has no result yet.
    #[error("the payment is still pending; wait until it is mismatched, confirmed or failed")]
    PaymentPending,
    /// Only a mismatched payment can be accepted.
    #[error("the payment is {0}, not mismatched")]
    PaymentNotMismatched(Status),
    /// The payer cannot choose this chain.
    #[error("this payment cannot be paid on {0}")]
    ChainNotOffered(Chain),
    /// The chain is fixed.
    #[error("this payment is to be paid on {0}")]
    ChainFixed(Chain),
    /// An authorization is for one chain.
    #[error("the payer has not chosen the chain yet")]
    ChainNotChosen,
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
    #[error("{requested} cannot be refunded: at most {refundable} can")]
    RefundTooLarge {
        /// Requested amount.
        requested: Amount,
        /// Refundable amount.
        refundable: Amount,
    },
    /// The refund would need funds from both the payment's wallet and the PSP's vault.
    #[error("refund at most {0} from the payment's wallet, then the rest in another refund")]
    RefundSpansVaults(Amount),
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
    /// The PSP does not offer refunds on request of the payer.
    #[error("this payment offers no refunds on the payer's request")]
    PayerRefundsOff,
    /// The account did not send the money.
    #[error("this account sent none of the money that can be refunded")]
    NotTheSender,
    /// Too many requests of payers wait for the PSP.
    #[error("{REFUND_REQUESTS_OPEN_MAX} requests for refunds of this payment wait for a decision")]
    RefundRequestsOpen,
    /// The payment had the maximum number of requests of payers.
    #[error("a payment takes at most {REFUND_REQUESTS_MAX} requests for refunds")]
    RefundRequestsExhausted,
    /// The request of the payer is decided.
    #[error("the request for a refund is not open")]
    RefundRequestClosed,
    /// The refund does not wait for the operator's approval.
    #[error("the refund does not wait for approval")]
    NotAwaitingApproval,
    /// No transfers of the payment are set aside.
    #[error("no transfers of this payment are set aside")]
    NothingSetAside,
    /// The payment already lists the maximum number of transfers.
    #[error("the payment cannot list more than {LISTED_MAX} transfers")]
    ListFull,
    /// The payment has no such transfer.
    #[error("the payment has no such transfer")]
    UnknownTransfer,
    /// The transfer is not in review.
    #[error("the transfer is not in review")]
    NotInReview,
    /// The payment has an unfinished authorization, which may pay it.
    #[error("an authorization of this payment is in progress; wait until it is final, failed or expired")]
    AuthorizationInProgress,
    /// A transfer may pay the payment.
    #[error("a transfer to this payment awaits finality or screening")]
    TransferPending,
    /// The authorized amount is not the amount due.
    #[error("the authorization is for {authorized}, but {due} is due")]
    AmountNotDue {
        /// Amount due.
        due: Amount,
        /// Amount of the authorization.
        authorized: Amount,
    },
    /// The payment had the maximum number of authorizations.
    #[error("a payment takes at most {AUTHORIZATIONS_MAX} authorizations; send the amount instead")]
    AuthorizationsExhausted,
    /// Another authorization was accepted since.
    #[error("another authorization was accepted since; sign again with the current nonce")]
    AuthorizationOutdated,
    /// The authorization ends too late.
    #[error("the authorization may not end after the payment's deadline, {0}")]
    AuthorizationTooLong(Timestamp),
    /// The authorization ends too early to be collected.
    #[error("the authorization must be valid for at least {AUTHORIZATION_WINDOW_MIN_SECS} s")]
    AuthorizationTooShort,
}

impl Rejection {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::PaymentNotPending(_) => "payment_not_pending",
            Self::PaymentPending => "payment_pending",
            Self::PaymentNotMismatched(_) => "payment_not_mismatched",
            Self::ChainNotOffered(_) => "chain_not_offered",
            Self::ChainFixed(_) => "chain_fixed",
            Self::ChainNotChosen => "chain_not_chosen",
            Self::TransferRecorded => "transfer_recorded",
            Self::ReceivedMoved { .. } => "received_moved",
            Self::SettlementInProgress => "settlement_in_progress",
            Self::SettlementNotFailed => "settlement_not_failed",
            Self::FundsBlocked => "funds_blocked",
            Self::OperatorOnly => "operator_only",
            Self::NothingToAccept => "nothing_to_accept",
            Self::NothingToRefund => "nothing_to_refund",
            Self::RefundTooLarge { .. } => "refund_too_large",
            Self::RefundSpansVaults(_) => "refund_spans_vaults",
            Self::RefundMustBeAll { .. } => "refund_must_be_all",
            Self::RefundAddressRequired => "refund_address_required",
            Self::RefundAddressInvalid => "refund_address_invalid",
            Self::RefundExists => "refund_exists",
            Self::PayerRefundsOff => "payer_refunds_off",
            Self::NotTheSender => "refund_not_sender",
            Self::RefundRequestsOpen => "refund_requests_open",
            Self::RefundRequestsExhausted => "refund_requests_exhausted",
            Self::RefundRequestClosed => "refund_request_closed",
            Self::NotAwaitingApproval => "not_awaiting_approval",
            Self::NothingSetAside => "nothing_set_aside",
            Self::ListFull => "list_full",
            Self::UnknownTransfer => "unknown_transfer",
            Self::NotInReview => "not_in_review",
            Self::AuthorizationInProgress => "authorization_in_progress",
            Self::TransferPending => "transfer_pending",
            Self::AmountNotDue { .. } => "authorization_amount",
            Self::AuthorizationsExhausted => "authorizations_exhausted",
            Self::AuthorizationOutdated => "authorization_outdated",
            Self::AuthorizationTooLong(_) => "authorization_too_long",
            Self::AuthorizationTooShort => "authorization_too_short",
        }
    }
}
