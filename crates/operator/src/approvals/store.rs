//! Rows of approvals. Each change of a status is a compare-and-swap with its audit entry, in a transaction that the
//! caller commits.

use payferry_domain::{ApprovalId, PspId, Timestamp};
use payferry_entities::{Database, Transaction, approvals};
use payferry_httpkit::ApiError;
use payferry_httpkit::lists::{NewestKey, Page, older};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_runtime::request;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, ExprTrait as _, IntoActiveModel, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect, Set,
};
use serde_json::{Value, json};

use super::APPROVAL_SECS;
use super::action::ApprovalAction;

payferry_domain::named! {
    /// Status of an approval.
    ApprovalStatus, "proposed, approved, carried_out, failed, rejected, expired or out_of_date" {
        /// It waits for a second operator.
        Proposed = "proposed",
        /// It is approved and not carried out yet.
        Approved = "approved",
        /// It is carried out.
        CarriedOut = "carried_out",
        /// It was approved and then refused.
        Failed = "failed",
        /// An operator rejected it.
        Rejected = "rejected",
        /// No operator decided in time.
        Expired = "expired",
        /// Its subject changed before an operator approved it.
        OutOfDate = "out_of_date",
    }
}

/// An approval.
#[derive(Debug, Clone)]
pub(crate) struct Approval {
    pub(crate) id: ApprovalId,
    pub(crate) action: ApprovalAction,
    pub(crate) status: ApprovalStatus,
    pub(crate) psp_id: PspId,
    /// State of the subject when the action was proposed.
    pub(crate) subject_state: Value,
    pub(crate) reason: Option<String>,
    pub(crate) proposed_by: String,
    pub(crate) decided_by: Option<String>,
    pub(crate) decided_at: Option<Timestamp>,
    pub(crate) decision_reason: Option<String>,
    /// Code and words of the error of a failed action.
    pub(crate) failure: Option<(String, String)>,
    pub(crate) expires_at: Timestamp,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

impl Approval {
    /// Status at this time: a proposal expires before its row says so.
    pub(crate) fn status_at(&self, now: Timestamp) -> ApprovalStatus {
        match self.status {
            ApprovalStatus::Proposed if self.expires_at <= now => ApprovalStatus::Expired,
            status => status,
        }
    }

    /// Id of the payment or PSP in the audit log.
    fn subject(&self) -> String {
        self.action.payment().map_or_else(|| self.psp_id.to_string(), |payment| payment.to_string())
    }
}

/// An action to propose.
pub(crate) struct Proposal {
    pub(crate) action: ApprovalAction,
    pub(crate) psp_id: PspId,
    pub(crate) subject_state: Value,
    pub(crate) reason: Option<String>,
}

/// Name of the operator who sent the current request.
pub(super) fn sender() -> Result<String, ApiError> {
    let operator = request::current().and_then(|request| request.operator);
    operator.ok_or_else(|| ApiError::internal("an approval needs the name of an operator"))
}

/// Proposes an action. Refused while another approval of the same subject is open.
pub(crate) async fn propose(
    transaction: &Transaction,
    proposal: Proposal,
    now: Timestamp,
) -> Result<Approval, ApiError> {
    let Proposal { action, psp_id, subject_state, reason } = proposal;
    let key = action.key();
    let open = approvals::Entity::find().filter(approvals::Column::OpenKey.eq(&key)).one(transaction).await?;
    if let Some(open) = open {
        let open = approval(open)?;
        if open.status_at(now) != ApprovalStatus::Expired {
            let (id, by) = (open.id, &open.proposed_by);
            let detail = format!("{by} has proposed a change of the same subject: approve or reject {id} first.");
            return Err(ApiError::conflict("approval_open", detail));
        }
        expire(transaction, &open, now).await?;
    }
    let row = approvals::Model {
        id: ApprovalId::generate().to_string(),
        kind: action.kind().to_owned(),
        status: ApprovalStatus::Proposed.as_str().to_owned(),
        psp_id: psp_id.to_string(),
        action: serde_json::to_string(&action)?,
        subject_state: subject_state.to_string(),
        reason,
        open_key: Some(key),
        proposed_by: sender()?,
        decided_by: None,
        decided_at: None,
        decision_reason: None,
        failure_reason: None,
        failure: None,
        expires_at: now.plus_secs(APPROVAL_SECS).as_millis(),
        created_at: now.as_millis(),
        updated_at: now.as_millis(),
    };
    let proposed = approval(row.clone())?;
    approvals::Entity::insert(row.into_active_model()).exec_without_returning(transaction).await?;
    let note =
        json!({ "action": action.shown(), "reason": proposed.reason, "expires_at": proposed.expires_at.to_string() });
    write_down(transaction, &proposed, "approval.proposed", note, &Actor::Operator, now).await?;
    Ok(proposed)
}

/// Records that the sender of the current request approves or rejects a proposal. Returns false if it is not open any
/// more.
pub(super) async fn decide(
    transaction: &Transaction,
    proposed: &Approval,
    approve: bool,
    reason: Option<String>,
    now: Timestamp,
) -> Result<bool, ApiError> {
    let to = if approve { ApprovalStatus::Approved } else { ApprovalStatus::Rejected };
    let note = json!({ "proposed_by": proposed.proposed_by, "reason": reason });
    let row = approvals::ActiveModel {
        decided_by: Set(Some(sender()?)),
        decided_at: Set(Some(now.as_millis())),
        decision_reason: Set(reason),
        ..Default::default()
    };
    Ok(advance(transaction, proposed, to, row, note, &Actor::Operator, now).await?)
}

/// Result of an approved action.
pub(super) enum Outcome {
    CarriedOut,
    /// Code and words of the error.
    Failed(String, String),
}

/// Records the result of an approved action. Returns false if it was recorded before.
pub(super) async fn finish(
    transaction: &Transaction,
    approved: &Approval,
    outcome: Outcome,
    now: Timestamp,
) -> Result<bool, DbErr> {
    let (to, row, note) = match outcome {
        Outcome::CarriedOut => (ApprovalStatus::CarriedOut, approvals::ActiveModel::default(), json!({})),
        Outcome::Failed(code, words) => {
            let note = json!({ "failure_reason": code, "failure": words });
            let row = approvals::ActiveModel {
                failure_reason: Set(Some(code)),
                failure: Set(Some(words)),
                ..Default::default()
            };
            (ApprovalStatus::Failed, row, note)
        }
    };
    advance(transaction, approved, to, row, note, &Actor::Operator, now).await
}

/// Closes a proposal about which no operator decided in time.
pub(super) async fn expire(transaction: &Transaction, proposed: &Approval, now: Timestamp) -> Result<bool, DbErr> {
    let row = approvals::ActiveModel::default();
    advance(transaction, proposed, ApprovalStatus::Expired, row, json!({}), &Actor::Service, now).await
}

/// Closes a proposal whose subject has changed.
pub(super) async fn close_out_of_date(
    transaction: &Transaction,
    proposed: &Approval,
    now: Timestamp,
) -> Result<bool, DbErr> {
    let row = approvals::ActiveModel::default();
    advance(transaction, proposed, ApprovalStatus::OutOfDate, row, json!({}), &Actor::Operator, now).await
}

/// Changes the status if it is still that of `from`. `row` has the other columns to change.
async fn advance(
    transaction: &Transaction,
    from: &Approval,
    to: ApprovalStatus,
    row: approvals::ActiveModel,
    note: Value,
    by: &Actor,
    now: Timestamp,
) -> Result<bool, DbErr> {
    let mut row =
        approvals::ActiveModel { status: Set(to.as_str().to_owned()), updated_at: Set(now.as_millis()), ..row };
    if to != ApprovalStatus::Approved {
        row.open_key = Set(None);
    }
    let changed = approvals::Entity::update_many()
        .set(row)
        .filter(approvals::Column::Id.eq(from.id.to_string()))
        .filter(approvals::Column::Status.eq(from.status.as_str()))
        .exec(transaction)
        .await?;
    if changed.rows_affected == 0 {
        return Ok(false);
    }
    write_down(transaction, from, &format!("approval.{to}"), note, by, now).await?;
    Ok(true)
}

async fn write_down(
    transaction: &Transaction,
    approval: &Approval,
    action: &str,
    mut detail: Value,
    by: &Actor,
    now: Timestamp,
) -> Result<(), DbErr> {
    detail["approval_id"] = json!(approval.id);
    detail["kind"] = json!(approval.action.kind());
    let (psp_id, subject) = (Some(approval.psp_id), approval.subject());
    audit::append(transaction, by, now, vec![NewAuditEntry { action: action.to_owned(), psp_id, subject, detail }])
        .await
}

/// Reads an approval.
pub(crate) async fn find(connection: &impl ConnectionTrait, id: ApprovalId) -> Result<Approval, ApiError> {
    let row = approvals::Entity::find_by_id(id.to_string()).one(connection).await?;
    Ok(approval(row.ok_or(ApiError::NotFound("approval"))?)?)
}

/// Lists approvals that have this status now ([`Approval::status_at`]), newest first, with the first one after the page,
/// and their total.
pub(crate) async fn list(
    database: &Database,
    status: Option<ApprovalStatus>,
    page: &Page<NewestKey>,
    now: Timestamp,
) -> Result<(u64, Vec<Approval>), DbErr> {
    use approvals::Column::{ExpiresAt, Status};
    let mut wanted = approvals::Entity::find();
    if let Some(status) = status {
        let overdue = Status.eq(ApprovalStatus::Proposed.as_str()).and(ExpiresAt.lte(now.as_millis()));
        let stored = Status.eq(status.as_str());
        wanted = wanted.filter(match status {
            ApprovalStatus::Proposed => stored.and(ExpiresAt.gt(now.as_millis())),
            ApprovalStatus::Expired => stored.or(overdue),
            _ => stored,
        });
    }
    let total = wanted.clone().count(database.reader()).await?;
    if let Some(after) = &page.after {
        let order = [approvals::Column::CreatedAt, approvals::Column::Id];
        wanted = wanted.filter(older::<approvals::Entity>(order, after.clone()));
    }
    let rows = wanted
        .order_by_desc(approvals::Column::CreatedAt)
        .order_by_desc(approvals::Column::Id)
        .limit(page.rows_max())
        .offset(page.offset)
        .all(database.reader())
        .await?;
    Ok((total, rows.into_iter().map(approval).collect::<Result<_, _>>()?))
}

/// Reads approvals with this status, oldest first, whose `column` is not after `before`.
pub(super) async fn waiting(
    database: &Database,
    status: ApprovalStatus,
    column: approvals::Column,
    before: Timestamp,
    max: u64,
) -> Result<Vec<Approval>, DbErr> {
    let rows = approvals::Entity::find()
        .filter(approvals::Column::Status.eq(status.as_str()))
        .filter(column.lte(before.as_millis()))
        .order_by_asc(approvals::Column::CreatedAt)
        .limit(max);
    rows.all(database.reader()).await?.into_iter().map(approval).collect()
}

/// Reads a row.
pub(crate) fn approval(row: approvals::Model) -> Result<Approval, DbErr> {
    let unreadable = |what: &str| DbErr::Custom(format!("{what} of the approval {} cannot be read", row.id));
    Ok(Approval {
        id: row.id.parse().map_err(|_| unreadable("the id"))?,
        action: serde_json::from_str(&row.action).map_err(|_| unreadable("the action"))?,
        status: row.status.parse().map_err(|_| unreadable("the status"))?,
        psp_id: row.psp_id.parse().map_err(|_| unreadable("the PSP"))?,
        subject_state: serde_json::from_str(&row.subject_state).map_err(|_| unreadable("the state of the subject"))?,
        reason: row.reason,
        proposed_by: row.proposed_by,
        decided_by: row.decided_by,
        decided_at: row.decided_at.map(Timestamp),
        decision_reason: row.decision_reason,
        failure: row.failure_reason.zip(row.failure),
        expires_at: Timestamp(row.expires_at),
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
    })
}
