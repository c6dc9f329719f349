//! The message that the sending account signs (EIP-191), and the request that is made of it.
//!
//! The message names the service, the payment, the chain, the token, the amount, the address and the time, so that a signature
//! asks for exactly this. Its hash is the id of the request, so that it asks once.

use payferry_actors::system::{AccountSignatureError, message_hash};
use payferry_domain::payment::{AddressProof, Command, Payment, RefundAsk, transition};
use payferry_domain::{Address, Amount, Asset, RefundRequestId, Timestamp, Token, TransitionError};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::sentence;
use payferry_httpkit::{ApiError, Away, FieldError};

use crate::http::pages::pay::chain_name;
use crate::http::payments::chain_id;
use crate::http::payments::refunds::{plain_recipient, token_of};
use crate::http::state::AppShared;

/// Validity of a message, in seconds.
pub(super) const MESSAGE_SECS: i64 = 900;
/// How far a message may be ahead of the clock, in seconds.
const AHEAD_MAX_SECS: i64 = 60;

/// Values of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageTerms {
    /// The account that sent the money, signs, and receives the refund.
    pub account: Address,
    /// Token and chain of the money.
    pub asset: Asset,
    /// Amount.
    pub amount: Amount,
    /// Time of issue.
    pub issued_at: Timestamp,
}

impl MessageTerms {
    /// The messages that an account can sign now: one for each token and chain in which it sent money that can be returned.
    pub(super) fn offered(payment: &Payment, account: Address, now: Timestamp) -> Vec<Self> {
        let of_account = payment.returnable().into_iter().map(|(asset, _)| Self {
            account,
            asset: asset.unwrap_or_else(|| payment.asset()),
            amount: payment.returnable_to(account, asset),
            issued_at: now,
        });
        of_account.filter(|terms| !terms.amount.is_zero()).collect()
    }

    /// The end of its validity.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.issued_at.plus_secs(MESSAGE_SECS)
    }

    /// The text that is signed.
    pub(super) fn text(&self, app: &AppShared, payment: &Payment) -> String {
        let Self { account, asset, amount, issued_at } = *self;
        let url = app.config.public_url.as_str().trim_end_matches('/');
        let host = app.config.public_url.host_str().unwrap_or(url);
        format!(
            "Request for a refund\n\n\
             I ask {host} to send this money back to my account, which sent it.\n\n\
             Service: {url}\n\
             Payment: {}\n\
             Chain: {} ({})\n\
             Token: {} {}\n\
             Amount: {amount}\n\
             To: {}\n\
             Issued at: {issued_at}\n\
             Valid until: {}\n\n\
             This signature moves no money from my account and costs nothing.",
            payment.terms.public_id(),
            chain_name(asset.chain),
            chain_id(app.system.chains(), asset.chain),
            token_of(payment, asset).map_or("unknown", Token::as_str),
            checksummed(asset.address),
            checksummed(account),
            self.expires_at(),
        )
    }

    /// Verifies a signature of this message; returns the request that it makes. `at_once`: the PSP's policy carries it out.
    pub(super) async fn verified(
        self,
        app: &AppShared,
        payment: &Payment,
        signature: &[u8],
        at_once: bool,
    ) -> Result<RefundAsk, ApiError> {
        let Self { account, asset, amount, issued_at } = self;
        let (now, hash): (Timestamp, _) = (app.clock().now(), message_hash(&self.text(app, payment)));
        let mut ask = RefundAsk {
            id: RefundRequestId::signed(issued_at, hash),
            amount,
            to: account,
            asset: Some(asset).filter(|asset| *asset != payment.asset()),
            proof: AddressProof::Signature,
            at_once,
            plain: None,
            hold: false,
            note: None,
        };
        let is_known = payment.refund_requests.iter().any(|known| known.id == ask.id);
        if !is_known {
            if now >= self.expires_at() || issued_at > now.plus_secs(AHEAD_MAX_SECS) {
                return Err(expired());
            }
            // The payment decides again in its actor. Decided here first, so that a refused request asks the chain nothing.
            match transition(payment, &Command::AskRefund(Box::new(ask.clone())), now) {
                Err(TransitionError::Rejected(rejection)) => return Err(rejection.into()),
                Err(TransitionError::Violated(violated)) => return Err(violated.into()),
                Ok(_) => {}
            }
        }
        app.system.verify_signature(asset.chain, account, hash, signature).await.map_err(refused)?;
        ask.plain = plain_recipient(app, payment, ask.asset, Some(account)).await?;
        Ok(ask)
    }
}

fn expired() -> ApiError {
    let fault = FieldError::new("issued_at", "refund_message_expired", "is too old, or in the future");
    let detail = "The message is too old, or in the future; sign a new one.";
    ApiError::Unprocessable("refund_message_expired", detail.to_owned(), vec![fault])
}

fn refused(error: AccountSignatureError) -> ApiError {
    let text = sentence(&error.to_string());
    match error {
        AccountSignatureError::Invalid => {
            let fault = FieldError::new("signature", "refund_signature", "is not valid for this message");
            ApiError::Unprocessable("refund_signature", text, vec![fault])
        }
        AccountSignatureError::ChainAway(why) => ApiError::Unavailable(Away::Chain, why.into()),
    }
}
