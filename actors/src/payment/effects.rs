//! Services that payments use, and the execution of effects.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Once};
use std::time::Instant;

use parking_lot::Mutex;
use payferry_domain::payment::{Command, Effect, Outage, Payment, TransferKey};
use payferry_domain::{Address, Amount, Timestamp};
use payferry_journal::payments::Unapplied;

use super::actor::Message;
use super::metrics::PaymentMetrics;
use super::outages::Outages;
use super::router::Router;
use super::shard::{Reminder, ShardMessage};
use crate::compliance::{ScreenRequest, Subject};
use crate::services::Services;

/// Services that a payment uses.
pub(crate) struct PaymentServices {
    services: Arc<Services>,
    pub(crate) router: Arc<Router>,
    pub(crate) outages: Arc<Outages>,
    pub(crate) unapplied: Unapplied,
    pub(crate) metrics: PaymentMetrics,
    /// Start of the tree.
    pub(crate) started: Instant,
    /// Shards that are running and have read their live payments.
    pub(crate) rehydrated: Mutex<BTreeSet<usize>>,
    /// Completed when all shards had read them for the first time.
    pub(crate) rehydrated_first: Once,
}

/// The services that payments share with the rest of the tree.
impl Deref for PaymentServices {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl PaymentServices {
    /// Services of a tree with this number of shards, none of which runs yet.
    pub(crate) fn new(services: Arc<Services>, shards: usize) -> Self {
        Self {
            router: Arc::new(Router::new(shards)),
            outages: Arc::default(),
            unapplied: Unapplied::new(services.database.clone()),
            metrics: PaymentMetrics::new(),
            started: Instant::now(),
            rehydrated: Mutex::default(),
            rehydrated_first: Once::new(),
            services,
        }
    }

    /// True if every shard is running and has read its live payments. A restarted shard must read them again.
    pub(crate) fn is_rehydrated(&self) -> bool {
        self.rehydrated.lock().len() == self.router.shards_len()
    }

    /// Records that a shard died, before it is restarted: none of its payments are live or read.
    pub(crate) fn shard_died(&self, index: usize) {
        self.rehydrated.lock().remove(&index);
        self.router.forget_shard(index);
    }

    /// Executes an effect of a transition or a restart. All effects are nudges: the facts behind them are committed.
    pub(crate) fn carry_out(&self, payment: &Payment, effect: &Effect) {
        let id = payment.id();
        match effect {
            Effect::AwaitFinality { key, revision, block_number, finality } => {
                self.chains.await_finality(id, *key, *revision, *block_number, *finality);
            }
            Effect::Screen { key, revision, from, amount } => {
                self.screen(payment, *key, *revision, *from, *amount);
            }
            Effect::ScreenRefund { refund_id, to, amount, chain } => {
                let subject = Subject::Refund { payment_id: id, refund_id: *refund_id };
                self.screen_address(ScreenRequest::of_recipient(subject, *chain, *to, *amount), None);
            }
            Effect::AwaitRefundReview { refund_id, to, amount, chain, alarm_at } => {
                let subject = Subject::Refund { payment_id: id, refund_id: *refund_id };
                self.screen_address(ScreenRequest::of_recipient(subject, *chain, *to, *amount), Some(*alarm_at));
            }
            Effect::AwaitReview { key, revision, alarm_at } => {
                self.screen_again_later(payment, *key, *revision, *alarm_at);
            }
            Effect::AwaitDeadline { chain, at } => {
                // An outage must be applied before the deadline that it extends. The second call catches an outage that
                // arrived in between.
                self.notify_outages(payment);
                self.to_shard(payment, ShardMessage::AwaitDeadline(id, *chain, *at));
                self.notify_outages(payment);
            }
            Effect::AwaitRetry { at, .. } => {
                self.to_shard(payment, ShardMessage::Remind(id, Reminder::RetrySettlement, *at));
            }
            Effect::Settle { chain, .. } | Effect::CancelSettlement { chain, .. } | Effect::Send { chain, .. } => {
                self.chains.nudge_settler(*chain);
            }
            Effect::DeliverWebhooks => {
                self.nudge_webhooks(payment.terms.psp_id);
            }
            // The actor does this itself, because only it can leave.
            Effect::Passivate => {}
            Effect::Alarm(alarm) => {
                self.metrics.alarmed();
                tracing::error!(payment.id = %id, alarm = ?alarm, "payment {id} needs the operator's attention");
            }
        }
    }

    fn screen(&self, payment: &Payment, key: TransferKey, revision: u32, from: Address, amount: Amount) {
        self.screen_address(of_transfer(payment, key, revision, from, amount), None);
    }

    fn screen_again_later(&self, payment: &Payment, key: TransferKey, revision: u32, alarm_at: Timestamp) {
        let Some(transfer) = payment.transfer(key) else { return };
        self.screen_address(of_transfer(payment, key, revision, transfer.from, transfer.amount), Some(alarm_at));
    }

    /// Notifies a payment about outages that may have moved its deadline and that it does not know.
    fn notify_outages(&self, payment: &Payment) {
        for Outage { id, from, to } in self.outages.unknown_to(payment) {
            let command = Command::MoveDeadline { outage: id, from, to };
            self.router.send(payment.id(), Message::Take(Box::new(command)));
        }
    }

    pub(crate) fn to_shard(&self, payment: &Payment, message: ShardMessage) {
        if let Some(shard) = self.router.shard_of(payment.id()) {
            // A stopped shard is restarted, and then each of its payments sends this again.
            let _ = shard.cast(message);
        }
    }
}

/// Screening request for the sender of a transfer.
fn of_transfer(payment: &Payment, key: TransferKey, revision: u32, from: Address, amount: Amount) -> ScreenRequest {
    let subject = Subject::Transfer { payment_id: payment.id(), key, revision };
    let wants_sender_kind = payment.terms.refund_to_sender;
    ScreenRequest { subject, chain: key.chain, address: from, amount, wants_sender_kind }
}
