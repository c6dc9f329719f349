//! What is still owed after a restart, from the state alone: the same waits and nudges as `react` asked for.
//! Alarms are not repeated: what they were about stands in the labels.

use super::effect::Effect;
use super::react::{deadline, finalities, refund_screenings, review, screening, sendings, settlement};
use super::state::Payment;

/// Everything still owed. All of it is idempotent, so resuming too often is only work.
pub fn resume(payment: &Payment) -> Vec<Effect> {
    let mut effects = finalities(payment);
    effects.extend(payment.transfers.iter().filter_map(screening));
    effects.extend(payment.transfers.iter().filter_map(review));
    effects.extend(deadline(payment));
    effects.extend(settlement(payment));
    effects.extend(refund_screenings(payment));
    effects.extend(sendings(payment));
    if payment.sequence > 0 {
        effects.push(Effect::DeliverWebhooks);
    }
    if !payment.is_live() {
        effects.push(Effect::Passivate);
    }
    effects
}
