//! How many transfers a payment lists.
//!
//! Anybody can send any number of transfers to a wallet, and every transition writes all that the payment lists: without
//! an end to that, one payer would hold up the writing for everybody. What has no room changes nothing about the payment, is
//! not posted, and stays in the watcher's rows alone. Less worth has less room, so that it crowds out nothing of more worth.
//! What a person has looked at is listed beyond that, up to an end of its own.

use super::state::Payment;
use super::transfer::{ObservedTransfer, Transfer, TransferStatus};
use crate::money::Amount;

/// Dust that is listed: enough to see what is going on.
pub const DUST_LISTED_MAX: usize = 20;
/// Transfers of other tokens, or on other chains, that are listed.
pub const MISDIRECTED_LISTED_MAX: usize = 100;
/// Transfers of the due token that are listed, each of less than pays the payment.
pub const PARTS_LISTED_MAX: usize = 500;
/// Transfers that are listed and pay the payment on their own: no number of small ones keeps out the one that is due.
pub const WHOLES_LISTED_MAX: usize = 100;

/// Transfers in the list up to which the operator may take in more.
pub const LISTED_MAX: usize = 2_000;

/// What a transfer is worth to the payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    Dust,
    Misdirected,
    Part,
    Whole,
}

impl Worth {
    fn of(payment: &Payment, transfer: &Transfer) -> Self {
        if payment.is_dust(transfer) {
            Self::Dust
        } else if !transfer.is_right() {
            Self::Misdirected
        } else if transfer.amount < payment.terms.tolerance.least_for(payment.terms.amount) {
            Self::Part
        } else {
            Self::Whole
        }
    }

    const fn listed_max(self) -> usize {
        match self {
            Self::Dust => DUST_LISTED_MAX,
            Self::Misdirected => MISDIRECTED_LISTED_MAX,
            Self::Part => PARTS_LISTED_MAX,
            Self::Whole => WHOLES_LISTED_MAX,
        }
    }
}

/// Whether a transfer that is not listed yet may be. What the chain took back makes room for what it has instead, perhaps
/// under another log index, and for nothing else.
pub(super) fn has_room(payment: &Payment, transfer: &Transfer) -> bool {
    let worth = Worth::of(payment, transfer);
    let is_gone = |t: &Transfer| t.status == TransferStatus::Orphaned;
    let alike = || payment.transfers.iter().filter(|t| Worth::of(payment, t) == worth);
    let taking = alike().filter(|t| is_gone(transfer) || !is_gone(t));
    if taking.count() < worth.listed_max() {
        return true;
    }
    // A person may have had more listed. Of one transaction as many come back as were taken back, however many others there are.
    let of_same = |t: &&Transfer| t.key.chain == transfer.key.chain && t.key.tx_hash == transfer.key.tx_hash;
    let (gone, present): (Vec<_>, Vec<_>) = alike().filter(of_same).partition(|t| is_gone(t));
    !is_gone(transfer) && present.len() < gone.len()
}

/// How many more a person may have listed.
pub(super) fn room_for_more(payment: &Payment) -> usize {
    LISTED_MAX.saturating_sub(payment.transfers.len())
}

impl Payment {
    /// Whether this transfer, which was decided upon, is money that is not listed for want of room: a person has to know of
    /// it.
    pub fn sets_aside(&self, observed: &ObservedTransfer) -> bool {
        self.transfer(observed.key).is_none() && !self.is_dust_amount(observed.amount)
    }

    /// Whether so little is ignored.
    pub(crate) fn is_dust_amount(&self, amount: Amount) -> bool {
        let floor = self.terms.dust_floor.min(self.terms.amount);
        amount.units() <= 0 || amount < floor
    }
}
