//! Decides what it means that the contract refused an operation: done before, worth another try, or failed.

use alloy::primitives::U256;
use alloy::rpc::types::Filter;
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{Payferry, Token as TokenContract};
use payferry_domain::Amount;
use payferry_entities::{chain_txs, operations};

use super::checkpoint::Step;
use super::client::ClientError;
use super::finality::Reach;
use super::operations::{Verdict, failure_text, is_transient, verdicts};
use super::resolve::{Place, outcome};
use super::settler::{SettleError, SettlerArgs, SettlerState};
use crate::journal::OperationOutcome;
use crate::wallet::{alloy_address, domain_hash};

/// Failures for a reason that may pass, before the PSP is told.
const TRANSIENT_ATTEMPTS_MAX: i64 = 3;
/// Blocks searched backwards for the event of an operation that is done already.
const DONE_SEARCH_BLOCKS: u64 = 50_000;

impl SettlerState {
    /// Decides operations that failed in a mined batch, once its block is final for their amount; answers whether some
    /// are still undecided.
    pub(super) async fn decide_failures(
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
}
