//! Withdrawal wallets of PSPs. Rows are only inserted; their order and times determine the current wallet.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "withdrawal_wallets")]
pub struct Model {
    /// Row number, in the order of insertion.
    #[sea_orm(primary_key)]
    pub number: i64,
    /// Owning PSP.
    pub psp_id: String,
    /// Chain, or `*` for every chain without its own row.
    pub chain: String,
    /// Wallet address; null disables withdrawals.
    pub address: Option<String>,
    /// Time from which it applies, in milliseconds since the epoch.
    pub effective_at: i64,
    /// Kind of the actor that set it, as in the audit log.
    pub set_by: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
