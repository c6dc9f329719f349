//! A PSP's endpoint: drains the PSP's deliveries with an adaptive number of attempts at once.
//!
//! First attempts go out in order per payment; one that waits for a retry holds nobody back. What is remembered here is
//! only what is under way: everything else is read from the rows, in pages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::{PspId, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use serde::Serialize;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::attempt::{Outcome, Target, attempt};
use super::breaker::{Breaker, Permission};
use super::concurrency::Concurrency;
use super::endpoints;
use super::log::{self, Due};
use super::schedule::AfterFailure;
use super::sender::Desk;
use crate::journal::{DeliveryOutcome, JournalError, Unit};
use payferry_entities::delivery_attempts;

/// Deliveries read at once.
const PAGE: u64 = 256;
/// Deliveries held back for an earlier one of their payment; no page is read while there are more.
const HELD_MAX: usize = 2_048;
/// Pause before an outcome that could not be written is written again, and before rows that could not be read are.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

pub(super) enum Message {
    /// New rows may wait.
    Nudge,
    /// The configuration or old rows changed: look at everything again.
    Refresh,
    /// An attempt is over and recorded.
    Done(Box<Done>),
    /// Show yourself.
    Observe(RpcReplyPort<EndpointView>),
    /// Panic, to see that nothing is lost by it.
    #[cfg(test)]
    Panic,
}

pub(super) struct Done {
    delivery_id: String,
    payment_id: String,
    /// The first attempt of all: later deliveries of its payment waited for it.
    was_first: bool,
    delivered: bool,
    failure: Option<String>,
    next_attempt_at: Option<i64>,
}

/// What an endpoint shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointView {
    /// Whose.
    pub psp_id: PspId,
    /// Attempts under way.
    pub in_flight: usize,
    /// Attempts allowed at once.
    pub limit: usize,
    /// Whether the circuit breaker is open.
    pub broken: bool,
    /// Attempts since the actor started.
    pub attempts: u64,
    /// Failed ones among them.
    pub failures: u64,
    /// What the last failure was: a status or an error.
    pub last_failure: Option<String>,
}

/// The actor of one PSP's endpoint.
pub(super) struct Endpoint {
    pub(super) desk: Arc<Desk>,
    pub(super) psp_id: PspId,
}

pub(super) struct State {
    concurrency: Concurrency,
    breaker: Breaker,
    /// Deliveries under way.
    in_flight: HashSet<String>,
    /// Payments with a first attempt under way, and what waits for it.
    busy: HashMap<String, VecDeque<Due>>,
    held: usize,
    ready: VecDeque<Due>,
    /// Fresh rows up to this position of the feed were read.
    read_to: i64,
    /// When retries have to be looked for, milliseconds since the epoch; `None` when there are none.
    retries_at: Option<i64>,
    attempts: u64,
    failures: u64,
    last_failure: Option<String>,
    timer: Option<ractor::concurrency::JoinHandle<Result<(), ractor::MessagingErr<Message>>>>,
    tasks: CancellationToken,
    _stop_tasks: DropGuard,
}

#[ractor::async_trait]
impl Actor for Endpoint {
    type Msg = Message;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Message>, (): ()) -> Result<State, ActorProcessingErr> {
        let tasks = CancellationToken::new();
        Ok(State {
            concurrency: Concurrency::default(),
            breaker: Breaker::default(),
            in_flight: HashSet::new(),
            busy: HashMap::new(),
            held: 0,
            ready: VecDeque::new(),
            read_to: 0,
            retries_at: Some(0),
            attempts: 0,
            failures: 0,
            last_failure: None,
            timer: None,
            _stop_tasks: tasks.clone().drop_guard(),
            tasks,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Nudge => {}
            Message::Refresh => {
                // Everything that is not under way is read again, so it must not wait here too.
                state.ready.clear();
                state.busy.values_mut().for_each(VecDeque::clear);
                state.held = 0;
                state.read_to = 0;
                state.retries_at = Some(0);
            }
            Message::Done(done) => self.done(&done, state),
            Message::Observe(reply) => {
                let _ = reply.send(self.view(state));
                return Ok(());
            }
            #[cfg(test)]
            Message::Panic => panic!("panicked on purpose, as a test asked"),
        }
        if let Err(error) = Box::pin(self.drain(&myself, state)).await {
            tracing::warn!(psp.id = %self.psp_id, %error, "deliveries of {} could not be read", self.psp_id);
            wake_after(&myself, state, DATABASE_PAUSE);
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        for delivery in &state.in_flight {
            self.desk.under_way.remove(delivery);
        }
        Ok(())
    }
}

impl Endpoint {
    /// Starts as many attempts as are allowed and due.
    async fn drain(&self, myself: &ActorRef<Message>, state: &mut State) -> Result<(), sea_orm::DbErr> {
        let allowed = match state.breaker.permission(Instant::now()) {
            Permission::Free => state.concurrency.limit(),
            Permission::Probe => 1,
            Permission::Wait(until) => {
                wake_after(myself, state, until.saturating_duration_since(Instant::now()));
                return Ok(());
            }
        };
        if state.in_flight.len() >= allowed {
            return Ok(());
        }
        let Some(target) = self.target().await? else { return Ok(()) };
        self.start_retries(myself, state, &target, allowed).await?;
        self.start_fresh(myself, state, &target, allowed).await?;
        if let Some(at) = state.retries_at {
            let wait = at.saturating_sub(self.desk.clock.real_now().as_millis()).max(0).unsigned_abs();
            wake_after(myself, state, Duration::from_millis(wait));
        }
        Ok(())
    }

    /// Where to send and how to sign, as configured now; `None` while no URL is set.
    async fn target(&self) -> Result<Option<Target>, sea_orm::DbErr> {
        let now = self.desk.clock.real_now();
        let Some(endpoint) = endpoints::load(self.desk.database.reader(), self.psp_id).await? else { return Ok(None) };
        match endpoints::secrets(&self.desk.sealer, &endpoint, now) {
            Ok(secrets) => Ok(Some(Target { url: endpoint.url, secrets })),
            Err(error) => {
                tracing::error!(psp.id = %self.psp_id, %error, "the signing secret of {} does not open", self.psp_id);
                Ok(None)
            }
        }
    }

    async fn start_retries(
        &self,
        myself: &ActorRef<Message>,
        state: &mut State,
        target: &Target,
        allowed: usize,
    ) -> Result<(), sea_orm::DbErr> {
        let now = self.desk.clock.real_now().as_millis();
        if state.retries_at.is_none_or(|at| at > now) || state.in_flight.len() >= allowed {
            return Ok(());
        }
        // Those under way still stand as due in their rows.
        let limit = (allowed + state.in_flight.len()) as u64;
        for due in log::retries_due(&self.desk.database, self.psp_id, now, limit).await? {
            if state.in_flight.len() >= allowed {
                return Ok(());
            }
            if !state.in_flight.contains(&due.id) {
                self.start(myself, state, target, due);
            }
        }
        state.retries_at = log::next_retry_after(&self.desk.database, self.psp_id, now).await?;
        Ok(())
    }

    async fn start_fresh(
        &self,
        myself: &ActorRef<Message>,
        state: &mut State,
        target: &Target,
        allowed: usize,
    ) -> Result<(), sea_orm::DbErr> {
        while state.in_flight.len() < allowed {
            let Some(due) = state.ready.pop_front() else {
                if state.held >= HELD_MAX {
                    return Ok(());
                }
                let page = log::fresh_after(&self.desk.database, self.psp_id, state.read_to, PAGE).await?;
                let Some(last) = page.last() else { return Ok(()) };
                state.read_to = last.position;
                let idle = page.into_iter().filter(|due| !state.in_flight.contains(&due.id));
                state.ready.extend(idle);
                continue;
            };
            if let Some(waiting) = state.busy.get_mut(&due.payment_id) {
                waiting.push_back(due);
                state.held += 1;
                continue;
            }
            state.busy.insert(due.payment_id.clone(), VecDeque::new());
            self.start(myself, state, target, due);
        }
        Ok(())
    }

    fn start(&self, myself: &ActorRef<Message>, state: &mut State, target: &Target, due: Due) {
        state.in_flight.insert(due.id.clone());
        self.desk.under_way.insert(due.id.clone());
        state.attempts += 1;
        let (desk, target, myself, stop) = (self.desk.clone(), target.clone(), myself.clone(), state.tasks.clone());
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            let now = desk.clock.real_now();
            let outcome = attempt(&desk.client, &target, &due.event_id, &due.payload, now.as_millis() / 1_000).await;
            let done = record(&desk, &target, due, outcome, now).await;
            // An actor that has died is followed by one that reads the rows.
            let _ = myself.cast(Message::Done(Box::new(done)));
        }));
    }

    fn done(&self, done: &Done, state: &mut State) {
        state.in_flight.remove(&done.delivery_id);
        self.desk.under_way.remove(&done.delivery_id);
        if done.delivered {
            state.concurrency.succeeded();
            state.breaker.succeeded();
        } else {
            state.failures += 1;
            state.concurrency.failed();
            state.breaker.failed(Instant::now());
            state.last_failure.clone_from(&done.failure);
        }
        if let Some(at) = done.next_attempt_at {
            state.retries_at = Some(state.retries_at.map_or(at, |other| other.min(at)));
        }
        if done.was_first
            && let Some(waiting) = state.busy.remove(&done.payment_id)
        {
            state.held -= waiting.len();
            // Back to the front, in order: the first of them goes next, the others wait for it again.
            for due in waiting.into_iter().rev() {
                state.ready.push_front(due);
            }
        }
    }

    fn view(&self, state: &State) -> EndpointView {
        EndpointView {
            psp_id: self.psp_id,
            in_flight: state.in_flight.len(),
            limit: state.concurrency.limit(),
            broken: state.breaker.is_open(),
            attempts: state.attempts,
            failures: state.failures,
            last_failure: state.last_failure.clone(),
        }
    }
}

/// One timer at a time: the next drain sets it anew.
fn wake_after(myself: &ActorRef<Message>, state: &mut State, wait: Duration) {
    if let Some(timer) = state.timer.take() {
        timer.abort();
    }
    state.timer = Some(myself.send_after(wait, || Message::Nudge));
}

/// Writes the outcome; what cannot be written now is tried until it can, and counts as under way so long.
async fn record(desk: &Desk, target: &Target, due: Due, outcome: Outcome, at: Timestamp) -> Done {
    let delivered = outcome.is_delivered();
    let (status, retries_left, next_attempt_at) = if delivered {
        ("delivered", due.retries_left, None)
    } else {
        let spread: f64 = rand::random();
        match desk.config.schedule.after_failure(due.is_fresh, due.retries_left, outcome.retry_after, spread) {
            AfterFailure::Retry { after, retries_left } => {
                let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
                ("failed", retries_left, Some(desk.clock.real_now().plus_millis(after_ms).as_millis()))
            }
            AfterFailure::Exhausted => ("exhausted", 0, None),
        }
    };
    metrics::counter!("payferry_webhook_attempts_total", "status" => status).increment(1);
    let code = || outcome.response_code.map(|code| format!("HTTP {code}"));
    let failure = (!delivered).then(|| outcome.error.clone().or_else(code)).flatten();
    let model = delivery_attempts::Model {
        delivery_id: due.id.clone(),
        number: due.attempt_count + 1,
        at: at.as_millis(),
        url: target.url.clone(),
        response_code: outcome.response_code.map(i64::from),
        response_body: outcome.response_body,
        duration_ms: i64::try_from(outcome.duration.as_millis()).unwrap_or(i64::MAX),
        error: outcome.error,
    };
    loop {
        let unit = DeliveryOutcome { attempt: model.clone(), status, retries_left, next_attempt_at };
        match desk.journal.submit(Unit::Delivery(Box::new(unit))).await {
            // Lost: another node, or this one before it was restarted, recorded an attempt of this number.
            Ok(_) | Err(JournalError::Conflict) => break,
            Err(JournalError::Refused(error)) => {
                tracing::error!(delivery.id = %due.id, %error, "the outcome of delivery {} was refused", due.id);
                break;
            }
            Err(error) => {
                tracing::warn!(delivery.id = %due.id, %error, "the outcome of delivery {} is written later", due.id);
                tokio::time::sleep(DATABASE_PAUSE).await;
            }
        }
    }
    // One that was queued again is fresh too, but nobody waited for it.
    let was_first = due.attempt_count == 0;
    Done { delivery_id: due.id, payment_id: due.payment_id, was_first, delivered, failure, next_attempt_at }
}
