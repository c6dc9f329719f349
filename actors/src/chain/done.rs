//! Finds out who carried out an operation number that the contract rejects as done: this operation, in a transaction
//! that the database does not know, or another operation that had the number before a restore of the database.
//!
//! Taking another operation's success for one's own reports a payment that was never made; the opposite error pays
//! twice. So both answers rely only on what the chain reports, and a missing event proves nothing.

use alloy::primitives::{Bytes, U256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::Payferry;
use payferry_domain::{Address, Timestamp};
use payferry_entities::operations;
use payferry_evm::client::ClientError;
use payferry_evm::wallet::{alloy_address, domain_hash};
use payferry_journal::MovedAmounts;
use payferry_journal::chain::attempts;

use super::ChainContext;
use super::errors::SettleError;
use super::operations::{Route, success, vault_id, verdicts};
use super::resolve::TxPosition;
use super::settler::SettlerState;

/// Maximum number of transactions per account with receipts to search for a completed operation.
const DONE_SEARCH_ATTEMPTS_MAX: u64 = 1_000;
/// Maximum number of ranges searched for the event in one pass, each with up to three requests; the next pass continues
/// there.
const DONE_SEARCH_RANGES_MAX: usize = 40;
/// Blocks per range, as long as the endpoint allows it: few events match.
const DONE_SEARCH_RANGE_BLOCKS: u64 = 10_000;
/// Tolerance for blocks with a time before the creation of the operation's row. Clocks differ, and after an outage a
/// chain may produce blocks with the times at which they were due.
const BLOCK_TIME_BEHIND_MAX_MS: i64 = 24 * 60 * 60 * 1_000;

/// Operation that carried out a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum DoneBy {
    /// This operation, at this position, with the amounts moved.
    Itself(TxPosition, MovedAmounts),
    /// Another operation, in this block or an earlier one.
    Another { block: u64 },
    /// Not known yet.
    Unknown,
}

impl SettlerState {
    /// Finds out who carried out the number of an operation: searches our own transactions, then the events, back to
    /// before the operation was created. `read` is the last known block.
    pub(super) async fn find_done(&mut self, row: &operations::Model, read: u64) -> Result<DoneBy, SettleError> {
        // An operation that cannot be compared matches neither case.
        Route::of(row)?;
        if !self.searched.contains_key(&row.id)
            && let Some((place, carried)) = self.done_by_us(row).await?
        {
            return Ok(DoneBy::Itself(place, carried));
        }
        let filter = done_filter(self.args.spec.contract, row.number);
        let mut to = self.searched.get(&row.id).copied().unwrap_or(read);
        let mut step = DONE_SEARCH_RANGE_BLOCKS.max(self.args.spec.range_blocks_max);
        for _ in 0..DONE_SEARCH_RANGES_MAX {
            // Kept even if the next request fails, and while the other operation's block is not final: the search does
            // not restart.
            self.searched.insert(row.id.clone(), to);
            let from = to.saturating_sub(step - 1);
            let logs = match self.args.client.logs(&filter.clone().from_block(from).to_block(to)).await {
                Ok(logs) => logs,
                Err(ClientError::RangeTooLarge(_)) if step > 1 => {
                    step = (step / 2).max(1);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let found = match self.read_done(row, &logs).await? {
                Some(found) => Some(found),
                None => self.read_state(row, from).await?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
            to = from - 1;
        }
        self.searched.insert(row.id.clone(), to);
        Ok(DoneBy::Unknown)
    }

    /// Position in one of our own transactions, as far as the database knows them. They are not older than the
    /// operation by our own clock.
    async fn done_by_us(&self, row: &operations::Model) -> Result<Option<(TxPosition, MovedAmounts)>, SettleError> {
        let ChainContext { spec, client, database, .. } = &self.args.context;
        let hashes = attempts::since(database, spec.chain, Timestamp(row.created_at), DONE_SEARCH_ATTEMPTS_MAX).await?;
        for receipt in client.receipts(&hashes).await?.into_iter().flatten().filter(TransactionReceipt::status) {
            let verdicts = verdicts(spec.contract, &receipt);
            if let Some(carried) = verdicts.get(&row.number).and_then(|verdict| verdict.carried_for(row)) {
                return Ok(Some((TxPosition::of(&receipt)?, carried)));
            }
        }
        Ok(None)
    }

    /// Interprets these events. A number succeeds only once, so one event decides.
    async fn read_done(&self, row: &operations::Model, logs: &[Log]) -> Result<Option<DoneBy>, SettleError> {
        for log in logs {
            let Some((number, success)) = success(&log.inner) else { continue };
            let (Some(block), Some(block_hash), Some(tx_hash)) =
                (log.block_number, log.block_hash, log.transaction_hash)
            else {
                continue;
            };
            if number != row.number {
                continue;
            }
            let Some(carried) = success.carried_for(row) else { return Ok(Some(DoneBy::Another { block })) };
            // A PSP pays the same account repeatedly from the same vault. A payment made by the payment's own vault is
            // always its own.
            if vault_id(row) == row.psp_id && self.is_before(row, block).await? {
                return Ok(Some(DoneBy::Another { block }));
            }
            let (tx_hash, block_hash) = (domain_hash(tx_hash), domain_hash(block_hash));
            return Ok(Some(DoneBy::Itself(TxPosition { tx_hash, block_number: block, block_hash }, carried)));
        }
        Ok(None)
    }

    /// Interprets the state after this block; older blocks have not been searched. A number used before its operation
    /// was created belongs to another operation, except for a payment's own settlement, which may be older than its
    /// row: a restored database creates it again. `None` if the state does not decide: the event is to be found further
    /// back.
    async fn read_state(&mut self, row: &operations::Model, block: u64) -> Result<Option<DoneBy>, SettleError> {
        if block > 0 && !self.is_before(row, block).await? {
            return Ok(None);
        }
        let was_done = if block == 0 { Some(false) } else { self.was_done(row.number, block).await? };
        match was_done {
            Some(true) if vault_id(row) == row.psp_id => Ok(Some(DoneBy::Another { block })),
            // The event is in a block that was searched, so an endpoint omitted it: restart the search.
            Some(false) => {
                self.searched.remove(&row.id);
                Err(SettleError::Row("an operation is done on-chain, but its transaction was not found"))
            }
            Some(true) | None => Ok(None),
        }
    }

    /// True if the block is older than the operation, with tolerance for wrong clocks.
    async fn is_before(&self, row: &operations::Model, block: u64) -> Result<bool, SettleError> {
        let oldest = row.created_at.saturating_sub(BLOCK_TIME_BEHIND_MAX_MS);
        let headers = self.args.client.headers([block]).await?;
        Ok(headers.first().is_some_and(|header| header.time.as_millis() < oldest))
    }

    /// True if the number was used by the end of this block; `None` if no endpoint has such an old state, or the
    /// contract did not exist yet.
    async fn was_done(&self, number: i64, block: u64) -> Result<Option<bool>, SettleError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        let asked = client.calls_at(block, vec![is_done_call(spec.contract, number)]).await;
        let answer = asked.and_then(|answers| answers.into_iter().next().unwrap_or(Err(ClientError::UnknownBlock)));
        match answer {
            Ok(answer) => Ok(Payferry::isDoneCall::abi_decode_returns(&answer).ok()),
            Err(ClientError::UnknownBlock | ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Results of calls on the state after `block`. A lagging endpoint must not answer from an older state: it would
    /// report a completed operation as open.
    pub(super) async fn state_at(&self, block: u64, calls: Vec<(Address, Vec<u8>)>) -> Result<StateAt, SettleError> {
        let answers = self.args.client.calls_at(block, calls).await.map_err(|error| unread_state(block, error))?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| unread_state(block, error))).collect())
    }
}

/// Results of calls, each with its own error.
pub(super) type StateAt = Vec<Result<Bytes, SettleError>>;

/// If no endpoint has the state of a block (yet), only the item that needs it is blocked.
fn unread_state(block: u64, error: ClientError) -> SettleError {
    match error {
        // Endpoints use different errors for a state that they do not have (any more).
        ClientError::UnknownBlock | ClientError::Refused { .. } => {
            SettleError::Item { what: format!("the state after block {block}"), why: error.to_string() }
        }
        error => error.into(),
    }
}

/// Value that a contract call returned.
pub(super) fn decoded<C: SolCall>(answer: &[u8]) -> Result<C::Return, ClientError> {
    C::abi_decode_returns(answer).map_err(|error| ClientError::Malformed(error.to_string()))
}

/// Contract call that returns if a number was used.
pub(super) fn is_done_call(contract: Address, number: i64) -> (Address, Vec<u8>) {
    (contract, Payferry::isDoneCall { number: U256::from(number.unsigned_abs()) }.abi_encode())
}

/// Filter for the event of a completed number. Another operation may be of the other kind: both kinds share their
/// numbers.
fn done_filter(contract: Address, number: i64) -> Filter {
    Filter::new()
        .address(alloy_address(contract))
        .event_signature(vec![Payferry::Settled::SIGNATURE_HASH, Payferry::Sent::SIGNATURE_HASH])
        .topic1(U256::from(number.unsigned_abs()))
}
