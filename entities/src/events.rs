//! The feed: everything that was announced, in commit order.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "events")]
pub struct Model {
    /// Place in the feed; grows with every commit.
    #[sea_orm(primary_key)]
    pub position: i64,
    /// `evt_` id, the `webhook-id`.
    pub id: String,
    /// Owner.
    pub psp_id: String,
    /// Payment (or payout, withdrawal, transfer) it is about.
    pub payment_id: String,
    /// Gapless per payment, from 1.
    pub sequence: i64,
    /// Such as payment.confirmed.
    pub name: String,
    /// The JSON body, exactly as it is signed and sent.
    #[sea_orm(column_type = "Text")]
    pub payload: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
