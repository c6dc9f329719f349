//! The book of a run: one record a payment, to which every fact is brought, and the figures that follow from the facts.
//!
//! It is what initiations, payers, blocks and webhooks have in common; each calls it from its own task, and none waits.
//! Deliberately absent: input and output.

use std::collections::HashMap;
use std::time::Duration;

use alloy::primitives::B256;
use parking_lot::{Mutex, MutexGuard};
use payferry_domain::Timestamp;
use payferry_domain::payment::EventName;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::api::{Made, NotMade};
use super::behaviour::{Behaviour, Intent};
use super::clock::ServiceClock;
use super::payers::{Sent, Unsent};
use super::receiver::{Arrived, Heard};
use super::record::{MadeAt, Novelty, Record};
use super::stages::{Stage, Stages};
use super::tally::{Tally, count};

/// Webhooks that were not genuine, kept in words.
const FORGED_MAX: usize = 20;
/// Transactions of strangers, the settler's among them, that are remembered before the old ones are forgotten.
const MINED_EARLY_MAX: usize = 10_000;
/// The kind of error of a payment of the sample whose transfer the service did not show in time.
const UNSEEN: &str = "seen: a transfer was not shown in time";
/// A transfer's answer comes within this time after its block.
const MINED_EARLY_KEPT: Duration = Duration::from_secs(10);

/// Everything that is known of a run.
#[derive(Debug)]
pub struct Book {
    run: String,
    /// The PSP's, as its settings say.
    fee_bps: u16,
    /// How long the stages took.
    pub stages: Stages,
    /// What was counted.
    pub tally: Tally,
    /// A payment became complete.
    pub progress: Notify,
    inner: Mutex<Inner>,
    expired: mpsc::UnboundedSender<u32>,
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub struct Inner {
    /// The payments; those that are held come first.
    pub records: Vec<Record>,
    /// Webhooks that were not genuine, in words.
    pub forged: Vec<String>,
    clock: ServiceClock,
    by_transfer: HashMap<B256, u32>,
    mined_early: HashMap<B256, Instant>,
}

impl Book {
    /// An empty book of the run with this name, and the payments that have expired and are now to be paid. The service's
    /// clock is so far ahead, and the treasury's share of a settlement is so many basis points.
    pub fn new(run: &str, offset_secs: i64, fee_bps: u16) -> (Self, mpsc::UnboundedReceiver<u32>) {
        let (expired, late) = mpsc::unbounded_channel();
        let mut inner = Inner::default();
        inner.clock.ahead(offset_secs);
        let book = Self {
            run: run.to_owned(),
            fee_bps,
            stages: Stages::default(),
            tally: Tally::default(),
            progress: Notify::new(),
            inner: Mutex::new(inner),
            expired,
        };
        (book, late)
    }

    /// The reference by which a payment is known before its id is.
    pub fn reference(&self, number: u32) -> String {
        format!("load-{}-{number}", self.run)
    }

    /// The number in a reference of this run.
    pub fn number(&self, reference: &str) -> Option<u32> {
        reference.strip_prefix("load-")?.strip_prefix(&self.run)?.strip_prefix('-')?.parse().ok()
    }

    /// All that is behind the lock, for those who read the whole in the end.
    pub fn read(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// A payment is due; answers its number.
    pub fn due(&self, intent: Intent, intended: Instant) -> u32 {
        if intent.behaviour != Behaviour::Held {
            count(&self.tally.counts.due);
        }
        let now = Timestamp::from(chrono::Utc::now());
        let mut inner = self.inner.lock();
        let due_at = inner.clock.shows(now);
        inner.records.push(Record::new(intent, intended, due_at, self.fee_bps));
        u32::try_from(inner.records.len() - 1).unwrap_or(u32::MAX)
    }

    /// It found no place in flight.
    pub fn turned_away(&self, number: u32) {
        count(&self.tally.counts.turned_away);
        self.not_made(number, "not begun: too many in flight");
    }

    /// The answer to its initiation came, or did not. Answers what was made.
    pub fn answered(&self, number: u32, begun: Instant, answer: Result<Made, NotMade>) -> Option<Made> {
        let at = Instant::now();
        match answer {
            Ok(made) => {
                let mut inner = self.inner.lock();
                let record = inner.record(number)?;
                record.is_made(MadeAt { id: made.payment_id, wallet: made.intermediary_wallet, at });
                let (held, intended) = (record.intent.behaviour == Behaviour::Held, record.intended);
                drop(inner);
                if held {
                    count(&self.tally.counts.held);
                } else {
                    count(&self.tally.counts.accepted);
                    self.stages.record(Stage::Begun, begun - intended, begun - intended);
                    self.stages.record(Stage::Accepted, at - intended, at - begun);
                    self.tally.accepted_in(at - intended);
                }
                Some(made)
            }
            Err(not_made) => {
                let mut inner = self.inner.lock();
                let record = inner.record(number)?;
                let (held, intended) = (record.intent.behaviour == Behaviour::Held, record.intended);
                drop(inner);
                if !held {
                    self.stages.record(Stage::Begun, begun - intended, begun - intended);
                    match not_made {
                        NotMade::Refused(..) => count(&self.tally.counts.refused),
                        NotMade::Unanswered(_) | NotMade::Unreadable => {
                            count(&self.tally.counts.unanswered);
                            self.stages.record_in_vain(Stage::Accepted, at - intended, at - begun);
                            self.tally.accepted_in(at - intended);
                        }
                    }
                }
                self.not_made(number, &not_made.kind());
                None
            }
        }
    }

    fn not_made(&self, number: u32, kind: &str) {
        self.tally.error(kind);
        if let Some(record) = self.inner.lock().record(number) {
            record.not_made = Some(kind.to_owned());
        }
    }

    /// Its payer sent the money, or could not.
    pub fn paid(&self, number: u32, asked: Instant, sent: Result<Sent, Unsent>) {
        let mut inner = self.inner.lock();
        let Some(record) = inner.record(number) else { return };
        match sent {
            Ok(Sent { tx_hash, at }) => {
                record.is_sent(tx_hash, at);
                let intended = record.intended;
                let on_time = record.intent.behaviour != Behaviour::Late;
                inner.by_transfer.insert(tx_hash, number);
                // The block may have been read first.
                let mined = inner.mined_early.remove(&tx_hash);
                drop(inner);
                count(&self.tally.counts.sent);
                if on_time {
                    self.stages.record(Stage::Sent, at - intended, at - asked);
                }
                if let Some(at) = mined {
                    self.mined(tx_hash, at);
                }
            }
            Err(unsent) => {
                record.unsent = Some(unsent.to_string());
                drop(inner);
                count(&self.tally.counts.unsent);
                self.tally.error(&format!("pay: {unsent}"));
            }
        }
    }

    /// A transaction was seen in a block. Answers the payment's number, if it is one of ours that was paid in time.
    pub fn mined(&self, tx_hash: B256, at: Instant) -> Option<u32> {
        let mut inner = self.inner.lock();
        let Some(number) = inner.by_transfer.get(&tx_hash).copied() else {
            inner.mined_early(tx_hash, at);
            return None;
        };
        let record = inner.record(number)?;
        if record.mined.replace(at).is_some() {
            return None;
        }
        let (intended, sent) = (record.intended, record.sent.map_or(at, |(_, sent)| sent));
        let on_time = record.intent.behaviour != Behaviour::Late;
        drop(inner);
        count(&self.tally.counts.mined);
        if on_time {
            self.stages.record(Stage::Mined, at - intended, at - sent);
        }
        on_time.then_some(number)
    }

    /// The service showed the transfer of a payment that was watched.
    pub fn seen(&self, number: u32, at: Instant) {
        let Some((intended, mined)) = self.since_mined(number) else { return };
        self.stages.record(Stage::Seen, at - intended, at - mined);
    }

    /// The service did not show it in time.
    pub fn unseen(&self, number: u32, at: Instant) {
        let Some((intended, mined)) = self.since_mined(number) else { return };
        self.stages.record_in_vain(Stage::Seen, at - intended, at - mined);
        self.tally.error(UNSEEN);
    }

    /// When a payment was meant to begin, and when its transfer was seen in a block.
    fn since_mined(&self, number: u32) -> Option<(Instant, Instant)> {
        let mut inner = self.inner.lock();
        let record = inner.record(number)?;
        Some((record.intended, record.mined?))
    }

    /// The sandbox's clock is so far ahead from now on.
    pub fn clock_moved(&self, offset_secs: i64) {
        self.inner.lock().clock.ahead(offset_secs);
    }

    /// A webhook came.
    pub fn hear(&self, heard: Heard) {
        match heard {
            Heard::Webhook(arrived) => self.hear_webhook(&arrived),
            Heard::Refused(why, webhook_id) => {
                count(&self.tally.counts.forged);
                self.tally.error(&format!("webhook: {why}"));
                let mut inner = self.inner.lock();
                if inner.forged.len() < FORGED_MAX {
                    inner.forged.push(format!("{webhook_id}: {why}"));
                }
            }
        }
    }

    fn hear_webhook(&self, arrived: &Arrived) {
        let Arrived { at, at_wall, event, .. } = arrived;
        let counts = &self.tally.counts;
        count(&counts.webhooks);
        let number = event.reference.as_deref().and_then(|reference| self.number(reference));
        let mut inner = self.inner.lock();
        let age = inner.clock.age(&event.timestamp, *at_wall);
        let Some((number, record)) = number.and_then(|number| Some((number, inner.record(number)?))) else {
            return count(&counts.foreign);
        };
        let was_complete = record.is_complete();
        let novelty = record.hear(event, &arrived.webhook_id);
        let Novelty::New(name) = novelty else {
            if novelty == Novelty::Repeated {
                count(&counts.repeated);
            }
            return;
        };
        let place = (event.sequence as usize).saturating_sub(1);
        if record.heard[..place].iter().any(Option::is_none) {
            count(&counts.out_of_order);
        }
        let Some(age) = age else {
            return record.fault(format!("{name} has the timestamp `{}`, which is not in the past", event.timestamp));
        };
        let happened = at.checked_sub(age).unwrap_or(*at);
        let moment = Moment { at: *at, happened, name, behaviour: record.intent.behaviour };
        let complete = !was_complete && record.is_complete();
        self.measure(record, moment, complete);
        let to_be_paid = record.intent.behaviour == Behaviour::Late && name == EventName::PaymentFailed;
        drop(inner);
        if complete {
            count(&counts.complete);
            self.progress.notify_one();
        }
        if to_be_paid {
            let _ = self.expired.send(number);
        }
    }

    fn measure(&self, record: &mut Record, moment: Moment, complete: bool) {
        let Moment { at, happened, name, behaviour } = moment;
        let intended = record.intended;
        // Those that are to expire take their time by intent.
        if behaviour.expires() {
            self.stages.record_step(Stage::Webhook, at - happened);
        } else {
            self.stages.record(Stage::Webhook, at - intended, at - happened);
        }
        match name {
            EventName::PaymentConfirmed => {
                count(&self.tally.counts.confirmed);
                record.confirmed = Some(happened);
                self.record_since(Stage::Confirmed, intended, record.mined, happened);
            }
            EventName::PaymentSettled => {
                count(&self.tally.counts.settled);
                self.record_since(Stage::Settled, intended, record.confirmed, happened);
            }
            _ => {}
        }
        if complete && !behaviour.expires() {
            self.stages.record(Stage::Complete, at - intended, at - intended);
            self.tally.complete_in(at - intended);
        }
    }

    /// Of a step whose beginning is not known, or was seen only after its end, the whole alone is counted: a step of nothing
    /// would look like a fast one.
    fn record_since(&self, stage: Stage, intended: Instant, began: Option<Instant>, ended: Instant) {
        match began.and_then(|began| ended.checked_duration_since(began)) {
            Some(step) => self.stages.record(stage, ended - intended, step),
            None => self.stages.record_total(stage, ended - intended),
        }
    }

    /// Payments that were made and of which not every event came, those that are held left out.
    pub fn open(&self) -> u64 {
        let counted = self.tally.counts.read();
        counted.accepted.saturating_sub(counted.complete)
    }
}

/// When an event happened and its webhook came.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    happened: Instant,
    name: EventName,
    behaviour: Behaviour,
}

impl Inner {
    /// The payment of this number.
    pub fn record(&mut self, number: u32) -> Option<&mut Record> {
        self.records.get_mut(number as usize)
    }

    /// Keeps a transaction of which it is not known yet whether it is one of ours.
    fn mined_early(&mut self, tx_hash: B256, at: Instant) {
        if self.mined_early.len() >= MINED_EARLY_MAX {
            self.mined_early.retain(|_, mined| at - *mined < MINED_EARLY_KEPT);
        }
        self.mined_early.insert(tx_hash, at);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
