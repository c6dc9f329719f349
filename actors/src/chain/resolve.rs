//! Tracks transactions until they are final: mined, reverted, delayed or orphaned; and the operations in them.
//!
//! The watcher's blocks show if a mined transaction is still canonical, so no request per block is needed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use alloy::rpc::types::TransactionReceipt;
use futures::future::join_all;
use payferry_domain::{Hash32, Timestamp};
use payferry_entities::{ChainTxStatus, OperationStatus, chain_tx_attempts, chain_txs, operations};
use payferry_evm::client::ClientError;
use payferry_evm::wallet::domain_hash;
use payferry_journal::chain::attempts::{self, Attempts};
use payferry_journal::chain::queue::{self, OpenWork};
use payferry_journal::chain::rows::row_number;
use payferry_journal::{ChainTxOutcome, JournalWrite, MovedAmounts, OperationOutcome};
use payferry_runtime::supervise::doubled;
use tokio::time::Instant;

use super::checkpoint::Step;
use super::errors::{Errors, SettleError};
use super::operations::{ItemKey, verdicts};
use super::settler::SettlerState;
use super::watchlist::ChainView;
use super::{ChainContext, metrics};

/// Interval of broadcasts of an unmined transaction.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Number of blocks without the transaction before it is signed again. A stalled chain mines nothing, whatever the fee.
/// The first of these blocks may have been in progress when the transaction was sent.
const BLOCKS_BEFORE_RAISE: u64 = 2;
/// Wait before a failed operation is batched again; doubles with each attempt.
const REQUEUE_WAIT: Duration = Duration::from_secs(1);
/// Upper limit of that wait.
const REQUEUE_WAIT_MAX: Duration = Duration::from_mins(5);

/// Number of concurrent broadcasts at the start.
const SENDS_AT_ONCE: usize = 16;

/// A transaction and its receipt.
struct Mined<'a> {
    tx: &'a chain_txs::Model,
    receipt: TransactionReceipt,
}

impl SettlerState {
    /// Tracks every transaction that is not final. If there are very many mined ones, each pass handles some of them.
    pub(super) async fn resolve(&mut self, open: &OpenWork, errors: &mut Errors) -> Result<(), SettleError> {
        let ChainContext { spec, database, watchlist, .. } = &self.args.context;
        let view = watchlist.view(spec.chain);
        let submitted =
            if open.submitted_txs > 0 { queue::submitted_txs(database, spec.chain).await? } else { Vec::new() };
        let mut mined = Vec::new();
        if open.mined_txs > 0 {
            mined = queue::mined_txs(database, spec.chain, &mut self.mined_page).await?;
        } else {
            self.mined_page = queue::QueuePage::default();
        }
        self.report.unmined = submitted.len();
        self.report.open = submitted.len() + usize::try_from(open.mined_txs).unwrap_or(usize::MAX);
        metrics::OPEN.set_count(&metrics::of(spec.chain), self.report.open as u64);
        metrics::UNMINED.set_count(&metrics::of(spec.chain), self.report.unmined as u64);
        let unmined: HashSet<i64> = submitted.iter().map(|tx| tx.id).collect();
        self.unmined.retain(|id, _| unmined.contains(id));

        if !self.sent_again {
            self.send_mined_again(&mined).await?;
            self.sent_again = self.mined_page.is_first();
        }
        self.read_progress().await?;
        let resolved = self.resolve_submitted(&submitted, errors).await;
        errors.take(resolved)?;
        if let Some(view) = view.filter(|_| open.mined_txs + open.reverted_txs > 0) {
            // A reverted transaction can be orphaned only while its block is not final.
            let finalized = view.finalized.unwrap_or(0).min(view.read_number);
            let ChainContext { spec, database, .. } = &self.args.context;
            if open.reverted_txs > 0 {
                mined.extend(queue::reverted_txs(database, spec.chain, finalized).await?);
            }
            mined.sort_by_key(|tx| tx.nonce);
            let ids: Vec<i64> = mined.iter().map(|tx| tx.id).collect();
            let mut failed: HashMap<i64, Vec<operations::Model>> = HashMap::new();
            for row in queue::carried_undecided(database, &ids).await? {
                failed.entry(row.chain_tx_id.unwrap_or_default()).or_default().push(row);
            }
            let mut finals = Vec::new();
            for tx in &mined {
                let failed = failed.remove(&tx.id).unwrap_or_default();
                match self.resolve_mined(tx, failed, &view, errors).await {
                    Ok(true) => finals.push(tx),
                    Ok(false) => {}
                    Err(error) => errors.add(error)?,
                }
            }
            // Together, so that one commit records all of them.
            for recorded in join_all(finals.into_iter().map(|tx| self.record_final(tx))).await {
                errors.take(recorded)?;
            }
        }
        Ok(())
    }

    /// Sends transactions again that were mined before this settler started and are not final: they may have been
    /// orphaned. Nodes that have them in a block ignore them.
    async fn send_mined_again(&self, txs: &[chain_txs::Model]) -> Result<(), SettleError> {
        let ChainContext { spec, database, .. } = &self.args.context;
        for some in txs.chunks(SENDS_AT_ONCE) {
            let attempts = attempts::of(database, spec.chain, some).await?;
            let mined = some.iter().flat_map(|tx| {
                let attempts = attempts.get(&(tx.sender.clone(), tx.nonce)).into_iter().flatten();
                attempts.filter(|attempt| Some(&attempt.tx_hash) == tx.tx_hash.as_ref())
            });
            join_all(mined.map(|attempt| self.broadcast(attempt))).await;
        }
        Ok(())
    }

    async fn resolve_submitted(&mut self, txs: &[chain_txs::Model], errors: &mut Errors) -> Result<(), SettleError> {
        let attempts = attempts::of(&self.args.database, self.args.spec.chain, txs).await?;
        let hashes: Vec<(usize, Hash32)> = txs
            .iter()
            .enumerate()
            .flat_map(|(place, tx)| attempts::hashes(&attempts, tx).into_iter().map(move |hash| (place, hash)))
            .collect();
        let asked: Vec<Hash32> = hashes.iter().map(|(_, hash)| *hash).collect();
        let mut receipts: BTreeMap<usize, TransactionReceipt> = BTreeMap::new();
        let mut unread: BTreeSet<usize> = BTreeSet::new();
        for ((place, hash), answer) in hashes.iter().zip(self.args.client.receipts_each(&asked).await?) {
            match answer {
                Ok(Some(receipt)) => drop(receipts.insert(*place, receipt)),
                Ok(None) => {}
                Err(error) => {
                    unread.insert(*place);
                    errors.add(unread_receipt(*hash, error))?;
                }
            }
        }
        let mut waiting: BTreeMap<&str, Vec<&chain_txs::Model>> = BTreeMap::new();
        let mut mined = Vec::new();
        for (place, tx) in txs.iter().enumerate() {
            match receipts.remove(&place) {
                Some(receipt) => mined.push(Mined { tx, receipt }),
                // It may be mined, so it is neither raised nor given up.
                None if unread.contains(&place) => {}
                None => waiting.entry(tx.sender.as_str()).or_default().push(tx),
            }
        }
        // Together, so that one commit records all of them.
        for recorded in join_all(mined.into_iter().map(|mined| self.record_mined(mined))).await {
            errors.take(recorded)?;
        }
        // An error of one account does not block another.
        for txs in waiting.into_values() {
            let tracked = self.track_unmined(&txs, &attempts).await;
            errors.take(tracked)?;
        }
        Ok(())
    }

    /// Receipt of one of these attempts at a transaction. An unreadable receipt is an error of this transaction only.
    pub(super) async fn receipt_of(&self, hashes: &[Hash32]) -> Result<Option<TransactionReceipt>, SettleError> {
        let mut found = None;
        for (hash, answer) in hashes.iter().zip(self.args.client.receipts_each(hashes).await?) {
            found = found.or(answer.map_err(|error| unread_receipt(*hash, error))?);
        }
        Ok(found)
    }

    /// Unmined transactions of one account, by nonce: sends again, raises, or gives up.
    async fn track_unmined(&mut self, txs: &[&chain_txs::Model], attempts: &Attempts) -> Result<(), SettleError> {
        let Some(first) = txs.first() else { return Ok(()) };
        let of = |tx: &chain_txs::Model| attempts.get(&(tx.sender.clone(), tx.nonce)).and_then(|all| all.last());
        let now = Instant::now();
        for tx in txs {
            let Some(last) = of(tx) else { continue };
            // Start counting the blocks without the transaction now.
            self.blocks_without(tx, last);
            let sent = self.unmined.get(&tx.id).and_then(|unmined| unmined.sent);
            if sent.is_none_or(|sent| now.duration_since(sent) >= SEND_AGAIN_AFTER) {
                self.send(tx.id, last).await;
            }
        }
        // All other transactions wait for the lowest nonce.
        let next = self.next_nonce_of(first).await?;
        if self.nonce_was_taken(first, next).await? {
            // A lagging endpoint reports a mined transaction as unmined, so all endpoints are asked.
            let hashes = attempts::hashes(attempts, first);
            let receipts = self.args.client.receipts_elsewhere(&hashes).await.into_iter();
            return match receipts.filter_map(Result::transpose).max_by_key(Result::is_ok) {
                Some(receipt) => self.record_mined(Mined { tx: first, receipt: receipt? }).await,
                None => self.give_up(first).await,
            };
        }
        let Some(last) = of(first) else { return Ok(()) };
        let age_ms = self.args.clock.real_now::<Timestamp>().as_millis().saturating_sub(last.created_at);
        let stuck_ms = i64::try_from(self.args.spec.stuck_after.as_millis()).unwrap_or(i64::MAX);
        if age_ms < stuck_ms {
            return Ok(());
        }
        let Some(signer) = self.args.signer_of(&first.sender).cloned() else {
            return Err(SettleError::Row(
                "an unmined transaction belongs to an account that is no longer configured as a signer",
            ));
        };
        let is_passed_over = self.blocks_without(first, last) >= BLOCKS_BEFORE_RAISE;
        match next.cmp(&first.nonce) {
            Ordering::Less => self.fill_gap(&signer, first, next, is_passed_over).await,
            Ordering::Equal if is_passed_over => self.raise(&signer, first, last).await,
            // No block has left it out yet, or its nonce is already used: a higher fee does not help.
            Ordering::Equal | Ordering::Greater => Ok(()),
        }
    }

    /// Number of blocks read since this attempt was first checked.
    fn blocks_without(&mut self, tx: &chain_txs::Model, attempt: &chain_tx_attempts::Model) -> u64 {
        let Some(reach) = self.args.watchlist.reach(self.args.spec.chain) else { return 0 };
        let checked = &mut self.unmined.entry(tx.id).or_default().checked;
        let (hash, since) = checked.get_or_insert_with(|| (attempt.tx_hash.clone(), reach.read));
        if *hash != attempt.tx_hash {
            hash.clone_from(&attempt.tx_hash);
            *since = reach.read;
        }
        // Orphaned blocks do not count.
        *since = reach.read.min(*since);
        reach.read - *since
    }

    /// Records a receipt. Successful operations are mined; failed ones are decided when the block is final.
    async fn record_mined(&self, mined: Mined<'_>) -> Result<(), SettleError> {
        let Mined { tx, receipt } = &mined;
        self.reached(Step::Mined)?;
        let ChainContext { spec, database, .. } = &self.args.context;
        let mut rows = queue::carried(database, &[tx.id]).await?;
        let place = TxPosition::of(receipt)?;
        if !receipt.status() {
            metrics::REVERTED.add(&metrics::of(spec.chain), 1);
            tracing::error!(chain = %self.args.spec.chain, tx.hash = %place.tx_hash,
                "a batch reverted; its operations are queued again");
            let requeued: Vec<_> = rows.iter().filter(|row| row.status != OperationStatus::Failed).collect();
            let operations = requeued.iter().map(|row| self.requeued(row, "the batch reverted")).collect();
            let changed = self.record(tx, ChainTxStatus::Reverted, Some(&place), operations).await?;
            metrics::gas(self.args.spec.chain, receipt.gas_used, receipt.effective_gas_price);
            self.notify_orphaned(&requeued, &changed);
            return Ok(());
        }
        let verdicts = verdicts(spec.contract, receipt);
        // An older transaction may carry operations that were queued again since, failed elsewhere, or were given up.
        let (mut ids, mut nonces) = (Vec::new(), Vec::new());
        for key in verdicts.succeeded().filter(|key| rows.iter().all(|row| ItemKey::of(row) != Some(*key))) {
            match key {
                ItemKey::Operation(key) => ids.push(key.row_id()),
                ItemKey::Authorization(_, nonce) => nonces.push(nonce.to_string()),
            }
        }
        rows.extend(queue::idle(database, spec.chain, &ids, &nonces).await?);
        let carried = |row: &operations::Model| verdicts.carried_for(row, spec.contract);
        let (done, other): (Vec<_>, Vec<_>) = rows.iter().partition(|row| carried(row).is_some());
        let mut outcomes: Vec<_> = done.iter().map(|row| done_at(row, carried(row), &place)).collect();
        // Done in the orphaned block, and not in this one.
        let undone: Vec<_> = other.into_iter().filter(|row| row.status.is_done()).collect();
        outcomes.extend(undone.iter().map(|row| outcome(row, OperationStatus::Submitted, None)));
        let changed = self.record(tx, ChainTxStatus::Mined, Some(&place), outcomes).await?;
        metrics::gas(self.args.spec.chain, receipt.gas_used, receipt.effective_gas_price);
        metrics::MINED.add(&metrics::of(self.args.spec.chain), 1);
        self.reached(Step::Recorded)?;
        self.notify_orphaned(&undone, &changed);
        Ok(())
    }

    /// Tracks a mined transaction; returns true if it is now final.
    async fn resolve_mined(
        &mut self,
        tx: &chain_txs::Model,
        failed: Vec<operations::Model>,
        view: &ChainView,
        errors: &mut Errors,
    ) -> Result<bool, SettleError> {
        let Some(number) = tx.block_number.and_then(|number| u64::try_from(number).ok()) else {
            return Err(SettleError::Row("a mined transaction has no block"));
        };
        let stands = match view.block(number) {
            Some((hash, _)) => Some(hash.to_string()) == tx.block_hash,
            None if number > view.read_number => return Ok(false),
            // Older than the remembered blocks, as after a long downtime: ask the chain.
            None => self.stands_by_number(tx).await?,
        };
        if !stands {
            self.apply_orphaned(tx).await?;
            return Ok(false);
        }
        if tx.status == ChainTxStatus::Reverted {
            return Ok(false);
        }
        let undecided = self.decide_failures(tx, failed, number, view.reach(), errors).await?;
        Ok(!undecided && view.reach().reached(number, payferry_domain::Finality::Finalized))
    }

    async fn record_final(&self, tx: &chain_txs::Model) -> Result<(), SettleError> {
        let place = TxPosition::recorded(tx)?;
        self.record(tx, ChainTxStatus::Final, Some(&place), Vec::new()).await.map(drop)
    }

    /// True if the chain has the recorded block at its number. A missing block at an endpoint decides nothing; only
    /// another block at that number shows that the recorded one is orphaned.
    async fn stands_by_number(&self, tx: &chain_txs::Model) -> Result<bool, SettleError> {
        let place = TxPosition::recorded(tx)?;
        match self.args.client.headers([place.block_number]).await {
            Ok(headers) => Ok(headers.first().is_some_and(|header| header.hash == place.block_hash)),
            Err(error @ ClientError::UnknownBlock) => {
                let what = format!("block {} of {} is unavailable", place.block_number, place.tx_hash);
                Err(SettleError::Item { what, why: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Handles an orphaned block of a mined transaction: the transaction is mined elsewhere, or waits again.
    async fn apply_orphaned(&mut self, tx: &chain_txs::Model) -> Result<(), SettleError> {
        self.undecided.clear();
        let ChainContext { spec, database, .. } = &self.args.context;
        let attempts = attempts::of(database, spec.chain, std::slice::from_ref(tx)).await?;
        let hashes = attempts::hashes(&attempts, tx);
        if let Some(receipt) = self.receipt_of(&hashes).await? {
            // If the node is still on the old branch, there is nothing to record.
            if TxPosition::of(&receipt)?.block_hash.to_string() != tx.block_hash.clone().unwrap_or_default() {
                return self.record_mined(Mined { tx, receipt }).await;
            }
            return Ok(());
        }
        metrics::ORPHANED.add(&metrics::of(spec.chain), 1);
        self.undecided.clear();
        tracing::warn!(chain = %self.args.spec.chain, tx.nonce = tx.nonce,
            "a transaction was orphaned; it is sent again");
        let rows = queue::carried(&self.args.database, &[tx.id]).await?;
        let undone: Vec<_> = rows.iter().filter(|row| row.status.is_done()).collect();
        let outcomes = undone.iter().map(|row| outcome(row, OperationStatus::Submitted, None)).collect();
        let changed = self.record(tx, ChainTxStatus::Submitted, None, outcomes).await?;
        self.reached(Step::Recorded)?;
        for attempt in attempts.get(&(tx.sender.clone(), tx.nonce)).into_iter().flatten() {
            self.send(tx.id, attempt).await;
        }
        self.notify_orphaned(&undone, &changed);
        Ok(())
    }

    /// Records the outcome of a transaction; returns the changed operations in their new state.
    pub(super) async fn record(
        &self,
        tx: &chain_txs::Model,
        status: ChainTxStatus,
        place: Option<&TxPosition>,
        operations: Vec<OperationOutcome>,
    ) -> Result<Vec<operations::Model>, SettleError> {
        let outcome = ChainTxOutcome {
            chain_tx_id: tx.id,
            status,
            tx_hash: place.map(|place| place.tx_hash.to_string()),
            block_number: place.map(|place| row_number(place.block_number)),
            block_hash: place.map(|place| place.block_hash.to_string()),
            at: self.args.clock.real_now::<Timestamp>().as_millis(),
            operations,
        };
        let changed = self
            .args
            .journal
            .submit(JournalWrite::ChainTxOutcome(self.args.lease.clone(), Box::new(outcome)))
            .await?
            .operations;
        self.args.handle.note_progress(changed.iter().map(|row| (row, row.status)));
        Ok(changed)
    }

    pub(super) fn requeued(&self, row: &operations::Model, why: &str) -> OperationOutcome {
        let attempts = u32::try_from(row.attempts).unwrap_or_default();
        let wait = doubled(REQUEUE_WAIT, REQUEUE_WAIT_MAX, attempts);
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        OperationOutcome {
            id: row.id.clone(),
            status: OperationStatus::Queued,
            tx_hash: None,
            block_number: None,
            carried: None,
            failure: Some(why.to_owned()),
            not_before: self.args.clock.real_now::<Timestamp>().plus_millis(wait_ms).as_millis(),
        }
    }
}

/// A malformed response concerns its transaction; other errors concern the endpoint.
fn unread_receipt(hash: Hash32, error: ClientError) -> SettleError {
    match error {
        ClientError::Malformed(why) => SettleError::Item { what: format!("the receipt of {hash} cannot be read"), why },
        error => error.into(),
    }
}

pub(super) fn outcome(
    row: &operations::Model,
    status: OperationStatus,
    place: Option<&TxPosition>,
) -> OperationOutcome {
    OperationOutcome {
        id: row.id.clone(),
        status,
        tx_hash: place.map(|place| place.tx_hash.to_string()),
        block_number: place.map(|place| row_number(place.block_number)),
        carried: None,
        failure: None,
        not_before: 0,
    }
}

/// Outcome of an operation that was carried out. An older transaction than the last one may have done it, with the
/// amounts that it was signed with.
pub(super) fn done_at(row: &operations::Model, carried: Option<MovedAmounts>, place: &TxPosition) -> OperationOutcome {
    OperationOutcome { carried, ..outcome(row, OperationStatus::Mined, Some(place)) }
}

/// Position of a transaction on the chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxPosition {
    pub(super) tx_hash: Hash32,
    pub(super) block_number: u64,
    pub(super) block_hash: Hash32,
}

impl TxPosition {
    pub(super) fn of(receipt: &TransactionReceipt) -> Result<Self, SettleError> {
        let (Some(block_number), Some(block_hash)) = (receipt.block_number, receipt.block_hash) else {
            let what = format!("the receipt of {}", domain_hash(receipt.transaction_hash));
            return Err(SettleError::Item { what, why: "it has no block".to_owned() });
        };
        Ok(Self { tx_hash: domain_hash(receipt.transaction_hash), block_number, block_hash: domain_hash(block_hash) })
    }

    pub(super) fn recorded(tx: &chain_txs::Model) -> Result<Self, SettleError> {
        let place = || {
            Some(Self {
                tx_hash: tx.tx_hash.as_ref()?.parse().ok()?,
                block_number: u64::try_from(tx.block_number?).ok()?,
                block_hash: tx.block_hash.as_ref()?.parse().ok()?,
            })
        };
        place().ok_or(SettleError::Row("a mined transaction has no block"))
    }
}
