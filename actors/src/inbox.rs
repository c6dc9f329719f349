//! Interface for sending facts and commands to payments by id, and progress by chain.

use payferry_domain::outbound::{self, OutboundId};
use payferry_domain::payment::Command;
use payferry_domain::{Chain, PaymentId, Timestamp};

/// Receiver of facts and commands from watchers, settlers and screening.
///
/// A call is only a nudge: the fact is already in the database, and a sweep repeats lost calls. It never blocks or
/// fails; a payment without a live actor is started.
pub trait PaymentInbox: Send + Sync + 'static {
    /// Sends a fact or command to one payment.
    fn notify(&self, payment_id: PaymentId, command: Command);

    /// Sends facts that one block has brought about, each to one payment. Their announcements are written together.
    fn notify_together(&self, facts: Vec<(PaymentId, Command)>) {
        for (payment_id, command) in facts {
            self.notify(payment_id, command);
        }
    }

    /// Sends a fact or command to one payout or withdrawal.
    fn notify_outbound(&self, outbound_id: OutboundId, command: outbound::Command);

    /// `chain` was read completely up to a block of this time; deadlines at or before it have passed.
    fn chain_progressed(&self, chain: Chain, block_time: Timestamp);

    /// `chain` produced no block from `from` to `to`; deadlines of its pending payments are extended.
    fn chain_stalled(&self, chain: Chain, outage: u64, from: Timestamp, to: Timestamp);
}
