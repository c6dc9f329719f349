//! Who did what. Rows are only ever added; triggers see to it.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "audit_log")]
pub struct Model {
    /// In the order of writing.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// `api_key`, `operator`, `provider`, `customer` or `service`.
    pub actor_kind: String,
    /// Which of that kind: the key's id, the provider's name.
    pub actor: String,
    /// Such as `customer.approved`.
    pub action: String,
    /// Whose object it was done to.
    pub psp_id: Option<String>,
    /// The id of what it was done to.
    pub subject: String,
    /// JSON. No personal data.
    #[sea_orm(column_type = "Text")]
    pub detail: String,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
