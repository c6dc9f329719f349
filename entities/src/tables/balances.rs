//! Balance of each PSP's vault, as running sums of the ledger.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "balances")]
pub struct Model {
    /// Owning PSP.
    #[sea_orm(primary_key, auto_increment = false)]
    pub psp_id: String,
    /// Chain.
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    /// 0x lower-case hex.
    #[sea_orm(primary_key, auto_increment = false)]
    pub token_address: String,
    /// Available base units: account `psp` of the ledger. Negative only after a settlement was orphaned.
    pub available: i64,
    /// Reserved base units: account `in_flight` of the ledger.
    pub reserved: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

crate::tables::without_relations!();
