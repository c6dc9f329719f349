//! `/ops/approvals`: actions that a second operator approves, if `[operators] four_eyes` is on.
//!
//! An approval is committed first and its action is carried out then, by the function that runs it without four eyes. If
//! the process ends in between, [`resume`] carries it out. Not here: the actions themselves.

pub(crate) mod action;
pub(crate) mod page;
pub(crate) mod store;

use std::time::Duration;

use axum::Extension;
use payferry_accounts::Moment;
use payferry_domain::{ApprovalId, Timestamp};
use payferry_entities::approvals;
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, QueryFields, read};
use payferry_runtime::request::{self, RequestSource};
use serde::Serialize;

use crate::Operator;
use crate::admit::Identity;
use crate::input::{id_of, only};
use crate::page::form::{Sort, names};

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

/// Fields of a decision about an approval, in the API and in the form.
const FIELDS: [(&str, Sort); 1] = [("reason", Sort::Text)];

/// Result of a request that may need a second operator.
pub(crate) enum Guarded<T> {
    /// It was carried out.
    CarriedOut(T),
    /// It waits for approval.
    Proposed(Box<Approval>),
}

impl Approval {
    /// The approval in a response.
    pub(crate) fn record(&self, now: Timestamp) -> impl Serialize + use<> {
        let failure = self.failure.clone();
        record! {
            id: self.id,
            approval_id: self.id,
            kind: self.action.kind(),
            status: self.status_at(now),
            psp_id: self.psp_id,
            payment_id: self.action.payment(),
            action: self.action.shown(),
            // State of the subject when the action was proposed.
            subject_state: self.subject_state.clone(),
            // Role that may approve it.
            role: self.action.role(),
            reason: self.reason.clone(),
            proposed_by: self.proposed_by.clone(),
            decided_by: self.decided_by.clone(),
            decided_at: self.decided_at.map(Moment),
            decision_reason: self.decision_reason.clone(),
            failure_reason: failure.as_ref().map(|(code, _)| code.clone()),
            failure: failure.map(|(_, words)| words),
            expires_at: Moment(self.expires_at),
            created_at: Moment(self.created_at),
            updated_at: Moment(self.updated_at),
        }
    }
}

/// The response to a request that waits for approval.
pub(crate) fn proposed(operator: &Operator, approval: &Approval) -> Result<Answer, ApiError> {
    Answer::accepted(&record! { approval: approval.record(operator.system.clock().real_now()) })
}

/// Returns the approvals, newest first. `?status=` selects a status; `?limit=` and `?offset=` a page.
pub(crate) async fn list(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let status = query.optional("status", |text| {
        text.parse::<ApprovalStatus>().map_err(|error| Fault::new("unknown_value", error.to_string()))
    });
    let page = query.page();
    query.finish()?;
    let now = operator.system.clock().real_now();
    let (total, approvals) = store::list(operator.system.database(), status, page, now).await?;
    Answer::ok(&record! { total: total, approvals: approvals.iter().map(|one| one.record(now)).collect::<Vec<_>>() })
}

pub(crate) async fn get(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let approval = store::find(operator.system.database().reader(), id_of("approval_id", &id)?).await?;
    Answer::ok(&approval.record(operator.system.clock().real_now()))
}

/// Approves: `{"reason"?}`. The answer is 202 if the action is approved and not carried out yet.
pub(crate) async fn approve(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let approval = decide_as(&operator, &identity, &id, &body, true).await?;
    let record = approval.record(operator.system.clock().real_now());
    if approval.status == ApprovalStatus::Approved { Answer::accepted(&record) } else { Answer::ok(&record) }
}

/// Rejects: `{"reason"?}`. The proposer may reject too.
pub(crate) async fn reject(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let approval = decide_as(&operator, &identity, &id, &body, false).await?;
    Answer::ok(&approval.record(operator.system.clock().real_now()))
}

async fn decide_as(
    operator: &Operator,
    identity: &Identity,
    id: &str,
    body: &JsonBody,
    approve: bool,
) -> Result<Approval, ApiError> {
    let id = id_of("approval_id", id)?;
    decide(operator, identity, id, approve, body.read(|fields| Some(read_reason(fields)))?).await
}

fn read_reason(fields: &Fields<'_>) -> Option<String> {
    only(fields, &names(&FIELDS));
    fields.optional("reason", read::text)
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
        let source = RequestSource { id: None, address: None, operator: approval.decided_by.clone(), role: None };
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
