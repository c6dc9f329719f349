//! Waits of payments until a block is final, on one chain. A wait of a large payment ends only when two endpoints agree
//! on its transfer (`agreement`); until then the transfer is held.
//!
//! Not here: the progress of the chain, which the callers pass.

use std::collections::HashMap;
use std::time::Instant;

use payferry_domain::payment::{Command, TransferFinality, TransferKey};
use payferry_domain::{Amount, Finality, FinalityProgress, PaymentId, Timestamp};
use payferry_evm::pace::backoff;

/// Wait of a payment until a block is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalityWait {
    /// The waiting payment.
    pub payment_id: PaymentId,
    /// The transfer.
    pub key: TransferKey,
    /// Revision of the transfer's row.
    pub revision: u32,
    /// Block of the transfer.
    pub block_number: u64,
    /// Required finality.
    pub finality: Finality,
    /// Amount that the payment asks for, or has received if that is more.
    pub amount: Amount,
}

/// The commands to the payments of waits that are over: one for each payment, with all its transfers.
pub(crate) fn finalities(over: Vec<FinalityWait>) -> Vec<(PaymentId, Command)> {
    let mut by_payment: HashMap<PaymentId, Vec<TransferFinality>> = HashMap::new();
    for FinalityWait { payment_id, key, revision, finality, .. } in over {
        by_payment.entry(payment_id).or_default().push(TransferFinality { key, revision, reached: finality });
    }
    by_payment.into_iter().map(|(id, reached)| (id, Command::FinaliseTransfers(reached))).collect()
}

/// Final transfer of a large payment that two endpoints have not confirmed.
#[derive(Clone, Debug)]
pub struct HeldTransfer {
    /// The waiting payment.
    pub payment_id: PaymentId,
    /// Its amount.
    pub amount: Amount,
    /// The transfer.
    pub key: TransferKey,
    /// Time of the first failed check.
    pub since: Timestamp,
    /// Reason of the last failed check.
    pub reason: String,
    checks: u32,
    check_at: Instant,
    is_reported: bool,
}

/// The waits of one chain.
#[derive(Debug, Default)]
pub(crate) struct FinalityWaits {
    waits: HashMap<TransferKey, FinalityWait>,
    /// Transfers on which two endpoints do not agree, each with a wait.
    held: HashMap<TransferKey, HeldTransfer>,
}

impl FinalityWaits {
    /// Adds a wait, or replaces the one for its transfer.
    pub(crate) fn insert(&mut self, wait: FinalityWait) {
        self.waits.insert(wait.key, wait);
    }

    /// Removes and returns the waits that are over, of payments below `agree_from`.
    pub(crate) fn take_reached(&mut self, reach: FinalityProgress, agree_from: Option<Amount>) -> Vec<FinalityWait> {
        let is_over = |wait: &FinalityWait| {
            reach.reached(wait.block_number, wait.finality) && agree_from.is_none_or(|from| wait.amount < from)
        };
        self.waits.extract_if(|_, wait| is_over(wait)).map(|(_, wait)| wait).collect()
    }

    /// Up to `limit` waits that are over except that two endpoints must agree, and whose next check is due.
    pub(crate) fn to_confirm(&self, reach: FinalityProgress, agree_from: Amount, limit: usize) -> Vec<FinalityWait> {
        let now = Instant::now();
        let is_due = |wait: &&FinalityWait| {
            wait.amount >= agree_from
                && reach.reached(wait.block_number, wait.finality)
                && self.held.get(&wait.key).is_none_or(|held| held.check_at <= now)
        };
        self.waits.values().filter(is_due).take(limit).copied().collect()
    }

    /// Ends a wait because two endpoints agree. Returns false if it was replaced or ended in the meantime.
    pub(crate) fn confirmed(&mut self, wait: &FinalityWait) -> bool {
        if self.waits.get(&wait.key) != Some(wait) {
            return false;
        }
        self.waits.remove(&wait.key);
        self.held.remove(&wait.key);
        true
    }

    /// Holds a transfer because two endpoints do not agree. The first `quiet` checks are not reported. Returns true when
    /// the transfer is first reported.
    pub(crate) fn hold(&mut self, wait: &FinalityWait, reason: &str, quiet: u32, now: Timestamp) -> bool {
        if self.waits.get(&wait.key) != Some(wait) {
            return false;
        }
        let held = self.held.entry(wait.key).or_insert_with(|| HeldTransfer {
            payment_id: wait.payment_id,
            amount: wait.amount,
            key: wait.key,
            since: now,
            reason: String::new(),
            checks: 0,
            check_at: Instant::now(),
            is_reported: false,
        });
        reason.clone_into(&mut held.reason);
        held.check_at = Instant::now() + backoff(held.checks);
        held.checks = held.checks.saturating_add(1);
        let is_new = !held.is_reported && held.checks > quiet;
        held.is_reported |= is_new;
        is_new
    }

    /// Reported transfers on which two endpoints do not agree.
    pub(crate) fn held(&mut self) -> Vec<HeldTransfer> {
        // A wait also ends with the payment or the block.
        self.held.retain(|key, _| self.waits.contains_key(key));
        self.held.values().filter(|held| held.is_reported).cloned().collect()
    }

    /// Removes the wait for a transfer with a newer row revision.
    pub(crate) fn drop_outdated(&mut self, key: TransferKey, revision: u32) {
        if self.waits.get(&key).is_some_and(|wait| wait.revision < revision) {
            self.waits.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::{Chain, Hash32};

    use super::*;

    fn key(log_index: u32) -> TransferKey {
        TransferKey { chain: Chain::Base, block_hash: Hash32([2; 32]), tx_hash: Hash32([1; 32]), log_index }
    }

    fn wait(log_index: u32, revision: u32, blocks: u32) -> FinalityWait {
        let (payment_id, finality) = (PaymentId::generate(), Finality::Blocks(blocks));
        let amount = Amount::from_tokens(10);
        FinalityWait { payment_id, key: key(log_index), revision, block_number: 10, finality, amount }
    }

    #[test]
    fn finality_wait_is_replaced_and_taken_once() {
        let mut waits = FinalityWaits::default();
        for (log_index, blocks) in [(0, 2), (0, 2), (1, 2), (0, 5)] {
            waits.insert(wait(log_index, 1, blocks));
        }
        let reach = |read| FinalityProgress { read, safe: None, finalized: None };
        assert!(waits.take_reached(reach(10), None).is_empty());
        assert_eq!(waits.take_reached(reach(11), None).iter().map(|wait| wait.key).collect::<Vec<_>>(), [key(1)]);
        assert!(waits.take_reached(reach(13), None).is_empty());
        assert_eq!(waits.take_reached(reach(14), None).len(), 1);
        assert!(waits.take_reached(reach(99), None).is_empty());
    }

    #[test]
    fn newer_row_revision_ends_the_wait() {
        let mut waits = FinalityWaits::default();
        waits.insert(wait(0, 2, 1));
        waits.drop_outdated(key(0), 2);
        assert_eq!(waits.waits.len(), 1);
        waits.drop_outdated(key(0), 3);
        assert!(waits.waits.is_empty());
    }

    #[test]
    fn wait_of_a_large_payment_ends_only_by_agreement() {
        let mut waits = FinalityWaits::default();
        let (large, small) = (FinalityWait { amount: Amount::from_tokens(100), ..wait(0, 1, 2) }, wait(1, 1, 2));
        for wait in [large, small] {
            waits.insert(wait);
        }
        let (from, reach) = (Amount::from_tokens(100), FinalityProgress { read: 50, safe: None, finalized: None });
        assert_eq!(waits.take_reached(reach, Some(from)), [small]);
        assert_eq!(waits.to_confirm(reach, from, 9), [large]);
        let now = Timestamp::from_secs(5);
        assert!(!waits.hold(&large, "one is away", 1, now) && waits.held().is_empty(), "not reported at once");
        assert!(waits.to_confirm(reach, from, 9).is_empty(), "not due again at once");
        assert!(waits.hold(&large, "one is away", 1, now), "reported");
        assert!(!waits.hold(&large, "another hash", 0, now), "reported once");
        let held = waits.held();
        assert_eq!((held.len(), held[0].reason.as_str(), held[0].since), (1, "another hash", now));
        assert!(!waits.confirmed(&FinalityWait { revision: 2, ..large }), "the wait is another one");
        assert!(waits.confirmed(&large) && !waits.confirmed(&large) && waits.held().is_empty());
    }
}
