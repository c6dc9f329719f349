//! Hash chain over the audit log, in the order of chaining. Rows are only inserted; triggers reject other changes.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "audit_chain")]
pub struct Model {
    /// 1, 2, 3, ... without gaps.
    #[sea_orm(primary_key, auto_increment = false)]
    pub position: i64,
    /// Number of the audit entry.
    pub number: i64,
    /// SHA-256 over the hash of the previous position and the entry, in hexadecimal.
    pub hash: String,
}

crate::tables::without_relations!();
