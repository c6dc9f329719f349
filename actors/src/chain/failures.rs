//! Decides the outcome of an operation that the contract rejected: done before, retry, or failed.

use std::time::Duration;

use alloy::primitives::U256;
use payferry_contracts::{Payferry, Token as TokenContract};
use payferry_domain::{Amount, Finality, FinalityProgress};
use payferry_entities::{ChainTxStatus, OperationStatus, chain_txs, operations};
use payferry_evm::client::ClientError;
use payferry_evm::pace::Severity;
use payferry_journal::OperationOutcome;
use payferry_runtime::supervise::doubled;
use tokio::time::Instant;

use super::checkpoint::Step;
use super::collect::is_authorization;
use super::done::{decoded, done_at_call, take};
use super::errors::{Errors, SettleError};
use super::metrics;
use super::operations::{Verdicts, failure_text, is_done_before, is_limit, is_transient, key_of, verdicts};
use super::resolve::{TxPosition, done_at, outcome};
use super::settler::SettlerState;

/// Wait after a look at the chain that decided nothing; doubles with each further one.
const LOOK_WAIT: Duration = Duration::from_secs(1);
/// Upper limit of that wait.
const LOOK_WAIT_MAX: Duration = Duration::from_mins(1);
/// Retries of a failure that may pass, before the PSP is notified.
const TRANSIENT_ATTEMPTS_MAX: i64 = 3;

/// Block of a rejected item, and the progress of finality.
#[derive(Clone, Copy)]
struct Refused<'a> {
    place: &'a TxPosition,
    reach: FinalityProgress,
}

/// Why a failed operation is undecided after a look at the chain.
#[derive(Clone, Debug)]
pub(super) enum Undecided {
    /// It failed for good in the block with this hash, unless a reorganisation removes the block.
    UntilFinalized(String),
    /// The chain's answer was no decision. The look is repeated.
    Unclear { looks: u32, until: Instant, why: String },
}

impl SettlerState {
    /// Decides operations that failed in a mined batch, once its block is final for their amount; returns true if some
    /// are still undecided. One that fails for good waits for a `finalized` block: earlier, a reorganisation could still
    /// execute it although its amount is available again.
    pub(super) async fn decide_failures(
        &mut self,
        tx: &chain_txs::Model,
        mut failed: Vec<operations::Model>,
        number: u64,
        reach: FinalityProgress,
        errors: &mut Errors,
    ) -> Result<bool, SettleError> {
        let failed_len = failed.len();
        let is_final = reach.reached(number, Finality::Finalized);
        let finality = |row: &operations::Model| self.args.spec.finality.required(Amount::from_units(row.amount));
        failed.retain(|row| reach.reached(number, finality(row)));
        for row in std::mem::take(&mut failed) {
            match self.undecided.get(&row.id) {
                Some(Undecided::UntilFinalized(block)) if !is_final && Some(block) == tx.block_hash.as_ref() => {}
                Some(Undecided::Unclear { until, why, .. }) if Instant::now() < *until => {
                    errors.add(undecided(&row, why.clone()))?;
                }
                _ => failed.push(row),
            }
        }
        if failed.is_empty() {
            return Ok(failed_len > 0);
        }
        let place = TxPosition::recorded(tx)?;
        let missing = || SettleError::Item {
            what: format!("the receipt of {}", place.tx_hash),
            why: "the endpoint does not have it".to_owned(),
        };
        let receipt = self.receipt_of(&[place.tx_hash]).await?.ok_or_else(missing)?;
        let verdicts = verdicts(self.args.spec.contract, &receipt);
        let refused = Refused { place: &place, reach };
        let mut outcomes = Vec::with_capacity(failed.len());
        for row in &failed {
            match self.decide_failure(row, &verdicts, refused).await {
                Ok(outcome) if outcome.status == OperationStatus::Failed && !is_final => {
                    self.undecided.insert(row.id.clone(), Undecided::UntilFinalized(place.block_hash.to_string()));
                }
                Ok(outcome) => {
                    self.undecided.remove(&row.id);
                    outcomes.push(outcome);
                }
                // An undecidable operation does not block the others.
                Err(error) if is_its_own(&error) => {
                    tracing::error!(chain = %self.args.spec.chain, operation.id = row.id, %error,
                        "operation {} cannot be decided", row.id);
                    let looks = match self.undecided.get(&row.id) {
                        Some(Undecided::Unclear { looks, .. }) => *looks,
                        _ => 0,
                    };
                    let (until, why) = (Instant::now() + doubled(LOOK_WAIT, LOOK_WAIT_MAX, looks), error.to_string());
                    errors.add(undecided(row, why.clone()))?;
                    let unclear = Undecided::Unclear { looks: looks.saturating_add(1), until, why };
                    self.undecided.insert(row.id.clone(), unclear);
                }
                Err(error) => return Err(error),
            }
        }
        let is_undecided = outcomes.len() < failed_len;
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
        let changed = self.record(tx, ChainTxStatus::Mined, Some(place), outcomes).await?;
        self.reached(Step::Recorded)?;
        for row in changed.iter().filter(|row| row.status == OperationStatus::Failed) {
            metrics::OPERATIONS_FAILED.add(&metrics::of(self.args.spec.chain), 1);
            tracing::error!(chain = %self.args.spec.chain, operation.id = row.id, reason = row.failure,
                "operation {} failed", row.id);
            self.notify_failed(row);
        }
        self.reached(Step::Notified)
    }

    /// Decides a failed item, and checks on the chain that the funds are still there.
    async fn decide_failure(
        &self,
        row: &operations::Model,
        verdicts: &Verdicts<'_>,
        refused: Refused<'_>,
    ) -> Result<OperationOutcome, SettleError> {
        let contract = self.args.spec.contract;
        if let Some(carried) = verdicts.carried_for(row, contract) {
            return Ok(done_at(row, Some(carried), refused.place));
        }
        let reason = verdicts.reason(row);
        if is_authorization(row) {
            return self.decide_refused(row, reason, refused.reach.read).await;
        }
        let key = key_of(row)?;
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
        OperationOutcome { failure: Some(failure), ..outcome(row, OperationStatus::Failed, Some(place)) }
    }
}

fn undecided(row: &operations::Model, why: String) -> SettleError {
    SettleError::Item { what: format!("operation {} cannot be decided", row.id), why }
}

/// True if an error during a decision concerns only that operation, by its row or its token's response.
fn is_its_own(error: &SettleError) -> bool {
    error.severity() == Severity::Item || matches!(error, SettleError::Client(ClientError::Malformed(_)))
}
