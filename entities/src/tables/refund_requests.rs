//! Requests of payers for refunds: the columns of their list. The request itself is in the state of its payment.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "refund_requests")]
pub struct Model {
    /// `rr_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Payment (`pay_` id), also of a transfer to a customer.
    pub payment_id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// requested, approved or declined.
    pub status: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
