//! Limits on the transfers that a payment lists.
//!
//! Anyone can send any number of transfers to a wallet, and every transition writes the whole list. Without limits, one
//! payer could slow down all writes. A transfer beyond the limit does not change the payment, is not posted, and exists
//! only in the watcher's rows.
//!
//! Transfers of lower value have lower limits, so that they cannot displace transfers of higher value. A person can
//! have more transfers listed, up to a separate limit.

use super::state::Payment;
use super::transfer::{ObservedTransfer, Transfer, TransferStatus};
use crate::money::Amount;

/// Limit on listed dust. Enough to diagnose the payment.
pub const DUST_LISTED_MAX: usize = 20;
/// Limit on listed transfers of other tokens or on other chains.
pub const MISDIRECTED_LISTED_MAX: usize = 100;
/// Limit on listed transfers of the due token that are too small to pay the payment alone.
pub const PARTS_LISTED_MAX: usize = 500;
/// Limit on listed transfers that pay the payment alone. It is separate, so that small transfers cannot displace the
/// one that pays.
pub const WHOLES_LISTED_MAX: usize = 100;

/// Limit on the length of the list up to which the operator can have more transfers listed.
pub const LISTED_MAX: usize = 2_000;

/// Value class of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueClass {
    Dust,
    Misdirected,
    Part,
    Whole,
}

impl ValueClass {
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

/// Returns true if a new transfer fits into the list. An orphaned transfer makes room only for the transfer that
/// replaces it, possibly under another log index.
pub(super) fn has_room(payment: &Payment, transfer: &Transfer) -> bool {
    let worth = ValueClass::of(payment, transfer);
    let is_gone = |t: &Transfer| t.status == TransferStatus::Orphaned;
    let alike = || payment.transfers.iter().filter(|t| ValueClass::of(payment, t) == worth);
    let taking = alike().filter(|t| is_gone(transfer) || !is_gone(t));
    if taking.count() < worth.listed_max() {
        return true;
    }
    // The list may exceed the limit if a person had more transfers listed. For each transaction, as many transfers
    // return as were orphaned, independent of the number of other transfers.
    let of_same = |t: &&Transfer| t.key.chain == transfer.key.chain && t.key.tx_hash == transfer.key.tx_hash;
    let (gone, present): (Vec<_>, Vec<_>) = alike().filter(of_same).partition(|t| is_gone(t));
    !is_gone(transfer) && present.len() < gone.len()
}

/// Returns how many more transfers a person can have listed.
pub(super) fn room_for_more(payment: &Payment) -> usize {
    LISTED_MAX.saturating_sub(payment.transfers.len())
}

impl Payment {
    /// Returns true if this transfer, which was already evaluated, is not listed because the list is full and is more
    /// than dust. An operator must be informed about it.
    pub fn sets_aside(&self, observed: &ObservedTransfer) -> bool {
        self.transfer(observed.key).is_none() && !self.is_dust_amount(observed.amount)
    }

    /// Returns true if an amount is small enough to be ignored.
    pub(crate) fn is_dust_amount(&self, amount: Amount) -> bool {
        let floor = self.terms.dust_floor.min(self.terms.amount);
        amount.units() <= 0 || amount < floor
    }
}
