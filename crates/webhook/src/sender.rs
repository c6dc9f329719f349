//! Webhook sender: finds PSPs with open deliveries and runs one endpoint actor for each.
//!
//! Not here: deliveries. A failing endpoint affects neither the other endpoints nor the sender.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use payferry_domain::payment::test_payload;
use payferry_domain::webhook::RetrySchedule;
use payferry_domain::{EndpointId, EventId, PspId};
use payferry_entities::Database;
use payferry_journal::Journal;
use payferry_nodes::{Node, Topic, bucket_of};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorRegistry, ActorResult, Behaviour, Cause, Mailbox, ended};
use payferry_runtime::request::traceparent;
use payferry_runtime::seal::Sealer;
use payferry_runtime::supervise::RestartPause;
use ractor::{ActorCell, ActorId, RpcReplyPort, SupervisionEvent};
use serde::Serialize;
use tokio::sync::Semaphore;

use super::delivery::{Post, Target, attempt, client};
use super::endpoint::{self, Endpoint, EndpointView};
use super::first_attempts::{Counts, FirstAttempts};
use super::metrics;
use super::{IN_FLIGHT_SHARED_MAX, STOP_PATIENCE, WebhookConfig, endpoints, queue};

/// Interval between searches for PSPs with open deliveries. A lost nudge delays a delivery by at most this.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Pause before a failed endpoint restarts; doubles with each failure.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a restart.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Extra time that an endpoint may take to stop, beyond the time for its attempts.
const STOP_MARGIN: Duration = Duration::from_millis(250);
/// Timeout of an observe request.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// State shared by the sender and its endpoints.
pub(super) struct SenderContext {
    pub(super) database: Database,
    pub(super) journal: Journal,
    pub(super) node: Node,
    pub(super) sealer: Sealer,
    pub(super) clock: Clock,
    pub(super) config: WebhookConfig,
    pub(super) client: reqwest::Client,
    /// Deliveries with an attempt in progress. The log shows them as `delivering`, which is not a state of the row.
    pub(super) under_way: DashSet<String>,
    /// PSPs with a pending nudge; a second nudge would add nothing.
    pub(super) nudged: DashSet<PspId>,
    /// Running endpoints.
    running: DashMap<PspId, Mailbox<endpoint::Message>>,
    /// Permits for attempts in progress beyond the minimum of each endpoint.
    pub(super) shares: Arc<Semaphore>,
    registry: ActorRegistry,
    /// Number of endpoints of a PSP whose circuit breaker is not closed.
    pub(super) broken: DashMap<PspId, usize>,
    pub(super) first_attempts: Counts,
}

impl SenderContext {
    /// True if this node delivers the webhooks of the PSP.
    fn holds(&self, psp_id: PspId) -> bool {
        self.node.leases().holds(bucket_of(psp_id))
    }

    /// Notifies the PSP's endpoint that rows wait; notifies the sender if no endpoint runs.
    fn nudge(&self, sender: &Mailbox<Message>, psp_id: PspId) {
        if !self.holds(psp_id) {
            return self.node.courier().nudge(Topic::Published, psp_id.to_string());
        }
        if !self.nudged.insert(psp_id) {
            return;
        }
        let is_told = self.running.get(&psp_id).is_some_and(|endpoint| endpoint.cast(endpoint::Message::Nudge).is_ok());
        if !is_told {
            let _ = sender.cast(Message::Notify(psp_id, endpoint::Message::Nudge));
        }
    }
}

/// Handle to the sender. A nudge never blocks; the next sweep makes up for a lost one.
#[derive(Clone, derive_more::Debug)]
#[debug("WebhookSender {{ under_way: {}, .. }}", context.under_way.len())]
pub struct WebhookSender {
    actor: Mailbox<Message>,
    context: Arc<SenderContext>,
}

/// Result of a test of the endpoint.
#[derive(Debug, Clone, Serialize)]
pub struct TestOutcome {
    /// The event's id, `webhook-id` of the request.
    pub event_id: EventId,
    /// Request URL.
    pub url: String,
    /// `true` if the receiver acknowledged it.
    pub delivered: bool,
    /// HTTP status, if the receiver answered.
    pub response_code: Option<u16>,
    /// First 1 KiB of the answer.
    pub response_body: Option<String>,
    /// Duration of the request, milliseconds.
    pub duration_ms: u64,
    /// Reason of a failure other than the answer's status.
    pub error: Option<String>,
}

/// Reasons why no test was made.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The PSP has no such endpoint.
    #[error("there is no such endpoint")]
    NoEndpoint,
    /// The database is not available.
    #[error("the database is not available: {0}")]
    Database(#[from] sea_orm::DbErr),
    /// The stored secret cannot be decrypted with the current master key.
    #[error(transparent)]
    Secret(#[from] endpoints::SecretError),
}

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Message {
    /// Pass this on to the PSP's endpoint, which is started if it does not run.
    Notify(PspId, endpoint::Message),
    /// Search for PSPs with open deliveries.
    Sweep,
    /// Restart the PSP's endpoint.
    Restart(PspId),
    /// Stop the endpoints of PSPs whose bucket another node holds, then reply.
    Lose(RpcReplyPort<()>),
}

impl WebhookSender {
    /// Starts the sender under `supervisor`; it begins with the open deliveries.
    #[allow(clippy::too_many_arguments, reason = "the parts of the service that it uses")]
    pub async fn start(
        supervisor: ActorCell,
        database: Database,
        journal: Journal,
        node: Node,
        sealer: Sealer,
        clock: Clock,
        registry: ActorRegistry,
        config: WebhookConfig,
    ) -> ActorResult<Self> {
        let client = client(&config)?;
        metrics::describe();
        let context = Arc::new(SenderContext {
            database,
            journal,
            node,
            sealer,
            clock,
            config,
            client,
            under_way: DashSet::new(),
            nudged: DashSet::new(),
            running: DashMap::new(),
            shares: Arc::new(Semaphore::new(IN_FLIGHT_SHARED_MAX)),
            registry,
            broken: DashMap::new(),
            first_attempts: Counts::default(),
        });
        let sender = Sender { context: context.clone() };
        let actor = context.registry.spawn("webhook sender", sender, (), Some(supervisor)).await?;
        let (to, here) = (actor.clone(), Arc::downgrade(&context));
        context.journal.on_announced(move |psp_id| {
            if let (Some(context), Ok(psp_id)) = (here.upgrade(), psp_id.parse()) {
                context.nudge(&to, psp_id);
            }
        });
        Ok(Self { actor, context })
    }

    /// The actor's cell, for its supervisor.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Reports that rows of this PSP wait. The journal reports its own commits, and sooner.
    pub fn nudge(&self, psp_id: PspId) {
        self.context.nudge(&self.actor, psp_id);
    }

    /// True if this node delivers the webhooks of the PSP.
    pub fn holds(&self, psp_id: PspId) -> bool {
        self.context.holds(psp_id)
    }

    /// Reports that this node got buckets of PSPs.
    pub fn gain(&self) {
        let _ = self.actor.cast(Message::Sweep);
    }

    /// Stops the endpoints of PSPs whose bucket this node no longer holds; returns when their attempts have ended.
    pub async fn lose(&self) {
        let _ = ractor::call!(self.actor, Message::Lose);
    }

    /// Reports that the PSP's configuration changed, or that old rows are queued again.
    pub fn refresh(&self, psp_id: PspId) {
        if !self.context.holds(psp_id) {
            return self.context.node.courier().nudge(Topic::Webhooks, psp_id.to_string());
        }
        let _ = self.actor.cast(Message::Notify(psp_id, endpoint::Message::Refresh));
    }

    /// Returns `true` if an attempt at the delivery is in progress.
    pub fn is_under_way(&self, delivery_id: &str) -> bool {
        self.context.under_way.contains(delivery_id)
    }

    /// The first attempts so far, and how long their deliveries waited.
    pub fn first_attempts(&self) -> FirstAttempts {
        self.context.first_attempts.now()
    }

    /// Policy for webhook URLs.
    pub fn url_policy(&self) -> super::UrlPolicy {
        self.context.config.url_policy
    }

    /// Posts a signed `webhook.test` to an endpoint once, immediately, and returns the result. The test is not in the feed
    /// and not retried.
    pub async fn test(&self, psp_id: PspId, id: EndpointId) -> Result<TestOutcome, TestError> {
        let context = &self.context;
        let now = context.clock.real_now();
        let endpoint = endpoints::load(context.database.reader(), psp_id, id).await?.ok_or(TestError::NoEndpoint)?;
        let secrets = endpoints::secrets(&context.sealer, &endpoint, now)?;
        let target = Target { secrets, url: endpoint.url, schedule: RetrySchedule::Default };
        let event_id = EventId::generate();
        let body = serde_json::Value::Object(test_payload(now, event_id)).to_string();
        let (policy, now_secs) = (context.config.url_policy, now.as_millis() / 1_000);
        let event = event_id.to_string();
        let post = Post { event_id: &event, body, traceparent: traceparent() };
        let outcome = attempt(&context.client, policy, &target, post, now_secs).await;
        Ok(TestOutcome {
            event_id,
            url: target.url,
            delivered: outcome.is_delivered(),
            response_code: outcome.response_code,
            duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            response_body: outcome.response_body,
            error: outcome.error,
        })
    }

    /// Sets the gauges that are not updated by events, from memory.
    pub fn refresh_metrics(&self) {
        metrics::UNDER_WAY.set_count(&[], self.context.under_way.len() as u64);
        metrics::BREAKERS_OPEN.set_count(&[], self.breakers_open() as u64);
    }

    /// Number of endpoints whose circuit breaker lets only probes through.
    pub(super) fn breakers_open(&self) -> usize {
        self.context.broken.iter().map(|entry| *entry.value()).sum()
    }

    /// Counts the waiting deliveries in the database and sets the gauges.
    pub async fn refresh_backlog(&self) -> Result<(), sea_orm::DbErr> {
        let backlog = queue::backlog(&self.context.database).await?;
        metrics::show_backlog(backlog, self.context.clock.real_now());
        Ok(())
    }

    /// Sets these gauges to 0, because another node reports them.
    pub fn forget_backlog(&self) {
        metrics::show_backlog(queue::Backlog::default(), self.context.clock.real_now());
    }

    /// Running endpoints with their views; the view is `None` if the endpoint is too busy to answer.
    pub async fn observe(&self) -> Vec<(PspId, Option<EndpointView>)> {
        let running: Vec<_> = self.context.running.iter().map(|entry| (*entry.key(), entry.value().clone())).collect();
        let views = running.iter().map(|(psp_id, endpoint)| async move { (*psp_id, view_of(endpoint).await) });
        futures::future::join_all(views).await
    }

    /// Like [`Self::observe`] for one PSP; `None` if its endpoint does not run.
    pub async fn observe_one(&self, psp_id: PspId) -> Option<(PspId, Option<EndpointView>)> {
        let endpoint = self.context.running.get(&psp_id).map(|entry| entry.value().clone())?;
        Some((psp_id, view_of(&endpoint).await))
    }

    #[cfg(test)]
    pub(super) fn stall_endpoint(&self, psp_id: PspId, time: Duration) {
        if let Some(endpoint) = self.context.running.get(&psp_id) {
            let _ = endpoint.cast(endpoint::Message::Stall(time));
        }
    }

    #[cfg(test)]
    pub(super) fn panic_endpoint(&self, psp_id: PspId) {
        let _ = self.actor.cast(Message::Notify(psp_id, endpoint::Message::Panic));
    }
}

async fn view_of(endpoint: &Mailbox<endpoint::Message>) -> Option<EndpointView> {
    let patience_ms = u64::try_from(OBSERVE_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    ractor::call_t!(endpoint, endpoint::Message::Observe, patience_ms).ok()
}

struct Sender {
    context: Arc<SenderContext>,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<PspId, Slot>,
    owners: HashMap<ActorId, PspId>,
}

/// Slot of one PSP's endpoint.
struct Slot {
    /// `None` until the endpoint restarts.
    actor: Option<Mailbox<endpoint::Message>>,
    pause: RestartPause,
}

impl Behaviour for Sender {
    const KIND: ActorKind = ActorKind::WebhookSender;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, myself: &Mailbox<Message>, (): ()) -> ActorResult<State> {
        myself.cast(Message::Sweep)?;
        myself.send_interval(SWEEP_INTERVAL, || Message::Sweep);
        Ok(State::default())
    }

    async fn handle(&self, myself: &Mailbox<Message>, message: Message, state: &mut State) -> ActorResult {
        match message {
            Message::Notify(psp_id, message) => self.notify(myself, state, psp_id, message).await,
            Message::Sweep => match queue::psps_with_open(&self.context.database).await {
                Ok(psps) => {
                    for psp_id in psps.into_iter().filter(|psp_id| self.context.holds(*psp_id)) {
                        self.notify(myself, state, psp_id, endpoint::Message::Sweep).await;
                    }
                }
                Err(error) => tracing::warn!(%error, "could not search for open deliveries"),
            },
            Message::Lose(reply) => {
                let lost: Vec<PspId> =
                    state.endpoints.keys().copied().filter(|psp_id| !self.context.holds(*psp_id)).collect();
                let actors = lost.into_iter().filter_map(|psp_id| {
                    self.context.running.remove(&psp_id);
                    self.context.nudged.remove(&psp_id);
                    let actor = state.endpoints.remove(&psp_id)?.actor?;
                    state.owners.remove(&actor.get_id());
                    Some(actor)
                });
                stop(&actors.collect::<Vec<_>>()).await;
                let _ = reply.send(());
            }
            Message::Restart(psp_id) => {
                // `notify` fills an empty slot.
                if state.endpoints.get(&psp_id).is_some_and(|slot| slot.actor.is_none()) {
                    self.start(myself, state, psp_id).await;
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: &Mailbox<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> ActorResult {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        if let Some(psp_id) = state.owners.remove(&cell.get_id()) {
            self.start_later(myself, state, psp_id, cause, &reason);
        }
        Ok(())
    }

    async fn post_stop(&self, state: &mut State) -> ActorResult {
        let actors = state.endpoints.values().filter_map(|slot| slot.actor.clone());
        stop(&actors.collect::<Vec<_>>()).await;
        Ok(())
    }
}

/// Stops endpoints; returns when their attempts have ended and are recorded.
async fn stop(endpoints: &[Mailbox<endpoint::Message>]) {
    let stopping = endpoints.iter().map(|endpoint| {
        // Messages left in its mailbox would only start new attempts.
        endpoint.stop(None);
        endpoint.wait(None)
    });
    // Each endpoint keeps its own limit; the margin covers an actor that hangs.
    let all = futures::future::join_all(stopping);
    let _ = tokio::time::timeout(STOP_PATIENCE + STOP_MARGIN, all).await;
}

impl Sender {
    /// Sends to the PSP's endpoint actor and starts it if the PSP has no slot. An endpoint that waits for its restart
    /// reads its rows then, so skipping the message loses nothing.
    async fn notify(&self, myself: &Mailbox<Message>, state: &mut State, psp_id: PspId, message: endpoint::Message) {
        if !self.context.holds(psp_id) {
            // The bucket went to another node, which reads the rows.
            self.context.nudged.remove(&psp_id);
            return;
        }
        if let Entry::Vacant(place) = state.endpoints.entry(psp_id) {
            place.insert(Slot { actor: None, pause: RestartPause::new(RESTART_PAUSE_MIN, RESTART_PAUSE_MAX) });
            self.start(myself, state, psp_id).await;
        }
        let actor = state.endpoints.get(&psp_id).and_then(|slot| slot.actor.as_ref());
        if actor.is_none_or(|actor| actor.cast(message).is_err()) {
            self.context.nudged.remove(&psp_id);
        }
    }

    /// Fills the PSP's slot.
    async fn start(&self, myself: &Mailbox<Message>, state: &mut State, psp_id: PspId) {
        let endpoint = Endpoint { context: self.context.clone(), psp_id };
        match self.context.registry.spawn(&psp_id.to_string(), endpoint, (), Some(myself.get_cell())).await {
            Ok(actor) => {
                // The endpoint begins by reading its rows.
                let _ = actor.cast(endpoint::Message::Wake);
                self.context.running.insert(psp_id, actor.clone());
                // A nudge lost with the previous actor must not block the next one.
                self.context.nudged.remove(&psp_id);
                state.owners.insert(actor.get_id(), psp_id);
                if let Some(slot) = state.endpoints.get_mut(&psp_id) {
                    slot.actor = Some(actor);
                    slot.pause.started();
                }
            }
            Err(error) => self.start_later(myself, state, psp_id, Cause::Start, &error.to_string()),
        }
    }

    /// Empties the PSP's slot and schedules a restart.
    fn start_later(&self, myself: &Mailbox<Message>, state: &mut State, psp_id: PspId, cause: Cause, reason: &str) {
        let Some(slot) = state.endpoints.get_mut(&psp_id) else { return };
        self.context.running.remove(&psp_id);
        slot.actor = None;
        self.context.registry.restarted(ActorKind::Endpoint, &psp_id.to_string(), cause, reason);
        myself.send_after(slot.pause.after_failure(), move || Message::Restart(psp_id));
    }
}
