//! Event feed: every announced event, in commit order.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "events")]
pub struct Model {
    /// Position in the feed; grows with every commit.
    #[sea_orm(primary_key)]
    pub position: i64,
    /// `evt_` id, the `webhook-id`.
    pub id: String,
    /// Owning PSP.
    pub psp_id: String,
    /// Subject of the event: payment, payout, withdrawal, or transfer.
    pub payment_id: String,
    /// Sequence number per payment, from 1, without gaps.
    pub sequence: i64,
    /// Name, such as payment.confirmed.
    pub name: String,
    /// The JSON body, exactly as it is signed and sent.
    #[sea_orm(column_type = "Text")]
    pub payload: String,
    /// Context of the trace that it belongs to, as the value of a `traceparent` header.
    pub traceparent: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
