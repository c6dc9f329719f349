//! What becomes of transactions: mined, reverted, stuck, taken back, final; and of the operations they carry.
//!
//! Whether a mined transaction still stands is read off the watcher's blocks, so that it costs no request a block.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use alloy::primitives::U256;
use alloy::rpc::types::{Filter, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{Payferry, Token as TokenContract};
use payferry_domain::{Amount, Hash32};
use payferry_entities::{chain_txs, operations};
use tokio::time::Instant;

use super::checkpoint::Step;
use super::client::ClientError;
use super::finality::Reach;
use super::ledger::{self, Attempts};
use super::operations::{Outcome, Verdict, command, failure_text, is_transient, verdicts};
use super::rows::row_number;
use super::settler::{SettleError, SettlerArgs, SettlerState};
use super::watchlist::ChainView;
use crate::journal::{ChainTxOutcome, OperationOutcome, Unit};
use crate::wallet::{alloy_address, domain_hash};

/// A transaction that is not mined is sent again this often.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// An outcome that no payment has taken in is told again after this long.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// A failure that stands is told again after this long.
const TELL_FAILED_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// How long a nonce must have been used by something that is none of our hashes before the transaction is given up.
const USURPED_FOR: Duration = Duration::from_secs(5);
/// Failures for a reason that may pass, before the PSP is told.
const TRANSIENT_ATTEMPTS_MAX: i64 = 3;
/// Wait before an operation that came to nothing is batched again; doubled with each attempt.
const REQUEUE_WAIT_MS: i64 = 1_000;
/// Longest such wait.
const REQUEUE_WAIT_MAX_MS: i64 = 300_000;
/// Blocks searched backwards for the event of an operation that is done already.
const DONE_SEARCH_BLOCKS: u64 = 50_000;

/// Where and how a transaction was mined.
struct Mined<'a> {
    tx: &'a chain_txs::Model,
    receipt: TransactionReceipt,
}

impl SettlerState {
    /// Looks after every transaction that is not final.
    pub(super) async fn resolve(&mut self) -> Result<(), SettleError> {
        let SettlerArgs { spec, database, watchlist, .. } = &self.args;
        let view = watchlist.view(spec.chain);
        let finalized = view.as_ref().and_then(|view| Some(view.finalized?.min(view.read_number))).unwrap_or(0);
        let txs = ledger::open_txs(database, spec.chain, finalized).await?;
        let attempts = ledger::attempts(database, spec.chain, &txs).await?;
        self.report.open = txs.len();
        self.report.unmined = txs.iter().filter(|tx| tx.status == "submitted").count();
        let open: std::collections::HashSet<i64> = txs.iter().map(|tx| tx.id).collect();
        self.sent.retain(|id, _| open.contains(id));
        self.usurped.retain(|id, _| open.contains(id));

        let (submitted, mined): (Vec<_>, Vec<_>) = txs.iter().partition(|tx| tx.status == "submitted");
        self.resolve_submitted(&submitted, &attempts).await?;
        if let Some(view) = view {
            let ids: Vec<i64> = mined.iter().map(|tx| tx.id).collect();
            let mut failed: HashMap<i64, Vec<operations::Model>> = HashMap::new();
            for row in ledger::carried_undecided(&self.args.database, &ids).await? {
                failed.entry(row.chain_tx_id.unwrap_or_default()).or_default().push(row);
            }
            for tx in mined {
                self.resolve_mined(tx, failed.remove(&tx.id).unwrap_or_default(), &attempts, &view).await?;
            }
        }
        Ok(())
    }

    async fn resolve_submitted(&mut self, txs: &[&chain_txs::Model], attempts: &Attempts) -> Result<(), SettleError> {
        let hashes: Vec<(usize, Hash32)> = txs
            .iter()
            .enumerate()
            .flat_map(|(place, tx)| ledger::hashes(attempts, tx).into_iter().map(move |hash| (place, hash)))
            .collect();
        let asked: Vec<Hash32> = hashes.iter().map(|(_, hash)| *hash).collect();
        let mut receipts: BTreeMap<usize, TransactionReceipt> = BTreeMap::new();
        for ((place, _), receipt) in hashes.iter().zip(self.args.client.receipts(&asked).await?) {
            if let Some(receipt) = receipt {
                receipts.insert(*place, receipt);
            }
        }
        let mut waiting: BTreeMap<&str, Vec<&chain_txs::Model>> = BTreeMap::new();
        for (place, tx) in txs.iter().enumerate() {
            match receipts.remove(&place) {
                Some(receipt) => self.record_mined(Mined { tx, receipt }).await?,
                None => waiting.entry(tx.sender.as_str()).or_default().push(tx),
            }
        }
        for txs in waiting.into_values() {
            self.look_after_waiting(&txs, attempts).await?;
        }
        Ok(())
    }

    /// One account's transactions that are not mined, by nonce: sent again, raised, or given up.
    async fn look_after_waiting(&mut self, txs: &[&chain_txs::Model], attempts: &Attempts) -> Result<(), SettleError> {
        let Some(first) = txs.first() else { return Ok(()) };
        let of = |tx: &chain_txs::Model| attempts.get(&(tx.sender.clone(), tx.nonce)).and_then(|all| all.last());
        let now = Instant::now();
        for tx in txs {
            let due = self.sent.get(&tx.id).is_none_or(|sent| now.duration_since(*sent) >= SEND_AGAIN_AFTER);
            if let Some(last) = of(tx).filter(|_| due) {
                self.sent.insert(tx.id, now);
                self.broadcast(&last.raw).await;
            }
        }
        // All others wait for the lowest nonce.
        if self.was_usurped(first).await? {
            return self.give_up(first).await;
        }
        let Some(last) = of(first) else { return Ok(()) };
        let age_ms = self.args.clock.real_now().as_millis().saturating_sub(last.created_at);
        let stuck_ms = i64::try_from(self.args.spec.stuck_after.as_millis()).unwrap_or(i64::MAX);
        if age_ms >= stuck_ms {
            self.raise(first, last).await?;
        }
        Ok(())
    }

    /// Whether the account's nonce was used, finally, by a transaction that is none of ours.
    async fn was_usurped(&mut self, tx: &chain_txs::Model) -> Result<bool, SettleError> {
        let SettlerArgs { spec, client, .. } = &self.args;
        let sender = tx.sender.parse().map_err(|_| SettleError::Row("a sender is malformed"))?;
        let used = |nonce: u64| i64::try_from(nonce).is_ok_and(|nonce| nonce > tx.nonce);
        if !used(client.nonce(sender, "latest").await?) {
            self.usurped.remove(&tx.id);
            return Ok(false);
        }
        let since = *self.usurped.entry(tx.id).or_insert_with(Instant::now);
        let tag = if spec.has_finalized { "finalized" } else { "latest" };
        Ok(since.elapsed() >= USURPED_FOR && used(client.nonce(sender, tag).await?))
    }

    /// The nonce is gone for good: what the transaction carried is queued again.
    async fn give_up(&mut self, tx: &chain_txs::Model) -> Result<(), SettleError> {
        tracing::error!(chain = %self.args.spec.chain, tx.nonce = tx.nonce,
            "a nonce of ours was used by somebody else; its operations are queued again");
        let rows = ledger::carried(&self.args.database, &[tx.id]).await?;
        let requeued = rows.iter().filter(|row| row.status == "submitted").map(|row| self.requeued(row, "nonce lost"));
        let operations = requeued.collect();
        self.record(tx, "cancelled", None, operations).await?;
        Ok(())
    }

    /// Records a receipt. What succeeded is mined; what failed is decided when the block is final.
    async fn record_mined(&mut self, mined: Mined<'_>) -> Result<(), SettleError> {
        let Mined { tx, receipt } = &mined;
        self.reached(Step::Mined)?;
        let rows = ledger::carried(&self.args.database, &[tx.id]).await?;
        let place = Place::of(receipt)?;
        if !receipt.status() {
            tracing::error!(chain = %self.args.spec.chain, tx.hash = %place.tx_hash,
                "a batch reverted; its operations are queued again");
            let requeued: Vec<_> = rows.iter().filter(|row| row.status != "failed").collect();
            let operations = requeued.iter().map(|row| self.requeued(row, "the batch reverted")).collect();
            self.record(tx, "reverted", Some(&place), operations).await?;
            return self.tell_orphaned(&requeued).await;
        }
        let verdicts = verdicts(self.args.spec.contract, receipt);
        let succeeded = |row: &&operations::Model| verdicts.get(&row.number) == Some(&Verdict::Succeeded);
        let (done, other): (Vec<_>, Vec<_>) = rows.iter().partition(succeeded);
        let mut outcomes: Vec<_> = done.iter().map(|row| outcome(row, "mined", Some(&place))).collect();
        // Done in the block that was taken back, and not in this one.
        let undone: Vec<_> =
            other.into_iter().filter(|row| matches!(row.status.as_str(), "mined" | "succeeded")).collect();
        outcomes.extend(undone.iter().map(|row| outcome(row, "submitted", None)));
        self.record(tx, "mined", Some(&place), outcomes).await?;
        self.reached(Step::Recorded)?;
        self.tell_orphaned(&undone).await
    }

    /// Looks after a transaction that was mined.
    async fn resolve_mined(
        &mut self,
        tx: &chain_txs::Model,
        failed: Vec<operations::Model>,
        attempts: &Attempts,
        view: &ChainView,
    ) -> Result<(), SettleError> {
        let Some(number) = tx.block_number.and_then(|number| u64::try_from(number).ok()) else {
            return Err(SettleError::Row("a mined transaction has no block"));
        };
        let stands = match view.block(number) {
            Some((hash, _)) => Some(hash.to_string()) == tx.block_hash,
            None if number > view.read_number => return Ok(()),
            // Older than what is remembered, as after a long time away: the chain itself is asked.
            None => self.stands_by_hash(tx).await?,
        };
        if !stands {
            return self.taken_back(tx, attempts).await;
        }
        if tx.status == "reverted" {
            return Ok(());
        }
        let undecided = self.decide_failures(tx, failed, number, view.reach()).await?;
        if !undecided && view.reach().reached(number, payferry_domain::Finality::Finalized) {
            let place = Place::recorded(tx)?;
            self.record(tx, "final", Some(&place), Vec::new()).await?;
        }
        Ok(())
    }

    async fn stands_by_hash(&self, tx: &chain_txs::Model) -> Result<bool, SettleError> {
        let place = Place::recorded(tx)?;
        let Some(header) = self.args.client.header_by_hash(place.block_hash).await? else { return Ok(false) };
        let canonical = self.args.client.headers([header.number]).await?;
        Ok(canonical.first().is_some_and(|canonical| canonical.hash == place.block_hash))
    }

    /// The block of a mined transaction is not of the chain any more: it is mined elsewhere, or waits again.
    async fn taken_back(&mut self, tx: &chain_txs::Model, attempts: &Attempts) -> Result<(), SettleError> {
        let hashes = ledger::hashes(attempts, tx);
        let receipts = self.args.client.receipts(&hashes).await?;
        if let Some(receipt) = receipts.into_iter().flatten().next() {
            // The node may not have left the old branch yet; then there is nothing to say.
            if Place::of(&receipt)?.block_hash.to_string() != tx.block_hash.clone().unwrap_or_default() {
                return self.record_mined(Mined { tx, receipt }).await;
            }
            return Ok(());
        }
        tracing::warn!(chain = %self.args.spec.chain, tx.nonce = tx.nonce,
            "a transaction of ours was taken back; it is sent again");
        let rows = ledger::carried(&self.args.database, &[tx.id]).await?;
        let undone: Vec<_> = rows.iter().filter(|row| matches!(row.status.as_str(), "mined" | "succeeded")).collect();
        let outcomes = undone.iter().map(|row| outcome(row, "submitted", None)).collect();
        self.record(tx, "submitted", None, outcomes).await?;
        self.reached(Step::Recorded)?;
        for attempt in attempts.get(&(tx.sender.clone(), tx.nonce)).into_iter().flatten() {
            self.broadcast(&attempt.raw).await;
        }
        self.sent.insert(tx.id, Instant::now());
        self.tell_orphaned(&undone).await
    }

    /// Tells payments that had their settlement, by the rows before the outcome, that it is gone.
    async fn tell_orphaned(&mut self, rows: &[&operations::Model]) -> Result<(), SettleError> {
        for row in rows.iter().filter(|row| row.status == "succeeded") {
            let mut now = (*row).clone();
            now.revision += 1;
            if let Some((payment_id, command)) = command(&now, &Outcome::Orphaned) {
                self.args.inbox.tell(payment_id, command);
            }
        }
        Ok(())
    }

    /// Decides operations that failed in a mined batch, once its block is final for their amount; answers whether some
    /// are still undecided.
    async fn decide_failures(
        &mut self,
        tx: &chain_txs::Model,
        failed: Vec<operations::Model>,
        number: u64,
        reach: Reach,
    ) -> Result<bool, SettleError> {
        if failed.is_empty() {
            return Ok(false);
        }
        let finality = |row: &operations::Model| self.args.spec.finality.required(Amount::from_units(row.amount));
        let (due, later): (Vec<_>, Vec<_>) = failed.into_iter().partition(|row| reach.reached(number, finality(row)));
        if due.is_empty() {
            return Ok(true);
        }
        let place = Place::recorded(tx)?;
        let receipt = self.args.client.receipts(&[place.tx_hash]).await?.into_iter().next().flatten();
        let receipt = receipt.ok_or(ClientError::UnknownBlock)?;
        let verdicts = verdicts(self.args.spec.contract, &receipt);
        let mut outcomes = Vec::with_capacity(due.len());
        for row in &due {
            outcomes.push(self.decide_failure(row, verdicts.get(&row.number), &place).await?);
        }
        let changed = self.record(tx, "mined", Some(&place), outcomes).await?;
        self.reached(Step::Recorded)?;
        for row in changed.iter().filter(|row| row.status == "failed") {
            self.tell_failed(row);
        }
        self.reached(Step::Told)?;
        Ok(!later.is_empty())
    }

    /// A failed item, held against the chain: is the money really still there?
    async fn decide_failure(
        &self,
        row: &operations::Model,
        verdict: Option<&Verdict>,
        place: &Place,
    ) -> Result<OperationOutcome, SettleError> {
        let reason: &[u8] = match verdict {
            Some(Verdict::Succeeded) => return Ok(outcome(row, "mined", Some(place))),
            Some(Verdict::Failed(reason)) => reason,
            None => &[],
        };
        let SettlerArgs { spec, client, .. } = &self.args;
        let number = U256::from(row.number.unsigned_abs());
        let is_done = (spec.contract, Payferry::isDoneCall { number }.abi_encode());
        let answers = client.calls(vec![is_done, self.vault_balance_call(row)?]).await?;
        let [done, held] = answers.try_into().map_err(|_| ClientError::Malformed("too few answers".to_owned()))?;
        let malformed = |error: alloy::sol_types::Error| ClientError::Malformed(error.to_string());
        if Payferry::isDoneCall::abi_decode_returns(&done?).map_err(malformed)? {
            return match self.find_done(row).await? {
                Some(place) => Ok(outcome(row, "mined", Some(&place))),
                None => Err(SettleError::Row("an operation is done on-chain and its transaction was not found")),
            };
        }
        let held = TokenContract::balanceOfCall::abi_decode_returns(&held?).map_err(malformed)?;
        let enough = held >= U256::from(row.amount.unsigned_abs());
        if is_transient(reason) && row.attempts < TRANSIENT_ATTEMPTS_MAX {
            return Ok(self.requeued(row, &failure_text(reason)));
        }
        let mut failure = failure_text(reason);
        if !enough {
            failure = format!("the vault holds {held} of {} base units; {failure}", row.amount);
        }
        tracing::error!(chain = %spec.chain, operation.id = row.id, reason = failure, "operation {} failed", row.id);
        Ok(OperationOutcome { failure: Some(failure), ..outcome(row, "failed", Some(place)) })
    }

    /// Where an operation succeeded that a later batch carried again.
    async fn find_done(&self, row: &operations::Model) -> Result<Option<Place>, SettleError> {
        let SettlerArgs { spec, client, watchlist, .. } = &self.args;
        let signature =
            if row.kind == "settle" { Payferry::Settled::SIGNATURE_HASH } else { Payferry::Sent::SIGNATURE_HASH };
        let filter = Filter::new()
            .address(alloy_address(spec.contract))
            .event_signature(signature)
            .topic1(U256::from(row.number.unsigned_abs()));
        let mut to = watchlist.reach(spec.chain).map_or(0, |reach| reach.read);
        let last = to.saturating_sub(DONE_SEARCH_BLOCKS);
        let mut step = spec.range_blocks_max.max(1);
        loop {
            let from = to.saturating_sub(step - 1).max(last);
            match client.logs(&filter.clone().from_block(from).to_block(to)).await {
                Ok(logs) => {
                    let found = logs.into_iter().find_map(|log| {
                        Some(Place {
                            tx_hash: domain_hash(log.transaction_hash?),
                            block_number: log.block_number?,
                            block_hash: domain_hash(log.block_hash?),
                        })
                    });
                    if found.is_some() || from <= last {
                        return Ok(found);
                    }
                    to = from - 1;
                }
                Err(ClientError::RangeTooLarge(_)) if step > 1 => step = (step / 2).max(1),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells payments whose operations are mined and final by their tier, again and again until they have taken it in.
    pub(super) async fn complete(&mut self) -> Result<(), SettleError> {
        self.retell_failed().await?;
        let SettlerArgs { spec, database, watchlist, .. } = &self.args;
        let Some(view) = watchlist.view(spec.chain) else { return Ok(()) };
        let reach = view.reach();
        let mined = ledger::with_status(database, spec.chain, "mined").await?;
        let now = Instant::now();
        self.told.retain(|_, (_, at)| now.duration_since(*at) < TELL_AGAIN_AFTER);
        let untold =
            |row: &&operations::Model| self.told.get(&row.id).is_none_or(|(revision, _)| *revision != row.revision);
        let due: Vec<&operations::Model> = mined.iter().filter(untold).collect();
        if due.is_empty() {
            return Ok(());
        }
        let tiers = ledger::tiers(database, &due).await?;
        let ids: Vec<i64> = due.iter().filter_map(|row| row.chain_tx_id).collect();
        let txs = ledger::txs_by_id(database, &ids).await?;
        let mut times: HashMap<u64, Option<payferry_domain::Timestamp>> = HashMap::new();
        let mut told = Vec::new();
        for row in due {
            let Some(number) = row.block_number.and_then(|number| u64::try_from(number).ok()) else { continue };
            if !tiers.get(&row.id).is_some_and(|tier| reach.reached(number, *tier)) {
                continue;
            }
            let tx = row.chain_tx_id.and_then(|id| txs.get(&id)).filter(|tx| tx.tx_hash == row.tx_hash);
            let time = match (view.block(number), tx) {
                // The block that holds it is not the one it was recorded in: `resolve` has to look first.
                (Some((hash, _)), Some(tx)) if tx.block_hash != Some(hash.to_string()) => None,
                (Some((_, time)), _) => Some(time),
                (None, _) => match times.get(&number) {
                    Some(time) => *time,
                    None => {
                        let time = self.args.client.headers([number]).await?.first().map(|header| header.time);
                        times.insert(number, time);
                        time
                    }
                },
            };
            let hash = row.tx_hash.as_deref().and_then(|hash| hash.parse().ok());
            let (Some(block_time), Some(tx_hash)) = (time, hash) else { continue };
            if let Some((payment_id, command)) = command(row, &Outcome::Completed { tx_hash, block_time }) {
                self.args.inbox.tell(payment_id, command);
            }
            told.push((row.id.clone(), (row.revision, now)));
        }
        let any = !told.is_empty();
        self.told.extend(told);
        if any { self.reached(Step::Told) } else { Ok(()) }
    }

    /// Tells failures that stand, so that none is lost to a crash: a payment that knows it takes no notice.
    async fn retell_failed(&mut self) -> Result<(), SettleError> {
        let failed = ledger::with_status(&self.args.database, self.args.spec.chain, "failed").await?;
        let now = Instant::now();
        self.failed_told.retain(|_, (_, at)| now.duration_since(*at) < TELL_FAILED_AGAIN_AFTER);
        for row in failed {
            if self.failed_told.get(&row.id).is_none_or(|(revision, _)| *revision != row.revision) {
                self.tell_failed(&row);
            }
        }
        Ok(())
    }

    fn tell_failed(&mut self, row: &operations::Model) {
        self.failed_told.insert(row.id.clone(), (row.revision, Instant::now()));
        let reason = row.failure.as_deref().unwrap_or("no reason was given");
        if let Some((payment_id, command)) = command(row, &Outcome::Failed { reason }) {
            self.args.inbox.tell(payment_id, command);
        }
    }

    /// Writes what became of a transaction; answers the operations that changed, as they are now.
    async fn record(
        &self,
        tx: &chain_txs::Model,
        status: &'static str,
        place: Option<&Place>,
        operations: Vec<OperationOutcome>,
    ) -> Result<Vec<operations::Model>, SettleError> {
        let outcome = ChainTxOutcome {
            chain_tx_id: tx.id,
            status,
            tx_hash: place.map(|place| place.tx_hash.to_string()),
            block_number: place.map(|place| row_number(place.block_number)),
            block_hash: place.map(|place| place.block_hash.to_string()),
            at: self.args.clock.real_now().as_millis(),
            operations,
        };
        Ok(self.args.journal.submit(Unit::ChainTxOutcome(Box::new(outcome))).await?.operations)
    }

    fn requeued(&self, row: &operations::Model, why: &str) -> OperationOutcome {
        let doublings = u32::try_from(row.attempts.clamp(0, 20)).unwrap_or(20);
        let wait_ms = REQUEUE_WAIT_MS.saturating_mul(1 << doublings).min(REQUEUE_WAIT_MAX_MS);
        OperationOutcome {
            id: row.id.clone(),
            status: "queued",
            tx_hash: None,
            block_number: None,
            failure: Some(why.to_owned()),
            not_before: self.args.clock.real_now().as_millis().saturating_add(wait_ms),
        }
    }
}

fn outcome(row: &operations::Model, status: &'static str, place: Option<&Place>) -> OperationOutcome {
    OperationOutcome {
        id: row.id.clone(),
        status,
        tx_hash: place.map(|place| place.tx_hash.to_string()),
        block_number: place.map(|place| row_number(place.block_number)),
        failure: None,
        not_before: 0,
    }
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug)]
struct Place {
    tx_hash: Hash32,
    block_number: u64,
    block_hash: Hash32,
}

impl Place {
    fn of(receipt: &TransactionReceipt) -> Result<Self, SettleError> {
        let (Some(block_number), Some(block_hash)) = (receipt.block_number, receipt.block_hash) else {
            return Err(ClientError::Malformed("a receipt without its block".to_owned()).into());
        };
        Ok(Self { tx_hash: domain_hash(receipt.transaction_hash), block_number, block_hash: domain_hash(block_hash) })
    }

    fn recorded(tx: &chain_txs::Model) -> Result<Self, SettleError> {
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
