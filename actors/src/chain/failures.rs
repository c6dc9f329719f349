//! Decides what it means that the contract refused an operation: done before, worth another try, or failed.

use alloy::primitives::U256;
use alloy::rpc::types::{Filter, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{Payferry, Token as TokenContract};
use payferry_domain::{Amount, Timestamp};
use payferry_entities::{chain_txs, operations};

use super::attempts;
use super::checkpoint::Step;
use super::client::ClientError;
use super::finality::Reach;
use super::metrics;
use super::operations::{Verdict, carried, failure_text, is_transient, verdicts};
use super::pace::Gravity;
use super::resolve::{Place, done_at, outcome};
use super::settler::{Errors, SettleError, SettlerArgs, SettlerState};
use crate::journal::{Carried, OperationOutcome};
use crate::wallet::{alloy_address, domain_hash};

/// Failures for a reason that may pass, before the PSP is told.
const TRANSIENT_ATTEMPTS_MAX: i64 = 3;
/// Transactions of each account whose receipts are searched for an operation that is done already.
const DONE_SEARCH_ATTEMPTS_MAX: u64 = 1_000;
/// Requests for its event in one look; the next look goes on from there.
const DONE_SEARCH_REQUESTS_MAX: usize = 100;
/// Blocks in one of them, as long as the endpoint allows it: few events match.
const DONE_SEARCH_RANGE_BLOCKS: u64 = 10_000;

impl SettlerState {
    /// Decides operations that failed in a mined batch, once its block is final for their amount; answers whether some
    /// are still undecided.
    pub(super) async fn decide_failures(
        &mut self,
        tx: &chain_txs::Model,
        failed: Vec<operations::Model>,
        number: u64,
        reach: Reach,
        errors: &mut Errors,
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
        let missing = || SettleError::Item {
            what: format!("the receipt of {}", place.tx_hash),
            why: "the endpoint does not have it".to_owned(),
        };
        let receipt = self.receipt_of(&[place.tx_hash]).await?.ok_or_else(missing)?;
        let verdicts = verdicts(self.args.spec.contract, &receipt);
        let mut outcomes = Vec::with_capacity(due.len());
        let mut is_undecided = !later.is_empty();
        for row in &due {
            match self.decide_failure(row, verdicts.get(&row.number), &place).await {
                Ok(Some(outcome)) => outcomes.push(outcome),
                Ok(None) => is_undecided = true,
                // One that cannot be decided holds up no other.
                Err(error) if is_its_own(&error) => {
                    tracing::error!(chain = %self.args.spec.chain, operation.id = row.id, %error,
                        "operation {} cannot be decided", row.id);
                    is_undecided = true;
                    let what = format!("operation {} cannot be decided", row.id);
                    errors.add(SettleError::Item { what, why: error.to_string() })?;
                }
                Err(error) => return Err(error),
            }
        }
        let changed = self.record(tx, "mined", Some(&place), outcomes).await?;
        self.reached(Step::Recorded)?;
        for row in changed.iter().filter(|row| row.status == "failed") {
            metrics::operation_failed(self.args.spec.chain);
            self.tell_failed(row);
        }
        self.reached(Step::Told)?;
        Ok(is_undecided)
    }

    /// A failed item, held against the chain: is the money really still there? `None` if that is not known yet.
    async fn decide_failure(
        &mut self,
        row: &operations::Model,
        verdict: Option<&Verdict>,
        place: &Place,
    ) -> Result<Option<OperationOutcome>, SettleError> {
        let reason: &[u8] = match verdict {
            Some(Verdict::Succeeded(carried)) => return Ok(Some(done_at(row, Some(*carried), place))),
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
            let found = self.find_done(row).await?;
            return Ok(found.map(|(place, carried)| done_at(row, Some(carried), &place)));
        }
        let held = TokenContract::balanceOfCall::abi_decode_returns(&held?).map_err(malformed)?;
        let enough = held >= U256::from(row.amount.unsigned_abs());
        if is_transient(reason) && row.attempts < TRANSIENT_ATTEMPTS_MAX {
            return Ok(Some(self.requeued(row, &failure_text(reason))));
        }
        let mut failure = failure_text(reason);
        if !enough {
            failure = format!("the vault holds {held} of {} base units; {failure}", row.amount);
        }
        tracing::error!(chain = %self.args.spec.chain, operation.id = row.id, reason = failure,
            "operation {} failed", row.id);
        Ok(Some(OperationOutcome { failure: Some(failure), ..outcome(row, "failed", Some(place)) }))
    }

    /// Where an operation succeeded that a later batch carried again: in a transaction of ours, else wherever its event
    /// is, back to when the operation was made; and what it moved there. `None` if that far was not searched yet.
    async fn find_done(&mut self, row: &operations::Model) -> Result<Option<(Place, Carried)>, SettleError> {
        let SettlerArgs { spec, client, database, watchlist, .. } = &self.args;
        let Some(read) = watchlist.reach(spec.chain).map(|reach| reach.read) else { return Ok(None) };
        if !self.searched.contains_key(&row.id) {
            let since = Timestamp(row.created_at);
            let hashes = attempts::since(database, spec.chain, since, DONE_SEARCH_ATTEMPTS_MAX).await?;
            for receipt in client.receipts(&hashes).await?.into_iter().flatten().filter(TransactionReceipt::status) {
                if let Some(carried) = verdicts(spec.contract, &receipt).get(&row.number).and_then(Verdict::carried) {
                    return Ok(Some((Place::of(&receipt)?, carried)));
                }
            }
        }
        let signature =
            if row.kind == "settle" { Payferry::Settled::SIGNATURE_HASH } else { Payferry::Sent::SIGNATURE_HASH };
        let filter = Filter::new()
            .address(alloy_address(spec.contract))
            .event_signature(signature)
            .topic1(U256::from(row.number.unsigned_abs()));
        let mut to = self.searched.get(&row.id).copied().unwrap_or(read);
        let mut step = DONE_SEARCH_RANGE_BLOCKS.max(spec.range_blocks_max);
        for _ in 0..DONE_SEARCH_REQUESTS_MAX {
            let from = to.saturating_sub(step - 1);
            match client.logs(&filter.clone().from_block(from).to_block(to)).await {
                Ok(logs) => {
                    let found = logs.into_iter().find_map(|log| {
                        let (_, carried) = carried(&log.inner)?;
                        let place = Place {
                            tx_hash: domain_hash(log.transaction_hash?),
                            block_number: log.block_number?,
                            block_hash: domain_hash(log.block_hash?),
                        };
                        Some((place, carried))
                    });
                    let oldest = client.headers([from]).await?.first().map(|header| header.time.as_millis());
                    if found.is_some() || from == 0 || oldest.is_some_and(|time| time < row.created_at) {
                        self.searched.remove(&row.id);
                        let not_found = "an operation is done on-chain and its transaction was not found";
                        return found.map(Some).ok_or(SettleError::Row(not_found));
                    }
                    to = from - 1;
                }
                Err(ClientError::RangeTooLarge(_)) if step > 1 => step = (step / 2).max(1),
                Err(error) => return Err(error.into()),
            }
        }
        self.searched.insert(row.id.clone(), to);
        Ok(None)
    }
}

/// Whether an error on the way to a decision is about that operation alone, by its row or what its token answers.
fn is_its_own(error: &SettleError) -> bool {
    error.gravity() == Gravity::Item || matches!(error, SettleError::Client(ClientError::Malformed(_)))
}
