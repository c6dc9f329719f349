//! `/ops/approvals`: actions that a second operator approves, if `[operators] four_eyes` is on.
//!
//! An approval is committed first and its action is carried out then, by the function that runs it without four eyes. If
//! the process ends in between, [`resume`] carries it out. Not here: the actions themselves.

pub(crate) mod action;
pub(crate) mod page;
pub(crate) mod store;

use std::time::Duration;

use axum::Extension;
use payferry_domain::{ApprovalId, Timestamp};
use payferry_entities::approvals;
use payferry_httpkit::extract::field::optional;
use payferry_httpkit::lists::{DateTime, Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, JsonBody, Path, Problem, QueryFields, query, request, rule};
use payferry_runtime::request::{self, RequestSource};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::admit::Identity;
use crate::input::{id_of, unknown};
use crate::openapi::FreeObject;
use crate::page::form::Sort;

use action::OUT_OF_DATE;
use store::{Approval, ApprovalStatus, Outcome, Proposal};

/// Seconds after which a proposal expires: long enough for a weekend.
pub const APPROVAL_SECS: i64 = 72 * 3_600;
/// Interval of [`resume`].
const RESUME_INTERVAL: Duration = Duration::from_secs(10);
/// Seconds since the approval after which [`resume`] carries out its action. Until then the approver's request may do so.
const RESUME_AFTER_SECS: i64 = 30;
/// Maximum number of approvals that one [`resume`] reads.
const RESUMED_MAX: u64 = 100;

/// Codes of conflicts that end. A quarantined payment may have carried out the action, and says so once it is released.
const REPEATED: [&str; 2] = ["payment_quarantined", "concurrent_change"];

/// Fields of the form of a decision about an approval.
const FIELDS: [(&str, Sort); 1] = [("reason", Sort::Text)];

/// Result of a request that may need a second operator.
pub(crate) enum Guarded<T> {
    /// It was carried out.
    CarriedOut(T),
    /// It waits for approval.
    Proposed(Box<Approval>),
}

record! {
    /// The approval in a response.
    pub(crate) fn of(approval: &Approval, now: Timestamp) {
        let failure = approval.failure.clone();
    }

    /// An action that a second operator approves.
    pub struct ApprovalRecord {
        #[schema(example = "apr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = approval.id.to_string(),
        /// The same as `id`.
        approval_id: String = approval.id.to_string(),
        /// `refund_blocked`, `approve_refund`, `raise_limits` or `withdrawal_wallet`.
        kind: &'static str = approval.action.kind(),
        /// proposed, approved, carried_out, failed, rejected, expired or out_of_date.
        status: &'static str = approval.status_at(now).as_str(),
        psp_id: String = approval.psp_id.to_string(),
        /// The payment that the action concerns, if it concerns one.
        payment_id: Option<String> = approval.action.payment().map(|id| id.to_string()),
        /// The action; its fields depend on `kind`.
        action: FreeObject = approval.action.shown().into(),
        /// State of the subject when the action was proposed.
        subject_state: FreeObject = approval.subject_state.clone().into(),
        /// Role that may approve it: operator or admin.
        role: &'static str = approval.action.role().as_str(),
        reason: Option<String> = approval.reason.clone(),
        /// Name of the operator.
        proposed_by: String = approval.proposed_by.clone(),
        decided_by: Option<String> = approval.decided_by.clone(),
        decided_at: Option<DateTime> = approval.decided_at.map(DateTime::from),
        decision_reason: Option<String> = approval.decision_reason.clone(),
        /// Code of the error of a failed action.
        failure_reason: Option<String> = failure.as_ref().map(|(code, _)| code.clone()),
        /// The failure reason in words.
        failure: Option<String> = failure.map(|(_, words)| words),
        expires_at: DateTime = approval.expires_at.into(),
        created_at: DateTime = approval.created_at.into(),
        updated_at: DateTime = approval.updated_at.into(),
    }
}

/// A request that waits for approval.
#[derive(Serialize, ToSchema)]
pub struct ProposedAction {
    approval: ApprovalRecord,
}

/// The response to a request that waits for approval.
pub(crate) fn proposed(operator: &Operator, approval: &Approval) -> Result<Answer, ApiError> {
    Answer::accepted(&ProposedAction { approval: ApprovalRecord::of(approval, operator.system.clock().real_now()) })
}

query! {
    /// Filters of the list.
    pub struct ApprovalFilters {
        /// The status.
        status: ApprovalStatus = rule::name(),
    }
}

/// A page of approvals.
#[derive(Serialize, ToSchema)]
pub struct ApprovalList {
    total: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    approvals: Vec<ApprovalRecord>,
}

/// List approvals
///
/// Newest first.
#[utoipa::path(
    get, path = "/ops/approvals", tag = "Administration", operation_id = "listApprovals",
    params(ApprovalFilters, PageParams),
    responses((status = 200, description = "A page of approvals.", body = ApprovalList), UnreadableQuery),
)]
pub(crate) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let filters = ApprovalFilters::read(&mut query);
    let page = Page::read("approvals", query)?;
    let now = operator.system.clock().real_now();
    let (total, mut found) = store::list(operator.system.database(), filters.status, &page, now).await?;
    let next_cursor = page.next_cursor(&mut found, |one| (one.created_at.as_millis(), one.id.to_string()))?;
    let approvals = found.iter().map(|one| ApprovalRecord::of(one, now)).collect();
    Answer::ok(&ApprovalList { total, next_cursor, approvals })
}

/// Read an approval
///
/// Returns the record itself.
#[utoipa::path(
    get, path = "/ops/approvals/{approval_id}", tag = "Administration", operation_id = "getApproval",
    params(("approval_id" = String, Path, description = "The id of the approval.")),
    responses((status = 200, description = "The approval.", body = ApprovalRecord)),
)]
pub(crate) async fn get(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let approval = store::find(operator.system.database().reader(), id_of("approval_id", &id)?).await?;
    Answer::ok(&ApprovalRecord::of(&approval, operator.system.clock().real_now()))
}

request! {
    /// A decision about an approval.
    pub struct ApprovalDecision refusing(unknown::<ApprovalDecision>) {
        /// The basis of the decision, without personal data.
        reason: Option<String> = optional(rule::text()),
    }
}

/// Approve a proposal
///
/// The action is carried out at once.
#[utoipa::path(
    post, path = "/ops/approvals/{approval_id}/approve", tag = "Administration", operation_id = "approveProposal",
    request_body = ApprovalDecision,
    params(("approval_id" = String, Path, description = "The id of the approval.")),
    responses(
        (status = 200, description = "It is carried out.", body = ApprovalRecord),
        (status = 202, description = "It is approved and not carried out yet.", body = ApprovalRecord),
        (status = 404, description = UNKNOWN, body = Problem),
        (status = 422, description = INVALID, body = Problem),
        (status = 409, description = CLOSED, body = Problem),
    ),
)]
pub(crate) async fn approve(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let approval = decide_as(&operator, &identity, &id, &body, true).await?;
    let record = ApprovalRecord::of(&approval, operator.system.clock().real_now());
    if approval.status == ApprovalStatus::Approved { Answer::accepted(&record) } else { Answer::ok(&record) }
}

/// Description of the conflicts.
const CLOSED: &str = "It cannot be decided: `own_approval`, `approval_expired`, `approval_closed` or \
    `approval_out_of_date`. Or the approved action is refused: `settlement_in_progress`, `funds_blocked`, \
    `nothing_to_refund`, `refund_too_large`, `refund_spans_vaults`, `refund_must_be_all`, `refund_exists`, \
    `not_awaiting_approval`.";
/// Description of unknown objects.
const UNKNOWN: &str = "`approval_not_found`; or the approved action is refused: `payment_not_found`, `refund_not_found`, \
    `psp_not_found`.";
/// Description of invalid fields.
const INVALID: &str = "Invalid fields, all named; or the approved action is refused: `refund_address_invalid`.";

/// Reject a proposal
///
/// The proposer may reject too.
#[utoipa::path(
    post, path = "/ops/approvals/{approval_id}/reject", tag = "Administration", operation_id = "rejectProposal",
    request_body = ApprovalDecision,
    params(("approval_id" = String, Path, description = "The id of the approval.")),
    responses(
        (status = 200, description = "It is rejected.", body = ApprovalRecord),
        (status = 409, description = CLOSED, body = Problem),
    ),
)]
pub(crate) async fn reject(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let approval = decide_as(&operator, &identity, &id, &body, false).await?;
    Answer::ok(&ApprovalRecord::of(&approval, operator.system.clock().real_now()))
}

async fn decide_as(
    operator: &Operator,
    identity: &Identity,
    id: &str,
    body: &JsonBody,
    approve: bool,
) -> Result<Approval, ApiError> {
    let id = id_of("approval_id", id)?;
    decide(operator, identity, id, approve, body.parse::<ApprovalDecision>()?.reason).await
}

/// Proposes an action in a commit of its own.
pub(crate) async fn propose(operator: &Operator, proposal: Proposal) -> Result<Box<Approval>, ApiError> {
    let transaction = operator.system.database().begin().await?;
    let approval = store::propose(&transaction, proposal, operator.system.clock().real_now()).await?;
    transaction.commit().await?;
    announce(&approval);
    Ok(Box::new(approval))
}

/// Logs a proposal.
pub(crate) fn announce(approval: &Approval) {
    let (id, kind) = (approval.id, approval.action.kind());
    tracing::info!(approval.id = %id, kind, "operator proposed {kind} as {id}");
}

/// Approves or rejects a proposal. An approved action is carried out at once. A repeated decision of the same operator
/// changes nothing.
pub(super) async fn decide(
    operator: &Operator,
    identity: &Identity,
    id: ApprovalId,
    approve: bool,
    reason: Option<String>,
) -> Result<Approval, ApiError> {
    let database = operator.system.database();
    let now = operator.system.clock().real_now();
    let approval = store::find(database.reader(), id).await?;
    let role = approval.action.role();
    if identity.role < role {
        return Err(ApiError::MissingRole(role.as_str()));
    }
    if approve && approval.proposed_by == identity.name {
        let detail = "You proposed this yourself: another operator has to approve it.";
        return Err(ApiError::conflict("own_approval", detail));
    }
    let status = approval.status_at(now);
    if status != ApprovalStatus::Proposed {
        let repeats = match status {
            ApprovalStatus::Approved | ApprovalStatus::CarriedOut => approve,
            ApprovalStatus::Rejected => !approve,
            _ => false,
        };
        if repeats && approval.decided_by.as_deref() == Some(&identity.name) {
            return Ok(approval);
        }
        return Err(closed(&approval, status));
    }
    let transaction = database.begin().await?;
    if approve {
        let unchanged = approval.action.assert_unchanged(operator, &transaction, &approval, now).await;
        if let Err(error) = unchanged {
            if matches!(error, ApiError::Conflict(code, ..) if code == OUT_OF_DATE) {
                store::close_out_of_date(&transaction, &approval, now).await?;
                transaction.commit().await?;
            }
            return Err(error);
        }
    }
    if !store::decide(&transaction, &approval, approve, reason, now).await? {
        drop(transaction);
        let approval = store::find(database.reader(), id).await?;
        return Err(closed(&approval, approval.status_at(now)));
    }
    transaction.commit().await?;
    tracing::info!(approval.id = %id, is_approved = approve, "operator decided about {id}");
    let approval = store::find(database.writer(), id).await?;
    if approve {
        carry_out(operator, &approval).await?;
    }
    store::find(database.writer(), id).await
}

fn closed(approval: &Approval, status: ApprovalStatus) -> ApiError {
    let id = approval.id;
    if status == ApprovalStatus::Expired {
        return ApiError::conflict("approval_expired", format!("{id} has expired. Propose the action again."));
    }
    let status = status.as_str().replace('_', " ");
    ApiError::conflict("approval_closed", format!("It was decided before: {id} is {status}."))
}

/// Carries out an approved action, or records why it is refused. If it fails for another reason, it stays approved and
/// [`resume`] tries again.
async fn carry_out(operator: &Operator, approval: &Approval) -> Result<(), ApiError> {
    let Err(error) = approval.action.carry_out(operator, approval).await else { return Ok(()) };
    let Some((code, words)) = refusal(&error) else {
        let id = approval.id;
        tracing::warn!(approval.id = %id, ?error, "the approved action {id} is not carried out yet");
        return Ok(());
    };
    let transaction = operator.system.database().begin().await?;
    let now = operator.system.clock().real_now();
    store::finish(&transaction, approval, Outcome::Failed(code, words), now).await?;
    transaction.commit().await?;
    Err(error)
}

/// Code and words of an error that a later attempt would meet again.
fn refusal(error: &ApiError) -> Option<(String, String)> {
    match error {
        ApiError::Conflict(code, ..) if REPEATED.contains(code) => None,
        ApiError::Conflict(code, words, _) | ApiError::Unprocessable(code, words, _) => {
            Some(((*code).to_owned(), words.clone()))
        }
        ApiError::Validation(errors) => {
            let first = errors.first()?;
            Some((first.code.to_string(), format!("{} {}", first.field, first.message)))
        }
        ApiError::NotFound(what) => Some((format!("{what}_not_found"), format!("There is no such {what}."))),
        _ => None,
    }
}

/// Carries out the approved actions that a request did not finish, and closes expired proposals.
pub async fn resume(operator: &Operator) -> Result<(), ApiError> {
    let (database, now) = (operator.system.database(), operator.system.clock().real_now::<Timestamp>());
    let before = now.plus_secs(-RESUME_AFTER_SECS);
    let approved = (ApprovalStatus::Approved, approvals::Column::DecidedAt);
    for approval in store::waiting(database, approved.0, approved.1, before, RESUMED_MAX).await? {
        // Its entries in the audit log have the name of the approver.
        let source = RequestSource { operator: approval.decided_by.clone(), ..RequestSource::default() };
        if let Err(error) = request::answering(source, carry_out(operator, &approval)).await {
            tracing::warn!(approval.id = %approval.id, ?error, "an approved action was refused");
        }
    }
    let proposed = (ApprovalStatus::Proposed, approvals::Column::ExpiresAt);
    for approval in store::waiting(database, proposed.0, proposed.1, now, RESUMED_MAX).await? {
        let transaction = database.begin().await?;
        store::expire(&transaction, &approval, now).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// Runs [`resume`] again and again.
pub async fn keep_resuming(operator: Operator) {
    loop {
        if let Err(error) = resume(&operator).await {
            tracing::warn!(?error, "approvals could not be read; they are read again");
        }
        tokio::time::sleep(RESUME_INTERVAL).await;
    }
}
