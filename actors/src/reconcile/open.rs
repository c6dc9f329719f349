//! Movements in progress: funds that have moved on the chain and are not in the ledger yet, or are about to move. Also
//! transfers that were set aside because their payment's list is full; they are never posted.

use std::collections::HashSet;

use payferry_domain::payment::{DUST_LISTED_MAX, Payment, Transfer, TransferStatus};
use payferry_domain::{Address, PaymentId};
use payferry_entities::OperationStatus::{Mined, Submitted};
use payferry_entities::{Database, query_all};
use payferry_journal::payments;
use sea_orm::DbErr;

use super::{FundsPosition, Owner};

/// Permitted deviation of a vault from the ledger, because of movements in progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PendingMovements {
    pub coming: i64,
    pub going: i64,
    /// Balance of transfers that were set aside and are never posted.
    pub aside: i64,
}

impl PendingMovements {
    /// True if these movements can explain the whole difference.
    pub fn explains(self, difference: i64) -> bool {
        difference != 0 && (-self.going..=self.coming).contains(&difference.saturating_sub(self.aside))
    }
}

/// Movements in progress for this vault and token.
pub(super) async fn under_way(database: &Database, place: &FundsPosition) -> Result<PendingMovements, DbErr> {
    match &place.owner {
        Owner::Payment { payment_id, .. } => of_payment(database, payment_id, place).await,
        Owner::Psp { psp_id } => of_psp(database, psp_id, place).await,
        Owner::Treasury => of_treasury(database, place).await,
    }
}

async fn of_payment(database: &Database, payment_id: &str, place: &FundsPosition) -> Result<PendingMovements, DbErr> {
    let going = moved(database, "amount", ("payment_id", payment_id), "'settle', 'deliver', 'send'", place).await?;
    let id: PaymentId = payment_id.parse().map_err(|_| DbErr::Custom(format!("{payment_id} is not a payment id")))?;
    let payment = payments::load(database, id).await.map_err(|error| DbErr::Custom(error.to_string()))?;
    let seen = payment.as_ref().map_or(0, |payment| not_final(payment, place));
    let sql = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM transfers WHERE payment_id = $1 AND chain = $2 \
               AND token_address = $3 AND applied_revision < revision";
    let values = [payment_id.into(), place.chain.as_str().into(), place.token_address.to_string().into()];
    let unapplied: i64 = first(database, sql, values).await?;
    let aside = match &payment {
        Some(payment) => set_aside(database, payment, place).await?,
        None => 0,
    };
    Ok(PendingMovements { coming: seen.saturating_add(unapplied), going: going.saturating_add(unapplied), aside })
}

/// Transfers that the payment has set aside.
async fn set_aside(database: &Database, payment: &Payment, place: &FundsPosition) -> Result<i64, DbErr> {
    if payment.transfers.len() < DUST_LISTED_MAX {
        return Ok(0);
    }
    let sql = "SELECT tx_hash, log_index, block_hash, amount FROM transfers WHERE payment_id = $1 AND chain = $2 \
               AND token_address = $3 AND presence = 'present' AND applied_revision = revision";
    let (id, chain) = (payment.id().to_string(), place.chain.as_str());
    let values = [id.into(), chain.into(), place.token_address.to_string().into()];
    let rows = query_all(database.reader(), sql, values).await?;
    let here = payment.transfers.iter().filter(|transfer| transfer.key.chain == place.chain);
    let listed: HashSet<(String, i64, String)> = here
        .map(|Transfer { key, .. }| (key.tx_hash.to_string(), i64::from(key.log_index), key.block_hash.to_string()))
        .collect();
    let mut aside = 0_i64;
    for row in rows {
        let amount: i64 = row.try_get_by_index(3)?;
        if !listed.contains(&(row.try_get_by_index(0)?, row.try_get_by_index(1)?, row.try_get_by_index(2)?)) {
            aside = aside.saturating_add(amount);
        }
    }
    Ok(aside)
}

/// Amount seen that is not final, and therefore not in the ledger.
fn not_final(payment: &Payment, place: &FundsPosition) -> i64 {
    let here = |token: Address| token == place.token_address;
    let seen = payment.transfers.iter().filter(|transfer| {
        let asset = payment.asset_of(transfer);
        transfer.status == TransferStatus::Seen && asset.chain == place.chain && here(asset.address)
    });
    seen.map(|transfer| transfer.amount.units()).sum()
}

async fn of_psp(database: &Database, psp_id: &str, place: &FundsPosition) -> Result<PendingMovements, DbErr> {
    let coming = moved(database, "psp_amount", ("psp_id", psp_id), "'settle', 'collect'", place).await?;
    let sql = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM deposits WHERE psp_id = $1 AND chain = $2 \
               AND token_address = $3 AND NOT posted";
    let values = [psp_id.into(), place.chain.as_str().into(), place.token_address.to_string().into()];
    let deposited: i64 = first(database, sql, values).await?;
    let coming = coming.saturating_add(deposited);
    let going = moved(database, "amount", ("psp_id", psp_id), "'send_psp', 'payout', 'withdrawal'", place).await?;
    Ok(PendingMovements { coming, going, aside: 0 })
}

async fn of_treasury(database: &Database, place: &FundsPosition) -> Result<PendingMovements, DbErr> {
    // Of all owners: the condition is always true.
    let coming = moved(database, "treasury_fee", ("''", ""), "'settle', 'collect'", place).await?;
    Ok(PendingMovements { coming, ..PendingMovements::default() })
}

/// Sum of a column over an owner's operations of these kinds that are signed or mined but not applied.
async fn moved(
    database: &Database,
    column: &str,
    (owner, of): (&str, &str),
    kinds: &str,
    place: &FundsPosition,
) -> Result<i64, DbErr> {
    let sql = format!(
        "SELECT CAST(COALESCE(SUM({column}), 0) AS BIGINT) FROM operations WHERE {owner} = $1 AND chain = $2 \
         AND token_address = $3 AND kind IN ({kinds}) AND status IN ('{Submitted}', '{Mined}')"
    );
    let values = [of.into(), place.chain.as_str().into(), place.token_address.to_string().into()];
    first(database, &sql, values).await
}

async fn first<const N: usize>(database: &Database, sql: &str, values: [sea_orm::Value; N]) -> Result<i64, DbErr> {
    let rows = query_all(database.reader(), sql, values).await?;
    rows.first().map_or(Ok(0), |row| row.try_get_by_index(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movements_in_progress_explain_at_most_their_amount() {
        let under_way = PendingMovements { coming: 5, going: 3, aside: 0 };
        let explained: Vec<i64> = (-5..=7).filter(|difference| under_way.explains(*difference)).collect();
        assert_eq!(explained, [-3, -2, -1, 1, 2, 3, 4, 5]);
        assert!(!PendingMovements::default().explains(1));
        let beside = PendingMovements { coming: 1, going: 0, aside: 7 };
        let explained: Vec<i64> = (-1..=9).filter(|difference| beside.explains(*difference)).collect();
        assert_eq!(explained, [7, 8], "the amount set aside is always present in full");
    }
}
