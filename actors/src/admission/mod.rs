//! Admission of new payments: the payments that the service has accepted are completed before it accepts more.
//!
//! The delay of the queues between the steps of a payment says whether the service can complete more: of the journal, of the
//! mailboxes of payments, which contain what the watchers have read, of the operations of settlers, and of webhooks. The time
//! of a slow database or receiver, or of a chain on which settling is blocked, is not part of it: webhooks count only while the
//! processors have nothing to spare. Because queues show
//! an overload seconds after its cause, the time that the processors have for payments limits its first seconds. Deliberately
//! absent: a limit of the number of live payments, which mostly wait for payers.

mod budget;
mod controller;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_runtime::observe::{ActorKind, ActorRegistry};
use payferry_webhook::{FirstAttempts, WebhookSender};
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use utoipa::ToSchema;

use crate::aggregate::Services;
use crate::observe::{Flow, TreeMetrics};
use budget::{Budget, INTERVAL_SAMPLES, Interval, ProcessorTimes};
use controller::{Controller, SAMPLE};

/// Delay of a mailbox above which the service may be overloaded. A debug build is slower.
const DELAY_TARGET: Duration = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 30 });
/// The same of the first attempts at webhooks, each of which is a request to a receiver.
const WEBHOOK_DELAY_TARGET: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10_000 } else { 300 });
/// The same of settlers, whose batches contain requests to an endpoint.
const SETTLER_DELAY_TARGET: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10_000 } else { 500 });

payferry_runtime::metrics! {
    Counter REFUSED = "payferry_admission_refused_total",
        "New payments that were refused because the service was overloaded.", exported;
    Gauge LIMIT = "payferry_admission_limit",
        "New payments that are admitted per second at most: 0 while admission is closed, -1 without a limit.";
    Gauge BUDGET = "payferry_admission_budget",
        "New payments per second for which the processors have time, by what payments have cost: -1 until that is known.";
    Gauge(Seconds) DELAY = "payferry_admission_delay_seconds",
        "Time that messages waited in the queues of this kind of actor: the mean of the last tenth of a second. For the webhook \
         sender: the mean time from an event to its first attempt in the last second, 0 while the processors have time to \
         spare. For settlers: the time that operations waited for a batch, 0 while batches are not full.";
}

/// Kinds of actors whose queues are measured, and the targets: first those with measured mailboxes.
const QUEUES: [(ActorKind, Duration); MAILBOXES + 2] = [
    (ActorKind::Journal, DELAY_TARGET),
    (ActorKind::Payment, DELAY_TARGET),
    (ActorKind::WebhookSender, WEBHOOK_DELAY_TARGET),
    (ActorKind::Settler, SETTLER_DELAY_TARGET),
];
const MAILBOXES: usize = 2;

/// Admission of new payments on this node.
#[derive(Default)]
pub(crate) struct Admission {
    state: Mutex<State>,
    delays: Mutex<[Duration; QUEUES.len()]>,
    refused: AtomicU64,
}

#[derive(Default)]
struct State {
    controller: Controller,
    budget: Budget,
}

/// View of admission.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AdmissionView {
    /// New payments that are admitted per second at most: 0 while admission is closed, null without a limit.
    pub limit_per_second: Option<f64>,
    /// New payments per second for which the processors have time, by what payments have cost; null until that is known.
    pub budget_per_second: Option<f64>,
    /// New payments refused since the start of the service.
    pub refused: u64,
    /// Delay of each measured queue during the last tenth of a second, in milliseconds.
    pub delays: Vec<QueueDelay>,
}

/// Delay of the queues of a kind of actor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QueueDelay {
    /// Kind of actor.
    pub queue: ActorKind,
    /// Mean delay of messages, in milliseconds. For the webhook sender: the mean time from an event to its first attempt in the
    /// last second, 0 while the processors have time to spare. For settlers: the delay of operations behind full batches.
    pub delay_ms: f64,
    /// Delay above which new payments are limited if it lasts for half a second, in milliseconds.
    pub target_ms: u64,
}

/// Totals of a queue at the last sample.
#[derive(Clone, Copy, Default)]
struct Totals {
    messages: u64,
    wait_us: u64,
    delay: Duration,
}

impl Admission {
    /// Admits a new payment, or refuses it.
    pub(crate) fn admit(&self) -> bool {
        let is_admitted = self.state.lock().admit();
        if !is_admitted {
            self.refused.fetch_add(1, Ordering::Relaxed);
            REFUSED.add(&[], 1);
        }
        is_admitted
    }

    /// Samples the delays until it is dropped.
    pub(crate) async fn sample(self: Arc<Self>, services: Arc<Services>) {
        let Services { registry, journal, chains, .. } = &*services;
        let mut ticks = tokio::time::interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut totals, mut commits) = ([Totals::default(); MAILBOXES], journal.stats());
        let (mut webhooks, mut notified) = (FirstAttempts::default(), Duration::ZERO);
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut measured = Measured::now(registry);
        for sample in 1_u32.. {
            ticks.tick().await;
            let interval = sample.is_multiple_of(INTERVAL_SAMPLES).then(|| {
                let before = std::mem::replace(&mut measured, Measured::now(registry));
                before.zip(measured).map(|(before, now)| now.since(before))
            });
            let interval = interval.flatten();
            if let Some(interval) = interval {
                let attempted =
                    services.webhooks.read().as_ref().map(WebhookSender::first_attempts).unwrap_or_default();
                let before = std::mem::replace(&mut webhooks, attempted);
                let is_busy = interval.is_busy(processors);
                notified = if is_busy { webhooks.mean_delay_since(before) } else { Duration::ZERO };
            }
            let [written, applied]: [Duration; MAILBOXES] = std::array::from_fn(|place| {
                totals[place] = totals[place].next(registry, QUEUES[place].0);
                totals[place].delay
            });
            // A write always waits for the commit that is being made; that is the time of the database and no queue.
            let stats = journal.stats();
            let groups = stats.groups - commits.groups;
            let commit = Duration::from_micros((stats.commit_time_us - commits.commit_time_us) / groups.max(1));
            commits = stats;
            let delays = [written.saturating_sub(commit), applied, notified, chains.settler_delay()];
            *self.delays.lock() = delays;
            // Without its database, the service is not overloaded, and refuses payments for that reason.
            let load = if journal.is_writing() { load_of(delays) } else { 0.0 };
            let (limit, budget) = {
                let mut state = self.state.lock();
                if let Some(interval) = interval {
                    state.budget.measured(interval, processors);
                }
                state.budget.sampled();
                let budget = state.budget.rate();
                state.controller.sampled(load, budget);
                (state.limit(), budget)
            };
            LIMIT.set(&[], limit.unwrap_or(-1.0));
            BUDGET.set(&[], budget.unwrap_or(-1.0));
            for ((queue, _), delay) in QUEUES.iter().zip(delays) {
                DELAY.set(&[("kind", queue.as_str())], delay.as_secs_f64());
            }
        }
    }

    /// The current state.
    pub(crate) fn view(&self) -> AdmissionView {
        let delays = *self.delays.lock();
        let of = |((queue, target), delay): ((ActorKind, Duration), Duration)| QueueDelay {
            queue,
            delay_ms: delay.as_secs_f64() * 1e3,
            target_ms: u64::try_from(target.as_millis()).unwrap_or(u64::MAX),
        };
        let (limit_per_second, budget_per_second) = {
            let state = self.state.lock();
            (state.limit(), state.budget.rate())
        };
        AdmissionView {
            limit_per_second,
            budget_per_second,
            refused: self.refused.load(Ordering::Relaxed),
            delays: QUEUES.into_iter().zip(delays).map(of).collect(),
        }
    }
}

impl State {
    fn admit(&mut self) -> bool {
        let is_admitted = self.budget.has_room() && self.controller.admit();
        if is_admitted {
            self.budget.admitted();
        }
        is_admitted
    }

    fn limit(&self) -> Option<f64> {
        let limits = [self.controller.limit(), self.budget.limit()];
        limits.into_iter().flatten().reduce(f64::min)
    }
}

/// Totals from which the budget is measured.
#[derive(Clone, Copy)]
struct Measured {
    at: Instant,
    times: ProcessorTimes,
    payments: Flow,
}

impl Measured {
    /// Reads the current values. `None` if the system does not have processor times.
    fn now(registry: &TreeMetrics) -> Option<Self> {
        Some(Self { at: Instant::now(), times: ProcessorTimes::read()?, payments: registry.tally().flow() })
    }

    fn since(self, before: Self) -> Interval {
        Interval {
            length: self.at - before.at,
            used: self.times.used.saturating_sub(before.times.used),
            idle: self.times.idle.saturating_sub(before.times.idle),
            made: self.payments.made.saturating_sub(before.payments.made),
            ended: self.payments.ended.saturating_sub(before.payments.ended),
        }
    }
}

/// The longest delay relative to the target of its queue.
fn load_of(delays: [Duration; QUEUES.len()]) -> f64 {
    let loads = QUEUES.iter().zip(delays).map(|((_, target), delay)| delay.div_duration_f64(*target));
    loads.fold(0.0, f64::max)
}

impl Totals {
    /// Returns the totals now, with the mean delay of the messages that were taken since. If none was taken although some wait,
    /// the delay grows by a sample.
    fn next(self, registry: &ActorRegistry, kind: ActorKind) -> Self {
        let kind = registry.kind(kind);
        let (messages, wait_us) = kind.waits();
        let delay = match messages - self.messages {
            0 if kind.depth() > 0 => self.delay + SAMPLE,
            0 => Duration::ZERO,
            taken => Duration::from_micros((wait_us - self.wait_us) / taken),
        };
        Self { messages, wait_us, delay }
    }
}
