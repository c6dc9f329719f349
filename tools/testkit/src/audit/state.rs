//! State of a run: one record per payment, and the figures that follow from the records.
//!
//! Initiations, payers, blocks and webhooks share it. Each calls it from its own task, and no call waits. Deliberately
//! absent: input and output.

mod webhooks;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::wire::{Chain, PaymentId};
use alloy::primitives::B256;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answers::{AnswerKind, Answers};
use super::behaviour::{Behaviour, Intent};
use super::clock::ServiceClock;
use super::customers::CustomerRecord;
use super::disturbance::Disturbances;
use super::reception::Reception;
use super::record::{InitiatedAt, InitiationFailure, Record};
use super::stages::{Stage, Stages};
use super::tally::Tally;
use crate::payers::{Sent, Unsent};
use crate::psp::{InitiateFailed, Initiated};

/// Largest number of transactions of others (the settler's among them) that are kept, before old ones are removed.
const MINED_EARLY_MAX: usize = 10_000;
/// Kind of error of a sampled payment whose transfer was not shown in time.
const UNSEEN: &str = "seen: a transfer was not shown in time";
/// The response to a transfer arrives within this time after its block.
const MINED_EARLY_KEPT: Duration = Duration::from_secs(10);

/// State of a run.
#[derive(Debug)]
pub struct RunState {
    run: String,
    /// Fee of the PSP's settings.
    fee_bps: u16,
    /// Latencies of the stages.
    pub stages: Arc<Stages>,
    /// Latencies of the initiations, by kind of answer.
    pub answers: Arc<Answers>,
    /// Counts.
    pub tally: Arc<Tally>,
    /// Injected faults that explain payments that were not made.
    pub disturbances: Arc<Disturbances>,
    /// Behaviour of the webhook receiver.
    pub reception: Arc<Reception>,
    inner: Mutex<Inner>,
    due_next: mpsc::UnboundedSender<u32>,
}

/// State behind the lock.
#[derive(Debug, Default)]
pub struct Inner {
    /// The payments; held payments come first.
    pub records: Vec<Record>,
    /// Forged webhooks, in words.
    pub forged: Vec<String>,
    /// Genuine webhooks of payments that are not of the run, in words.
    pub foreign: Vec<String>,
    clock: ServiceClock,
    by_id: HashMap<PaymentId, u32>,
    by_transfer: HashMap<B256, u32>,
    mined_early: HashMap<B256, Instant>,
    /// Payments that prepare the run. Their webhooks are not compared.
    prepared: HashSet<PaymentId>,
    /// Arrival of the newest genuine webhook.
    last_webhook: Option<Instant>,
    /// True if the run has ended. Later events are not measured.
    is_closed: bool,
}

impl RunState {
    /// Makes an empty state, and the receiver of payments whose next step is due: they have expired and are now to be paid,
    /// or they are settled and the PSP is to send money on. `offset_secs` is the offset
    /// of the service's clock, `fee_bps` the treasury's share of a settlement in basis points.
    pub fn new(run: &str, offset_secs: i64, fee_bps: u16) -> (Self, mpsc::UnboundedReceiver<u32>) {
        let (due_next, due) = mpsc::unbounded_channel();
        let mut inner = Inner::default();
        inner.clock.ahead(offset_secs);
        let state = Self {
            run: run.to_owned(),
            fee_bps,
            stages: Arc::default(),
            answers: Arc::default(),
            tally: Arc::default(),
            disturbances: Arc::default(),
            reception: Arc::default(),
            inner: Mutex::new(inner),
            due_next,
        };
        (state, due)
    }

    /// Makes the state of another PSP in the run of `first`. Figures, disturbances and the behaviour of the receiver are
    /// those of the run. The name must be another one.
    pub fn beside(first: &Self, run: &str, offset_secs: i64, fee_bps: u16) -> (Self, mpsc::UnboundedReceiver<u32>) {
        let (state, due) = Self::new(run, offset_secs, fee_bps);
        let Self { stages, answers, tally, disturbances, reception, .. } = first;
        let (stages, answers, tally) = (Arc::clone(stages), Arc::clone(answers), Arc::clone(tally));
        let (disturbances, reception) = (Arc::clone(disturbances), Arc::clone(reception));
        (Self { stages, answers, tally, disturbances, reception, ..state }, due)
    }

    /// Returns the name of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the fee of the PSP's settings, in basis points.
    pub fn fee_bps(&self) -> u16 {
        self.fee_bps
    }

    /// Returns the reference of a payment, which identifies it before its id is known.
    pub fn reference(&self, number: u32) -> String {
        format!("load-{}-{number}", self.run)
    }

    /// Returns the beginning of all references of this run.
    pub fn reference_prefix(&self) -> String {
        format!("load-{}-", self.run)
    }

    /// Returns the number in a reference of this run.
    pub fn number(&self, reference: &str) -> Option<u32> {
        reference.strip_prefix("load-")?.strip_prefix(&self.run)?.strip_prefix('-')?.parse().ok()
    }

    /// Adds a payment that prepares the run.
    pub fn prepare(&self, id: PaymentId) {
        self.inner.lock().prepared.insert(id);
    }

    /// Locks the state, to read all of it at the end.
    pub fn read(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Adds a payment that is due. Returns its number.
    pub fn due(&self, intent: Intent, intended: Instant) -> u32 {
        if intent.behaviour != Behaviour::Held {
            self.tally.count(|counted| &mut counted.due);
        }
        let now = chrono::Utc::now();
        let mut inner = self.inner.lock();
        let due_at = inner.clock.shows(now);
        inner.records.push(Record::new(intent, intended, due_at, self.fee_bps));
        u32::try_from(inner.records.len() - 1).unwrap_or(u32::MAX)
    }

    /// Records that a payment was rejected because too many are in flight.
    pub fn turned_away(&self, number: u32) {
        self.tally.count(|counted| &mut counted.turned_away);
        self.not_made(
            number,
            InitiationFailure { kind: "not started: too many in flight".to_owned(), may_be_there: false },
        );
    }

    /// Records the response to an initiation, or its failure. `begun` is when the request got a connection, if it got
    /// one. Returns the initiated payment.
    pub fn answered(
        &self,
        number: u32,
        begun: Option<Instant>,
        answer: Result<Initiated, InitiateFailed>,
    ) -> Option<Initiated> {
        let at = Instant::now();
        let mut inner = self.inner.lock();
        let record = inner.record(number)?;
        let (held, intended) = (record.intent.behaviour == Behaviour::Held, record.intended);
        if let Ok(made) = &answer {
            record.set_initiated(InitiatedAt { id: made.payment_id, wallet: made.intermediary_wallet, at });
            inner.by_id.insert(made.payment_id, number);
        }
        drop(inner);
        if !held {
            self.measure_answer(&answer, intended, begun, at);
        } else if answer.is_ok() {
            self.tally.count(|counted| &mut counted.held);
        }
        let not_made = match answer {
            Ok(made) => return Some(made),
            Err(not_made) => not_made,
        };
        if !held && self.disturbances.explain(&not_made, at) {
            self.tally.count(|counted| &mut counted.excused);
        }
        self.not_made(number, InitiationFailure { kind: not_made.to_string(), may_be_there: not_made.may_be_made() });
        None
    }

    fn measure_answer(
        &self,
        answer: &Result<Initiated, InitiateFailed>,
        intended: Instant,
        begun: Option<Instant>,
        at: Instant,
    ) {
        let (stages, whole) = (&self.stages, at - intended);
        match begun {
            Some(begun) => stages.record(Stage::Begun, begun - intended, begun - intended),
            None => stages.record_timed_out(Stage::Begun, whole, Some(whole)),
        }
        let kind = AnswerKind::of(answer);
        self.answers.record(kind, whole);
        self.tally.count(|counted| match kind {
            AnswerKind::Accepted => &mut counted.accepted,
            AnswerKind::Overloaded | AnswerKind::Refused => &mut counted.refused,
            AnswerKind::TimedOut | AnswerKind::Failed => &mut counted.unanswered,
        });
        let step = begun.map(|begun| at - begun);
        match kind {
            AnswerKind::Accepted => stages.record(Stage::Accepted, whole, step.unwrap_or(whole)),
            AnswerKind::TimedOut => stages.record_timed_out(Stage::Accepted, whole, step),
            AnswerKind::Overloaded => self.tally.count(|counted| &mut counted.overloaded),
            // A failure is often faster than an answer, so its time is no lower bound.
            AnswerKind::Refused | AnswerKind::Failed => {}
        }
    }

    fn not_made(&self, number: u32, why: InitiationFailure) {
        self.tally.error(&why.kind);
        if let Some(record) = self.inner.lock().record(number) {
            record.not_made = Some(why);
        }
    }

    /// Records the transfer of a payer, or its failure.
    pub fn paid(&self, number: u32, asked: Instant, sent: Result<Sent, Unsent>) {
        let mut inner = self.inner.lock();
        let Some(record) = inner.record(number) else { return };
        match sent {
            Ok(Sent { from, tx_hash, at }) => {
                record.payer = Some(from);
                record.set_sent(tx_hash, at);
                let intended = record.intended;
                let on_time = record.intent.behaviour != Behaviour::Late;
                inner.by_transfer.insert(tx_hash, number);
                // The block may have been read before the node's response.
                let mined = inner.mined_early.remove(&tx_hash);
                drop(inner);
                self.tally.count(|counted| &mut counted.sent);
                if on_time {
                    self.stages.record(Stage::Sent, at - intended, at - asked);
                }
                if let Some(at) = mined {
                    self.mined(tx_hash, at);
                }
            }
            Err(unsent) => {
                drop(inner);
                self.unsent(number, &unsent);
            }
        }
    }

    /// Records that the service accepted the authorization of a payer, or its failure.
    pub fn authorized(&self, number: u32, asked: Instant, accepted: Result<Instant, Unsent>) {
        let at = match accepted {
            Ok(at) => at,
            Err(unsent) => return self.unsent(number, &unsent),
        };
        let mut inner = self.inner.lock();
        let Some(record) = inner.record(number) else { return };
        record.authorized = Some(at);
        let intended = record.intended;
        drop(inner);
        self.tally.count(|counted| &mut counted.sent);
        self.stages.record(Stage::Sent, at - intended, at - asked);
    }

    /// Records the answer to the request of an outbound transfer: its id, or the failure.
    pub fn outbound_answered(&self, number: u32, answer: Result<String, InitiationFailure>) {
        let at = Instant::now();
        if let Err(failed) = &answer {
            self.tally.error(&failed.kind);
        }
        if let Some(record) = self.inner.lock().record(number) {
            record.outbound_answered(answer, at);
        }
    }

    /// Records that the registration of a payment's customer begins.
    pub fn customer_due(&self, number: u32, intended: Instant) {
        self.change_customer(number, |customer| *customer = Some(Box::new(CustomerRecord::new(intended))));
    }

    /// Records the id of a registered customer.
    pub fn customer_registered(&self, number: u32, id: &str) {
        let at = Instant::now();
        self.change_customer(number, |customer| {
            if let Some(customer) = customer {
                (customer.id, customer.registered) = (Some(id.to_owned()), Some(at));
            }
        });
    }

    /// Records that a customer is verified, or why not.
    pub fn customer_ended(&self, number: u32, ended: Result<(), InitiationFailure>) {
        let at = Instant::now();
        if let Err(failed) = &ended {
            self.tally.error(&failed.kind);
        }
        self.change_customer(number, |customer| {
            if let Some(customer) = customer {
                match ended {
                    Ok(()) => customer.cleared = Some(at),
                    Err(failed) => customer.failed = Some(failed),
                }
            }
        });
    }

    fn change_customer(&self, number: u32, change: impl FnOnce(&mut Option<Box<CustomerRecord>>)) {
        if let Some(record) = self.inner.lock().record(number) {
            change(&mut record.customer);
        }
    }

    /// Returns true while a customer is being registered or verified.
    pub fn is_registering(&self) -> bool {
        self.inner
            .lock()
            .records
            .iter()
            .any(|record| record.customer.as_ref().is_some_and(|customer| customer.is_open()))
    }

    fn unsent(&self, number: u32, unsent: &Unsent) {
        if let Some(record) = self.inner.lock().record(number) {
            record.unsent = Some(unsent.to_string());
        }
        self.tally.count(|counted| &mut counted.unsent);
        self.tally.error(&format!("pay: {unsent}"));
    }

    /// Records that a transaction was seen in a block. Returns the number of its payment, if it is one of the run that
    /// was paid in time.
    pub fn mined(&self, tx_hash: B256, at: Instant) -> Option<u32> {
        let mut inner = self.inner.lock();
        let Some(number) = inner.by_transfer.get(&tx_hash).copied() else {
            inner.mined_early(tx_hash, at);
            return None;
        };
        let record = inner.record(number)?;
        // Seen again after a reorganisation.
        if record.mined.is_some() {
            return None;
        }
        record.mined = Some(at);
        let (intended, sent) = (record.intended, record.sent.map_or(at, |(_, sent)| sent));
        let on_time = record.intent.behaviour != Behaviour::Late;
        drop(inner);
        self.tally.count(|counted| &mut counted.mined);
        if on_time {
            self.stages.record(Stage::Mined, at - intended, at - sent);
        }
        on_time.then_some(number)
    }

    /// Records that the service shows the transfer of a sampled payment.
    pub fn seen(&self, number: u32, at: Instant) {
        let Some((intended, mined)) = self.since_mined(number) else { return };
        self.stages.record(Stage::Seen, at - intended, at - mined);
    }

    /// Records that the service did not show it in time.
    pub fn unseen(&self, number: u32, at: Instant) {
        let Some((intended, mined)) = self.since_mined(number) else { return };
        self.stages.record_timed_out(Stage::Seen, at - intended, Some(at - mined));
        self.tally.error(UNSEEN);
    }

    /// Returns the scheduled start of a payment, and when its transfer was seen in a block.
    fn since_mined(&self, number: u32) -> Option<(Instant, Instant)> {
        let mut inner = self.inner.lock();
        let record = inner.record(number)?;
        Some((record.intended, record.mined?))
    }

    /// Records that the sandbox's clock is about to be moved.
    pub fn clock_moves_by(&self, secs: u64) {
        self.inner.lock().clock.move_by(secs);
    }

    /// Records a new offset of the sandbox's clock.
    pub fn clock_moved(&self, offset_secs: i64) {
        self.inner.lock().clock.ahead(offset_secs);
    }

    /// Ends the run. Everything that did not arrive counts with the time it had waited: payments that never completed,
    /// and those in progress when a run was interrupted.
    pub fn end(&self) {
        let mut inner = self.inner.lock();
        inner.is_closed = true;
        let now = Instant::now();
        for record in &inner.records {
            for (stage, since) in record.awaited() {
                let step = since.map(|since| now.saturating_duration_since(since));
                self.stages.record_timed_out(stage, now.saturating_duration_since(record.intended), step);
            }
        }
    }

    /// Records that a chain was reorganised: the payments on it may be announced again.
    pub fn chain_reorged(&self, chain: Chain) {
        let mut inner = self.inner.lock();
        let records = inner.records.iter_mut().filter(|record| record.intent.chain == chain);
        records.for_each(Record::chain_reorged);
    }

    /// Returns the time since the newest genuine webhook, if there was one.
    pub fn since_webhook(&self) -> Option<Duration> {
        self.inner.lock().last_webhook.map(|at| at.elapsed())
    }

    /// Returns true if one of these ids is a payment of the run.
    pub fn has_any(&self, ids: &[String]) -> bool {
        let inner = self.inner.lock();
        ids.iter().any(|id| id.parse().is_ok_and(|id: PaymentId| inner.by_id.contains_key(&id)))
    }

    /// Returns the number of accepted payments without all of their events. Held payments do not count.
    pub fn open(&self) -> u64 {
        let counted = self.tally.counted();
        counted.accepted.saturating_sub(counted.complete)
    }
}

impl Inner {
    /// Returns a payment by its number.
    pub fn record(&mut self, number: u32) -> Option<&mut Record> {
        self.records.get_mut(number as usize)
    }

    /// Keeps a transaction that may turn out to be one of the run.
    fn mined_early(&mut self, tx_hash: B256, at: Instant) {
        if self.mined_early.len() >= MINED_EARLY_MAX {
            self.mined_early.retain(|_, mined| at - *mined < MINED_EARLY_KEPT);
        }
        self.mined_early.entry(tx_hash).or_insert(at);
    }
}

#[cfg(test)]
mod tests;
