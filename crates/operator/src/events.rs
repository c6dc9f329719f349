//! `/ops/events`: what happens, as it happens: server-sent events.
//!
//! `incident` is a line of the supervision log; its number, with the moment of the service's start before it, is the event's
//! id, so that a browser that comes back hears of what it missed, as far as the log still has it, and of everything if the
//! service was started anew meanwhile and counts from one again. `tick` is the state of things once a second, made once for
//! all who listen. `hello` is the first.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::observe::Tallied;
use payferry_domain::Timestamp;
use payferry_httpkit::error::{ApiError, Away};
use payferry_httpkit::live::UNBUFFERED;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::Operator;
use crate::chains::{self, ChainHealth};
use crate::overview::{self, JournalLine};
use crate::webhooks::{self, Backlog};

/// Listeners at once.
pub const EVENT_LISTENERS_MAX: usize = 64;
/// Between two ticks.
const TICK_EVERY: Duration = Duration::from_secs(1);
/// Between two comments on a quiet stream.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// How soon a browser comes back.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a tick waits for the database; one without its figures is better than none.
const BACKLOG_TIMEOUT: Duration = Duration::from_millis(500);

/// The state of things, once a second.
#[derive(Debug, Clone, Serialize)]
pub struct Tick {
    /// By the wall clock.
    pub at: Moment,
    /// Whether every shard has read its live payments.
    pub ready: bool,
    /// Live payment actors.
    pub payments_live: usize,
    /// Restarts of any actor so far.
    pub restarts: u64,
    /// Payments, payouts and withdrawals given up until somebody looks at them.
    pub quarantined: usize,
    /// Payments by status and chain, of which there are some; nothing until they were counted after the start.
    pub payments: Option<Vec<Tallied>>,
    /// Each chain.
    pub chains: Vec<ChainHealth>,
    /// What was not delivered; nothing if the database does not answer at once.
    pub webhooks: Option<Backlog>,
    /// The group-commit writer.
    pub journal: JournalLine,
}

/// Makes the ticks, while somebody listens.
pub(super) struct Pulse {
    /// When the service was started: numbers of incidents are of this run.
    started: Timestamp,
    latest: watch::Sender<Option<Arc<Tick>>>,
    beating: AtomicBool,
    room: Arc<Semaphore>,
}

impl Pulse {
    /// Of a service that was started then, by the wall clock.
    pub(super) fn new(started: Timestamp) -> Self {
        Self {
            started,
            latest: watch::Sender::new(None),
            beating: AtomicBool::new(false),
            room: Arc::new(Semaphore::new(EVENT_LISTENERS_MAX)),
        }
    }

    /// The id of the event about an incident.
    fn id_of(&self, incident: u64) -> String {
        format!("{}-{incident}", self.started.as_millis())
    }

    /// Which incident has that id; none if it is of another run, or no id.
    fn incident_of(&self, id: &str) -> Option<u64> {
        let (started, incident) = id.split_once('-')?;
        (started.parse() == Ok(self.started.as_millis())).then(|| incident.parse().ok()).flatten()
    }
}

/// One that listens.
struct Listener {
    operator: Operator,
    incidents: watch::Receiver<u64>,
    ticks: watch::Receiver<Option<Arc<Tick>>>,
    /// The newest incident that was told.
    told: u64,
    waiting: VecDeque<Event>,
    _room: OwnedSemaphorePermit,
}

/// Begins a stream; `Last-Event-ID` says which incident was heard last.
pub(super) async fn listen(
    State(operator): State<Operator>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let room = operator.pulse.room.clone().try_acquire_owned();
    let room = room.map_err(|_| ApiError::Unavailable(Away::Capacity, "too many listen to events".into()))?;
    let incidents = operator.system.watch_incidents();
    let newest = *incidents.borrow();
    let pulse = &operator.pulse;
    let heard = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    // Whoever heard the service before this one knows nothing of what is known now.
    let told = heard.map_or(newest, |id| pulse.incident_of(id).map_or(0, |heard| heard.min(newest)));
    let hello = Event::default().event("hello").retry(RETRY_AFTER).id(pulse.id_of(told));
    let ticks = operator.pulse.latest.subscribe();
    operator.beat();
    let mut listener = Listener { incidents, ticks, told, waiting: VecDeque::new(), _room: room, operator };
    listener.waiting.extend(hello.json_data(json!({"incidents": newest})).ok());
    listener.take_incidents();
    let stream = futures::stream::unfold(listener, Listener::next);
    let stream = Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY));
    Ok(([UNBUFFERED], stream))
}

impl Listener {
    /// The next event; none once the listener of the whole service ends.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((Ok(event), self));
            }
            tokio::select! {
                () = self.operator.closing.cancelled() => return None,
                changed = self.incidents.changed() => {
                    changed.ok()?;
                    self.take_incidents();
                }
                changed = self.ticks.changed() => {
                    changed.ok()?;
                    let tick = self.ticks.borrow_and_update().clone();
                    self.waiting.extend(tick.and_then(|tick| Event::default().event("tick").json_data(&*tick).ok()));
                }
            }
        }
    }

    fn take_incidents(&mut self) {
        self.incidents.borrow_and_update();
        for incident in self.operator.system.incidents(Some(self.told)) {
            self.told = self.told.max(incident.number);
            let event = Event::default().event("incident").id(self.operator.pulse.id_of(incident.number));
            self.waiting.extend(event.json_data(&incident).ok());
        }
    }
}

impl Operator {
    /// Has ticks made, unless they are already.
    fn beat(&self) {
        if !self.pulse.beating.swap(true, Ordering::AcqRel) {
            tokio::spawn(beat(self.clone()));
        }
    }
}

async fn beat(operator: Operator) {
    let pulse = &operator.pulse;
    let mut every = tokio::time::interval(TICK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = operator.closing.cancelled() => return,
            _ = every.tick() => {}
        }
        if pulse.latest.receiver_count() == 0 {
            pulse.beating.store(false, Ordering::Release);
            // Somebody may have come in between, and have seen it beating.
            if pulse.latest.receiver_count() == 0 || pulse.beating.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        pulse.latest.send_replace(Some(Arc::new(tick(&operator.system).await)));
    }
}

/// The state of things now.
async fn tick(system: &System) -> Tick {
    let view = system.observe();
    let backlog = tokio::time::timeout(BACKLOG_TIMEOUT, webhooks::backlog(system)).await;
    let mut payments = overview::payments(system);
    if let Some(payments) = &mut payments {
        payments.retain(|line| line.count > 0);
    }
    Tick {
        at: system.clock().real_now().into(),
        ready: view.ready,
        payments_live: view.payments_live,
        restarts: view.restarts.values().sum(),
        quarantined: view.payments_quarantined + view.sendings_quarantined,
        payments,
        chains: chains::health(system),
        webhooks: backlog.ok().and_then(Result::ok),
        journal: overview::journal(system),
    }
}
