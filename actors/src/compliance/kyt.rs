//! What a KYT provider is asked and answers.

use payferry_domain::payment::{TransferKey, Verdict};
use payferry_domain::sending::SendingId;
use payferry_domain::{Address, Amount, Chain, PaymentId, RefundId};

/// What is screened, and who is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Money that came: its sender.
    Transfer {
        /// The payment that received it.
        payment_id: PaymentId,
        /// Chain, transaction and log.
        key: TransferKey,
        /// The transfer's revision, given back with the verdict.
        revision: u32,
    },
    /// Where a refund goes.
    Refund {
        /// Its payment.
        payment_id: PaymentId,
        /// Which.
        refund_id: RefundId,
    },
    /// Where a payout or a withdrawal goes.
    Sending(SendingId),
    /// Where a transfer to a customer would go: the caller waits for the answer.
    Recipient,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Transfer { payment_id, .. } => payment_id.fmt(f),
            Self::Refund { refund_id, .. } => refund_id.fmt(f),
            Self::Sending(id) => id.fmt(f),
            Self::Recipient => f.write_str("a recipient"),
        }
    }
}

/// An address to be screened.
#[derive(Debug, Clone)]
pub struct ScreenRequest {
    /// For what.
    pub subject: Subject,
    /// On which chain.
    pub chain: Chain,
    /// Who sends, or is sent to.
    pub address: Address,
    /// How much.
    pub amount: Amount,
    /// Whether the payment may have to send money back to the sender by itself: then it has to be known what that is.
    pub wants_sender_kind: bool,
}

impl ScreenRequest {
    /// The question about an address that money is to go to.
    pub const fn of_recipient(subject: Subject, chain: Chain, address: Address, amount: Amount) -> Self {
        Self { subject, chain, address, amount, wants_sender_kind: false }
    }
}

/// Why a provider did not answer. Never shown to PSPs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KytError(pub String);

/// A KYT provider. An error is never an `allow`: what is screened is held and asked about again.
#[async_trait::async_trait]
pub trait KytScreener: Send + Sync + 'static {
    /// The provider's name, as it stands in verdicts.
    fn name(&self) -> &str;

    /// Screens one address.
    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError>;
}
