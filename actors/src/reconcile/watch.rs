//! The auditor of the vaults: reconciles in the background, at a pace that leaves the chains' endpoints to the payments.
//!
//! Each run looks at every PSP's vault, at the next part of the payments, at what it found before, and at the treasury if that is
//! said to be kept. Deliberately absent: mending anything; whoever wants everything looked at now runs `payferry reconcile`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::RwLock;
use payferry_domain::Timestamp;
use payferry_entities::Database;
use payferry_evm::{ChainClient, ChainSpec};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox, words_of};
use ractor::ActorProcessingErr;
use sea_orm::DbErr;
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use super::{Difference, Options, Part, Report, metrics, reconcile_part};

/// The auditor's name among the actors.
pub(crate) const NAME: &str = "vaults";
/// Payments of one run, at least; the next run goes on behind them.
const PAYMENTS_MAX: u64 = 50_000;
/// Differences that are kept; of more, the first found.
const DIFFERENCES_KEPT_MAX: usize = 1_000;
/// From the start to the first run, unless runs come sooner.
const FIRST_AFTER: Duration = Duration::from_mins(1);
/// After each request to a chain: with one at a time, no more than so many of an endpoint's requests are ours.
const REQUEST_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at what differs.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// A difference that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What differs.
    #[serde(flatten)]
    pub difference: Difference,
    /// When it was first found, by the wall clock.
    pub since: Timestamp,
}

/// What the auditor of the vaults knows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VaultsView {
    /// When the last run ended, by the wall clock; `None` before the first.
    pub checked_at: Option<Timestamp>,
    /// Payments that it looked at.
    pub payments: u64,
    /// Why chains could not be read then.
    pub unread: Vec<String>,
    /// What differs.
    pub differences: Vec<Standing>,
}

/// Shared: the auditor writes, others read. Outlives the auditor.
#[derive(Debug, Clone, Default)]
pub(crate) struct VaultFindings(Arc<RwLock<VaultsView>>);

impl VaultFindings {
    /// As it is now.
    pub(crate) fn view(&self) -> VaultsView {
        self.0.read().clone()
    }

    /// Gauges of what is found, and of how old that is.
    pub(crate) fn refresh_metrics(&self, now: Timestamp) {
        let view = self.0.read();
        metrics::looked(view.differences.len(), view.unread.len(), view.checked_at.map(|at| now.millis_since(at)));
    }

    fn known(&self) -> Vec<Difference> {
        self.0.read().differences.iter().map(|standing| standing.difference.clone()).collect()
    }

    /// Takes in what a run found. What stood before was looked at again, unless its chain could not be read.
    fn take(&self, report: Report, now: Timestamp) {
        let mut view = self.0.write();
        let before = std::mem::take(&mut view.differences);
        for difference in report.differences {
            let known = before.iter().find(|standing| standing.difference.place == difference.place);
            if known.is_none() {
                tell(&difference);
            }
            if view.differences.len() < DIFFERENCES_KEPT_MAX {
                let since = known.map_or(now, |standing| standing.since);
                view.differences.push(Standing { difference, since });
            }
        }
        view.checked_at = Some(now);
        view.payments = report.payments;
        view.unread = report.unread.into_iter().map(|(chain, why)| format!("{chain}: {why}")).collect();
        metrics::ran(report.payments);
    }
}

/// Once for each difference.
fn tell(difference: &Difference) {
    let place = &difference.place;
    tracing::error!(
        vault.owner = %place.owner,
        vault.chain = %place.chain,
        vault.token_address = %place.token_address,
        "a vault does not hold what the ledger says, which wants the operator's attention: {}, {}",
        place.owner,
        difference.words(None)
    );
}

/// The actor.
pub(crate) struct VaultAuditor {
    database: Database,
    clock: Clock,
    findings: VaultFindings,
    chains: Arc<Vec<(ChainSpec, ChainClient)>>,
    interval: Duration,
    /// Whether the treasury is held against the ledger, too.
    treasury_kept: bool,
}

pub(crate) enum Message {
    /// Begin a run.
    Run,
    /// A run has ended.
    Ran(Box<Result<Report, DbErr>>),
}

#[derive(Default)]
pub(crate) struct State {
    /// The run under way; ends with the actor.
    running: Option<AbortOnDropHandle<()>>,
    after: String,
}

impl VaultAuditor {
    pub(crate) fn new(
        database: Database,
        clock: Clock,
        findings: VaultFindings,
        chains: Arc<Vec<(ChainSpec, ChainClient)>>,
        interval: Duration,
        treasury_kept: bool,
    ) -> Self {
        Self { database, clock, findings, chains, interval, treasury_kept }
    }
}

impl Behaviour for VaultAuditor {
    const KIND: ActorKind = ActorKind::Auditor;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: &Mailbox<Message>, (): ()) -> Result<State, ActorProcessingErr> {
        myself.send_after(self.interval.min(FIRST_AFTER), || Message::Run);
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: &Mailbox<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            // In a task of its own: it takes long, and whoever stops the service does not wait for it.
            Message::Run => state.running = Some(self.run(myself.clone(), state.after.clone())),
            Message::Ran(outcome) => {
                state.running = None;
                match *outcome {
                    Ok(report) => {
                        state.after.clone_from(&report.after);
                        self.findings.take(report, self.clock.real_now());
                    }
                    Err(error) => tracing::warn!(%error, "the vaults could not be looked at: {error}"),
                }
                myself.send_after(self.interval, || Message::Run);
            }
        }
        Ok(())
    }
}

impl VaultAuditor {
    fn run(&self, myself: Mailbox<Message>, after: String) -> AbortOnDropHandle<()> {
        let (database, clock) = (self.database.clone(), self.clock.clone());
        let (findings, chains) = (self.findings.clone(), self.chains.clone());
        let (interval, treasury_kept) = (self.interval, self.treasury_kept);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let options = Options {
                thorough: false,
                pause: LOOK_PAUSE.min(interval),
                requests_at_once: 1,
                request_pause: REQUEST_PAUSE,
                whole_ledger: false,
                treasury_kept,
            };
            let part = Part { after, payments_max: Some(PAYMENTS_MAX), known: findings.known() };
            let run = reconcile_part(&database, &chains, &clock, options, part, |_| {});
            let outcome = AssertUnwindSafe(run).catch_unwind().await;
            let outcome =
                outcome.unwrap_or_else(|panic| Err(DbErr::Custom(format!("it panicked: {}", words_of(panic)))));
            let _ = myself.cast(Message::Ran(Box::new(outcome)));
        }))
    }
}
