//! A refund as the interface shows it.

use payferry_actors::wallet::checksummed;
use payferry_domain::payment::{Decision, Payment, Refund, TransferToken};
use payferry_domain::{Amount, Asset, RefundId, Token};
use payferry_httpkit::error::ApiError;
use serde::Serialize;
use utoipa::ToSchema;

/// Money that goes back.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundRecord {
    #[schema(example = "rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    refund_id: String,
    payment_id: String,
    /// pending, sent or failed. Only what failed can be asked for again.
    status: &'static str,
    #[schema(example = "10.00")]
    amount: String,
    /// USDC or USDT; null of a contract that is only mistaken for one.
    currency: Option<&'static str>,
    chain: &'static str,
    token_address: String,
    /// Where it goes.
    address: String,
    /// payment or psp: whether it is taken from the payment's wallet or, once settled, from the PSP's vault.
    source: &'static str,
    /// received; misdirected: what came in another token or on another chain; or blocked: what screening blocked, which the
    /// operator sends.
    funds: &'static str,
    /// psp, operator, or schedule: the service itself, by the PSP's settings.
    requested_by: &'static str,
    /// pending, allow, review or block: what screening says about the address. Nothing is sent before it allows.
    kyt_verdict: &'static str,
    /// Of the transaction that carried it, once sent.
    tx_hash: Option<String>,
    /// Why it failed.
    failure: Option<String>,
    #[schema(format = "date-time")]
    requested_at: String,
    /// When it was sent or failed.
    #[schema(format = "date-time")]
    finished_at: Option<String>,
}

impl RefundRecord {
    /// One of the payment's refunds.
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

    /// All of them, in the order in which they were accepted.
    pub fn all(payment: &Payment) -> Vec<Self> {
        payment.refunds.iter().map(|refund| Self::of(payment, refund)).collect()
    }

    /// The one with this id.
    pub fn find(payment: &Payment, id: RefundId) -> Result<Self, ApiError> {
        let refund = payment.refunds.iter().find(|refund| refund.id == id);
        refund.map(|refund| Self::of(payment, refund)).ok_or(ApiError::NotFound("refund"))
    }
}

/// Which token it is; misdirected money says so itself.
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
