//! The compliance-desk actor: works off the table `checks`, so many at once, and with patience for a provider that is
//! down.
//!
//! It keeps nothing: what is due stands in the database. A sweep finds it, a nudge has it found at once, and what was
//! begun and not written down is begun again under the same key.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use payferry_domain::CheckId;
use payferry_entities::Database;
use payferry_journal::customers::ChangeError;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, Behaviour, Books, Mailbox};
use payferry_runtime::seal::Sealer;
use ractor::{ActorCell, ActorProcessingErr, SpawnErr};
use reqwest::header::HeaderMap;
use sea_orm::DbErr;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::conclude::{Concluded, take_in};
use super::metrics::DeskMetrics;
use super::provider::{CallbackError, IdentityProvider};
use super::queue::{self, Backlog, Task};
use super::work::{ProviderTrouble, Workshop, verdict_word};

/// The actor's name.
const NAME: &str = "compliance_desk";

/// Limits of the desk.
#[derive(Debug, Clone)]
pub struct DeskConfig {
    /// Checks that are worked on at once.
    pub concurrency_max: usize,
    /// How long the provider may take for one of them.
    pub timeout: Duration,
    /// First pause before a provider that failed is asked again; doubles up to `retry_max`.
    pub retry_min: Duration,
    /// Longest pause before a provider that failed is asked again.
    pub retry_max: Duration,
    /// How often a check that the provider has is looked at, in case its callback was lost.
    pub poll_interval: Duration,
    /// How often the queue is looked through.
    pub sweep_interval: Duration,
    /// A check that waits for the provider for so long is an alarm.
    pub overdue_after: Duration,
}

impl Default for DeskConfig {
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

/// What a callback came to.
#[derive(Debug, thiserror::Error)]
pub enum CallbackFailure {
    /// There is no such provider here.
    #[error("there is no such identity provider")]
    UnknownProvider,
    /// It is not taken.
    #[error(transparent)]
    Refused(#[from] CallbackError),
    /// It is genuine and could not be applied; it has to come again.
    #[error(transparent)]
    NotApplied(#[from] ChangeError),
}

/// Handle to the desk. Nothing of it blocks.
#[derive(Clone)]
pub struct ComplianceDesk {
    actor: Mailbox<Message>,
    workshop: Arc<Workshop>,
    /// Whether it was said that checks are overdue.
    alarmed: Arc<AtomicBool>,
}

impl fmt::Debug for ComplianceDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComplianceDesk").field("actor", &self.actor).finish_non_exhaustive()
    }
}

pub(crate) enum Message {
    /// Look through the queue.
    Sweep,
    /// A check was worked on.
    Done(CheckId),
}

impl ComplianceDesk {
    /// Starts the actor under `supervisor`.
    pub(crate) async fn start(
        supervisor: ActorCell,
        config: DeskConfig,
        provider: Option<Arc<dyn IdentityProvider>>,
        database: Database,
        sealer: Sealer,
        clock: Clock,
        books: &Books,
    ) -> Result<Self, SpawnErr> {
        let metrics = DeskMetrics::new();
        let workshop = Workshop { config, provider, database, sealer, clock, metrics, trouble: Mutex::default() };
        let workshop = Arc::new(workshop);
        let desk = Desk { workshop: Arc::clone(&workshop) };
        let actor = books.spawn(NAME, desk, (), Some(supervisor)).await?;
        Ok(Self { actor, workshop, alarmed: Arc::default() })
    }

    pub(crate) fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Has the queue looked through at once: a check was just committed. Losing this costs a sweep's interval.
    pub fn nudge(&self) {
        let _ = self.actor.cast(Message::Sweep);
    }

    /// Who verifies; `None` if nobody is configured.
    pub fn provider(&self) -> Option<&'static str> {
        self.workshop.provider.as_deref().map(IdentityProvider::name)
    }

    /// Why the provider does not answer, if it does not.
    pub fn trouble(&self) -> Option<ProviderTrouble> {
        self.workshop.trouble.lock().clone()
    }

    /// Its limits.
    pub fn config(&self) -> &DeskConfig {
        &self.workshop.config
    }

    /// How much waits.
    pub async fn backlog(&self) -> Result<Backlog, DbErr> {
        let Workshop { database, clock, config, .. } = &*self.workshop;
        queue::backlog(database, clock.now(), config.overdue_after).await
    }

    /// Reads a callback of the provider and applies what it tells. Answers how many customers it changed; whatever comes
    /// again, or late, changes none.
    pub async fn callback(&self, provider: &str, headers: &HeaderMap, body: &[u8]) -> Result<usize, CallbackFailure> {
        let Workshop { provider: configured, database, clock, metrics, .. } = &*self.workshop;
        let configured = configured.as_ref().filter(|configured| configured.name() == provider);
        let configured = configured.ok_or(CallbackFailure::UnknownProvider)?;
        // Another machine's clock wrote its time.
        let facts = configured.read_callback(headers, body, clock.real_now()).inspect_err(|error| {
            let outcome = match error {
                CallbackError::Forged(_) => "forged",
                CallbackError::Unreadable(_) => "unreadable",
            };
            metrics.callbacks.increment(outcome);
        })?;
        let mut changed = 0;
        for fact in &facts {
            let concluded = take_in(database, clock, configured.name(), fact).await;
            match concluded.inspect_err(|_| metrics.callbacks.increment("not_applied"))? {
                Concluded::Changed => {
                    changed += 1;
                    metrics.verdicts.increment(verdict_word(Some(&fact.verdict)));
                }
                Concluded::Known => {}
            }
        }
        metrics.callbacks.increment(if changed > 0 { "applied" } else { "without_effect" });
        Ok(changed)
    }

    /// Shows what the database knows, and raises the alarm when checks begin to wait for too long.
    pub(crate) async fn refresh_backlog(&self) -> Result<(), DbErr> {
        let backlog = self.backlog().await?;
        self.workshop.metrics.show(backlog);
        let is_overdue = backlog.overdue > 0;
        if is_overdue && !self.alarmed.swap(is_overdue, Ordering::Relaxed) {
            let provider = self.provider().unwrap_or("none configured");
            let overdue = backlog.overdue;
            tracing::error!(overdue, provider, "{overdue} checks of customers wait for too long; provider: {provider}");
        } else if !is_overdue {
            self.alarmed.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

struct Desk {
    workshop: Arc<Workshop>,
}

struct State {
    under_way: HashSet<CheckId>,
    /// Whether there was more to do than could be done at once.
    has_more: bool,
    tasks: CancellationToken,
    _stop_tasks: DropGuard,
}

impl Behaviour for Desk {
    const KIND: ActorKind = ActorKind::ComplianceDesk;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<Message>, (): ()) -> Result<State, ActorProcessingErr> {
        let _ = myself.cast(Message::Sweep);
        // Ends by itself with the actor.
        drop(myself.send_interval(self.workshop.config.sweep_interval, || Message::Sweep));
        let tasks = CancellationToken::new();
        Ok(State { under_way: HashSet::new(), has_more: false, _stop_tasks: tasks.clone().drop_guard(), tasks })
    }

    async fn handle(
        &self,
        myself: &Mailbox<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Sweep => self.sweep(myself, state).await,
            Message::Done(check) => {
                state.under_way.remove(&check);
                self.workshop.metrics.show_in_flight(state.under_way.len());
                if std::mem::take(&mut state.has_more) {
                    self.sweep(myself, state).await;
                }
            }
        }
        Ok(())
    }
}

impl Desk {
    async fn sweep(&self, myself: &Mailbox<Message>, state: &mut State) {
        let Workshop { config, provider, database, clock, metrics, .. } = &*self.workshop;
        let room = config.concurrency_max.saturating_sub(state.under_way.len());
        if provider.is_none() {
            return;
        }
        if room == 0 {
            state.has_more = true;
            return;
        }
        // Those under way are due as well until they are written down.
        let limit = config.concurrency_max as u64 + 1;
        let due = match queue::due(database, clock.now(), limit).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "the queue of checks could not be read and is read again");
                return;
            }
        };
        let fresh: Vec<Task> = due.into_iter().filter(|task| !state.under_way.contains(&task.check)).collect();
        state.has_more = fresh.len() > room;
        for task in fresh.into_iter().take(room) {
            state.under_way.insert(task.check);
            let (workshop, cancelled, myself) = (Arc::clone(&self.workshop), state.tasks.clone(), myself.clone());
            tokio::spawn(async move {
                let done = Done { check: task.check, myself };
                cancelled.run_until_cancelled(workshop.work(&task)).await;
                drop(done);
            });
        }
        metrics.show_in_flight(state.under_way.len());
    }
}

/// Says that a check was worked on, also if that panicked.
struct Done {
    check: CheckId,
    myself: Mailbox<Message>,
}

impl Drop for Done {
    fn drop(&mut self) {
        let _ = self.myself.cast(Message::Done(self.check));
    }
}
