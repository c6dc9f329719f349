//! A refund in answers.

use payferry_domain::payment::{Decision, Payment, Refund, TransferToken};
use payferry_domain::{Amount, Asset, RefundId, Token};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::ApiError;
use serde::Serialize;
use utoipa::ToSchema;

/// A refund.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundRecord {
    #[schema(example = "rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    refund_id: String,
    payment_id: String,
    /// pending, sent or failed. Only a failed refund can be requested again.
    status: &'static str,
    #[schema(example = "10.00")]
    amount: String,
    /// USDC or USDT; null for a token that the service does not support.
    currency: Option<&'static str>,
    chain: &'static str,
    token_address: String,
    /// The recipient's address.
    address: String,
    /// payment or psp: taken from the payment's wallet or, once settled, from the PSP's vault.
    source: &'static str,
    /// received; misdirected (arrived in another token or on another chain); or blocked (by screening; only the
    /// operator can refund it).
    funds: &'static str,
    /// psp, operator, or schedule: the service itself, by the PSP's settings.
    requested_by: &'static str,
    /// pending, allow, review or block: the screening result of the address. Nothing is sent before it is `allow`.
    kyt_verdict: &'static str,
    /// Hash of the transaction, once sent.
    tx_hash: Option<String>,
    /// Reason of the failure.
    failure: Option<String>,
    #[schema(format = "date-time")]
    requested_at: String,
    /// When it was sent or failed.
    #[schema(format = "date-time")]
    finished_at: Option<String>,
}

impl RefundRecord {
    /// The record of one of the payment's refunds.
    pub fn of(payment: &Payment, refund: &Refund) -> Self {
        let asset = refund.asset.unwrap_or_else(|| payment.asset());
        Self {
            refund_id: refund.id.to_string(),
            payment_id: payment.terms.public_id(),
            status: refund.state.as_str(),
            amount: Amount::to_string(&refund.amount),
            currency: token_of(payment, asset).map(Token::as_str),
            chain: asset.chain.as_str(),
            token_address: checksummed(asset.address),
            address: checksummed(refund.to),
            source: refund.source.as_str(),
            funds: refund.funds.as_str(),
            requested_by: refund.requested_by.as_str(),
            kyt_verdict: refund.decision().map_or("pending", Decision::as_str),
            tx_hash: refund.tx_hash.map(|hash| hash.to_string()),
            failure: refund.failure.clone(),
            requested_at: refund.requested_at.to_string(),
            finished_at: refund.finished_at.map(|at| at.to_string()),
        }
    }

    /// All refunds, in the order in which they were accepted.
    pub fn all(payment: &Payment) -> Vec<Self> {
        payment.refunds.iter().map(|refund| Self::of(payment, refund)).collect()
    }

    /// The refund with this id.
    pub fn find(payment: &Payment, id: RefundId) -> Result<Self, ApiError> {
        let refund = payment.refunds.iter().find(|refund| refund.id == id);
        refund.map(|refund| Self::of(payment, refund)).ok_or(ApiError::NotFound("refund"))
    }
}

/// The refund's token; `None` if it is not a supported one.
fn token_of(payment: &Payment, asset: Asset) -> Option<Token> {
    if asset == payment.asset() {
        return Some(payment.terms.token);
    }
    let came = payment.transfers.iter().find(|transfer| payment.asset_of(transfer) == asset)?;
    match came.token {
        TransferToken::Other { token, .. } => Some(token),
        TransferToken::Right | TransferToken::LookAlike { .. } => None,
    }
}
