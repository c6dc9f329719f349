//! Ledger postings, one row per posting. Rows never change.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "ledger_postings")]
pub struct Model {
    /// Position in the ledger; grows with every commit.
    #[sea_orm(primary_key)]
    pub position: i64,
    /// Subject: `pay_`, `tr_`, `po_` or `wd_` id, `dep_` with the place of a deposit, or `sent_` with the place of an
    /// unknown outbound transfer.
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

crate::tables::without_relations!();
