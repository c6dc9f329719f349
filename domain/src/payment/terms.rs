//! Terms of a payment. They never change, except that the payer may choose the chain once.

use serde::{Deserialize, Serialize};

use super::payer_request::PayerRefunds;
use crate::chain::{Address, Chain, FinalityPolicy};
use crate::ids::{CustomerId, MerchantId, PaymentId, PspId, TransferId};
use crate::money::{Amount, FeeBps, Token, Tolerance};
use crate::time::Timestamp;

/// Terms at initiation, with the policies of the PSP at that time.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Payment id.
    pub id: PaymentId,
    /// PSP that owns it.
    pub psp_id: PspId,
    /// Purpose of the money.
    #[serde(default, skip_serializing_if = "Purpose::is_pay_in")]
    pub purpose: Purpose,
    /// Merchant. Set only for pay-ins.
    pub merchant_id: Option<MerchantId>,
    /// Paying customer, if known. For a transfer, the recipient customer.
    pub customer_id: Option<CustomerId>,
    /// Reference from the PSP.
    pub reference: Option<String>,
    /// Description of the order, shown to the payer.
    #[serde(default)]
    pub description: Option<String>,
    /// JSON object from the PSP, returned in events.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Amount due.
    pub amount: Amount,
    /// Token.
    pub token: Token,
    /// Contract of the token on `chain`: the only contract that counts.
    pub token_address: Address,
    /// Chain.
    pub chain: Chain,
    /// Selection of the chain.
    #[serde(default)]
    pub chain_choice: ChainChoice,
    /// Intermediary wallet: the payment's own vault, with the same address on every chain.
    pub wallet: Address,
    /// Secret part of the magic link.
    pub link_token: String,
    /// Fee of the treasury.
    #[serde(default)]
    pub fee_bps: FeeBps,
    /// Shortfall that is accepted as full payment.
    #[serde(default)]
    pub tolerance: Tolerance,
    /// Surplus that is excess instead of an overpayment.
    #[serde(default)]
    pub overpayment_tolerance: Tolerance,
    /// Handling of overpayments.
    #[serde(default)]
    pub overpayment: OverpaymentPolicy,
    /// True if a refund without an address may go to the sender.
    #[serde(default)]
    pub refund_to_sender: bool,
    /// Handling of requests of payers for a refund.
    #[serde(default, skip_serializing_if = "PayerRefunds::is_off")]
    pub payer_refunds: PayerRefunds,
    /// Transfers below this amount are ignored. Zero is always ignored. The effective floor is at most `amount`.
    #[serde(default)]
    pub dust_floor: Amount,
    /// Required finality by amount.
    pub finality: FinalityPolicy,
    /// W3C trace context of the request that created the payment, as the value of a `traceparent` header.
    pub traceparent: Option<String>,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// Purpose of the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Purpose {
    /// A payment: it is settled between the vault of the PSP and the treasury.
    #[default]
    PayIn,
    /// A transfer to a customer: it is forwarded to the wallet of the customer, without a fee.
    Transfer {
        /// Wallet of the customer at the time of acceptance.
        to: Address,
    },
}

impl Purpose {
    /// Returns true for a payment to the PSP.
    pub const fn is_pay_in(&self) -> bool {
        matches!(self, Self::PayIn)
    }

    /// Name in the database.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::PayIn => "payin",
            Self::Transfer { .. } => "transfer",
        }
    }
}

impl Terms {
    /// Returns the chains that the payer can, or could, choose.
    pub fn offered(&self) -> &[OfferedChain] {
        match &self.chain_choice {
            ChainChoice::Payer { offered } => offered,
            ChainChoice::Asked | ChainChoice::Best { .. } => &[],
        }
    }

    /// Returns the public id: `pay_`, or `tr_` for a transfer.
    pub fn public_id(&self) -> String {
        match self.purpose {
            Purpose::PayIn => self.id.to_string(),
            Purpose::Transfer { .. } => TransferId::of(self.id).to_string(),
        }
    }
}

/// Selection of the chain of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainChoice {
    /// The request named the chain.
    #[default]
    Asked,
    /// The request said `best`.
    Best {
        /// Every candidate chain, including the selected one.
        candidates: Vec<ChainCandidate>,
    },
    /// The payer chooses. Until then, the chain, its token and its finality are those of the best offered chain.
    Payer {
        /// Chains that the payer can choose. The wallet has the same address on all of them.
        offered: Vec<OfferedChain>,
    },
}

/// A chain that the payer can choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedChain {
    /// Chain.
    pub chain: Chain,
    /// Contract of the token on it.
    pub token_address: Address,
    /// Required finality by amount on it.
    pub finality: FinalityPolicy,
}

/// One candidate chain of a `best` selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainCandidate {
    /// Chain.
    pub chain: Chain,
    /// True if the chain was eligible.
    pub eligible: bool,
    /// Reason why it was eligible or not, as text.
    pub reason: String,
}

/// Handling of overpayments, set by the PSP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverpaymentPolicy {
    /// The payment becomes mismatched and the PSP decides.
    #[default]
    Hold,
    /// The whole amount received is settled.
    Accept,
    /// The amount due is settled and the surplus stays refundable. Transfers use this policy.
    KeepExcess,
    /// The amount due is settled and the surplus is refunded to the sender, if there is a single sender with a plain
    /// account and the PSP allows refunds to senders. Otherwise the surplus stays refundable.
    RefundExcess,
}
