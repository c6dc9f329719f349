//! Services that payments use, and the execution of effects.

use std::collections::BTreeSet;
use std::sync::{Arc, Once};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use payferry_domain::payment::{Effect, Payment, TransferKey};
use payferry_domain::{Address, Amount, Timestamp};
use payferry_entities::Database;
use payferry_journal::Journal;
use payferry_journal::payments::Unapplied;
use payferry_journal::psps::PspDirectory;
use payferry_runtime::clock::Clock;

use super::metrics::PaymentMetrics;
use super::router::Router;
use super::shard::{Reminder, ShardMessage};
use crate::chains::Chains;
use crate::compliance::identity::ComplianceDesk;
use crate::compliance::{ScreenRequest, Screening, Subject};
use crate::ledger::check::Findings;
use crate::observe::TreeBooks;
use crate::pauses::Pauses;
use crate::reconcile::watch::VaultFindings;
use crate::sending::DeskMessage;
use crate::webhook::WebhookSender;

/// Services that a payment uses.
pub(crate) struct Services {
    pub(crate) database: Database,
    pub(crate) unapplied: Unapplied,
    pub(crate) journal: Journal,
    pub(crate) clock: Clock,
    pub(crate) psps: PspDirectory,
    pub(crate) pauses: Pauses,
    pub(crate) router: Arc<Router>,
    pub(crate) books: TreeBooks,
    pub(crate) metrics: PaymentMetrics,
    pub(crate) chains: Arc<Chains>,
    /// Findings of the auditor of the ledger.
    pub(crate) ledger: Findings,
    /// Findings of the auditor of the vaults.
    pub(crate) vaults: VaultFindings,
    /// Set when the actor runs, and again after a restart.
    pub(crate) screening: RwLock<Option<Screening>>,
    pub(crate) desk: RwLock<Option<ComplianceDesk>>,
    /// Like `screening`.
    pub(crate) webhooks: RwLock<Option<WebhookSender>>,
    /// Start of the tree.
    pub(crate) started: Instant,
    /// Shards that are running and have read their live payments.
    pub(crate) rehydrated: Mutex<BTreeSet<usize>>,
    /// Completed when all shards had read them for the first time.
    pub(crate) rehydrated_first: Once,
}

impl Services {
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
            Effect::AwaitReview { key, revision, alarm_at } => self.screen_later(payment, *key, *revision, *alarm_at),
            Effect::AwaitDeadline { chain, at } => {
                // An outage must be applied before the deadline that it extends. The second call catches an outage that
                // arrived in between.
                self.router.tell_outages(payment);
                self.to_shard(payment, ShardMessage::AwaitDeadline(id, *chain, *at));
                self.router.tell_outages(payment);
            }
            Effect::AwaitRetry { at, .. } => {
                self.to_shard(payment, ShardMessage::Remind(id, Reminder::RetrySettlement, *at));
            }
            Effect::Settle { chain, .. } | Effect::CancelSettlement { chain, .. } | Effect::Send { chain, .. } => {
                self.chains.nudge_settler(*chain);
            }
            Effect::DeliverWebhooks => {
                if let Some(webhooks) = &*self.webhooks.read() {
                    webhooks.nudge(payment.terms.psp_id);
                }
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

    /// Has an address screened. With `alarm_at`, it is in review: it is screened after a pause, with an alarm from that
    /// time on.
    pub(crate) fn screen_address(&self, request: ScreenRequest, alarm_at: Option<Timestamp>) {
        let Some(screening) = &*self.screening.read() else { return };
        match alarm_at {
            None => screening.screen(request),
            Some(alarm_at) => screening.screen_later(request, alarm_at),
        }
    }

    fn screen_later(&self, payment: &Payment, key: TransferKey, revision: u32, alarm_at: Timestamp) {
        let Some(transfer) = payment.transfer(key) else { return };
        self.screen_address(of_transfer(payment, key, revision, transfer.from, transfer.amount), Some(alarm_at));
    }

    pub(crate) fn to_sending_desk(&self, message: DeskMessage) {
        self.router.sendings().to_desk(message);
    }

    /// Asks every live payout and withdrawal to resume its pending effects.
    pub(crate) fn resume_sendings(&self) {
        self.to_sending_desk(DeskMessage::ResumeAll);
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
