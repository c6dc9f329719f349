//! Customers. Columns contain the data that compliance decisions use; one encrypted column contains personal data.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "customers")]
pub struct Model {
    /// `cr_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// `individual` or `business`.
    pub kind: String,
    /// As submitted.
    pub email: String,
    /// The email in lower case, for search.
    pub email_search: String,
    /// ISO 3166-1 alpha-3.
    pub country: String,
    /// ISO 4217.
    pub currency: String,
    /// See the domain's `KycStatus`.
    pub kyc_status: String,
    /// Status to restore when the screening of an update passes.
    pub before_update: Option<String>,
    /// False after deactivation, permanently.
    pub is_active: bool,
    /// Milliseconds since the epoch.
    pub tos_accepted_at: Option<i64>,
    /// JSON list of the stored document kinds.
    #[sea_orm(column_type = "Text")]
    pub documents: String,
    /// Current check, a row of `checks`.
    pub check_id: Option<String>,
    /// Purpose of that check.
    pub check_purpose: Option<String>,
    /// Revision of the customer data that it checks.
    pub check_revision: Option<i64>,
    /// JSON list.
    #[sea_orm(column_type = "Text")]
    pub rejection_reasons: String,
    /// Revision of the screened data.
    pub revision: i64,
    /// Version of the row, for compare-and-swap.
    pub version: i64,
    /// Sequence number of the last public event.
    pub event_sequence: i64,
    /// All other submitted data as JSON, encrypted.
    #[sea_orm(column_type = "Text")]
    pub particulars: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
