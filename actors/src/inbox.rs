//! How the rest of the tree reaches payments: facts and commands by payment id, progress by chain.

use payferry_domain::payment::Command;
use payferry_domain::sending::{self, SendingId};
use payferry_domain::{Chain, PaymentId, Timestamp};

/// Where watchers, settlers and screening put what concerns a payment.
///
/// Telling is a nudge, never a record: the fact is already in the database, and what gets lost here is told again by a
/// sweep. It never blocks and never fails; a payment without a live actor is woken.
pub trait PaymentInbox: Send + Sync + 'static {
    /// A fact or command for one payment.
    fn tell(&self, payment_id: PaymentId, command: Command);

    /// Facts that one block has brought about, each for one payment. What they announce is written together.
    fn tell_together(&self, facts: Vec<(PaymentId, Command)>) {
        for (payment_id, command) in facts {
            self.tell(payment_id, command);
        }
    }

    /// A fact or command for one payout or withdrawal.
    fn tell_sending(&self, sending_id: SendingId, command: sending::Command);

    /// `chain` was read whole up to a block of this time; deadlines at or before it have passed.
    fn chain_progressed(&self, chain: Chain, block_time: Timestamp);

    /// `chain` produced no block from `from` to `to`; deadlines of its pending payments move on.
    fn chain_stood_still(&self, chain: Chain, outage: u64, from: Timestamp, to: Timestamp);
}
