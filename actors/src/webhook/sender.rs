//! The webhook sender: finds PSPs with open deliveries and keeps an endpoint actor for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashSet;
use payferry_domain::payment::{EventName, test_payload};
use payferry_domain::{EventId, PspId};
use payferry_entities::Database;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use serde::Serialize;

use super::attempt::{Target, attempt, client};
use super::endpoint::{self, Endpoint, EndpointView};
use super::{WebhookConfig, endpoints, log};
use crate::clock::Clock;
use crate::journal::Journal;
use crate::observe::{ActorKind, SupervisionLog};
use crate::seal::Sealer;

/// How often PSPs with open deliveries are looked for: a lost nudge costs at most this.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Pause before an endpoint that failed is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// How long observing may take.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// What sender and endpoints share.
pub(super) struct Desk {
    pub(super) database: Database,
    pub(super) journal: Journal,
    pub(super) sealer: Sealer,
    pub(super) clock: Clock,
    pub(super) config: WebhookConfig,
    pub(super) client: reqwest::Client,
    /// Deliveries with an attempt under way: `delivering` in the log, which is no state of the row.
    pub(super) under_way: DashSet<String>,
    log: Arc<SupervisionLog>,
}

/// Handle to the sender. Nudging never blocks; what is lost is found by a sweep.
#[derive(Clone)]
pub struct WebhookSender {
    actor: ActorRef<Message>,
    desk: Arc<Desk>,
}

/// What came of a test of the endpoint.
#[derive(Debug, Clone, Serialize)]
pub struct TestOutcome {
    /// The event's id, `webhook-id` of the request.
    pub event_id: EventId,
    /// Where it went.
    pub url: String,
    /// Whether it was acknowledged.
    pub delivered: bool,
    /// HTTP status, if there was an answer.
    pub response_code: Option<u16>,
    /// First 1 KiB of the answer.
    pub response_body: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// Why it failed, if not by its answer.
    pub error: Option<String>,
}

/// Why no test was made.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// No URL is set.
    #[error("no webhook URL is set")]
    NoEndpoint,
    /// The database is away.
    #[error("the database is not available: {0}")]
    Database(#[from] sea_orm::DbErr),
    /// The secret cannot be read with this key.
    #[error(transparent)]
    Secret(#[from] endpoints::SecretError),
}

pub(super) enum Message {
    Nudge(PspId),
    Refresh(PspId),
    Sweep,
    Restart(PspId),
    Observe(RpcReplyPort<Vec<ActorRef<endpoint::Message>>>),
    #[cfg(test)]
    PanicEndpoint(PspId),
}

impl WebhookSender {
    /// Starts the sender under `supervisor`; it begins with what is open.
    pub async fn start(
        supervisor: ActorCell,
        database: Database,
        journal: Journal,
        sealer: Sealer,
        clock: Clock,
        log: Arc<SupervisionLog>,
        config: WebhookConfig,
    ) -> Result<Self, ActorProcessingErr> {
        let client = client(&config)?;
        let desk = Arc::new(Desk { database, journal, sealer, clock, config, client, under_way: DashSet::new(), log });
        let (actor, _) = Actor::spawn_linked(None, Sender { desk: desk.clone() }, (), supervisor).await?;
        Ok(Self { actor, desk })
    }

    /// The actor's cell, for its supervisor.
    pub(crate) fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Rows of this PSP wait.
    pub fn nudge(&self, psp_id: PspId) {
        let _ = self.actor.cast(Message::Nudge(psp_id));
    }

    /// The PSP's configuration changed, or old rows are to be sent again.
    pub fn refresh(&self, psp_id: PspId) {
        let _ = self.actor.cast(Message::Refresh(psp_id));
    }

    /// Whether an attempt at the delivery is under way.
    pub fn is_under_way(&self, delivery_id: &str) -> bool {
        self.desk.under_way.contains(delivery_id)
    }

    /// Where webhooks may go.
    pub fn url_policy(&self) -> super::UrlPolicy {
        self.desk.config.url_policy
    }

    /// Posts a signed `webhook.test` once, now, and answers what came of it. It is not in the feed and not retried.
    pub async fn test(&self, psp_id: PspId) -> Result<TestOutcome, TestError> {
        let desk = &self.desk;
        let now = desk.clock.real_now();
        let endpoint = endpoints::load(desk.database.reader(), psp_id).await?.ok_or(TestError::NoEndpoint)?;
        let target = Target { secrets: endpoints::secrets(&desk.sealer, &endpoint, now)?, url: endpoint.url };
        let event_id = EventId::generate();
        let body = serde_json::Value::Object(test_payload(now, event_id)).to_string();
        debug_assert!(body.contains(EventName::WebhookTest.as_str()));
        let outcome = attempt(&desk.client, &target, &event_id.to_string(), &body, now.as_millis() / 1_000).await;
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

    /// What the endpoints show of themselves.
    pub async fn observe(&self) -> Vec<EndpointView> {
        let endpoints = ractor::call_t!(self.actor, Message::Observe, timeout_ms()).unwrap_or_default();
        let views = endpoints
            .iter()
            .map(|endpoint| async move { ractor::call_t!(endpoint, endpoint::Message::Observe, timeout_ms()).ok() });
        futures::future::join_all(views).await.into_iter().flatten().collect()
    }

    #[cfg(test)]
    pub(super) fn panic_endpoint(&self, psp_id: PspId) {
        let _ = self.actor.cast(Message::PanicEndpoint(psp_id));
    }
}

fn timeout_ms() -> u64 {
    u64::try_from(OBSERVE_TIMEOUT.as_millis()).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookSender").field("under_way", &self.desk.under_way.len()).finish_non_exhaustive()
    }
}

struct Sender {
    desk: Arc<Desk>,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<PspId, ActorRef<endpoint::Message>>,
    owners: HashMap<ActorId, PspId>,
}

#[ractor::async_trait]
impl Actor for Sender {
    type Msg = Message;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<Message>, (): ()) -> Result<State, ActorProcessingErr> {
        myself.cast(Message::Sweep)?;
        myself.send_interval(SWEEP_INTERVAL, || Message::Sweep);
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Nudge(psp_id) => self.tell(&myself, state, psp_id, endpoint::Message::Nudge).await?,
            Message::Refresh(psp_id) | Message::Restart(psp_id) => {
                self.tell(&myself, state, psp_id, endpoint::Message::Refresh).await?;
            }
            Message::Sweep => match log::psps_with_open(&self.desk.database).await {
                Ok(psps) => {
                    for psp_id in psps {
                        self.tell(&myself, state, psp_id, endpoint::Message::Refresh).await?;
                    }
                }
                Err(error) => tracing::warn!(%error, "open deliveries could not be looked for"),
            },
            Message::Observe(reply) => {
                let _ = reply.send(state.endpoints.values().cloned().collect());
            }
            #[cfg(test)]
            Message::PanicEndpoint(psp_id) => {
                self.tell(&myself, state, psp_id, endpoint::Message::Panic).await?;
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, failure) = match &event {
            SupervisionEvent::ActorFailed(cell, reason) => (cell, Some(reason.to_string())),
            SupervisionEvent::ActorTerminated(cell, _, _) => (cell, None),
            _ => return Ok(()),
        };
        if let Some(psp_id) = state.owners.remove(&cell.get_id()) {
            state.endpoints.remove(&psp_id);
            if let Some(reason) = failure {
                let now = self.desk.clock.real_now();
                self.desk.log.restarted(now, ActorKind::Endpoint, psp_id.to_string(), &reason);
                myself.send_after(RESTART_PAUSE, move || Message::Restart(psp_id));
            }
        }
        Ok(())
    }
}

impl Sender {
    /// Sends to the PSP's endpoint actor, which is started if there is none.
    async fn tell(
        &self,
        myself: &ActorRef<Message>,
        state: &mut State,
        psp_id: PspId,
        message: endpoint::Message,
    ) -> Result<(), ActorProcessingErr> {
        let actor = if let Some(actor) = state.endpoints.get(&psp_id) {
            actor.clone()
        } else {
            let endpoint = Endpoint { desk: self.desk.clone(), psp_id };
            let (actor, _) = Actor::spawn_linked(None, endpoint, (), myself.get_cell()).await?;
            state.owners.insert(actor.get_id(), psp_id);
            state.endpoints.insert(psp_id, actor.clone());
            actor
        };
        // One that has just died is started again.
        let _ = actor.cast(message);
        Ok(())
    }
}
