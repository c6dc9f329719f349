//! Decides the outcome of an operation that the contract rejected: done before, retry, or failed.

use std::collections::HashMap;

use alloy::primitives::U256;
use payferry_contracts::{Payferry, Token as TokenContract};
use payferry_domain::{Amount, FinalityProgress};
use payferry_entities::{chain_txs, operations};
use payferry_evm::client::ClientError;
use payferry_evm::pace::Severity;
use payferry_journal::OperationOutcome;

use super::checkpoint::Step;
use super::done::{decoded, done_at_call, take};
use super::errors::{Errors, SettleError};
use super::metrics;
use super::operations::{
    OperationKey, Verdict, failure_text, is_done_before, is_limit, is_transient, key_of, verdicts,
};
use super::resolve::{TxPosition, done_at, outcome};
use super::settler::SettlerState;

/// Retries of a failure that may pass, before the PSP is notified.
const TRANSIENT_ATTEMPTS_MAX: i64 = 3;

/// Block of a rejected item, and the progress of finality.
#[derive(Clone, Copy)]
struct Refused<'a> {
    place: &'a TxPosition,
    reach: FinalityProgress,
}

impl SettlerState {
    /// Decides operations that failed in a mined batch, once its block is final for their amount; returns true if some
    /// are still undecided.
    pub(super) async fn decide_failures(
        &mut self,
        tx: &chain_txs::Model,
        failed: Vec<operations::Model>,
        number: u64,
        reach: FinalityProgress,
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
        let place = TxPosition::recorded(tx)?;
        let missing = || SettleError::Item {
            what: format!("the receipt of {}", place.tx_hash),
            why: "the endpoint does not have it".to_owned(),
        };
        let receipt = self.receipt_of(&[place.tx_hash]).await?.ok_or_else(missing)?;
        let verdicts = verdicts(self.args.spec.contract, &receipt);
        let refused = Refused { place: &place, reach };
        let mut outcomes = Vec::with_capacity(due.len());
        let mut is_undecided = !later.is_empty();
        for row in &due {
            match self.decide_failure(row, &verdicts, refused).await {
                Ok(outcome) => outcomes.push(outcome),
                // An undecidable operation does not block the others.
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
        if !outcomes.is_empty() {
            self.record_decided(tx, &place, outcomes).await?;
        }
        Ok(is_undecided)
    }

    /// Commits the decisions, then notifies the payments.
    async fn record_decided(
        &mut self,
        tx: &chain_txs::Model,
        place: &TxPosition,
        outcomes: Vec<OperationOutcome>,
    ) -> Result<(), SettleError> {
        let changed = self.record(tx, "mined", Some(place), outcomes).await?;
        self.reached(Step::Recorded)?;
        for row in changed.iter().filter(|row| row.status == "failed") {
            metrics::OPERATIONS_FAILED.add(&metrics::of(self.args.spec.chain), 1);
            self.notify_failed(row);
        }
        self.reached(Step::Notified)
    }

    /// Decides a failed item, and checks on the chain that the funds are still there.
    async fn decide_failure(
        &self,
        row: &operations::Model,
        verdicts: &HashMap<OperationKey, Verdict>,
        refused: Refused<'_>,
    ) -> Result<OperationOutcome, SettleError> {
        let (contract, key) = (self.args.spec.contract, key_of(row)?);
        let verdict = verdicts.get(&key);
        if let Some(carried) = verdict.and_then(|verdict| verdict.carried_for(row, contract)) {
            return Ok(done_at(row, Some(carried), refused.place));
        }
        let reason: &[u8] = if let Some(Verdict::Failed(reason)) = verdict { reason } else { &[] };
        // The contract's own error, in a final block: no later response of an endpoint overrules it.
        if !is_done_before(reason, key) {
            // On the state after the last block read, which is not older than the rejection's block.
            let calls = vec![done_at_call(contract, key), self.vault_balance_call(row)?];
            let [done, held] = take(self.state_at(refused.reach.read, calls).await?)?;
            if decoded::<Payferry::doneAtCall>(&done?)?.is_zero() {
                let held = decoded::<TokenContract::balanceOfCall>(&held?)?;
                return Ok(self.failed(row, reason, held, refused.place));
            }
        }
        let (place, carried) = self.find_done(row, key, refused.reach.read).await?;
        Ok(done_at(row, Some(carried), &place))
    }

    /// Outcome of an operation that failed for its own reasons, with this vault balance.
    fn failed(&self, row: &operations::Model, reason: &[u8], held: U256, place: &TxPosition) -> OperationOutcome {
        if is_limit(reason) || is_transient(reason) && row.attempts < TRANSIENT_ATTEMPTS_MAX {
            return self.requeued(row, &failure_text(reason));
        }
        let mut failure = failure_text(reason);
        if held < U256::from(row.amount.unsigned_abs()) {
            failure = format!("the vault holds {held} of {} base units; {failure}", row.amount);
        }
        tracing::error!(chain = %self.args.spec.chain, operation.id = row.id, reason = failure,
            "operation {} failed", row.id);
        OperationOutcome { failure: Some(failure), ..outcome(row, "failed", Some(place)) }
    }
}

/// True if an error during a decision concerns only that operation, by its row or its token's response.
fn is_its_own(error: &SettleError) -> bool {
    error.severity() == Severity::Item || matches!(error, SettleError::Client(ClientError::Malformed(_)))
}
