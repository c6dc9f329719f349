//! Route of messages from watchers, settlers and screening to payments, payouts and withdrawals.

use std::sync::Arc;

use payferry_domain::outbound::{self, OutboundId};
use payferry_domain::payment::{Command, Outage, OutageId};
use payferry_domain::{Chain, PaymentId, Timestamp};
use payferry_journal::Journal;

use crate::inbox::PaymentInbox;
use crate::outbound::{self as sendings, LiveOutbound, OutboundMessage};
use crate::payment::{Message, Outages, Router};

/// Delivers to the actors of one tree.
pub(super) struct Inbox {
    pub(super) router: Arc<Router>,
    pub(super) outages: Arc<Outages>,
    pub(super) sendings: Arc<LiveOutbound>,
    pub(super) journal: Journal,
}

impl PaymentInbox for Inbox {
    fn notify(&self, payment_id: PaymentId, command: Command) {
        self.router.send(payment_id, Message::Take(Box::new(command)));
    }

    fn tell_together(&self, facts: Vec<(PaymentId, Command)>) {
        self.journal.expect_announcements(facts.len());
        for (payment_id, command) in facts {
            self.notify(payment_id, command);
        }
    }

    fn notify_outbound(&self, sending_id: OutboundId, command: outbound::Command) {
        let told = sendings::Message::Take(Box::new(command.into()));
        self.sendings.to_supervisor(OutboundMessage::Wake(sending_id, told));
    }

    fn chain_progressed(&self, chain: Chain, block_time: Timestamp) {
        self.router.chain_progressed(chain, block_time);
    }

    fn chain_stalled(&self, chain: Chain, outage: u64, from: Timestamp, to: Timestamp) {
        let outage = Outage { id: OutageId(outage), from, to };
        // Stored before the notification, so that a payment that registers meanwhile gets the outage one way or the
        // other.
        self.outages.keep(chain, outage);
        self.router.chain_stalled(chain, outage);
    }
}
