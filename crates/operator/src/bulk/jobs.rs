//! Jobs in the memory of this node: each carries out one action on its subjects, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use payferry_actors::observe::Quarantinable;
use payferry_domain::{BulkJobId, PspId, Timestamp};
use payferry_httpkit::ApiError;
use payferry_httpkit::error::Listener;
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::webhooks::log;
use payferry_runtime::request;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::selection::{Candidate, Selection, Target};
use super::{BulkAction, BulkOutcomeRecord, BulkSum, Outcome};
use crate::Operator;
use crate::actors::quarantine;
use crate::approvals::Guarded;
use crate::decisions::{Action, DecisionRequest, carry_out};

/// Jobs that are kept.
const JOBS_MAX: usize = 20;

payferry_domain::named! {
    /// State of a job.
    JobState, "the state of a job" {
        Running = "running",
        /// Every subject has an outcome.
        Completed = "completed",
        /// An operator stopped it.
        Stopped = "stopped",
        /// The service did not answer, or is shutting down.
        Interrupted = "interrupted",
    }
}

/// One action on many subjects.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) id: BulkJobId,
    pub(super) action: BulkAction,
    /// Name of the operator who started it.
    pub(super) operator: String,
    pub(super) reason: String,
    pub(super) started_at: Timestamp,
    pub(super) total: usize,
    pub(super) sums: Vec<BulkSum>,
    progress: Mutex<Progress>,
    stopping: CancellationToken,
}

/// Progress of a job.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) state: JobState,
    pub(super) outcomes: Vec<BulkOutcomeRecord>,
    /// Time of the last outcome.
    pub(super) at: Timestamp,
}

impl Job {
    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Ends the job after the subject in progress.
    pub(super) fn stop(&self) {
        self.stopping.cancel();
    }
}

/// The last jobs, newest first.
#[derive(Debug, Default)]
pub(crate) struct BulkJobs(Mutex<VecDeque<Arc<Job>>>);

impl BulkJobs {
    pub(super) fn all(&self) -> Vec<Arc<Job>> {
        self.0.lock().iter().cloned().collect()
    }

    pub(super) fn find(&self, id: BulkJobId) -> Option<Arc<Job>> {
        self.0.lock().iter().find(|job| job.id == id).cloned()
    }

    /// Adds a job unless another one runs.
    fn add(&self, job: Arc<Job>) -> Result<(), ApiError> {
        let mut jobs = self.0.lock();
        if jobs.iter().any(|job| job.progress().state == JobState::Running) {
            let detail = "Another action on many subjects runs: wait for its end, or stop it.";
            return Err(ApiError::conflict("bulk_job_running", detail));
        }
        jobs.push_front(job);
        jobs.truncate(JOBS_MAX);
        Ok(())
    }
}

/// Starts a job on the subjects.
pub(super) fn start(
    operator: &Operator,
    action: BulkAction,
    reason: String,
    selection: Selection,
) -> Result<Arc<Job>, ApiError> {
    let source = request::current().unwrap_or_default();
    let now = operator.system.clock().real_now();
    let job = Arc::new(Job {
        id: BulkJobId::generate(),
        action,
        operator: source.operator.clone().unwrap_or_default(),
        reason,
        started_at: now,
        total: selection.candidates.len(),
        sums: selection.sums(),
        progress: Mutex::new(Progress { state: JobState::Running, outcomes: Vec::new(), at: now }),
        stopping: CancellationToken::new(),
    });
    operator.bulk.add(Arc::clone(&job))?;
    tracing::info!(job.id = %job.id, action = %action, subjects = job.total, "operator started {action} on {} subjects", job.total);
    // The audit entries have the operator, the address, the request and the reason of this request.
    tokio::spawn(request::answering(source, run(operator.clone(), Arc::clone(&job), selection.candidates)));
    Ok(job)
}

/// Ends a job that a panic has interrupted: a running job would refuse all others.
struct Ending(Arc<Job>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut progress = self.0.progress();
        if progress.state == JobState::Running {
            progress.state = JobState::Interrupted;
        }
    }
}

async fn run(operator: Operator, job: Arc<Job>, candidates: Vec<Candidate>) {
    let _ending = Ending(Arc::clone(&job));
    let mut state = JobState::Completed;
    for candidate in candidates {
        if job.stopping.is_cancelled() {
            state = JobState::Stopped;
            break;
        }
        if operator.config.closing.is_cancelled() || operator.config.draining.has_begun() {
            state = JobState::Interrupted;
            break;
        }
        let (outcome, detail) = one(&operator, &candidate.target, &job.reason).await;
        let mut progress = job.progress();
        progress.outcomes.push(BulkOutcomeRecord { id: candidate.id, outcome, detail });
        progress.at = operator.system.clock().real_now();
        if outcome == Outcome::Failed {
            state = JobState::Interrupted;
            break;
        }
    }
    let mut progress = job.progress();
    (progress.state, progress.at) = (state, operator.system.clock().real_now());
    let done = progress.outcomes.len();
    tracing::info!(job.id = %job.id, state = %state, done, "the action {} on {} subjects is {state}", job.action, job.total);
}

/// Carries out the action on one subject.
async fn one(operator: &Operator, target: &Target, reason: &str) -> (Outcome, Option<String>) {
    let decide = async |payment, action| {
        let request = DecisionRequest { action, reason: reason.to_owned() };
        Ok(match carry_out(operator, payment, request).await? {
            Guarded::CarriedOut(_) => (Outcome::CarriedOut, None),
            Guarded::Proposed(approval) => (Outcome::Proposed, Some(approval.id.to_string())),
        })
    };
    let outcome = match target {
        Target::Quarantined(of) => release(operator, *of).await,
        Target::Delivery(psp, id) => redeliver(operator, *psp, id).await,
        Target::Settlement(payment) => decide(*payment, Action::RetrySettlement).await,
        Target::Refund(payment, refund) => {
            decide(*payment, Action::ApproveRefund { refund_id: *refund, approve: true }).await
        }
    };
    outcome.unwrap_or_else(|error: ApiError| {
        let is_refused = matches!(error, ApiError::Conflict(..) | ApiError::NotFound(_) | ApiError::Unprocessable(..));
        let detail = error.detail(Listener::Operator);
        (if is_refused { Outcome::Refused } else { Outcome::Failed }, Some(detail))
    })
}

async fn release(operator: &Operator, of: Quarantinable) -> Result<(Outcome, Option<String>), ApiError> {
    if quarantine::release(operator, of).await? {
        return Ok((Outcome::CarriedOut, None));
    }
    Ok((Outcome::Refused, Some(format!("The {} is not quarantined.", quarantine::word(of)))))
}

async fn redeliver(operator: &Operator, psp: PspId, id: &str) -> Result<(Outcome, Option<String>), ApiError> {
    let system = &operator.system;
    let now: Timestamp = system.clock().real_now();
    let transaction = system.database().begin().await?;
    if !log::redeliver(&transaction, psp, id, now).await? {
        return Ok((Outcome::Refused, Some("The endpoint of this delivery was deleted.".to_owned())));
    }
    let entry = NewAuditEntry {
        action: "webhook.redelivered".to_owned(),
        psp_id: Some(psp),
        subject: id.to_owned(),
        detail: json!({}),
    };
    audit::append(&transaction, &Actor::Operator, now, vec![entry]).await?;
    transaction.commit().await?;
    system.webhooks().refresh(psp);
    Ok((Outcome::CarriedOut, None))
}
