//! Logos of the PSPs on the payer's page.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "checkout_logos")]
pub struct Model {
    /// The PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// SHA-256 of the content, in hexadecimal.
    pub hash: String,
    /// Media type, detected from the content.
    pub media_type: String,
    /// The image, as uploaded.
    pub content: Vec<u8>,
    /// Milliseconds since the epoch.
    pub uploaded_at: i64,
}

crate::tables::without_relations!();
