//! Finds the transaction of an operation that the contract reports as done and that the database does not know.
//!
//! Taking another event for the operation's own reports a payment that was never made; the opposite error pays twice. So
//! only the operation's own event counts, and a missing event proves nothing.

use alloy::primitives::{B256, Bytes, U256};
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::Payferry;
use payferry_domain::{Address, Timestamp};
use payferry_entities::operations;
use payferry_evm::client::{ChainClient, ClientError};
use payferry_evm::wallet::{alloy_address, domain_hash};
use payferry_journal::MovedAmounts;
use payferry_journal::chain::attempts;

use super::ChainContext;
use super::errors::SettleError;
use super::operations::{ItemKey, OperationKey, success, verdicts};
use super::resolve::TxPosition;
use super::settler::SettlerState;

/// Maximum number of transactions per account with receipts to search for a completed operation.
const DONE_SEARCH_ATTEMPTS_MAX: u64 = 1_000;
/// Maximum number of requests for events in one pass.
const DONE_SEARCH_RANGES_MAX: usize = 40;

impl SettlerState {
    /// Finds the position of an operation that the contract reports as done, and the amounts moved: in our own
    /// transactions, then among the events of the second at which it was done. `read` is the last known block.
    pub(super) async fn find_done(
        &self,
        row: &operations::Model,
        key: OperationKey,
        read: u64,
    ) -> Result<(TxPosition, MovedAmounts), SettleError> {
        if let Some(found) = self.done_by_us(row).await? {
            return Ok(found);
        }
        let ChainContext { spec, client, .. } = &self.args.context;
        let [answer] = take(self.state_at(read, vec![done_at_call(spec.contract, key)]).await?)?;
        let done_secs = i64::try_from(decoded::<Payferry::doneAtCall>(&answer?)?).unwrap_or(i64::MAX);
        let mut from = first_block_at(client, done_secs, read).await?;
        let mut step = spec.range_blocks_max;
        for _ in 0..DONE_SEARCH_RANGES_MAX {
            let to = from.saturating_add(step - 1).min(read);
            match client.logs(&done_filter(spec.contract, key).from_block(from).to_block(to)).await {
                Ok(logs) => {
                    if let Some(found) = logs.iter().find_map(|log| self.read_done(row, key, log)) {
                        return Ok(found);
                    }
                }
                Err(ClientError::RangeTooLarge(_)) if step > 1 => {
                    step = (step / 2).max(1);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if to == read || block_secs(client, to).await? > done_secs {
                break;
            }
            from = to + 1;
        }
        // The endpoint omitted the event, or the operation's id was used up with other terms.
        Err(SettleError::Row("an operation is done on-chain, but its own event was not found"))
    }

    /// Position in one of our own transactions, as far as the database knows them. They are not older than the
    /// operation by our own clock.
    pub(super) async fn done_by_us(
        &self,
        row: &operations::Model,
    ) -> Result<Option<(TxPosition, MovedAmounts)>, SettleError> {
        let ChainContext { spec, client, database, .. } = &self.args.context;
        let hashes = attempts::since(database, spec.chain, Timestamp(row.created_at), DONE_SEARCH_ATTEMPTS_MAX).await?;
        for receipt in client.receipts(&hashes).await?.into_iter().flatten().filter(TransactionReceipt::status) {
            if let Some(carried) = verdicts(spec.contract, &receipt).carried_for(row, spec.contract) {
                return Ok(Some((TxPosition::of(&receipt)?, carried)));
            }
        }
        Ok(None)
    }

    fn read_done(&self, row: &operations::Model, key: OperationKey, log: &Log) -> Option<(TxPosition, MovedAmounts)> {
        let (_, success) = success(log).filter(|(found, _)| *found == ItemKey::Operation(key))?;
        let carried = success.carried_for(row, self.args.spec.contract)?;
        let (block_number, block_hash, tx_hash) = (log.block_number?, log.block_hash?, log.transaction_hash?);
        let place = TxPosition { tx_hash: domain_hash(tx_hash), block_number, block_hash: domain_hash(block_hash) };
        Some((place, carried))
    }

    /// Results of calls on the state after `block`. A lagging endpoint must not answer from an older state: it would
    /// report a completed operation as open.
    pub(super) async fn state_at(&self, block: u64, calls: Vec<(Address, Vec<u8>)>) -> Result<StateAt, SettleError> {
        let answers = self.args.client.calls_at(block, calls).await.map_err(|error| unread_state(block, error))?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| unread_state(block, error))).collect())
    }
}

/// First block up to `read` that is not older than this time.
pub(super) async fn first_block_at(client: &ChainClient, secs: i64, read: u64) -> Result<u64, ClientError> {
    let (mut low, mut high) = (0, read);
    while low < high {
        let middle = low + (high - low) / 2;
        if block_secs(client, middle).await? < secs {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

async fn block_secs(client: &ChainClient, block: u64) -> Result<i64, ClientError> {
    let headers = client.headers([block]).await?;
    let header = headers.first().ok_or(ClientError::UnknownBlock)?;
    Ok(header.time.as_millis().div_euclid(1_000))
}

/// Results of calls, each with its own error.
pub(super) type StateAt = Vec<Result<Bytes, SettleError>>;

/// The results of exactly this many calls.
pub(super) fn take<const N: usize>(answers: StateAt) -> Result<[Result<Bytes, SettleError>; N], ClientError> {
    answers.try_into().map_err(|_| ClientError::Malformed("too few results".to_owned()))
}

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

/// Contract call that returns the block time at which an operation succeeded, or 0.
pub(super) fn done_at_call(contract: Address, key: OperationKey) -> (Address, Vec<u8>) {
    (contract, Payferry::doneAtCall { kind: key.kind, id: key.id }.abi_encode())
}

/// Filter for the event of a completed operation.
fn done_filter(contract: Address, key: OperationKey) -> Filter {
    Filter::new()
        .address(alloy_address(contract))
        .event_signature(vec![Payferry::Settled::SIGNATURE_HASH, Payferry::Sent::SIGNATURE_HASH])
        .topic1(B256::from(U256::from(key.id)))
}
