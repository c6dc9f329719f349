//! `/ops/bulk`: one action on many subjects: releases, redeliveries, settlement retries and refund approvals.
//!
//! A preview lists the subjects that a filter finds, with the sums of their money. The action is then carried out on exactly
//! these, one after the other, as a job in the memory of this node. Each subject has its own commit and audit entry, so a job
//! that ends early leaves the others as they were.

pub(crate) mod jobs;
pub(crate) mod page;
mod selection;

use payferry_domain::{Chain, PspId};
use payferry_entities::DeliveryStatus;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, JsonBody, Path, Problem, QueryFields, query, request, rule};
use payferry_runtime::request;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::bulk::jobs::{Job, JobState};
use crate::bulk::selection::Candidate;
use crate::input::{id_of, unknown};
use crate::page::form::Sort;

/// Maximum number of subjects of one job.
pub const BULK_ITEMS_MAX: usize = 1_000;

payferry_domain::named! {
    /// Action on many subjects.
    BulkAction, "an action on many subjects" {
        /// Releases quarantined payments, payouts, withdrawals and customers.
        Release = "release",
        /// Delivers webhooks again.
        Redeliver = "redeliver",
        /// Retries failed settlements.
        RetrySettlement = "retry_settlement",
        /// Approves refunds above the limit.
        ApproveRefund = "approve_refund",
    }
}

/// Filter of the subjects. An unset field matches all.
#[derive(Debug, Clone)]
pub(crate) struct BulkFilter {
    action: BulkAction,
    psp_id: Option<PspId>,
    chain: Option<Chain>,
    contains: Option<String>,
    status: Option<DeliveryStatus>,
}

query! {
    /// An action and its filter.
    pub struct BulkQuery {
        /// `release`, `redeliver`, `retry_settlement` or `approve_refund`.
        action: BulkAction = rule::name(),
        /// Subjects of this PSP.
        psp_id: PspId = rule::id(),
        /// Subjects on this chain.
        chain: Chain = rule::name(),
        /// Subjects whose reason contains this text; for deliveries, their event or error.
        contains: String = rule::text(),
        /// Deliveries with this status; `exhausted` if absent. For `redeliver` only.
        status: DeliveryStatus = rule::name(),
    }
}

request! {
    /// An action on the subjects of a preview.
    pub struct BulkRequest refusing(unknown::<BulkRequest>) {
        /// `release`, `redeliver`, `retry_settlement` or `approve_refund`.
        action: BulkAction = required(rule::name()),
        /// Subjects of this PSP.
        psp_id: Option<PspId> = optional(rule::id()),
        /// Subjects on this chain.
        chain: Option<Chain> = optional(rule::name()),
        /// Subjects whose reason contains this text; for deliveries, their event or error.
        contains: Option<String> = optional(rule::text()),
        /// Deliveries with this status; `exhausted` if absent. For `redeliver` only.
        status: Option<DeliveryStatus> = optional(rule::name()),
        /// The `selection` of the preview.
        selection: String = required(rule::text()).example("8c2f0f2ad1c3b4e5"),
        /// The basis of the decision, without personal data.
        reason: String = required(rule::text()),
    }
}

/// Fields of the form that starts a job.
const FIELDS: [(&str, Sort); 7] = [
    ("action", Sort::Text),
    ("psp_id", Sort::Text),
    ("chain", Sort::Text),
    ("contains", Sort::Text),
    ("status", Sort::Text),
    ("selection", Sort::Text),
    ("reason", Sort::Text),
];

record! {
    fn of(candidate: &Candidate) {}

    /// A subject of an action.
    pub struct BulkItemRecord {
        /// Id of the payment, payout, withdrawal, customer, delivery or refund.
        id: String = candidate.id.clone(),
        /// The payment, payout, withdrawal or customer that it is about.
        subject: String = candidate.subject.clone(),
        psp_id: Option<String> = candidate.psp_id.clone(),
        chain: Option<String> = candidate.chain.clone(),
        amount: Option<String> = candidate.money.as_ref().map(|(amount, _)| amount.to_string()),
        currency: Option<String> = candidate.money.as_ref().map(|(_, currency)| currency.clone()),
        /// Why it is listed.
        reason: String = candidate.reason.clone(),
    }
}

/// Money of one currency.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BulkSum {
    pub(crate) currency: String,
    pub(crate) amount: String,
}

/// Subjects that an action would change.
#[derive(Serialize, ToSchema)]
pub struct BulkPreview {
    #[schema(value_type = String)]
    action: BulkAction,
    /// Number of subjects, at most 1,000.
    total: usize,
    /// True if the filter finds more subjects than one job may have.
    more: bool,
    sums: Vec<BulkSum>,
    /// Pass it to start the action on exactly these subjects.
    selection: String,
    /// Oldest first.
    items: Vec<BulkItemRecord>,
}

/// Preview an action on many subjects
///
/// Changes nothing.
#[utoipa::path(
    get, path = "/ops/bulk", tag = "Money", operation_id = "previewBulkAction", params(BulkQuery),
    responses((status = 200, description = "The subjects.", body = BulkPreview), UnreadableQuery),
)]
pub(crate) async fn preview(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let BulkQuery { action, psp_id, chain, contains, status } = BulkQuery::read(&mut query);
    query.finish()?;
    let action = action.ok_or_else(|| ApiError::parameter("action", "required", "is required".to_owned()))?;
    let selection = selection::find(&operator, &BulkFilter { action, psp_id, chain, contains, status }).await?;
    let items = selection.candidates.iter().map(BulkItemRecord::of).collect();
    let (total, more, sums) = (selection.candidates.len(), selection.more, selection.sums());
    Answer::ok(&BulkPreview { action, total, more, sums, selection: selection.name(action), items })
}

/// Outcome for one subject.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BulkOutcomeRecord {
    /// Id of the subject.
    pub(crate) id: String,
    /// `carried_out`, `proposed` (a second operator has to approve it), `refused` or `failed`.
    #[schema(value_type = String)]
    pub(crate) outcome: Outcome,
    /// Why it was refused or failed.
    pub(crate) detail: Option<String>,
}

payferry_domain::named! {
    /// Outcome of an action on one subject.
    Outcome, "an outcome" {
        CarriedOut = "carried_out",
        /// A second operator has to approve it.
        Proposed = "proposed",
        /// The state of the subject does not allow it any more.
        Refused = "refused",
        /// It was not answered; the job ends.
        Failed = "failed",
    }
}

record! {
    fn of(job: &Job) {
        let progress = job.progress();
        let count = |outcome| progress.outcomes.iter().filter(|one| one.outcome == outcome).count();
    }

    /// An action on many subjects.
    pub struct BulkJobRecord {
        id: String = job.id.to_string(),
        #[schema(value_type = String)]
        action: BulkAction = job.action,
        /// Name of the operator who started it.
        operator: String = job.operator.clone(),
        reason: String = job.reason.clone(),
        /// `running`, `completed`, `stopped` or `interrupted`: the service did not answer, or is shutting down.
        #[schema(value_type = String)]
        state: JobState = progress.state,
        /// Number of subjects.
        total: usize = job.total,
        carried_out: usize = count(Outcome::CarriedOut),
        proposed: usize = count(Outcome::Proposed),
        refused: usize = count(Outcome::Refused),
        failed: usize = count(Outcome::Failed),
        sums: Vec<BulkSum> = job.sums.clone(),
        /// In the order in which they were carried out.
        outcomes: Vec<BulkOutcomeRecord> = progress.outcomes.clone(),
        created_at: DateTime = job.started_at.into(),
        updated_at: DateTime = progress.at.into(),
    }
}

/// Start an action on many subjects
///
/// On exactly the subjects of the preview. One job runs at a time on each node.
#[utoipa::path(
    post, path = "/ops/bulk", tag = "Money", operation_id = "startBulkAction", request_body = BulkRequest,
    responses(
        (status = 202, description = "The job.", body = BulkJobRecord),
        (
            status = 409, body = Problem,
            description = "`selection_changed`: the filter finds other subjects now. `nothing_selected`. `bulk_job_running`.",
        ),
    ),
)]
pub(crate) async fn start(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let job = begin(&operator, body.parse()?).await?;
    Answer::accepted(&BulkJobRecord::of(&job))
}

/// Starts a job. Used by the API and the page.
pub(crate) async fn begin(operator: &Operator, wanted: BulkRequest) -> Result<std::sync::Arc<Job>, ApiError> {
    let BulkRequest { action, psp_id, chain, contains, status, selection: previewed, reason } = wanted;
    request::give_reason(&reason);
    let selection = selection::find(operator, &BulkFilter { action, psp_id, chain, contains, status }).await?;
    if selection.candidates.is_empty() {
        return Err(ApiError::conflict("nothing_selected", "The filter finds no subjects."));
    }
    if selection.name(action) != previewed {
        let detail = "The filter finds other subjects now: read the preview again.";
        return Err(ApiError::conflict("selection_changed", detail));
    }
    jobs::start(operator, action, reason, selection)
}

/// The jobs of a node.
#[derive(Serialize, ToSchema)]
pub struct BulkJobList {
    total: usize,
    /// Newest first, without their outcomes.
    jobs: Vec<BulkJobRecord>,
}

/// List the actions on many subjects
///
/// The last 20 of this node, newest first.
#[utoipa::path(
    get, path = "/ops/bulk/jobs", tag = "Money", operation_id = "listBulkJobs",
    responses((status = 200, description = "The jobs.", body = BulkJobList)),
)]
pub(crate) async fn list(operator: Operator) -> Result<Answer, ApiError> {
    let brief = |job: &std::sync::Arc<Job>| BulkJobRecord { outcomes: Vec::new(), ..BulkJobRecord::of(job) };
    let jobs: Vec<_> = operator.bulk.all().iter().map(brief).collect();
    Answer::ok(&BulkJobList { total: jobs.len(), jobs })
}

/// Read an action on many subjects
#[utoipa::path(
    get, path = "/ops/bulk/jobs/{job_id}", tag = "Money", operation_id = "getBulkJob",
    params(("job_id" = String, Path, description = "The id of the job.")),
    responses((status = 200, description = "The job with the outcomes so far.", body = BulkJobRecord)),
)]
pub(crate) async fn get(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let job = operator.bulk.find(id_of("job_id", &id)?).ok_or(ApiError::NotFound("job"))?;
    Answer::ok(&BulkJobRecord::of(&job))
}

/// Stop an action on many subjects
///
/// The subject in progress is still carried out. Can be repeated.
#[utoipa::path(
    post, path = "/ops/bulk/jobs/{job_id}/stop", tag = "Money", operation_id = "stopBulkJob",
    params(("job_id" = String, Path, description = "The id of the job.")),
    responses((status = 200, description = "It carries out nothing more.", body = BulkJobRecord)),
)]
pub(crate) async fn stop(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let job = operator.bulk.find(id_of("job_id", &id)?).ok_or(ApiError::NotFound("job"))?;
    job.stop();
    Answer::ok(&BulkJobRecord::of(&job))
}
