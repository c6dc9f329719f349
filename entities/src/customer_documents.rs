//! Documents of customers. Their contents are objects of the document store, sealed.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "customer_documents")]
pub struct Model {
    /// `doc_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Whose.
    pub customer_id: String,
    /// See the domain's `DocumentKind`.
    pub kind: String,
    /// Where in the document store.
    pub path: String,
    /// As its content shows.
    pub media_type: String,
    /// Bytes, before it was sealed.
    pub size: i64,
    /// Milliseconds since the epoch.
    pub uploaded_at: i64,
    /// Since when another stands in its place, milliseconds since the epoch. One of a kind has none.
    pub replaced_at: Option<i64>,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
