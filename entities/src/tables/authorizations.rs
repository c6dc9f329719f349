//! Signatures of payers (EIP-3009). The terms are in the state of the payment and in the operation.

use sea_orm::entity::prelude::*;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "authorizations")]
pub struct Model {
    /// `op_` id of the operation that collects it. The operation exists once the payer is screened.
    #[sea_orm(primary_key, auto_increment = false)]
    pub operation_id: String,
    /// `pay_` id.
    pub payment_id: String,
    /// Number of the attempt, unique per payment.
    pub attempt: i64,
    /// Its start, exclusive, in seconds since the epoch.
    pub valid_after: i64,
    /// 0x lower-case hex: r, s and v of a plain account (65 bytes), or the bytes of a contract wallet.
    pub signature: String,
    /// True if a contract wallet signed, so that the token gets the bytes.
    pub by_contract: bool,
    /// Milliseconds since the epoch.
    pub created_at: i64,
}

crate::tables::without_relations!();
