//! Public events of customers that are not in the feed yet. The change of the customer writes them; the journal moves them to
//! `events`.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "customer_events")]
pub struct Model {
    /// Order of the events of a customer.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Customer.
    pub customer_id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// Sequence number per customer, from 1, without gaps.
    pub sequence: i64,
    /// Name, such as customer.deactivated.
    pub name: String,
    /// KYC status after the change.
    pub kyc_status: String,
    /// True if the customer is active after the change.
    pub is_active: bool,
    /// Time of the change, milliseconds since the epoch.
    pub at: i64,
}

crate::tables::without_relations!();
