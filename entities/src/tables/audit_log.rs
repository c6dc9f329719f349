//! Audit log. Rows are only inserted; triggers reject other changes.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "audit_log")]
pub struct Model {
    /// Row number, in the order of insertion.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// `api_key`, `operator`, `provider`, `customer` or `service`.
    pub actor_kind: String,
    /// Identifies the actor within its kind: the id of the key, or the name of the provider.
    pub actor: String,
    /// Action, such as `customer.approved`.
    pub action: String,
    /// PSP that owns the subject.
    pub psp_id: Option<String>,
    /// Id of the changed object.
    pub subject: String,
    /// JSON. Contains no personal data.
    #[sea_orm(column_type = "Text")]
    pub detail: String,
    /// Address of the client that sent the request.
    pub address: Option<String>,
    /// Id of the request.
    pub request_id: Option<String>,
}

crate::tables::without_relations!();
