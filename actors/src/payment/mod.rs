//! Payments at run time: decisions with their writes, and the execution of effects.
//!
//! The domain makes the decisions, and the database holds the state. The actors are those of `crate::aggregate`.

mod metrics;
mod outages;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Once};
use std::time::Instant;

use payferry_domain::outbound::{self, OutboundId};
use payferry_domain::payment::{
    self, Command, Effect, Event, Outage, OutageId, Payment, Refund, RefundLimit, Rejection, Requester, Status,
    TransferKey, TransferStatus, Transition, only_waits, resume,
};
use payferry_domain::{Address, Amount, Chain, CommandError, Finality, PaymentId, Timestamp};
use payferry_entities::{Database, StoreError, audit_log, authorizations, idempotency_keys};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::payments::{self, CommandOutcome, InitiatedPayment, LivePayment, Unapplied};
use payferry_journal::psps::Ceilings;
use payferry_runtime::observe::{ActorKind, ActorMetrics};

use crate::aggregate::{
    Aggregate, Aggregates, ChainProgress, Decided, Found, Message, Services, SupervisorMessage, Waiting,
};
use crate::chain::FinalityWait;
use crate::compliance::{KytSubject, ScreenRequest};
use crate::failed::Failed;
use crate::inbox::PaymentInbox;
use crate::observe::{Note, PaymentLine};
use crate::outbound::OutboundTransfers;

use metrics::PaymentMetrics;
use outages::Outages;

/// Creates the idempotency row of a command's response, from the payment as it will be after the commit.
pub type AnswerRow = Box<dyn Fn(&Payment) -> idempotency_keys::Model + Send + Sync>;

/// Rows that are written together with the result of a command, and only if it has a result.
#[derive(Default)]
pub struct ResultRows {
    /// Response for the command's idempotency key.
    pub answer: Option<AnswerRow>,
    /// Audit entry of the requester.
    pub audit: Option<audit_log::Model>,
    /// Signature of the authorization that the command requests.
    pub authorization: Option<authorizations::Model>,
}

impl ResultRows {
    /// Adds an audit entry made by `audit::row`.
    #[must_use]
    pub fn audited(self, entry: NewAuditEntry, by: &Actor, at: Timestamp) -> Self {
        Self { audit: Some(audit::row(entry, by, at)), ..self }
    }
}

impl From<Option<AnswerRow>> for ResultRows {
    fn from(answer: Option<AnswerRow>) -> Self {
        Self { answer, ..Self::default() }
    }
}

/// The live payments.
pub(crate) type Payments = Aggregates<Payment>;

/// Services that only payments use.
pub(crate) struct PaymentServices {
    pub(crate) outages: Outages,
    unapplied: Unapplied,
    pub(crate) metrics: PaymentMetrics,
    /// Start of the tree.
    begun: Instant,
    /// Completed when all supervisors had started their payments for the first time.
    started_first: Once,
}

impl PaymentServices {
    pub(crate) fn new(database: Database) -> Self {
        let (outages, unapplied, metrics) = (Outages::default(), Unapplied::new(database), PaymentMetrics::new());
        Self { outages, unapplied, metrics, begun: Instant::now(), started_first: Once::new() }
    }
}

impl Aggregate for Payment {
    type Id = PaymentId;
    type Command = Command;
    type Rejection = Rejection;
    type Effect = Effect;
    type Transition = Transition;
    type Rows = ResultRows;
    type Own = PaymentServices;
    type Line = PaymentLine;

    const KIND: ActorKind = ActorKind::Payment;
    const SUPERVISOR: ActorKind = ActorKind::Shard;
    const NOT_RUNNING: &'static str = "the payment's shard is not running; retry later";
    const PASSIVATE: Effect = Effect::Passivate;

    fn id(&self) -> PaymentId {
        self.id()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn command_name(command: &Command) -> &'static str {
        command.name()
    }

    fn traceparent(&self) -> Option<&str> {
        self.terms.traceparent.as_deref()
    }

    fn step_before(&self, command: &Command) -> Option<(&'static str, Timestamp)> {
        match command {
            Command::ObserveTransfer(observed) => Some(("watcher.transfer", observed.block.time)),
            Command::FinaliseTransfers(reached) => {
                let found = reached.iter().filter_map(|reached| self.transfer(reached.key));
                let first = found.map(|transfer| transfer.block.time).min();
                Some(("watcher.finality", first?))
            }
            _ => None,
        }
    }

    fn status_name(&self) -> &'static str {
        self.status.as_str()
    }

    fn needs_actor(&self) -> bool {
        self.is_live()
    }

    fn note(&self) -> u64 {
        let (status, chain, version) = (self.status as usize, self.terms.chain, self.version);
        Note { status, chain, version, in_review: false }.pack()
    }

    fn line(id: PaymentId, note: u64, actor: Option<&ActorMetrics>) -> PaymentLine {
        let Note { status, chain, version, .. } = Note::unpack(note);
        let status = Status::ALL.get(status).copied().unwrap_or(Status::Pending);
        let (mailbox, since) = (actor.map_or(0, ActorMetrics::depth), actor.map(|actor| actor.since().into()));
        PaymentLine { id, status, chain, version, mailbox, since }
    }

    fn resume(&self) -> Vec<Effect> {
        resume(self)
    }

    fn shard(id: PaymentId) -> u8 {
        id.shard()
    }

    fn made_at(id: PaymentId) -> Timestamp {
        id.made_at()
    }

    async fn load(database: &Database, id: PaymentId) -> Result<Option<Self>, StoreError> {
        payments::load(database, id).await
    }

    async fn load_live(
        database: &Database,
        shards: RangeInclusive<u8>,
        after: Option<PaymentId>,
        limit: u64,
    ) -> Result<Vec<Found<Self>>, StoreError> {
        let page = payments::load_live(database, shards, after, limit).await?;
        let found = page.into_iter().map(|live| match live {
            LivePayment::Changed(payment) => Found::Whole(payment),
            LivePayment::Initiated(InitiatedPayment { id, chain, created_at, expires_at: deadline }) => {
                let note = Note { status: Status::Pending as usize, chain, version: 1, in_review: false }.pack();
                Found::Waiting(Waiting { id, note, chain, created_at, deadline })
            }
        });
        Ok(found.collect())
    }

    async fn live_versions(
        database: &Database,
        shards: RangeInclusive<u8>,
        after: Option<PaymentId>,
        limit: u64,
    ) -> Result<Vec<(PaymentId, u32)>, StoreError> {
        payments::live_versions(database, shards, after, limit).await
    }

    fn waiting(&self) -> Option<Waiting<PaymentId>> {
        let (id, note, chain) = (self.id(), self.note(), self.terms.chain);
        let (created_at, deadline) = (self.terms.created_at, self.deadline());
        only_waits(self).then_some(Waiting { id, note, chain, created_at, deadline })
    }

    fn is_behind(waiting: &Waiting<PaymentId>, payment: Option<&Self>, payments: &Payments) -> bool {
        let outages = &payments.own.outages;
        match payment {
            Some(payment) => !outages.unknown_to(payment).is_empty(),
            None => outages.concern(waiting.chain, waiting.created_at, waiting.deadline),
        }
    }

    async fn with_unapplied(database: &Database, ids: &[PaymentId]) -> Result<BTreeSet<PaymentId>, StoreError> {
        let rows = payments::unapplied_of(database, ids).await?;
        Ok(rows.iter().filter_map(|row| row.payment_id.parse().ok()).collect())
    }

    fn must_know_all(&self, command: &Command) -> bool {
        match command {
            Command::PassDeadline { chain_time } => self.awaits_deadline() && *chain_time >= self.deadline(),
            Command::ScreenTransfer { key, .. } => {
                self.transfer(*key).is_some_and(|transfer| transfer.status == TransferStatus::Final)
            }
            // Transfers that count from now on must not have been orphaned.
            Command::FinaliseTransfers(_)
            | Command::Authorize(_)
            | Command::ScreenAuthorization { .. }
            | Command::TakeIn { .. }
            | Command::Cancel
            | Command::Accept { .. }
            | Command::RequestRefund(_)
            | Command::AskRefund(_) => true,
            _ => false,
        }
    }

    async fn unapplied(&self, payments: &Payments) -> Result<Vec<Command>, Failed<Rejection>> {
        let rows = payments.own.unapplied.of(self.id()).await?;
        let facts = payments.chains.facts(&payments.database, &rows).await?;
        let outages = payments.own.outages.unknown_to(self).into_iter().map(move_deadline);
        Ok(outages.chain(facts.into_iter().map(Command::ObserveTransfer)).collect())
    }

    async fn decide(
        &self,
        payments: &Payments,
        command: &Command,
        result_rows: &ResultRows,
    ) -> Result<Decided<Self>, Failed<Rejection>> {
        let command = &*as_it_is_now(payments, self.id(), command).await?;
        let real_now = payments.clock.real_now();
        let began = Instant::now();
        let Some(transition) = payment::transition(self, command, payments.clock.now())? else {
            let write = payments::applied_write(self, command, real_now);
            return Ok(Decided::Known(write, still_in_review(command, self)));
        };
        let took = began.elapsed();
        let psp = payments.psps.get(self.terms.psp_id).await?;
        let Ceilings { send_max, refund_elsewhere_daily_max, .. } = psp.ceilings;
        if let Some(refund) = requested_refund(&transition) {
            // The limit of the PSP is for refunds to other addresses than the payer's. The limit of the contract is for all.
            let of_psp = if refund.limit == RefundLimit::Elsewhere { send_max } else { Amount::MAX };
            let send_max = payments.chains.send_max(of_psp, refund.asset.unwrap_or_else(|| self.asset()));
            if refund.amount > send_max {
                return Err(Failed::refused(CommandError::AboveSendLimit(send_max)));
            }
        }
        let rows = payments::RequestRows {
            idempotency: result_rows.answer.as_ref().map(|answer| answer(&transition.payment)),
            audit: result_rows.audit.clone(),
            authorization: result_rows.authorization.clone(),
        };
        let ceiling = refund_elsewhere_daily_max;
        let to = |event| psp.destinations_among(event, &transition.announcements);
        let outcome = CommandOutcome { before: self, command, transition: &transition, took };
        let write = payments::transition_write(outcome, rows, real_now, ceiling, to)?;
        // The notification that the transfer is final follows the commit at once.
        let is_final = transition.effects.iter().any(|effect| is_reached(payments, effect));
        Ok(Decided::Change(if is_final { write.urgent() } else { write }, transition))
    }

    fn committed(transition: Transition, payments: &Payments) -> (Self, Vec<Effect>) {
        payments.own.metrics.moved(&transition);
        (transition.payment, transition.effects)
    }

    fn execute(&self, payments: &Payments, effect: &Effect) {
        let id = self.id();
        match *effect {
            Effect::AwaitFinality { key, revision, block_number, finality } => {
                let amount = self.amount_at_risk();
                let wait = FinalityWait { payment_id: id, key, revision, block_number, finality, amount };
                payments.chains.watchlist().await_finality(wait);
            }
            Effect::Screen { key, from, amount } => {
                payments.screen(of_transfer(self, key, from, amount), None);
            }
            Effect::AwaitReview { key, alarm_at } => {
                let Some(transfer) = self.transfer(key) else { return };
                let request = of_transfer(self, key, transfer.from, transfer.amount);
                payments.screen(request, Some(alarm_at));
            }
            Effect::ScreenRefund { refund_id, to, amount, chain } => {
                let subject = KytSubject::Refund { payment_id: id, refund_id };
                payments.screen(ScreenRequest::of_recipient(subject, chain, to, amount), None);
            }
            Effect::AwaitRefundReview { refund_id, to, amount, chain, alarm_at } => {
                let subject = KytSubject::Refund { payment_id: id, refund_id };
                payments.screen(ScreenRequest::of_recipient(subject, chain, to, amount), Some(alarm_at));
            }
            Effect::AwaitDeadline { chain, at } => {
                // An outage must be applied before the deadline that it extends. The second call catches an outage that
                // arrived in between.
                notify_outages(payments, self);
                payments.await_deadline(id, chain, at);
                notify_outages(payments, self);
            }
            Effect::AwaitRetry { at, .. } => {
                let retry = Command::RetrySettlement { by: Requester::Schedule };
                payments.to_supervisor(id, SupervisorMessage::SendAt(id, at, retry));
            }
            Effect::ScreenAuthorization { operation, from, amount, alarm_at } => {
                let subject = KytSubject::Authorization { payment_id: id, operation };
                let wants_sender_kind = self.terms.refund_to_sender;
                let chain = self.terms.chain;
                payments.screen(ScreenRequest { subject, chain, address: from, amount, wants_sender_kind }, alarm_at);
            }
            Effect::Settle { chain, .. }
            | Effect::Collect { chain, .. }
            | Effect::CancelSettlement { chain, .. }
            | Effect::Send { chain, .. } => {
                payments.nudge_settler(chain);
            }
            Effect::DeliverWebhooks => payments.nudge_webhooks(self.terms.psp_id),
            // The actor does this itself, because only it can leave.
            Effect::Passivate => {}
            Effect::Alarm(alarm) => {
                metrics::ALARMS.add(&[], 1);
                tracing::error!(payment.id = %id, alarm = ?alarm, "payment {id} needs the operator's attention");
            }
        }
    }

    fn on_chain_progress(&self, progress: ChainProgress) -> Option<Command> {
        // The payer may have chosen another chain since the payment began to wait.
        match progress {
            ChainProgress::ReadTo(chain, chain_time) if chain == self.terms.chain => {
                Some(Command::PassDeadline { chain_time })
            }
            ChainProgress::Stalled(chain, outage) if chain == self.terms.chain => Some(move_deadline(outage)),
            ChainProgress::ReadTo(..) | ChainProgress::Stalled(..) => None,
        }
    }

    fn wallet(&self) -> Option<(Address, PaymentId)> {
        Some((self.terms.wallet, self.id()))
    }

    fn created(&self, payments: &Payments) {
        payments.own.metrics.initiated(self);
    }

    fn all_started(payments: &Payments) {
        let PaymentServices { begun, started_first, .. } = &payments.own;
        started_first.call_once(|| metrics::REHYDRATION.set(&[], begun.elapsed().as_secs_f64()));
    }

    fn unattended() {
        metrics::UNATTENDED.add(&[], 1);
    }
}

/// True if the payment would wait for the finality of a block that is final already.
fn is_reached(payments: &Payments, effect: &Effect) -> bool {
    let Effect::AwaitFinality { key, block_number, finality, .. } = *effect else { return false };
    let reach = || payments.chains.watchlist().reach(key.chain);
    matches!(finality, Finality::Blocks(..=1)) || reach().is_some_and(|reach| reach.reached(block_number, finality))
}

/// Replaces the transfers of a `TakeIn` command with those that are set aside now. The caller saw older rows; transfers
/// orphaned since were already notified, to a payment that did not list them.
async fn as_it_is_now<'c>(
    payments: &Payments,
    id: PaymentId,
    command: &'c Command,
) -> Result<Cow<'c, Command>, Failed<Rejection>> {
    let Command::TakeIn { observed } = command else { return Ok(Cow::Borrowed(command)) };
    let Services { database, chains, .. } = &**payments;
    let rows =
        payments::set_aside_of(database, id, chains.running().map(|spec| spec.chain), observed.len() as u64).await?;
    let observed = chains.facts(database, &rows).await?;
    Ok(Cow::Owned(Command::TakeIn { observed }))
}

/// A verdict that changes nothing about a review still ends the wait: the next wait begins.
fn still_in_review(command: &Command, payment: &Payment) -> Vec<Effect> {
    let mut owed = resume(payment);
    owed.retain(|effect| match (command, effect) {
        (Command::ScreenTransfer { key: screened, .. }, Effect::AwaitReview { key, .. }) => key == screened,
        (Command::ScreenRefund { refund_id: screened, .. }, Effect::AwaitRefundReview { refund_id, .. }) => {
            refund_id == screened
        }
        (
            Command::ScreenAuthorization { operation: screened, .. },
            Effect::ScreenAuthorization { operation, alarm_at: Some(_), .. },
        ) => operation == screened,
        _ => false,
    });
    owed
}

fn requested_refund(transition: &Transition) -> Option<&Refund> {
    transition.events.iter().find_map(|event| match event {
        Event::RefundRequested { refund, .. } => Some(&**refund),
        _ => None,
    })
}

/// Screening request for the sender of a transfer.
fn of_transfer(payment: &Payment, key: TransferKey, from: Address, amount: Amount) -> ScreenRequest {
    let subject = KytSubject::Transfer { payment_id: payment.id(), key };
    let wants_sender_kind = payment.terms.refund_to_sender;
    ScreenRequest { subject, chain: key.chain, address: from, amount, wants_sender_kind }
}

/// Notifies a payment about outages that may have moved its deadline and that it does not know.
fn notify_outages(payments: &Payments, payment: &Payment) {
    for outage in payments.own.outages.unknown_to(payment) {
        payments.send(payment.id(), Message::Progressed(ChainProgress::Stalled(payment.terms.chain, outage)));
    }
}

fn move_deadline(Outage { id, from, to }: Outage) -> Command {
    Command::MoveDeadline { outage: id, from, to }
}

/// Delivers facts from watchers, settlers and screening to the actors of one tree.
pub(crate) struct Inbox {
    pub(crate) payments: Arc<Payments>,
    pub(crate) outbound: Arc<OutboundTransfers>,
}

impl PaymentInbox for Inbox {
    fn notify(&self, payment_id: PaymentId, command: Command) {
        self.payments.send_fact(payment_id, command);
    }

    fn notify_together(&self, facts: Vec<(PaymentId, Command)>) {
        let own = facts.iter().filter(|(payment_id, _)| self.payments.holds(*payment_id)).count();
        self.payments.journal.expect_announcements(own);
        for (payment_id, command) in facts {
            self.notify(payment_id, command);
        }
    }

    fn notify_outbound(&self, outbound_id: OutboundId, command: outbound::Command) {
        self.outbound.send_fact(outbound_id, command);
    }

    fn chain_progressed(&self, chain: Chain, block_time: Timestamp) {
        let progress = ChainProgress::ReadTo(chain, block_time);
        self.payments.each_supervisor(|| SupervisorMessage::ChainProgressed(progress));
    }

    fn chain_stalled(&self, chain: Chain, outage: u64, from: Timestamp, to: Timestamp) {
        let outage = Outage { id: OutageId(outage), from, to };
        // Stored before the notification, so that a payment that registers meanwhile gets the outage one way or the
        // other.
        self.payments.own.outages.keep(chain, outage);
        let progress = ChainProgress::Stalled(chain, outage);
        self.payments.each_supervisor(|| SupervisorMessage::ChainProgressed(progress));
    }
}
