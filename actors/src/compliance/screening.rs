//! Screening actor: bounded concurrency for requests to the KYT provider, with retries.
//!
//! It stores nothing: after a restart, payments repeat their open requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashSet;
use payferry_domain::payment::{Command, Decision, Verdict};
use payferry_domain::{Timestamp, outbound};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorRegistry, ActorResult, Behaviour, Mailbox};
use payferry_runtime::supervise::doubled;
use ractor::{ActorCell, SpawnErr};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::kyt::{KytScreener, KytSubject, ScreenRequest};
use super::{metrics, verdict};
use crate::inbox::PaymentInbox;

/// Flag of a verdict that only says that the provider did not answer.
const FLAG_UNAVAILABLE: &str = "provider_unavailable";

/// Limits of screening.
#[derive(Debug, Clone)]
pub struct ScreeningConfig {
    /// Maximum number of concurrent requests to the provider.
    pub concurrency_max: usize,
    /// Timeout of one request.
    pub timeout: Duration,
    /// First pause after a provider failure; doubles up to `retry_max`.
    pub retry_min: Duration,
    /// Longest pause after a provider failure.
    pub retry_max: Duration,
    /// Interval between screenings of a transfer in review.
    pub review_interval: Duration,
}

impl Default for ScreeningConfig {
    fn default() -> Self {
        Self {
            concurrency_max: 64,
            timeout: Duration::from_secs(10),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_mins(1),
            review_interval: Duration::from_secs(30),
        }
    }
}

/// Handle to the screening actor. Requests never block.
#[derive(Clone)]
pub struct Screening {
    actor: Mailbox<Message>,
    screening_actor: ScreeningActor,
}

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Message {
    /// Screen now, or again after the review interval. Raise an alarm after the time.
    Screen(Box<ScreenRequest>, Option<Timestamp>),
}

impl Screening {
    /// Starts the actor under `supervisor`.
    pub async fn start(
        supervisor: ActorCell,
        config: ScreeningConfig,
        screener: Arc<dyn KytScreener>,
        inbox: Arc<dyn PaymentInbox>,
        clock: Clock,
        registry: &ActorRegistry,
    ) -> Result<Self, SpawnErr> {
        let permits = Arc::new(Semaphore::new(config.concurrency_max));
        metrics::describe();
        let screening_actor = ScreeningActor { config, screener, inbox, clock, permits, under_way: Arc::default() };
        let actor = registry.spawn("screening", screening_actor.clone(), (), Some(supervisor)).await?;
        Ok(Self { actor, screening_actor })
    }

    /// Sets the gauges that are not updated by events.
    pub(crate) fn refresh_metrics(&self) {
        let ScreeningActor { config, permits, under_way, .. } = &self.screening_actor;
        let in_flight = config.concurrency_max.saturating_sub(permits.available_permits());
        metrics::IN_FLIGHT.set_count(&[], in_flight as u64);
        metrics::WAITING.set_count(&[], under_way.len() as u64);
    }

    /// The actor's cell, for its supervisor.
    pub(crate) fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Requests a screening; the payment or outbound transfer receives the verdict. With `alarm_at`, it is in review: it
    /// is screened again after a pause, and raises an alarm after that time.
    pub fn screen(&self, request: ScreenRequest, alarm_at: Option<Timestamp>) {
        // If the actor is stopped, it is about to restart, and then every payment repeats its request.
        let _ = self.actor.cast(Message::Screen(Box::new(request), alarm_at));
    }

    /// Screens an address while the caller waits; `None` if the provider does not answer in time.
    pub async fn screen_now(&self, request: &ScreenRequest) -> Option<Verdict> {
        let ScreeningActor { config, screener, permits, .. } = &self.screening_actor;
        let ask = async {
            let _permit = permits.acquire().await;
            screener.screen(request).await
        };
        let begun = Instant::now();
        match tokio::time::timeout(config.timeout, ask).await {
            Ok(Ok(verdict)) => {
                answered(verdict.decision, begun);
                Some(verdict)
            }
            Ok(Err(error)) => {
                tracing::warn!(provider = screener.name(), %error, "could not screen an address");
                metrics::ERRORS.add(&[], 1);
                None
            }
            Err(_) => {
                metrics::ERRORS.add(&[], 1);
                None
            }
        }
    }
}

#[derive(Clone)]
struct ScreeningActor {
    config: ScreeningConfig,
    screener: Arc<dyn KytScreener>,
    inbox: Arc<dyn PaymentInbox>,
    clock: Clock,
    permits: Arc<Semaphore>,
    /// Subjects without a final verdict.
    under_way: Arc<DashSet<KytSubject>>,
}

#[derive(Default)]
struct State {
    /// Requests in progress. They end with the actor.
    tasks: JoinSet<()>,
}

impl Behaviour for ScreeningActor {
    const KIND: ActorKind = ActorKind::Screening;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, _: &Mailbox<Message>, (): ()) -> ActorResult<State> {
        Ok(State::default())
    }

    async fn handle(&self, _: &Mailbox<Message>, message: Message, state: &mut State) -> ActorResult {
        let (request, pause) = match message {
            Message::Screen(request, None) => (request, Duration::ZERO),
            Message::Screen(request, Some(alarm_at)) => {
                if self.clock.now::<Timestamp>() >= alarm_at {
                    tracing::error!(subject = %request.subject, "{} has been in review for too long", request.subject);
                    metrics::OVERDUE.add(&[], 1);
                }
                (request, self.config.review_interval)
            }
        };
        if self.under_way.insert(request.subject) {
            let screening_actor = self.clone();
            while state.tasks.try_join_next().is_some() {}
            state.tasks.spawn(async move {
                tokio::time::sleep(pause).await;
                let verdict = screening_actor.ask(&request).await;
                // Removed before it is reported, so that the payment's next request about this transfer is not taken
                // for the old one.
                screening_actor.under_way.remove(&request.subject);
                screening_actor.notify(&request, verdict);
            });
        }
        Ok(())
    }
}

fn answered(decision: Decision, begun: Instant) {
    metrics::VERDICTS.add(&[("decision", decision.as_str())], 1);
    metrics::SECONDS.record(&[], begun.elapsed().as_secs_f64());
}

impl ScreeningActor {
    /// Repeats the request until there is an answer. After the first failure the payment receives `review`, so that it
    /// shows why it waits.
    async fn ask(&self, request: &ScreenRequest) -> Verdict {
        let mut failures = 0;
        loop {
            let answer = {
                let _permit = self.permits.acquire().await;
                let begun = Instant::now();
                let answer = tokio::time::timeout(self.config.timeout, self.screener.screen(request)).await;
                if let Ok(Ok(verdict)) = &answer {
                    answered(verdict.decision, begun);
                }
                answer
            };
            let error = match answer {
                Ok(Ok(verdict)) => return verdict,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", self.config.timeout),
            };
            let (subject, provider) = (&request.subject, self.screener.name());
            tracing::warn!(%subject, provider, %error, "screening failed, retrying");
            metrics::ERRORS.add(&[], 1);
            if failures == 0 {
                self.notify(request, self.unavailable());
            }
            tokio::time::sleep(doubled(self.config.retry_min, self.config.retry_max, failures)).await;
            failures += 1;
        }
    }

    fn notify(&self, request: &ScreenRequest, verdict: Verdict) {
        match request.subject {
            KytSubject::Transfer { payment_id, key } => {
                self.inbox.notify(payment_id, Command::ScreenTransfer { key, verdict });
            }
            KytSubject::Refund { payment_id, refund_id } => {
                self.inbox.notify(payment_id, Command::ScreenRefund { refund_id, verdict });
            }
            KytSubject::Authorization { payment_id, operation } => {
                self.inbox.notify(payment_id, Command::ScreenAuthorization { operation, verdict });
            }
            KytSubject::OutboundTransfer(id) => self.inbox.notify_outbound(id, outbound::Command::Screen(verdict)),
            // The caller has the answer or is gone.
            KytSubject::Recipient => {}
        }
    }

    fn unavailable(&self) -> Verdict {
        let verdict = verdict::bare(self.screener.name(), Decision::Review, self.clock.now());
        Verdict { flags: vec![FLAG_UNAVAILABLE.to_owned()], ..verdict }
    }
}
