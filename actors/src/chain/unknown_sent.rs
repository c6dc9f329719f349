//! Finds outbound transfers that only the chain knows, posts them, and lifts the pause of their signer.
//!
//! The signer has used nonces that the database does not have, most likely because an older copy was restored. Each of
//! them was mined after the last nonce before them, so the search starts at its block. Only final blocks count that the
//! watcher has read. The pause is lifted when the newest nonce is in one of them.
//!
//! Deliberately absent: the payments, payouts and withdrawals themselves, which are lost.

use std::collections::HashMap;

use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent;
use payferry_contracts::Payferry;
use payferry_domain::{Address, PspId, Timestamp};
use payferry_entities::{Database, operations, payments as payments_table, psps};
use payferry_evm::client::{ChainClient, ClientError};
use payferry_evm::config::ChainSpec;
use payferry_evm::pace::backoff;
use payferry_evm::wallet::{Vaults, alloy_address, domain_address, domain_hash};
use payferry_journal::audit::Actor;
use payferry_journal::chain::unknown_sent::{UnknownSent, account_for, last_known_block};
use payferry_journal::payments::{self, WalletScope};
use payferry_runtime::clock::Clock;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use super::checkpoint::{Checkpoint, Step};
use super::deposits::psp_ids;
use super::done::first_block_at;
use super::operations::{ItemKey, success};
use super::reread::{FAILURES_MAX, RereadError, failed, last_blocks};
use crate::pauses::{self, Scope};

/// Maximum difference between the service's clock and the chain's.
const CLOCK_SKEW_SECS: i64 = 3_600;

/// Result of a search.
#[derive(Debug, Default)]
pub struct SentSearch {
    /// Number of blocks searched.
    pub blocks: u64,
    /// Outbound transfers that are posted now and were not before.
    pub posted: Vec<UnknownSent>,
    /// Number of unknown outbound transfers from vaults of payments or PSPs that the database does not know either.
    /// Their money is not in the ledger.
    pub foreign: u64,
    /// Reason why outbound transfers are still paused, if they are.
    pub waits: Option<String>,
}

/// Posts the unknown outbound transfers of this chain, each once, and lifts the pause of `account` if no further one can
/// appear. It can be repeated after a crash. `watch` is called with the last block searched so far.
pub async fn post_unknown_sent(
    spec: &ChainSpec,
    client: &ChainClient,
    database: &Database,
    clock: &Clock,
    account: Address,
    checkpoint: &dyn Checkpoint,
    mut watch: impl FnMut(u64),
) -> Result<SentSearch, RereadError> {
    let (_, last) = last_blocks(spec, client, database).await?;
    let last = last.ok_or(RereadError::NothingFinal)?;
    let used = client.nonce(account, &format!("{last:#x}")).await.map_err(failed)?;
    let vaults = Vaults::new(spec.contract);
    let psps = psp_ids(database).await.map_err(failed)?;
    let psps = psps.into_iter().map(|psp_id| (vaults.of_psp(psp_id), psp_id)).collect();
    let now = clock.now();
    let mut search = Search { spec, database, checkpoint, psps, now, found: SentSearch::default() };
    let filter = Filter::new().address(alloy_address(spec.contract)).event_signature(Payferry::Sent::SIGNATURE_HASH);
    let mut next = first_block(spec, client, database, account, last).await?;
    let (mut step, mut failures) = (spec.range_blocks_max.max(1), 0);
    while next <= last {
        let to = last.min(next + step - 1);
        match client.logs(&filter.clone().from_block(next).to_block(to)).await {
            Ok(logs) => {
                search.take(&logs).await?;
                search.found.blocks += to - next + 1;
                watch(to);
                (next, failures) = (to + 1, 0);
            }
            Err(ClientError::RangeTooLarge(_)) if to > next => step = (to - next).div_ceil(2),
            Err(_) if failures < FAILURES_MAX => {
                tokio::time::sleep(backoff(failures)).await;
                failures += 1;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    let newest = client.nonce_anywhere(account).await.map_err(failed)?;
    let mut found = search.found;
    if newest > used {
        let end = format!("the last final block that the service has read, {last}");
        found.waits = Some(format!("{account} has sent {newest} transactions, but only {used} of them up to {end}"));
        return Ok(found);
    }
    let transaction = database.begin().await.map_err(failed)?;
    account_for(&transaction, (spec.chain, account), used, last, now).await.map_err(failed)?;
    let scope = Scope::Unreconciled(spec.chain, account);
    pauses::lift(&transaction, scope, &Actor::Operator, now).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(found)
}

/// First block to search. If no transaction of the account is known, vaults can only have sent money since the first PSP
/// was created.
async fn first_block(
    spec: &ChainSpec,
    client: &ChainClient,
    database: &Database,
    account: Address,
    last: u64,
) -> Result<u64, RereadError> {
    if let Some(known) = last_known_block(database, spec.chain, account).await.map_err(failed)? {
        return Ok(known);
    }
    let oldest = psps::Entity::find().select_only().column(psps::Column::CreatedAt);
    let oldest = oldest.order_by_asc(psps::Column::CreatedAt).into_tuple::<i64>().one(database.reader()).await;
    let Some(created_at) = oldest.map_err(failed)? else { return Ok(last + 1) };
    first_block_at(client, created_at.div_euclid(1_000) - CLOCK_SKEW_SECS, last).await.map_err(failed)
}

struct Search<'a> {
    spec: &'a ChainSpec,
    database: &'a Database,
    checkpoint: &'a dyn Checkpoint,
    /// PSPs by vault.
    psps: HashMap<Address, PspId>,
    now: Timestamp,
    found: SentSearch,
}

impl Search<'_> {
    /// Posts the unknown ones of these events.
    async fn take(&mut self, logs: &[Log]) -> Result<(), RereadError> {
        let of_operation = |log| match success(log)? {
            (ItemKey::Operation(key), success) => Some((log, key.row_id(), success)),
            (ItemKey::Authorization(..), _) => None,
        };
        let sent: Vec<_> = logs.iter().filter_map(of_operation).collect();
        if sent.is_empty() {
            return Ok(());
        }
        let rows = operations::Entity::find()
            .filter(operations::Column::Chain.eq(self.spec.chain.as_str()))
            .filter(operations::Column::Id.is_in(sent.iter().map(|(_, id, _)| id)));
        let rows = rows.all(self.database.reader()).await.map_err(failed)?;
        for (log, id, success) in sent {
            let is_its_own = |row: &operations::Model| success.carried_for(row, self.spec.contract).is_some();
            if rows.iter().filter(|row| row.id == id).any(is_its_own) {
                continue;
            }
            match self.unknown(log).await? {
                None => self.found.foreign += 1,
                Some(unknown) => {
                    if unknown.post(self.database, self.now).await.map_err(failed)? {
                        self.found.posted.push(unknown);
                        self.checkpoint.reached(Step::Posted).map_err(failed)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The event with the owner of its vault, if the database knows the owner.
    async fn unknown(&self, log: &Log) -> Result<Option<UnknownSent>, RereadError> {
        let malformed = || RereadError::Failed("an endpoint returned a malformed event".to_owned());
        let event = Payferry::Sent::decode_log(&log.inner).map_err(failed)?;
        let place = log.transaction_hash.zip(log.log_index.and_then(|index| i64::try_from(index).ok()));
        let (tx_hash, log_index) = place.ok_or_else(malformed)?;
        let vault = domain_address(event.vault);
        let (psp_id, payment) = match self.psps.get(&vault) {
            Some(psp_id) => (psp_id.to_string(), None),
            None => match self.payment_of(vault).await? {
                Some((psp_id, subject)) => (psp_id, Some(subject)),
                None => return Ok(None),
            },
        };
        Ok(Some(UnknownSent {
            chain: self.spec.chain,
            tx_hash: domain_hash(tx_hash).to_string(),
            log_index,
            psp_id,
            payment,
            token_address: domain_address(event.token),
            to: domain_address(event.to),
            amount: i64::try_from(event.amount).map_err(failed)?,
        }))
    }

    /// PSP and ledger subject of the payment with this vault.
    async fn payment_of(&self, vault: Address) -> Result<Option<(String, String)>, RereadError> {
        let owners = payments::by_wallets(self.database, &[vault], WalletScope::All).await.map_err(failed)?;
        let Some((_, payment_id)) = owners.first() else { return Ok(None) };
        let row = payments_table::Entity::find_by_id(payment_id.to_string()).one(self.database.reader()).await;
        let Some(row) = row.map_err(failed)? else { return Ok(None) };
        let payment = payments::payment_of(&row).map_err(failed)?;
        Ok(Some((row.psp_id, payment.terms.public_id())))
    }
}
