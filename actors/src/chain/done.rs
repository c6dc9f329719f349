//! Where a number was carried out that the contract refuses because it is done, and whose it was: this operation's, by a
//! transaction that the database does not know of, or another's, which had the number before the database was restored.
//!
//! To take another's success for one's own tells a payment that was never made; to take one's own for another's pays twice.
//! So both are believed only of what the chain itself says, and nothing is concluded from an event that is merely not shown.

use alloy::primitives::{Bytes, U256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::Payferry;
use payferry_domain::{Address, Timestamp};
use payferry_entities::operations;
use payferry_evm::client::ClientError;
use payferry_evm::wallet::{alloy_address, domain_hash};
use payferry_journal::Carried;
use payferry_journal::chain::attempts;

use super::errors::SettleError;
use super::operations::{Route, success, vault_id, verdicts};
use super::resolve::Place;
use super::settler::{SettlerArgs, SettlerState};

/// Transactions of each account whose receipts are searched for an operation that is done already.
const DONE_SEARCH_ATTEMPTS_MAX: u64 = 1_000;
/// Ranges that are searched for its event in one look, each with up to three requests; the next look goes on from there.
const DONE_SEARCH_RANGES_MAX: usize = 40;
/// Blocks in one of them, as long as the endpoint allows it: few events match.
const DONE_SEARCH_RANGE_BLOCKS: u64 = 10_000;
/// How much older than an operation's row the block may say it is that carried it out. Clocks differ, and after an outage a
/// chain makes up for it with blocks that bear the times at which they should have been.
const BLOCK_TIME_BEHIND_MAX_MS: i64 = 24 * 60 * 60 * 1_000;

/// By whom a number was carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum DoneBy {
    /// By the operation that has it, there; and what it moved.
    Itself(Place, Carried),
    /// By another operation, in this block or before.
    Another { block: u64 },
    /// Not known yet.
    Unknown,
}

impl SettlerState {
    /// By whom the number of an operation was carried out: in a transaction of ours, else wherever its event is, back to
    /// before the operation was made. `read` is the last block that is known.
    pub(super) async fn find_done(&mut self, row: &operations::Model, read: u64) -> Result<DoneBy, SettleError> {
        // One that cannot be compared is neither its own nor another's.
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
            // Kept also if the next request fails, and while another's block is not final: neither begins anew.
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

    /// Where one of our own transactions carried it out, as far as the database knows them. They are no older than the
    /// operation by our own clock.
    async fn done_by_us(&self, row: &operations::Model) -> Result<Option<(Place, Carried)>, SettleError> {
        let SettlerArgs { spec, client, database, .. } = &self.args;
        let hashes = attempts::since(database, spec.chain, Timestamp(row.created_at), DONE_SEARCH_ATTEMPTS_MAX).await?;
        for receipt in client.receipts(&hashes).await?.into_iter().flatten().filter(TransactionReceipt::status) {
            let verdicts = verdicts(spec.contract, &receipt);
            if let Some(carried) = verdicts.get(&row.number).and_then(|verdict| verdict.carried_for(row)) {
                return Ok(Some((Place::of(&receipt)?, carried)));
            }
        }
        Ok(None)
    }

    /// What these events say. A number succeeds once, so that one event of it decides whose it was.
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
            // A PSP pays the same account again and again out of the same vault. What a payment's vault paid stays its own.
            if vault_id(row) == row.psp_id && self.is_before(row, block).await? {
                return Ok(Some(DoneBy::Another { block }));
            }
            let (tx_hash, block_hash) = (domain_hash(tx_hash), domain_hash(block_hash));
            return Ok(Some(DoneBy::Itself(Place { tx_hash, block_number: block, block_hash }, carried)));
        }
        Ok(None)
    }

    /// What the state after this block says, below which nothing was searched. A number that was used before its operation
    /// was made is another's, but for a payment's own settlement, whose row may be younger: a restored database makes it anew.
    /// `None` where that cannot be said: the event itself is to be found, further down.
    async fn read_state(&mut self, row: &operations::Model, block: u64) -> Result<Option<DoneBy>, SettleError> {
        if block > 0 && !self.is_before(row, block).await? {
            return Ok(None);
        }
        let was_done = if block == 0 { Some(false) } else { self.was_done(row.number, block).await? };
        match was_done {
            Some(true) if vault_id(row) == row.psp_id => Ok(Some(DoneBy::Another { block })),
            // It happened in a block that was searched, and an endpoint left it out: from the start again.
            Some(false) => {
                self.searched.remove(&row.id);
                Err(SettleError::Row("an operation is done on-chain and its transaction was not found"))
            }
            Some(true) | None => Ok(None),
        }
    }

    /// Whether this block is older than the operation, however wrong the clocks are.
    async fn is_before(&self, row: &operations::Model, block: u64) -> Result<bool, SettleError> {
        let oldest = row.created_at.saturating_sub(BLOCK_TIME_BEHIND_MAX_MS);
        let headers = self.args.client.headers([block]).await?;
        Ok(headers.first().is_some_and(|header| header.time.as_millis() < oldest))
    }

    /// Whether the number was used by the end of this block; `None` if no endpoint keeps so old a state, or the contract was
    /// not there yet.
    async fn was_done(&self, number: i64, block: u64) -> Result<Option<bool>, SettleError> {
        let SettlerArgs { spec, client, .. } = &self.args;
        let asked = client.calls_at(block, vec![is_done_call(spec.contract, number)]).await;
        let answer = asked.and_then(|answers| answers.into_iter().next().unwrap_or(Err(ClientError::UnknownBlock)));
        match answer {
            Ok(answer) => Ok(Payferry::isDoneCall::abi_decode_returns(&answer).ok()),
            Err(ClientError::UnknownBlock | ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What these calls answer on the state after `block`. An endpoint that is behind must not answer for an older one: of
    /// what is done it would say that it is not.
    pub(super) async fn state_at(&self, block: u64, calls: Vec<(Address, Vec<u8>)>) -> Result<StateAt, SettleError> {
        let answers = self.args.client.calls_at(block, calls).await.map_err(|error| unread_state(block, error))?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| unread_state(block, error))).collect())
    }
}

/// Answers to calls, each for itself.
pub(super) type StateAt = Vec<Result<Bytes, SettleError>>;

/// That no endpoint has the block's state (yet) holds up what it was asked for and nothing else.
fn unread_state(block: u64, error: ClientError) -> SettleError {
    match error {
        // Endpoints word it differently that they do not keep a state (any more).
        ClientError::UnknownBlock | ClientError::Refused { .. } => {
            SettleError::Item { what: format!("the state after block {block}"), why: error.to_string() }
        }
        error => error.into(),
    }
}

/// Asks the contract whether a number was used.
pub(super) fn is_done_call(contract: Address, number: i64) -> (Address, Vec<u8>) {
    (contract, Payferry::isDoneCall { number: U256::from(number.unsigned_abs()) }.abi_encode())
}

/// The event of a number that was carried out. Another's may be of the other kind: they have their numbers in common.
fn done_filter(contract: Address, number: i64) -> Filter {
    Filter::new()
        .address(alloy_address(contract))
        .event_signature(vec![Payferry::Settled::SIGNATURE_HASH, Payferry::Sent::SIGNATURE_HASH])
        .topic1(U256::from(number.unsigned_abs()))
}
