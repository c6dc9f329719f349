//! Payments by signature: batches of authorizations, and the end of those that cannot be collected.
//!
//! The token's nonce is the once-only guard. An authorization has failed only when, in a finalized block, its nonce is used
//! without our event, or its end has passed. Until then it stays queued, whatever a simulation or a batch says.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use alloy::primitives::{Address as Account, B256, U256};
use alloy::rpc::types::{Filter, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{
    CollectGroup, CollectItem, DepositItem, Erc3009, Payferry, SignedAuthorization, TX_GAS_MAX, Token as TokenContract,
    collect_gas_limit, describe_reason,
};
use payferry_domain::payment::{AuthorizationEnd, AuthorizationFailure};
use payferry_domain::{Address, Timestamp};
use payferry_entities::{authorizations, operations};
use payferry_evm::client::ClientError;
use payferry_evm::wallet::{alloy_address, domain_hash};
use payferry_journal::chain::{Role, queue};
use payferry_journal::{MovedAmounts, OperationOutcome};
use payferry_runtime::supervise::doubled;
use tokio::time::Instant;

use super::ChainContext;
use super::done::{decoded, first_block_at, take};
use super::errors::{Errors, SettleError};
use super::operations::{
    BadOperation, address_of, bad, failure_text, max_fee, payment_ulid, psp_ulid, unsigned, vault_of, verdicts,
};
use super::resolve::{TxPosition, done_at};
use super::settler::SettlerState;

/// Failure text of an authorization whose end has passed. Stored and compared: never change it.
pub(super) const EXPIRED: &str = "the authorization expired before it could be collected";
/// Failure text of an authorization whose nonce is used. Stored and compared: never change it.
pub(super) const NONCE_USED: &str = "the payer used or cancelled the authorization";

/// Wait after a simulation that the token refused; doubles with each further one.
const SIMULATION_WAIT: Duration = Duration::from_secs(1);
/// Upper limit of that wait.
const SIMULATION_WAIT_MAX: Duration = Duration::from_mins(1);
/// Largest difference between our clock and that of the chain; longer than any wait of a queued operation.
const CLOCK_SKEW_SECS: i64 = 3_600;
/// Interval of reads of how far authorizations are.
const PROGRESS_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of queued authorizations that are looked at in one pass.
const WAITING_MAX: usize = 500;
/// Maximum number of requests for events of one authorization.
const SEARCH_RANGES_MAX: usize = 40;

/// Signatures by operation.
pub(super) type Signatures = HashMap<String, authorizations::Model>;

/// How an authorization ended, from the failure text of its operation.
pub(super) fn end_of(failure: &str) -> AuthorizationEnd {
    if failure.starts_with(EXPIRED) {
        AuthorizationEnd::Expired
    } else {
        AuthorizationEnd::Failed(AuthorizationFailure::NonceUsed)
    }
}

/// True if the operation is an authorization of a payer.
pub(super) fn is_authorization(row: &operations::Model) -> bool {
    matches!(row.kind.as_str(), "collect" | "deposit")
}

/// Payer of an authorization.
pub(super) fn payer_of(row: &operations::Model) -> Result<Account, BadOperation> {
    let payer = row.payer.as_deref().ok_or_else(|| bad(row, "it has no payer"))?;
    Ok(alloy_address(address_of(row, payer)?))
}

/// Nonce of an authorization.
pub(super) fn nonce_of(row: &operations::Model) -> Result<B256, BadOperation> {
    let nonce = row.nonce.as_deref().and_then(|nonce| nonce.parse().ok());
    nonce.ok_or_else(|| bad(row, "its nonce is malformed"))
}

fn signed(row: &operations::Model, signatures: &Signatures) -> Result<SignedAuthorization, BadOperation> {
    let signature = signatures.get(&row.id).ok_or_else(|| bad(row, "its signature is missing"))?;
    let secs = |value: Option<i64>| value.and_then(|secs| u64::try_from(secs).ok());
    Ok(SignedAuthorization {
        from: payer_of(row)?,
        value: unsigned(row, row.amount, "the amount")?,
        valid_after: secs(Some(signature.valid_after)).ok_or_else(|| bad(row, "its start is malformed"))?,
        valid_before: secs(row.valid_before).ok_or_else(|| bad(row, "its end is malformed"))?,
        nonce: nonce_of(row)?,
        signature: signature.signature.parse().map_err(|_| bad(row, "its signature is malformed"))?,
        by_contract: signature.by_contract,
    })
}

/// Call data of a batch of authorizations: one group for each PSP and token, then the deposits.
pub(super) fn collect_input(
    rows: &[operations::Model],
    signatures: &Signatures,
    item_gas: u64,
) -> Result<Vec<u8>, BadOperation> {
    let mut groups: Vec<CollectGroup> = Vec::new();
    let mut deposits = Vec::new();
    for row in rows {
        let authorization = signed(row, signatures)?;
        let (psp_id, token) = (psp_ulid(row)?, alloy_address(address_of(row, &row.token_address)?));
        let (payment_id, max_fee_bps) = (payment_ulid(row)?, max_fee(row)?);
        if row.kind == "deposit" {
            deposits.push(DepositItem {
                paymentId: payment_id,
                pspId: psp_id,
                maxFeeBps: max_fee_bps,
                token,
                nonce: authorization.nonce,
                authorization: authorization.terms(),
                signature: authorization.contract_signature(),
            });
            continue;
        }
        let attempt = signatures.get(&row.id).and_then(|signature| u16::try_from(signature.attempt).ok());
        let item = CollectItem {
            paymentId: payment_id,
            maxFeeBps: max_fee_bps,
            attempt: attempt.ok_or_else(|| bad(row, "its attempt is out of range"))?,
            fee: unsigned(row, row.treasury_fee, "the fee")?,
            authorization: authorization.terms(),
            signature: authorization.contract_signature(),
        };
        match groups.iter_mut().find(|group| (group.pspId, group.token) == (psp_id, token)) {
            Some(group) => group.items.push(item),
            None => groups.push(CollectGroup { pspId: psp_id, token, items: vec![item] }),
        }
    }
    // A token's balance is read once if its groups follow each other.
    groups.sort_by_key(|group| group.token);
    Ok(Payferry::collectCall { groups, deposits, itemGas: item_gas }.abi_encode())
}

/// Gas limit of a batch. Many groups may exceed the limit of a transaction, which regular items do not need.
pub(super) fn collect_gas(rows: &[operations::Model], item_gas: u64) -> u64 {
    let receipts = rows.iter().filter(|row| row.kind == "collect");
    let groups: HashSet<_> = receipts.map(|row| (row.psp_id.as_str(), row.token_address.as_str())).collect();
    collect_gas_limit(rows.len(), groups.len(), item_gas).min(TX_GAS_MAX)
}

/// Call of the token that submits the authorization, as the contract makes it.
pub(super) fn token_call(
    row: &operations::Model,
    signatures: &Signatures,
    contract: Address,
) -> Result<(Address, Vec<u8>), BadOperation> {
    let authorization = signed(row, signatures)?;
    let input = if row.kind == "deposit" {
        authorization.transfer_call(vault_of(row, contract)?)
    } else {
        authorization.receive_call(alloy_address(contract))
    };
    Ok((address_of(row, &row.token_address)?, input))
}

/// Success of a deposit: the transfer from the payer to the payment's vault. The contract has no event for it.
pub(super) fn deposited(
    row: &operations::Model,
    contract: Address,
    receipt: &TransactionReceipt,
) -> Option<MovedAmounts> {
    let (payer, vault) = (payer_of(row).ok()?, vault_of(row, contract).ok()?);
    let token = alloy_address(address_of(row, &row.token_address).ok()?);
    let found = receipt.inner.logs().iter().filter(|log| log.address() == token).find(|log| {
        let event = TokenContract::Transfer::decode_log(&log.inner).ok();
        event.is_some_and(|event| {
            (event.from, event.to) == (payer, vault) && i64::try_from(event.value) == Ok(row.amount)
        })
    })?;
    let log_index = found.log_index.and_then(|index| i64::try_from(index).ok());
    Some(MovedAmounts { amount: row.amount, psp_amount: 0, treasury_fee: 0, log_index })
}

/// An authorization that the token would refuse now.
#[derive(Clone, Debug)]
pub(super) struct RefusedAuthorization {
    simulations: u32,
    until: Instant,
    why: String,
    /// Finalized block in which its nonce was last seen unused.
    looked_at: u64,
    /// True if our event shows that it is collected: the batch that carries it again finds the event.
    is_collected: bool,
}

impl SettlerState {
    /// Authorizations to simulate now.
    pub(super) fn due_authorizations(&self, rows: Vec<operations::Model>, now: Instant) -> Vec<operations::Model> {
        let is_due =
            |row: &operations::Model| self.authorizations.get(&row.id).is_none_or(|refused| refused.until <= now);
        rows.into_iter().filter(is_due).collect()
    }

    /// Leaves out authorizations that their token would refuse. They cost no gas, however long they stay refused.
    pub(super) async fn without_refused(
        &mut self,
        rows: Vec<operations::Model>,
        signatures: &Signatures,
    ) -> Result<Vec<operations::Model>, SettleError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        let calls = rows.iter().map(|row| token_call(row, signatures, spec.contract)).collect::<Result<Vec<_>, _>>()?;
        let answers = client.calls_from(spec.contract, spec.item_gas, calls).await?;
        let mut kept = Vec::with_capacity(rows.len());
        for (row, answer) in rows.into_iter().zip(answers) {
            let why = match answer {
                Ok(_) => None,
                Err(ClientError::Reverted { data, reason }) if data.is_empty() => Some(reason),
                Err(ClientError::Reverted { data, .. }) => Some(describe_reason(&data)),
                Err(ClientError::Malformed(why) | ClientError::Refused { message: why, .. }) => Some(why),
                Err(error) => return Err(error.into()),
            };
            let known = self.authorizations.get(&row.id);
            let Some(why) = why.filter(|_| known.is_none_or(|known| !known.is_collected)) else {
                self.authorizations.remove(&row.id);
                kept.push(row);
                continue;
            };
            tracing::info!(chain = %self.args.spec.chain, operation.id = row.id, reason = why,
                "authorization {} would be refused and waits: {why}", row.id);
            let (simulations, looked_at) = known.map_or((0, 0), |known| (known.simulations, known.looked_at));
            let until = Instant::now() + doubled(SIMULATION_WAIT, SIMULATION_WAIT_MAX, simulations);
            let simulations = simulations.saturating_add(1);
            let refused = RefusedAuthorization { simulations, until, why, looked_at, is_collected: false };
            self.authorizations.insert(row.id, refused);
        }
        Ok(kept)
    }

    /// Reads how far the authorizations are, at the start and at intervals, and forgets those that are final.
    pub(super) async fn read_progress(&mut self) -> Result<(), SettleError> {
        let now = Instant::now();
        if now < self.progress_due {
            return Ok(());
        }
        self.progress_due = now + PROGRESS_INTERVAL;
        let ChainContext { spec, database, .. } = &self.args.context;
        let rows = queue::authorizations_in_txs(database, spec.chain).await?;
        self.args.handle.note_progress(rows.iter().map(|row| (row, row.status)));
        self.args.handle.keep_progress(&rows.iter().map(|row| row.id.as_str()).collect());
        Ok(())
    }

    /// Ends queued authorizations that can no longer be collected, by the state after a finalized block.
    pub(super) async fn end_authorizations(&mut self, errors: &mut Errors) -> Result<(), SettleError> {
        let ChainContext { spec, database, watchlist, client, clock, .. } = &self.args.context;
        let Some(view) = watchlist.view(spec.chain) else { return Ok(()) };
        let Some(finalized) = view.finalized.map(|number| number.min(view.read_number)) else { return Ok(()) };
        let all = clock.real_now::<Timestamp>().plus_secs(CLOCK_SKEW_SECS);
        let mut rows = queue::queued(database, spec.chain, Role::Collect, &[], all, WAITING_MAX).await?;
        if rows.is_empty() {
            self.authorizations.clear();
            return Ok(());
        }
        let time = match view.block(finalized) {
            Some((_, time)) => time,
            None => match client.headers([finalized]).await?.first() {
                Some(header) => header.time,
                None => return Ok(()),
            },
        };
        let final_secs = time.as_millis().div_euclid(1_000);
        let is_over = |row: &operations::Model| row.valid_before.is_some_and(|end| final_secs >= end);
        let is_due = |refused: &RefusedAuthorization| refused.looked_at < finalized && !refused.is_collected;
        rows.retain(|row| is_over(row) || self.authorizations.get(&row.id).is_some_and(is_due));
        for row in rows {
            let ended = self.end_authorization(&row, finalized, is_over(&row)).await;
            errors.take(ended)?;
        }
        Ok(())
    }

    async fn end_authorization(
        &mut self,
        row: &operations::Model,
        finalized: u64,
        is_over: bool,
    ) -> Result<(), SettleError> {
        let token = address_of(row, &row.token_address)?;
        let state = Erc3009::authorizationStateCall { authorizer: payer_of(row)?, nonce: nonce_of(row)? };
        let [answer] = take(self.state_at(finalized, vec![(token, state.abi_encode())]).await?)?;
        let is_used = decoded::<Erc3009::authorizationStateCall>(&answer?)?;
        let why = self.authorizations.get(&row.id).map(|refused| refused.why.clone());
        if !is_used && !is_over {
            if let Some(refused) = self.authorizations.get_mut(&row.id) {
                refused.looked_at = finalized;
            }
            return Ok(());
        }
        if is_used && self.find_collected(row, finalized).await?.is_some() {
            let until = Instant::now();
            let why = why.unwrap_or_default();
            let refused = RefusedAuthorization { simulations: 0, until, why, looked_at: finalized, is_collected: true };
            self.authorizations.insert(row.id.clone(), refused);
            return Ok(());
        }
        let text = match why {
            _ if is_used => NONCE_USED.to_owned(),
            Some(why) => format!("{EXPIRED}: {why}"),
            None => EXPIRED.to_owned(),
        };
        self.without(vec![row.clone()], &HashSet::from([row.id.clone()]), &text).await?;
        self.authorizations.remove(&row.id);
        Ok(())
    }

    /// Decides an authorization that a mined batch did not collect: it is collected elsewhere, or it waits.
    pub(super) async fn decide_refused(
        &self,
        row: &operations::Model,
        reason: &[u8],
        read: u64,
    ) -> Result<OperationOutcome, SettleError> {
        let token = address_of(row, &row.token_address)?;
        let state = Erc3009::authorizationStateCall { authorizer: payer_of(row)?, nonce: nonce_of(row)? };
        let [answer] = take(self.state_at(read, vec![(token, state.abi_encode())]).await?)?;
        if decoded::<Erc3009::authorizationStateCall>(&answer?)?
            && let Some((place, carried)) = self.find_collected(row, read).await?
        {
            return Ok(done_at(row, Some(carried), &place));
        }
        Ok(self.requeued(row, &failure_text(reason)))
    }

    /// Our event of a used nonce, in our own transactions or else on the chain since the authorization was queued.
    async fn find_collected(
        &self,
        row: &operations::Model,
        until: u64,
    ) -> Result<Option<(TxPosition, MovedAmounts)>, SettleError> {
        if let Some(found) = self.done_by_us(row).await? {
            return Ok(Some(found));
        }
        if row.kind == "deposit" {
            // The watcher finds the transfer, in any transaction.
            return Ok(None);
        }
        let ChainContext { spec, client, .. } = &self.args.context;
        let since = row.created_at.div_euclid(1_000) - CLOCK_SKEW_SECS;
        let mut from = first_block_at(client, since, until).await?;
        let mut step = spec.range_blocks_max;
        let filter = Filter::new()
            .address(alloy_address(spec.contract))
            .event_signature(Payferry::Collected::SIGNATURE_HASH)
            .topic1(B256::from(U256::from(payment_ulid(row)?)));
        for _ in 0..SEARCH_RANGES_MAX {
            let to = from.saturating_add(step - 1).min(until);
            match client.logs(&filter.clone().from_block(from).to_block(to)).await {
                Ok(logs) => {
                    for log in logs {
                        let Some(hash) = log.transaction_hash else { continue };
                        let receipt = self.receipt_of(&[domain_hash(hash)]).await?;
                        let Some(receipt) = receipt else { continue };
                        if let Some(carried) = verdicts(spec.contract, &receipt).carried_for(row, spec.contract) {
                            return Ok(Some((TxPosition::of(&receipt)?, carried)));
                        }
                    }
                }
                Err(ClientError::RangeTooLarge(_)) if step > 1 => {
                    step = (step / 2).max(1);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if to == until {
                return Ok(None);
            }
            from = to + 1;
        }
        let what = format!("the event of operation {}", row.id);
        Err(SettleError::Item { what, why: "it was not searched for in all blocks".to_owned() })
    }
}
