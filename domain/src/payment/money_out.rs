//! What leaves the payment's wallet: its one settlement and its refunds, and the operations that carry them.

use serde::{Deserialize, Serialize};

use crate::chain::{Address, Chain, Hash32};
use crate::ids::{OperationId, RefundId};
use crate::ledger::Asset;
use crate::money::{Amount, FeeBps, split_fee};
use crate::named::named;
use crate::time::Timestamp;

use super::transfer::{Decision, Verdict};

named! {
    /// How far the settlement has come.
    SettlementState, "queued, settled, failed, withdrawn" {
        /// The settler has it, or is to have it again.
        Queued = "queued",
        /// Mined and final by the tier.
        Settled = "settled",
        /// Reverted for a lasting reason; retried with back-off and on demand.
        Failed = "failed",
        /// Not to be carried out: the money went away again, or the PSP refunds it.
        Withdrawn = "withdrawn",
    }
}

/// The payment's one settlement. `psp_amount + treasury_fee == amount`, always.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The operation, the same for ever.
    pub operation: OperationId,
    /// What is settled, frozen at confirmation.
    pub amount: Amount,
    /// The PSP's share.
    pub psp_amount: Amount,
    /// The treasury's share.
    pub treasury_fee: Amount,
    /// How far it has come.
    pub state: SettlementState,
    /// The newest revision of the settler's row that was applied.
    #[serde(default)]
    pub revision: u32,
    /// The transaction that carried it, once final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<Hash32>,
    /// The time of that transaction's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    /// Lasting failures so far.
    #[serde(default)]
    pub failures: u32,
    /// Why it failed last, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it is to be tried again by itself; only while failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether a person asked for the attempt that is under way: its failure is announced again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry_demanded: bool,
}

impl Settlement {
    /// What it moves, in shares.
    pub(super) fn carry(&mut self, amount: Amount, fee: FeeBps) {
        let shares = split_fee(amount, fee);
        self.amount = amount;
        (self.psp_amount, self.treasury_fee) = (shares.psp_amount, shares.treasury_fee);
    }
}

named! {
    /// How far a refund has come.
    RefundState, "pending, sent, failed" {
        /// Accepted; its amount is reserved.
        Pending = "pending",
        /// Final by the tier.
        Sent = "sent",
        /// It will not be sent; the reserve is free again.
        Failed = "failed",
    }
}

named! {
    /// Which money a refund is about.
    Funds, "received, blocked, misdirected" {
        /// What counts.
        Received = "received",
        /// What screening blocked; the operator's alone.
        Blocked = "blocked",
        /// What came in another token or on another chain.
        Misdirected = "misdirected",
    }
}

named! {
    /// The vault that an operation takes from.
    Vault, "payment, psp" {
        /// The payment's own wallet.
        Payment = "payment",
        /// The PSP's vault.
        Psp = "psp",
    }
}

named! {
    /// Who asks.
    Requester, "psp, operator, schedule" {
        /// The PSP, by its key.
        Psp = "psp",
        /// The operator of the service.
        Operator = "operator",
        /// The service itself: a timer or a policy.
        Schedule = "schedule",
    }
}

/// A refund of the payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// The refund.
    pub id: RefundId,
    /// The operation that sends it.
    pub operation: OperationId,
    /// How much.
    pub amount: Amount,
    /// To whom.
    pub to: Address,
    /// From which vault.
    pub source: Vault,
    /// Out of which money.
    pub funds: Funds,
    /// In which token on which chain, if not the payment's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset: Option<Asset>,
    /// What screening says about the address, once it has spoken; nothing is sent before it says `allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Box<Verdict>>,
    /// Who asked; `schedule` for the excess policy.
    pub requested_by: Requester,
    /// How far it has come.
    pub state: RefundState,
    /// The newest revision of the settler's row that was applied.
    #[serde(default)]
    pub revision: u32,
    /// When it was accepted.
    pub requested_at: Timestamp,
    /// When it was sent or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The transaction that carried it, once sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<Hash32>,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Refund {
    /// What screening says about the address so far.
    pub fn decision(&self) -> Option<Decision> {
        self.verdict.as_ref().map(|verdict| verdict.decision)
    }

    /// Whether screening still has to say `allow` or `block`.
    pub fn awaits_screening(&self) -> bool {
        self.state == RefundState::Pending && matches!(self.decision(), None | Some(Decision::Review))
    }
}

/// What is to be done with an operation's row in the same commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationAction {
    /// A new row.
    Queue,
    /// The row exists (failed, cancelled, or not yet done): it is to be done again, with these amounts.
    Requeue,
    /// The row is not to be carried out, if that can still be prevented.
    Cancel,
}

/// What an operation does on-chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum OperationBody {
    /// Share out the payment vault's money between the PSP's vault and the treasury.
    Settle {
        /// The sum of the two below.
        amount: Amount,
        /// To the PSP's vault.
        psp_amount: Amount,
        /// To the treasury.
        treasury_fee: Amount,
    },
    /// Send a transfer's money on to its recipient.
    Deliver {
        /// To whom.
        to: Address,
        /// How much.
        amount: Amount,
    },
    /// Send from a vault to an address.
    Send {
        /// The refund that it carries.
        refund_id: RefundId,
        /// From which vault.
        source: Vault,
        /// To whom.
        to: Address,
        /// How much.
        amount: Amount,
    },
}

/// A change of the operation queue, written in the same commit as the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewOperation {
    /// Which operation.
    pub id: OperationId,
    /// What is to be done with its row.
    pub action: OperationAction,
    /// On which chain.
    pub chain: Chain,
    /// The token's contract.
    pub token_address: Address,
    /// The payment's wallet (the vault, for `Vault::Payment` and settlements).
    pub wallet: Address,
    /// What it does.
    pub body: OperationBody,
}
