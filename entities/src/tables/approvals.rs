//! Actions of the operator that need a second operator's approval. Rows stay.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "approvals")]
pub struct Model {
    /// Id of the approval.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Kind of the action.
    pub kind: String,
    /// Name of the status.
    pub status: String,
    /// PSP that the action concerns.
    pub psp_id: String,
    /// The action, JSON.
    #[sea_orm(column_type = "Text")]
    pub action: String,
    /// State of the subject when the action was proposed, JSON.
    #[sea_orm(column_type = "Text")]
    pub subject_state: String,
    /// The proposer's reason, where the action has one.
    #[sea_orm(column_type = "Text", nullable)]
    pub reason: Option<String>,
    /// Subject of the action, while the approval is proposed or approved. Unique.
    pub open_key: Option<String>,
    /// Name of the operator who proposed the action.
    pub proposed_by: String,
    /// Name of the operator who approved or rejected it.
    pub decided_by: Option<String>,
    /// Time of that decision, milliseconds since the epoch.
    pub decided_at: Option<i64>,
    /// Reason of that decision, if one was given.
    #[sea_orm(column_type = "Text", nullable)]
    pub decision_reason: Option<String>,
    /// Code of the error, if the approved action failed.
    pub failure_reason: Option<String>,
    /// The error in words.
    #[sea_orm(column_type = "Text", nullable)]
    pub failure: Option<String>,
    /// Milliseconds since the epoch.
    pub expires_at: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
