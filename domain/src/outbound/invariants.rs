//! Numbered invariants of a payout or withdrawal.

use super::state::{OutboundKind, OutboundStatus, OutboundTransfer};
use crate::invariants::Invariant;
use crate::money::Amount;
use crate::payment::Decision;

/// Every invariant of an outbound transfer, in the order of the numbers.
pub const INVARIANTS: &[Invariant<OutboundTransfer>] = &[
    Invariant { id: "OUT-1", name: "the amount is positive", holds: is_positive },
    Invariant { id: "OUT-2", name: "exactly payouts have a customer", holds: payout_has_customer },
    Invariant {
        id: "OUT-3",
        name: "failure_reason and failure are set exactly while failed",
        holds: failure_has_reason,
    },
    Invariant { id: "OUT-4", name: "tx_hash is set exactly while sent", holds: sent_has_transaction },
    Invariant { id: "OUT-5", name: "finished_at is set exactly while sent or failed", holds: finished_has_time },
    Invariant { id: "OUT-6", name: "an outbound transfer to a blocked address is not pending", holds: blocked_ends },
];

fn is_positive(outbound: &OutboundTransfer) -> bool {
    outbound.order.amount > Amount::ZERO
}

fn payout_has_customer(outbound: &OutboundTransfer) -> bool {
    (outbound.id().kind() == OutboundKind::Payout) == outbound.order.customer_id.is_some()
}

fn failure_has_reason(outbound: &OutboundTransfer) -> bool {
    let has_failed = outbound.status == OutboundStatus::Failed;
    outbound.failure_reason.is_some() == has_failed && outbound.failure.is_some() == has_failed
}

fn sent_has_transaction(outbound: &OutboundTransfer) -> bool {
    outbound.tx_hash.is_some() == (outbound.status == OutboundStatus::Sent)
}

fn finished_has_time(outbound: &OutboundTransfer) -> bool {
    outbound.finished_at.is_some() != outbound.is_live()
}

fn blocked_ends(outbound: &OutboundTransfer) -> bool {
    !(outbound.is_live() && outbound.decision() == Some(Decision::Block))
}
