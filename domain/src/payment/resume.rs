//! Effects that are still due after a restart, computed only from the state: the same waits and notifications as from
//! `react`. Alarms are not repeated, because the labels show their cause.

use super::effect::Effect;
use super::react::{deadline, finalities, queued_refunds, refund_screenings, review, screening, settlement};
use super::state::Payment;

/// Returns all effects that are still due. They are idempotent, so extra calls only cost time.
pub fn resume(payment: &Payment) -> Vec<Effect> {
    let mut effects = finalities(payment);
    effects.extend(payment.transfers.iter().filter_map(screening));
    effects.extend(payment.transfers.iter().filter_map(review));
    effects.extend(deadline(payment));
    effects.extend(settlement(payment));
    effects.extend(refund_screenings(payment));
    effects.extend(queued_refunds(payment));
    if payment.sequence > 0 {
        effects.push(Effect::DeliverWebhooks);
    }
    if !payment.is_live() {
        effects.push(Effect::Passivate);
    }
    effects
}
