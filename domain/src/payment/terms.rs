//! What was agreed when the payment was made; fixed for its life.

use serde::{Deserialize, Serialize};

use crate::chain::{Address, Chain, FinalityPolicy};
use crate::ids::{CustomerId, MerchantId, PaymentId, PspId, TransferId};
use crate::money::{Amount, FeeBps, Token, Tolerance};
use crate::time::Timestamp;

/// What was agreed at initiation, with the PSP's policies as they were then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The payment.
    pub id: PaymentId,
    /// Whose it is.
    pub psp_id: PspId,
    /// What the money is for.
    #[serde(default, skip_serializing_if = "Purpose::is_pay_in")]
    pub purpose: Purpose,
    /// For which merchant; a pay-in's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merchant_id: Option<MerchantId>,
    /// Who pays, if it was named; of a transfer, who is paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<CustomerId>,
    /// The PSP's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The PSP's own object, given back in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// What is due.
    pub amount: Amount,
    /// In which token.
    pub token: Token,
    /// The token's contract on `chain`: the only one that counts.
    pub token_address: Address,
    /// On which chain.
    pub chain: Chain,
    /// How the chain was chosen.
    #[serde(default)]
    pub chain_choice: ChainChoice,
    /// The intermediary wallet: the payment's own vault, the same address on every chain.
    pub wallet: Address,
    /// The unguessable part of the magic link.
    pub link_token: String,
    /// The treasury's fee.
    #[serde(default)]
    pub fee_bps: FeeBps,
    /// How much less still pays it.
    #[serde(default)]
    pub tolerance: Tolerance,
    /// What happens with more than was due.
    #[serde(default)]
    pub overpayment: OverpaymentPolicy,
    /// Whether a refund may go to the sender when no address is given.
    #[serde(default)]
    pub refund_to_sender: bool,
    /// Transfers below this are ignored (zero always is; at most `amount` is ever applied).
    #[serde(default)]
    pub dust_floor: Amount,
    /// What "final" means.
    pub finality: FinalityPolicy,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What becomes of the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Purpose {
    /// A payment: it is settled between the PSP's vault and the treasury.
    #[default]
    PayIn,
    /// A transfer to a customer: it is sent on to the customer's wallet, without a fee.
    Transfer {
        /// The wallet, as it was when the transfer was accepted.
        to: Address,
    },
}

impl Purpose {
    /// Whether it is a payment to the PSP.
    pub const fn is_pay_in(&self) -> bool {
        matches!(self, Self::PayIn)
    }

    /// Its name in the database.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::PayIn => "payin",
            Self::Transfer { .. } => "transfer",
        }
    }
}

impl Terms {
    /// The id by which the PSP knows it: `pay_`, or `tr_` of a transfer.
    pub fn public_id(&self) -> String {
        match self.purpose {
            Purpose::PayIn => self.id.to_string(),
            Purpose::Transfer { .. } => TransferId::of(self.id).to_string(),
        }
    }
}

/// How a payment got its chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainChoice {
    /// The request named it.
    #[default]
    Asked,
    /// The request said `best`; these were weighed.
    Best {
        /// Every chain that was looked at, the chosen one among them.
        candidates: Vec<ChainCandidate>,
    },
}

/// One chain that `best` weighed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainCandidate {
    /// The chain.
    pub chain: Chain,
    /// Whether it could have been chosen.
    pub eligible: bool,
    /// Why it was or was not, for people.
    pub reason: String,
}

/// What happens with more than was due, set by the PSP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverpaymentPolicy {
    /// The payment becomes mismatched and the PSP decides.
    #[default]
    Hold,
    /// All of it is settled.
    Accept,
    /// The amount is settled and the rest stays refundable: how transfers are.
    KeepExcess,
    /// The amount is settled and the rest goes back to the sender, if that is one plain account and the PSP allows
    /// refunds to senders; else the rest stays refundable.
    RefundExcess,
}
