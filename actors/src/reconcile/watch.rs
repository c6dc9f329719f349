//! Auditor of the vaults: reconciles in the background, slowly enough to leave the chains' endpoints to payments.
//!
//! Each run checks every PSP's vault, the next part of the payments, the differences found before, and the treasury if
//! `treasury_kept` is set. Deliberately absent: fixing differences. `payferry reconcile` checks everything at once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::RwLock;
use payferry_domain::Timestamp;
use payferry_entities::Database;
use payferry_evm::{ChainClient, ChainSpec};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox, panic_text};
use sea_orm::DbErr;
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use super::{Difference, Options, Part, ReconcileReport, metrics, reconcile_part};

/// Name of the auditor's actor.
pub(crate) const NAME: &str = "vaults";
/// Payments per run; the next run continues after them.
const PAYMENTS_MAX: u64 = 50_000;
/// Maximum number of stored differences.
const DIFFERENCES_KEPT_MAX: usize = 1_000;
/// Time from the start to the first run, unless the interval is shorter.
const FIRST_AFTER: Duration = Duration::from_mins(1);
/// Pause after each request to a chain. With one request at a time, this bounds the load on an endpoint.
const REQUEST_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two checks of a difference.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// Difference that persists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersistentDifference {
    /// The difference.
    #[serde(flatten)]
    pub difference: Difference,
    /// Wall-clock time when it was first found.
    pub since: Timestamp,
}

/// State of the auditor of the vaults.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VaultsView {
    /// Wall-clock time of the end of the last run; `None` before the first.
    pub checked_at: Option<Timestamp>,
    /// Number of payments checked in that run.
    pub payments: u64,
    /// Reasons why chains could not be read in that run.
    pub unread: Vec<String>,
    /// Current differences.
    pub differences: Vec<PersistentDifference>,
}

/// Findings, written by the auditor and read by others. They outlive the auditor.
#[derive(Debug, Clone, Default)]
pub(crate) struct VaultFindings(Arc<RwLock<VaultsView>>);

impl VaultFindings {
    /// Current findings.
    pub(crate) fn view(&self) -> VaultsView {
        self.0.read().clone()
    }

    /// Exports gauges of the findings and their age.
    pub(crate) fn refresh_metrics(&self, now: Timestamp) {
        let view = self.0.read();
        metrics::record_findings(
            view.differences.len(),
            view.unread.len(),
            view.checked_at.map(|at| now.millis_since(at)),
        );
    }

    /// Forgets the findings, because another node compares the vaults from now on.
    pub(crate) fn forget(&self) {
        *self.0.write() = VaultsView::default();
        metrics::record_findings(0, 0, Some(0));
    }

    fn known(&self) -> Vec<Difference> {
        self.0.read().differences.iter().map(|one| one.difference.clone()).collect()
    }

    /// Applies the report of a run. Earlier differences were checked again, unless their chain could not be read. Returns
    /// the differences that are new or have another amount or sign.
    fn take(&self, report: ReconcileReport, now: Timestamp) -> Vec<Difference> {
        let mut changed = Vec::new();
        let mut view = self.0.write();
        let before = std::mem::take(&mut view.differences);
        for difference in report.differences {
            let known = before.iter().find(|one| one.difference.place == difference.place);
            if known.is_none_or(|one| one.difference.surplus() != difference.surplus()) {
                changed.push(difference.clone());
            }
            if view.differences.len() < DIFFERENCES_KEPT_MAX {
                let since = known.map_or(now, |one| one.since);
                view.differences.push(PersistentDifference { difference, since });
            }
        }
        view.checked_at = Some(now);
        view.payments = report.payments;
        view.unread = report.unread.into_iter().map(|(chain, why)| format!("{chain}: {why}")).collect();
        metrics::RUNS.add(&[], 1);
        metrics::PAYMENTS.add(&[], report.payments);
        changed
    }
}

fn log(difference: &Difference) {
    let place = &difference.place;
    tracing::error!(
        vault.owner = %place.owner,
        vault.chain = %place.chain,
        vault.token_address = %place.token_address,
        "a vault differs from the ledger, which needs the operator's attention: {}, {}",
        place.owner,
        difference.words(None)
    );
}

/// Actor that reconciles the vaults periodically.
#[derive(Clone)]
pub(crate) struct VaultAuditor {
    pub(crate) database: Database,
    pub(crate) clock: Clock,
    pub(crate) findings: VaultFindings,
    pub(crate) chains: Arc<Vec<(ChainSpec, ChainClient)>>,
    pub(crate) interval: Duration,
    /// True if the treasury is compared with the ledger, too.
    pub(crate) treasury_kept: bool,
}

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Message {
    /// Start a run.
    Run,
    /// Result of a run.
    Ran(Box<Result<ReconcileReport, DbErr>>),
}

#[derive(Default)]
pub(crate) struct State {
    /// Run in progress; ends with the actor.
    running: Option<AbortOnDropHandle<()>>,
    after: String,
}

impl Behaviour for VaultAuditor {
    const KIND: ActorKind = ActorKind::Auditor;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, myself: &Mailbox<Message>, (): ()) -> ActorResult<State> {
        myself.send_after(self.interval.min(FIRST_AFTER), || Message::Run);
        Ok(State::default())
    }

    async fn handle(&self, myself: &Mailbox<Message>, message: Message, state: &mut State) -> ActorResult {
        match message {
            // In a task of its own: it takes long, and a stop of the service must not wait for it.
            Message::Run => state.running = Some(self.run(myself.clone(), state.after.clone())),
            Message::Ran(outcome) => {
                state.running = None;
                match *outcome {
                    Ok(report) => {
                        state.after.clone_from(&report.after);
                        self.findings.take(report, self.clock.real_now()).iter().for_each(log);
                    }
                    Err(error) => tracing::warn!(%error, "the vaults could not be checked: {error}"),
                }
                myself.send_after(self.interval, || Message::Run);
            }
        }
        Ok(())
    }
}

impl VaultAuditor {
    fn run(&self, myself: Mailbox<Message>, after: String) -> AbortOnDropHandle<()> {
        let auditor = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let Self { database, clock, findings, chains, interval, treasury_kept } = auditor;
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
                outcome.unwrap_or_else(|panic| Err(DbErr::Custom(format!("it panicked: {}", panic_text(panic)))));
            let _ = myself.cast(Message::Ran(Box::new(outcome)));
        }))
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::{Address, Chain};

    use super::*;
    use crate::reconcile::{FundsPosition, Owner};

    #[test]
    fn a_difference_is_reported_when_its_amount_or_sign_changes() {
        let findings = VaultFindings::default();
        let difference = |on_chain| Difference {
            place: FundsPosition {
                owner: Owner::Psp { psp_id: "psp_1".to_owned() },
                chain: Chain::Base,
                token_address: Address([1; 20]),
                address: Address([2; 20]),
            },
            ledger: 10,
            on_chain,
        };
        let reported = |on_chain, at| {
            let report = ReconcileReport { differences: vec![difference(on_chain)], ..ReconcileReport::default() };
            findings.take(report, Timestamp(at)).len()
        };
        let counts = [(11, 1), (11, 2), (12, 3), (9, 4), (9, 5)].map(|(on_chain, at)| reported(on_chain, at));
        assert_eq!(counts, [1, 0, 1, 1, 0]);
        assert_eq!(findings.view().differences[0].since, Timestamp(1), "since the first of them");
    }
}
