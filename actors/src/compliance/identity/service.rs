//! Actor of the compliance service: works through the table `checks` with bounded concurrency, and retries while a
//! provider is down.
//!
//! It holds no state: the database says what is due. A sweep finds due checks, a nudge starts a sweep immediately, and
//! a check that was started but not recorded is started again under the same key.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use payferry_domain::CheckId;
use payferry_entities::Database;
use payferry_journal::customers::CustomerChangeError;
use payferry_nodes::{Job, Leases};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};
use payferry_runtime::seal::Sealer;
use ractor::{ActorCell, SpawnErr};
use reqwest::header::HeaderMap;
use sea_orm::DbErr;
use tokio::task::JoinSet;

use super::conclude::VerdictEffect;
use super::metrics;
use super::provider::{CallbackError, CallbackFact, IdentityProvider};
use super::queue::{self, CheckBacklog, Task};
use super::work::{CheckContext, ProviderOutage, verdict_name};
use crate::observe::TreeMetrics;

/// Name of the actor.
pub(crate) const NAME: &str = "compliance_desk";

/// Limits of the compliance service.
#[derive(Debug, Clone)]
pub struct ComplianceConfig {
    /// Maximum number of concurrent checks.
    pub concurrency_max: usize,
    /// Timeout of one provider call.
    pub timeout: Duration,
    /// First pause after a provider failure; doubles up to `retry_max`.
    pub retry_min: Duration,
    /// Longest pause after a provider failure.
    pub retry_max: Duration,
    /// Interval between status queries for a check that the provider has, in case its callback was lost.
    pub poll_interval: Duration,
    /// Interval between sweeps of the queue.
    pub sweep_interval: Duration,
    /// Waiting time after which a check raises an alarm.
    pub overdue_after: Duration,
}

impl Default for ComplianceConfig {
    fn default() -> Self {
        Self {
            concurrency_max: 16,
            timeout: Duration::from_secs(30),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_mins(5),
            poll_interval: Duration::from_mins(5),
            sweep_interval: Duration::from_secs(1),
            overdue_after: Duration::from_mins(15),
        }
    }
}

/// Reasons for a callback without effect.
#[derive(Debug, thiserror::Error)]
pub enum CallbackFailure {
    /// No such provider is configured.
    #[error("there is no such identity provider")]
    UnknownProvider,
    /// The callback is rejected.
    #[error(transparent)]
    Refused(#[from] CallbackError),
    /// It is genuine but could not be applied; the provider must repeat it.
    #[error(transparent)]
    NotApplied(#[from] CustomerChangeError),
}

/// Handle to the compliance service. No method blocks.
#[derive(Clone)]
pub struct ComplianceService {
    actor: Mailbox<Message>,
    check_context: Arc<CheckContext>,
    /// `true` if the alarm about overdue checks was raised.
    alarmed: Arc<AtomicBool>,
}

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Message {
    /// Sweep the queue.
    Sweep,
    /// Work on a check has ended.
    Done(CheckId),
}

impl ComplianceService {
    /// Starts the actor under `supervisor`.
    #[allow(clippy::too_many_arguments, reason = "the parts of the service that it uses")]
    pub(crate) async fn start(
        supervisor: ActorCell,
        config: ComplianceConfig,
        provider: Option<Arc<dyn IdentityProvider>>,
        database: Database,
        sealer: Sealer,
        clock: Clock,
        registry: TreeMetrics,
        leases: Leases,
    ) -> Result<Self, SpawnErr> {
        metrics::describe();
        let outage = Mutex::default();
        let check_context =
            Arc::new(CheckContext { config, provider, database, sealer, clock, registry, leases, outage });
        let service = ComplianceActor { check_context: Arc::clone(&check_context) };
        let actor = check_context.registry.spawn(NAME, service, (), Some(supervisor)).await?;
        Ok(Self { actor, check_context, alarmed: Arc::default() })
    }

    pub(crate) fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Starts a sweep after a check was committed. A lost nudge costs one sweep interval.
    pub fn nudge(&self) {
        let _ = self.actor.cast(Message::Sweep);
    }

    /// Returns the name of the provider; `None` if none is configured.
    pub fn provider(&self) -> Option<&'static str> {
        self.check_context.provider.as_deref().map(IdentityProvider::name)
    }

    /// Returns the reason why the provider does not answer, if so.
    pub fn outage(&self) -> Option<ProviderOutage> {
        self.check_context.outage.lock().clone()
    }

    /// Returns the limits.
    pub fn config(&self) -> &ComplianceConfig {
        &self.check_context.config
    }

    /// Counts the waiting checks.
    pub async fn backlog(&self) -> Result<CheckBacklog, DbErr> {
        let CheckContext { database, clock, config, .. } = &*self.check_context;
        queue::backlog(database, clock.now(), config.overdue_after).await
    }

    /// Verifies a callback of the provider and applies it. Returns the number of changed customers; repeated and late
    /// callbacks change none.
    pub async fn callback(&self, provider: &str, headers: &HeaderMap, body: &[u8]) -> Result<usize, CallbackFailure> {
        let CheckContext { provider: configured, clock, .. } = &*self.check_context;
        let configured = configured.as_ref().filter(|configured| configured.name() == provider);
        let configured = configured.ok_or(CallbackFailure::UnknownProvider)?;
        let record = |outcome| metrics::CALLBACKS.add(&[("outcome", outcome)], 1);
        // The time was written by another machine's clock.
        let facts = configured.read_callback(headers, body, clock.real_now()).inspect_err(|error| {
            let outcome = match error {
                CallbackError::Forged(_) => "forged",
                CallbackError::Unreadable(_) => "unreadable",
            };
            record(outcome);
        })?;
        let mut changed = 0;
        for fact in &facts {
            let concluded = self.apply(configured.name(), fact).await;
            match concluded.inspect_err(|_| record("not_applied"))? {
                VerdictEffect::Changed => {
                    changed += 1;
                    metrics::VERDICTS.add(&[("verdict", verdict_name(Some(&fact.verdict)))], 1);
                }
                VerdictEffect::Known => {}
            }
        }
        record(if changed > 0 { "applied" } else { "without_effect" });
        Ok(changed)
    }

    /// Applies a verified fact of the provider.
    pub async fn apply(&self, provider: &str, fact: &CallbackFact) -> Result<VerdictEffect, CustomerChangeError> {
        self.check_context.apply_callback(provider, fact).await
    }

    /// Sets the gauges from the database and raises the alarm when checks become overdue.
    pub(crate) async fn refresh_backlog(&self) -> Result<(), DbErr> {
        let backlog = self.backlog().await?;
        metrics::show(backlog);
        let is_overdue = backlog.overdue > 0;
        if is_overdue && !self.alarmed.swap(is_overdue, Ordering::Relaxed) {
            let provider = self.provider().unwrap_or("none configured");
            let overdue = backlog.overdue;
            tracing::error!(overdue, provider, "customer checks are overdue: {overdue}; provider: {provider}");
        } else if !is_overdue {
            self.alarmed.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets these gauges to 0, because another node reports them.
    pub(crate) fn forget_backlog() {
        metrics::show(CheckBacklog::default());
    }
}

struct ComplianceActor {
    check_context: Arc<CheckContext>,
}

#[derive(Default)]
struct State {
    under_way: HashSet<CheckId>,
    /// `true` if more checks were due than could start.
    has_more: bool,
    /// Work in progress. It ends with the actor.
    tasks: JoinSet<()>,
}

impl Behaviour for ComplianceActor {
    const KIND: ActorKind = ActorKind::ComplianceService;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, myself: &Mailbox<Message>, (): ()) -> ActorResult<State> {
        let _ = myself.cast(Message::Sweep);
        // Ends with the actor.
        drop(myself.send_interval(self.check_context.config.sweep_interval, || Message::Sweep));
        Ok(State::default())
    }

    async fn handle(&self, myself: &Mailbox<Message>, message: Message, state: &mut State) -> ActorResult {
        match message {
            Message::Sweep => self.sweep(myself, state).await,
            Message::Done(check) => {
                state.under_way.remove(&check);
                metrics::IN_FLIGHT.set_count(&[], state.under_way.len() as u64);
                if std::mem::take(&mut state.has_more) {
                    self.sweep(myself, state).await;
                }
            }
        }
        Ok(())
    }
}

impl ComplianceActor {
    async fn sweep(&self, myself: &Mailbox<Message>, state: &mut State) {
        let CheckContext { config, provider, database, clock, leases, .. } = &*self.check_context;
        let room = config.concurrency_max.saturating_sub(state.under_way.len());
        if provider.is_none() || !leases.does(Job::Compliance) {
            return;
        }
        if room == 0 {
            state.has_more = true;
            return;
        }
        // Running checks remain due until their results are recorded.
        let limit = config.concurrency_max as u64 + 1;
        let due = match queue::due(database, clock.now(), limit).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "could not read the queue of checks; it is read again");
                return;
            }
        };
        let fresh: Vec<Task> = due.into_iter().filter(|task| !state.under_way.contains(&task.check)).collect();
        state.has_more = fresh.len() > room;
        while state.tasks.try_join_next().is_some() {}
        for task in fresh.into_iter().take(room) {
            state.under_way.insert(task.check);
            let (check_context, myself) = (Arc::clone(&self.check_context), myself.clone());
            state.tasks.spawn(async move {
                let _done = Done { check: task.check, myself };
                check_context.work(&task).await;
            });
        }
        metrics::IN_FLIGHT.set_count(&[], state.under_way.len() as u64);
    }
}

/// Reports the end of work on a check, even if the work panicked.
struct Done {
    check: CheckId,
    myself: Mailbox<Message>,
}

impl Drop for Done {
    fn drop(&mut self) {
        let _ = self.myself.cast(Message::Done(self.check));
    }
}
