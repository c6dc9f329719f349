//! What a KYT provider is asked and answers.

use payferry_domain::payment::{TransferKey, Verdict};
use payferry_domain::{Address, Amount, PaymentId, Token};

/// A transfer to be screened.
#[derive(Debug, Clone)]
pub struct ScreenRequest {
    /// The payment that received it.
    pub payment_id: PaymentId,
    /// Chain, transaction and log.
    pub key: TransferKey,
    /// The transfer's revision, given back with the verdict.
    pub revision: u32,
    /// The sender.
    pub from: Address,
    /// Token.
    pub token: Token,
    /// How much.
    pub amount: Amount,
    /// Whether the payment may have to send money back to the sender by itself: then it has to be known what that is.
    pub wants_sender_kind: bool,
}

/// Why a provider did not answer. Never shown to PSPs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KytError(pub String);

/// A KYT provider. An error is never an `allow`: the transfer is held and asked about again.
#[async_trait::async_trait]
pub trait KytScreener: Send + Sync + 'static {
    /// The provider's name, as it stands in verdicts.
    fn name(&self) -> &str;

    /// Screens one transfer.
    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError>;
}
