//! Ledger postings, one row per posting. Rows never change.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "ledger_postings")]
pub struct Model {
    /// Position in the ledger; grows with every commit.
    #[sea_orm(primary_key)]
    pub position: i64,
    /// Subject: `pay_`, `po_` or `wd_` id.
    pub subject: String,
    /// Version of the subject whose commit created the posting.
    pub version: i64,
    /// Position among the postings of that commit.
    pub line: i64,
    /// Owning PSP.
    pub psp_id: String,
    /// Kind, such as received or settled.
    pub kind: String,
    /// Debited account.
    pub debit: String,
    /// Credited account.
    pub credit: String,
    /// Chain.
    pub chain: String,
    /// 0x lower-case hex.
    pub token_address: String,
    /// Base units, always positive.
    pub amount: i64,
    /// Evidence: a transaction, a refund, or another id.
    pub reference: String,
    /// Milliseconds since the epoch.
    pub at: i64,
}

/// Empty, because queries write their joins explicitly.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
