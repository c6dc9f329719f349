//! Transfers to vaults of PSPs from outside. No payment expects them; the journal posts them to the suspense account when
//! their block is final, so that vaults and ledger stay equal.
//!
//! Not here: our own transfers, which come from vaults of payments, from the contract, or in a transaction that the
//! settler signed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use payferry_domain::{Address, PspId};
use payferry_entities::{Database, chain_tx_attempts, deposits, psps, transfers};
use payferry_evm::wallet::Vaults;
use payferry_journal::payments::StoreError;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use super::block_transfers::{FoundTransfer, Lookup, owners};
use super::poll::PollError;

/// Vaults of all PSPs that were known when they were read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PspVaults(Arc<RwLock<HashMap<Address, PspId>>>);

impl PspVaults {
    fn owner(&self, address: Address) -> Option<PspId> {
        self.0.read().get(&address).copied()
    }
}

/// Ids of all PSPs.
pub(crate) async fn psp_ids(database: &Database) -> Result<Vec<PspId>, DbErr> {
    let ids = psps::Entity::find().select_only().column(psps::Column::Id).into_tuple().all(database.reader()).await?;
    Ok(ids.iter().filter_map(|id: &String| id.parse().ok()).collect())
}

impl Lookup<'_> {
    /// Reads the vaults of all PSPs.
    pub(super) async fn read_psp_vaults(self) -> Result<(), DbErr> {
        let vaults = Vaults::new(self.spec.contract);
        let read = psp_ids(self.database).await?.into_iter().map(|id| (vaults.of_psp(id), id)).collect();
        *self.watchlist.psp_vaults().0.write() = read;
        Ok(())
    }
}

/// The transfers to vaults of PSPs that are not our own, with their PSPs.
pub(super) async fn of_psps<'a>(
    args: Lookup<'_>,
    found: &'a [FoundTransfer],
) -> Result<Vec<(&'a FoundTransfer, PspId)>, PollError> {
    let vaults = args.watchlist.psp_vaults();
    let owner = |transfer: &'a FoundTransfer| Some((transfer, vaults.owner(transfer.event.to)?));
    let mut from_outside: Vec<_> = found.iter().filter_map(owner).collect();
    from_outside.retain(|(transfer, _)| transfer.event.from != args.spec.contract);
    // Most are settlements: one transaction of ours has many of them.
    if !from_outside.is_empty() {
        let hashes: HashSet<String> = from_outside.iter().map(|(transfer, _)| transfer.tx_hash.to_string()).collect();
        let own: Vec<String> = chain_tx_attempts::Entity::find()
            .select_only()
            .column(chain_tx_attempts::Column::TxHash)
            .filter(chain_tx_attempts::Column::TxHash.is_in(&hashes))
            .into_tuple()
            .all(args.database.reader())
            .await
            .map_err(StoreError::from)?;
        from_outside.retain(|(transfer, _)| !own.contains(&transfer.tx_hash.to_string()));
    }
    let mut senders: Vec<Address> = from_outside.iter().map(|(transfer, _)| transfer.event.from).collect();
    senders.sort_unstable();
    senders.dedup();
    if !senders.is_empty() {
        let own = owners(args.database, args.watchlist, senders).await?;
        from_outside.retain(|(transfer, _)| !own.contains_key(&transfer.event.from));
    }
    Ok(from_outside)
}

/// Splits rows by their owners: payments, and PSPs.
pub(super) fn split(rows: Vec<transfers::Model>) -> (Vec<transfers::Model>, Vec<deposits::Model>) {
    let (deposits, transfers): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.payment_id.parse::<PspId>().is_ok());
    let deposit = |row: transfers::Model| deposits::Model {
        chain: row.chain,
        tx_hash: row.tx_hash,
        log_index: row.log_index,
        block_hash: row.block_hash,
        psp_id: row.payment_id,
        token_address: row.token_address,
        from_address: row.from_address,
        amount: row.amount,
        block_number: row.block_number,
        posted: false,
        created_at: row.created_at,
    };
    (transfers, deposits.into_iter().map(deposit).collect())
}
