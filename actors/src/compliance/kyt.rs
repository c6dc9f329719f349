//! Interface of KYT providers: requests and answers.

use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::{TransferKey, Verdict};
use payferry_domain::{Address, Amount, Chain, OperationId, PaymentId, RefundId};

/// Subject of a screening, which also determines the recipient of the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
pub enum KytSubject {
    /// Incoming money: its sender is screened.
    #[display("{payment_id}")]
    Transfer {
        /// Payment that received it.
        payment_id: PaymentId,
        /// The transfer.
        key: TransferKey,
    },
    /// Target address of a refund.
    #[display("{refund_id}")]
    Refund {
        /// Payment of the refund.
        payment_id: PaymentId,
        /// Id of the refund.
        refund_id: RefundId,
    },
    /// Payer who signed an authorization.
    #[display("{payment_id}")]
    Authorization {
        /// Payment of the authorization.
        payment_id: PaymentId,
        /// Operation that collects it.
        operation: OperationId,
    },
    /// Target address of a payout or a withdrawal.
    OutboundTransfer(OutboundId),
    /// Target address of a transfer to a customer: the caller waits for the answer.
    #[display("a recipient")]
    Recipient,
}

/// Request to screen an address.
#[derive(Debug, Clone)]
pub struct ScreenRequest {
    /// Subject.
    pub subject: KytSubject,
    /// Chain.
    pub chain: Chain,
    /// Sender or recipient.
    pub address: Address,
    /// Amount.
    pub amount: Amount,
    /// `true` if the payment may have to return money to the sender automatically. The sender's kind must then be
    /// known.
    pub wants_sender_kind: bool,
}

impl ScreenRequest {
    /// Creates a request for the recipient of outgoing money.
    pub const fn of_recipient(subject: KytSubject, chain: Chain, address: Address, amount: Amount) -> Self {
        Self { subject, chain, address, amount, wants_sender_kind: false }
    }
}

/// Reason of a provider failure. Never shown to PSPs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KytError(pub String);

/// A KYT provider. An error is never an `allow`: the money is held and the request repeated.
#[async_trait::async_trait]
pub trait KytScreener: Send + Sync + 'static {
    /// Name of the provider in verdicts.
    fn name(&self) -> &str;

    /// Screens one address.
    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError>;
}
