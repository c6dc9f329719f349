//! The ledger: one row a posting, never changed.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "ledger_postings")]
pub struct Model {
    /// Place in the ledger; grows with every commit.
    #[sea_orm(primary_key)]
    pub position: i64,
    /// What it is about: `pay_`, `po_` or `wd_` id.
    pub subject: String,
    /// The version of it whose commit made the posting.
    pub version: i64,
    /// Place among the postings of that commit.
    pub line: i64,
    /// Owner.
    pub psp_id: String,
    /// Why, such as received or settled.
    pub kind: String,
    /// The account it takes from.
    pub debit: String,
    /// The account it gives to.
    pub credit: String,
    /// Chain.
    pub chain: String,
    /// 0x lower-case hex.
    pub token_address: String,
    /// Base units, always positive.
    pub amount: i64,
    /// A transaction, a refund, or another id that proves it.
    pub reference: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
