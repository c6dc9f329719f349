//! Requests of payers for a refund, and the money that a payer may ask for: late, misdirected and excess money that is held
//! and that no other rule of the payment may still use.
//!
//! Not here: the decision about a request (`decide`), and the proof of a signature, which the caller verifies.

use serde::{Deserialize, Serialize};

use super::command::{RefundAsk, RefundOrder};
use super::money_out::{Funds, Refund, RefundState, Requester, SettlementState, Vault};
use super::state::Payment;
use super::status::Status;
use super::transfer::{Decision, Transfer, TransferStatus};
use crate::chain::Address;
use crate::ids::{RefundId, RefundRequestId};
use crate::ledger::Asset;
use crate::money::Amount;
use crate::named::named;
use crate::time::Timestamp;

/// Maximum number of open requests of a payment, with a signature and without one separately.
pub const REFUND_REQUESTS_OPEN_MAX: usize = 3;
/// Maximum number of requests of a payment, with a signature and without one separately. Every commit writes all of them.
pub const REFUND_REQUESTS_MAX: usize = 20;
/// Maximum characters of the note of a payer.
pub const REFUND_NOTE_CHARS_MAX: usize = 140;

named! {
    /// Handling of requests of payers for a refund, set by the PSP. From the strictest on.
    #[derive(Default)]
    PayerRefunds, "off, approve, sender" {
        /// Payers cannot ask.
        #[default]
        Off = "off",
        /// Every request waits for the PSP.
        Approve = "approve",
        /// A request that the sending account signed is carried out at once. Others wait for the PSP.
        Sender = "sender",
    }
}

impl PayerRefunds {
    /// Returns true if payers cannot ask.
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

named! {
    /// Evidence that the payer controls the address of a request.
    AddressProof, "signature, none" {
        /// The account that sent the money signed the request, and receives the refund.
        Signature = "signature",
        /// The payer only claims the address.
        Claimed = "none",
    }
}

named! {
    /// State of a request.
    RefundRequestState, "requested, approved, declined" {
        /// It waits for the PSP.
        Requested = "requested",
        /// It became a refund.
        Approved = "approved",
        /// The PSP declined it.
        Declined = "declined",
    }
}

/// A request of a payer for a refund.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayerRequest {
    /// Id, which is also that of its refund.
    pub id: RefundRequestId,
    /// Amount.
    pub amount: Amount,
    /// Recipient address.
    pub to: Address,
    /// Token and chain, if they differ from the payment's.
    pub asset: Option<Asset>,
    /// Evidence about the address.
    pub proof: AddressProof,
    /// Note of the payer to the PSP.
    pub note: Option<String>,
    /// Current state.
    pub state: RefundRequestState,
    /// Time of the request.
    pub requested_at: Timestamp,
    /// Time of the decision.
    pub decided_at: Option<Timestamp>,
}

impl PayerRequest {
    /// Returns true if it waits for the PSP.
    pub fn is_open(&self) -> bool {
        self.state == RefundRequestState::Requested
    }

    /// Returns the id of its refund. So a request has at most one.
    pub const fn refund_id(&self) -> RefundId {
        RefundId::of_request(self.id)
    }

    /// Returns the funds that its refund uses.
    pub fn funds(&self) -> Funds {
        if self.asset.is_some() { Funds::Misdirected } else { Funds::Received }
    }

    /// Returns the order of `by` that carries it out.
    pub fn order(&self, by: Requester) -> RefundOrder {
        RefundOrder {
            amount: Some(self.amount),
            to: Some(self.to),
            funds: self.funds(),
            asset: self.asset,
            ..RefundOrder::new(self.refund_id(), by)
        }
    }

    /// Returns the time of the last change.
    pub fn updated_at(&self) -> Timestamp {
        self.decided_at.unwrap_or(self.requested_at)
    }

    /// Returns true if `ask` is this request again. An open request without a signature is the same if it asks for the same.
    pub(super) fn is_asked_by(&self, ask: &RefundAsk) -> bool {
        let is_alike = self.is_open() && (self.to, self.asset, self.amount) == (ask.to, ask.asset, ask.amount);
        self.id == ask.id || is_alike && self.proof == ask.proof && self.proof == AddressProof::Claimed
    }

    /// Returns true if `refund` is what it asks for.
    pub(crate) fn is_answered_by(&self, refund: &Refund) -> bool {
        (self.refund_id(), self.amount, self.to, self.asset, self.funds())
            == (refund.id, refund.amount, refund.to, refund.asset, refund.funds)
    }
}

impl Payment {
    /// Returns the request that has this refund.
    pub fn request_of(&self, refund: RefundId) -> Option<&PayerRequest> {
        self.refund_requests.iter().find(|request| request.refund_id() == refund)
    }

    /// Returns the money that payers may ask for now, by token and chain; `None` is the due token. Zero amounts are omitted.
    pub fn returnable(&self) -> Vec<(Option<Asset>, Amount)> {
        let misdirected = self.transfers.iter().filter(|transfer| !transfer.is_right());
        let mut assets: Vec<_> = misdirected.map(|transfer| Some(self.asset_of(transfer))).chain([None]).collect();
        assets.sort_unstable();
        assets.dedup();
        let amounts = assets.into_iter().map(|asset| (asset, self.returnable_in(asset)));
        amounts.filter(|(_, amount)| !amount.is_zero()).collect()
    }

    /// Returns the amount in a token that payers may ask for now. Less than dust is not worth a transaction.
    pub fn returnable_in(&self, asset: Option<Asset>) -> Amount {
        let amount = asset.map_or_else(|| self.surplus_left(), |asset| self.misdirected(asset));
        if self.is_dust_amount(amount) { Amount::ZERO } else { amount }
    }

    /// Returns the late and the excess money that is left in the wallet and that no settlement takes.
    fn surplus_left(&self) -> Amount {
        let surplus: Amount = self.parts_of_surplus().iter().map(|(_, amount)| *amount).sum();
        // Money that was sent back from the wallet may have been surplus.
        let left = surplus.saturating_sub(self.refunded(Funds::Received, Some(Vault::Payment)));
        left.min(self.free_in_wallet())
    }

    /// Returns the amount in a token that this account may ask for now: at most what it sent, less what was sent back to it
    /// or to accounts that sent none of this token.
    pub fn returnable_to(&self, sender: Address, asset: Option<Asset>) -> Amount {
        let parts = match asset {
            Some(asset) => self.parts_of_misdirected(asset),
            None => self.parts_of_surplus(),
        };
        let own: Amount = parts.iter().filter(|(from, _)| *from == sender).map(|(_, amount)| *amount).sum();
        let is_sender = |to: Address| parts.iter().any(|(from, _)| *from == to);
        let from_wallet = |refund: &&Refund| {
            refund.state != RefundState::Failed
                && refund.asset == asset
                && refund.source == Vault::Payment
                && refund.funds != Funds::Blocked
        };
        let of_it = |refund: &&Refund| refund.to == sender || !is_sender(refund.to);
        let gone: Amount = self.refunds.iter().filter(from_wallet).filter(of_it).map(|refund| refund.amount).sum();
        own.saturating_sub(gone).min(self.returnable_in(asset))
    }

    /// Returns the money in another token or on another chain that screening allowed, with its senders.
    fn parts_of_misdirected(&self, asset: Asset) -> Vec<(Address, Amount)> {
        let held = |t: &&Transfer| {
            !t.is_right()
                && t.status == TransferStatus::Final
                && t.decision() == Some(Decision::Allow)
                && self.asset_of(t) == asset
        };
        self.transfers.iter().filter(held).map(|transfer| (transfer.from, transfer.amount)).collect()
    }

    /// Returns the late and the excess money of the due token, with its senders. What is above the amount to keep came from
    /// the last transfers.
    fn parts_of_surplus(&self) -> Vec<(Address, Amount)> {
        let settlement = self.settlement.as_deref().filter(|_| self.status != Status::Mismatched);
        let (kept, is_open) = match settlement {
            Some(settlement) => (settlement.amount, false),
            None => (self.terms.amount, true),
        };
        // A payment that had failed counts only late money, unless a reorganisation opened it again.
        let since_open = self.history.iter().rev().take_while(|entry| entry.status != Status::Pending);
        let was_over = since_open.into_iter().any(|entry| entry.status == Status::Failed);
        let is_late = |transfer: &Transfer| is_open && (was_over || !self.is_in_time(transfer));
        let mut counted: Vec<&Transfer> = self.transfers.iter().filter(|transfer| transfer.counted).collect();
        counted.sort_by_key(|transfer| transfer.position());
        let mut sum = Amount::ZERO;
        let part = |transfer: &Transfer| {
            if transfer.excess || is_late(transfer) {
                return (transfer.from, transfer.amount);
            }
            sum = sum.saturating_add(transfer.amount);
            (transfer.from, transfer.amount.min(sum.saturating_sub(kept)))
        };
        let parts = counted.into_iter().map(part);
        parts.filter(|(_, amount)| !amount.is_zero()).collect()
    }

    /// Returns the received money in the payment's wallet that no settlement takes.
    fn free_in_wallet(&self) -> Amount {
        let held = self.in_wallet().min(self.refundable());
        let frozen = matches!(self.status, Status::Confirmed | Status::Settled);
        match self.settlement.as_deref().filter(|_| frozen) {
            None => held,
            Some(settlement) => match settlement.state {
                SettlementState::Settled => held,
                SettlementState::Failed => held.saturating_sub(settlement.amount),
                SettlementState::Queued | SettlementState::Withdrawn => Amount::ZERO,
            },
        }
    }
}
