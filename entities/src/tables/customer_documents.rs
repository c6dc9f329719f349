//! Documents of customers. The contents are encrypted objects in the document store.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "customer_documents")]
pub struct Model {
    /// `doc_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Customer id.
    pub customer_id: String,
    /// See the domain's `DocumentKind`.
    pub kind: String,
    /// Path in the document store.
    pub path: String,
    /// Media type, detected from the content.
    pub media_type: String,
    /// Size in bytes before encryption.
    pub size: i64,
    /// Milliseconds since the epoch.
    pub uploaded_at: i64,
    /// Time of replacement, in milliseconds since the epoch; null for the current document of each kind.
    pub replaced_at: Option<i64>,
}

crate::tables::without_relations!();
