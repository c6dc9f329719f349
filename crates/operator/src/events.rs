//! `/ops/events`: server-sent events of the running service.
//!
//! `hello` is the first event. `incident` is an entry of the supervision log. Its event id is its number, prefixed with
//! the start time of the service. A browser that reconnects gets the entries that it missed, as far as the log still
//! has them, or all entries if the service was restarted and numbers from one again. `tick` is the state of the service
//! once a second, computed once for all listeners.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::observe::Tallied;
use payferry_domain::Timestamp;
use payferry_httpkit::live::UNBUFFERED;
use payferry_httpkit::openapi::EventStream;
use payferry_httpkit::{ApiError, Away};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;

use crate::actors::journal::{self, JournalLine};
use crate::admit::Identity;
use crate::chains::ChainHealth;
use crate::webhooks::WebhookBacklog;
use crate::{Operator, chains, overview, webhooks};

/// Maximum number of listeners.
pub const EVENT_LISTENERS_MAX: usize = 64;
/// Interval of ticks.
const TICK_EVERY: Duration = Duration::from_secs(1);
/// Interval of comments on an idle stream.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Interval at which the credential of a listener is checked again.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Reconnection delay of a browser.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time that a tick waits for the database. After that it is sent without the database's figures.
const BACKLOG_TIMEOUT: Duration = Duration::from_millis(500);

/// Produces the ticks while there are listeners.
pub(super) struct EventTicker {
    /// Start time of the service. Numbers of incidents are valid for this run only.
    started: Timestamp,
    /// State of the service as JSON, once a second.
    latest: watch::Sender<Option<Arc<str>>>,
    beating: AtomicBool,
    room: Arc<Semaphore>,
}

impl EventTicker {
    /// For a service that started at this wall clock time.
    pub(super) fn new(started: Timestamp) -> Self {
        Self {
            started,
            latest: watch::Sender::new(None),
            beating: AtomicBool::new(false),
            room: Arc::new(Semaphore::new(EVENT_LISTENERS_MAX)),
        }
    }

    /// Event id of an incident.
    fn id_of(&self, incident: u64) -> String {
        format!("{}-{incident}", self.started.as_millis())
    }

    /// Number of the incident with this event id. `None` if the id is malformed or of another run.
    fn incident_of(&self, id: &str) -> Option<u64> {
        let (started, incident) = id.split_once('-')?;
        (started.parse() == Ok(self.started.as_millis())).then(|| incident.parse().ok()).flatten()
    }
}

/// Follow the service
///
/// Server-sent events: `hello` first, `incident` for each entry of the supervision log, and `tick` with the state of the
/// service once a second. `Last-Event-ID` names the last incident that the client received. At most 64 streams are open
/// at once. A stream ends with the session.
#[utoipa::path(get, path = "/ops/events", tag = "Service", operation_id = "followService", responses(EventStream))]
pub(super) async fn listen(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let room = operator.ticker.room.clone().try_acquire_owned();
    let room =
        room.map_err(|_| ApiError::Unavailable(Away::Capacity, "too many listeners on the event stream".into()))?;
    let mut incidents = operator.system.log().watch();
    let newest = *incidents.borrow_and_update();
    let ticker = &operator.ticker;
    let heard = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    // Number of the newest incident that was sent. A client of an earlier run of the service gets all entries.
    let mut sent = heard.map_or(newest, |id| ticker.incident_of(id).map_or(0, |heard| heard.min(newest)));
    let hello = Event::default().event("hello").retry(RETRY_AFTER).id(ticker.id_of(sent));
    let mut ticks = ticker.latest.subscribe();
    let mut checks = tokio::time::interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    operator.beat();
    let stream = async_stream::stream! {
        let _room = room;
        if let Ok(event) = hello.json_data(json!({"incidents": newest})) {
            yield Ok::<_, Infallible>(event);
        }
        loop {
            for incident in operator.system.log().since(sent) {
                sent = sent.max(incident.number);
                let event = Event::default().event("incident").id(operator.ticker.id_of(incident.number));
                if let Ok(event) = event.json_data(&incident) {
                    yield Ok(event);
                }
            }
            let tick = tokio::select! {
                () = operator.config.closing.cancelled() => None,
                _ = checks.tick() => operator.is_valid(&identity).await.then_some(None),
                changed = incidents.changed() => changed.ok().map(|()| None),
                changed = ticks.changed() => changed.ok().map(|()| ticks.borrow_and_update().clone()),
            };
            // The listener shuts down, or the operator has no access any more.
            let Some(tick) = tick else { break };
            if let Some(tick) = tick {
                yield Ok(Event::default().event("tick").data(tick));
            }
        }
    };
    Ok(([UNBUFFERED], Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY))))
}

impl Operator {
    /// Starts the task that produces ticks, unless it runs.
    fn beat(&self) {
        if !self.ticker.beating.swap(true, Ordering::AcqRel) {
            tokio::spawn(beat(self.clone()));
        }
    }
}

async fn beat(operator: Operator) {
    let ticker = &operator.ticker;
    let mut every = tokio::time::interval(TICK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = operator.config.closing.cancelled() => return,
            _ = every.tick() => {}
        }
        if ticker.latest.receiver_count() == 0 {
            ticker.beating.store(false, Ordering::Release);
            // A listener may have subscribed since, and seen the task still running.
            if ticker.latest.receiver_count() == 0 || ticker.beating.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        if let Ok(tick) = tick(&operator.system).await {
            ticker.latest.send_replace(Some(tick.into()));
        }
    }
}

/// Returns the current state as JSON.
async fn tick(system: &System) -> serde_json::Result<String> {
    let view = system.observe();
    let backlog = tokio::time::timeout(BACKLOG_TIMEOUT, webhooks::backlog(system)).await;
    let mut payments = overview::payments(system);
    if let Some(payments) = &mut payments {
        payments.retain(|line| line.count > 0);
    }
    serde_json::to_string(&Tick {
        at: Moment(system.clock().real_now()),
        ready: view.ready,
        payments_live: view.payments_live,
        restarts: view.restarts.values().sum::<u64>(),
        quarantined: system.quarantine_counts().total(),
        payments,
        chains: chains::health(system),
        webhooks: backlog.ok().and_then(Result::ok),
        journal: journal::line(system),
    })
}

/// State of the service.
#[derive(Serialize)]
struct Tick {
    /// Wall clock time.
    at: Moment,
    /// True if every shard has read its live payments.
    ready: bool,
    payments_live: usize,
    /// Restarts of all actors since the start.
    restarts: u64,
    /// Quarantined payments, payouts, withdrawals and customers.
    quarantined: usize,
    /// By status and chain. Null until the count after the start is complete.
    payments: Option<Vec<Tallied>>,
    chains: Vec<ChainHealth>,
    /// Undelivered events. Null if the database does not answer at once.
    webhooks: Option<WebhookBacklog>,
    journal: JournalLine,
}
