//! Batches: select, sign, store, send; and sign again with higher fees when a transaction is not mined.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use alloy::consensus::TxEip1559;
use alloy::primitives::{Bytes, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::{Token as TokenContract, batch_gas_limit};
use payferry_domain::{Address, Timestamp};
use payferry_entities::chain_tx_attempts::Model as Attempt;
use payferry_entities::{ChainTxStatus, OperationStatus, chain_txs, operations};
use payferry_evm::client::ClientError;
use payferry_evm::fees::Fees;
use payferry_evm::pace::{BlockingError, Pass};
use payferry_evm::wallet::{OperatorSigner, alloy_address};
use payferry_journal::chain::Role;
use payferry_journal::chain::queue;
use payferry_journal::chain::recipients;
use payferry_journal::{ChainTxSubmission, JournalWrite, OperationRefusal, RefusedOperation, SignedOperation};
use tokio::time::Instant;

use super::checkpoint::{Killed, Step};
use super::collect::{Signatures, collect_gas};
use super::errors::{Errors, SettleError, severity_of_call};
use super::given_up::given_up;
use super::operations::{GIVEN_UP, NOT_CLEARED, batch_input, span_of, vault_of};
use super::settler::SettlerState;
use super::simulate::Deferred;
use super::{ChainContext, metrics};

/// Interval of checks of an invalid row.
const UNREADABLE_WAIT: Duration = Duration::from_mins(5);

impl SettlerState {
    /// Sends a batch of due operations of each role, up to the limit of unmined transactions; returns true if more are due. An
    /// error of one role (such as an unavailable signer) does not block the other.
    pub(super) async fn submit(&mut self, errors: &mut Errors) -> Result<bool, Killed> {
        let mut is_more = false;
        for role in Role::ALL {
            let may_send = self.refused.get(&role).is_none_or(Pass::is_due) && !self.args.handle.is_paused(role);
            let sent = if may_send { self.submit_batch(role).await } else { Ok(None) };
            let waited = sent.or_else(|error| errors.add(error).map(|()| None))?;
            self.args.handle.set_queue_delay(role, waited.unwrap_or_default());
            is_more |= waited.is_some();
        }
        Ok(is_more)
    }

    /// Sends one batch. If it is full, so that more may be due, returns how long its newest operation has waited, without the
    /// batch window.
    async fn submit_batch(&mut self, role: Role) -> Result<Option<Duration>, SettleError> {
        let now = Instant::now();
        // First in, first out for each token with a limit that is reached.
        let limited = if role == Role::Send { self.limited_tokens(now) } else { Vec::new() };
        let ChainContext { spec, database, clock, .. } = &self.args.context;
        let signer = self.args.signer(role);
        if queue::unmined(database, spec.chain, signer.address()).await? >= spec.in_flight_max as u64 {
            return Ok(None);
        }
        let limit = spec.batch_items_max + self.deferred.len() + self.authorizations.len();
        let mut rows = queue::queued(database, spec.chain, role, &limited, clock.real_now(), limit).await?;
        rows.retain(|row| self.deferred.get(&row.id).is_none_or(|deferred| deferred.until <= now));
        let mut rows = self.due_authorizations(rows, now);
        let signatures =
            if role == Role::Collect { queue::signatures(database, &rows).await? } else { Signatures::new() };
        rows.retain(|row| match batch_input(role, std::slice::from_ref(row), &signatures, spec.item_gas) {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(chain = %spec.chain, %error, "an invalid operation is left out of the batch");
                let why = format!("an operation cannot be sent: {error}");
                let until = now + UNREADABLE_WAIT;
                let deferred = Deferred { simulations: 0, until, why, limited_token: None };
                self.deferred.insert(row.id.clone(), deferred);
                false
            }
        });
        rows.truncate(spec.batch_items_max);
        let newest = rows.last().filter(|_| rows.len() == spec.batch_items_max);
        let waited = newest.map(|row| {
            let due_at = Timestamp(row.created_at.max(row.not_before));
            let waited_ms = clock.real_now::<Timestamp>().millis_since(due_at);
            Duration::from_millis(u64::try_from(waited_ms).unwrap_or_default()).saturating_sub(spec.batch_window)
        });
        let unwanted = given_up(&self.args.database, &rows).await?;
        let rows = self.without(rows, &unwanted, GIVEN_UP).await?;
        let uncleared = recipients::uncleared(&self.args.database, &rows).await?;
        let rows = self.without(rows, &uncleared, NOT_CLEARED).await?;
        let rows = match role {
            Role::Collect => self.without_refused(rows, &signatures).await?,
            Role::Settle | Role::Send => self.without_failing(role, rows).await?,
        };
        let is_sent = !rows.is_empty() && self.send_batch(role, &rows, &signatures).await?;
        Ok(waited.filter(|_| is_sent))
    }

    /// Fails these operations with this reason, except those queued again since they were read.
    pub(super) async fn without(
        &mut self,
        rows: Vec<operations::Model>,
        unfit: &HashSet<String>,
        why: &str,
    ) -> Result<Vec<operations::Model>, SettleError> {
        let (refused, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| unfit.contains(&row.id));
        if !refused.is_empty() {
            let refusal = |row: &operations::Model| RefusedOperation {
                id: row.id.clone(),
                revision: row.revision,
                failure: why.to_owned(),
            };
            let (at, operations) =
                (self.args.clock.real_now::<Timestamp>().as_millis(), refused.iter().map(refusal).collect());
            let refusal = JournalWrite::Refusal(self.args.lease.clone(), Box::new(OperationRefusal { at, operations }));
            let refused = self.args.journal.submit(refusal).await?.operations;
            self.reached(Step::Recorded)?;
            for row in refused {
                self.notify_failed(&row);
            }
            self.reached(Step::Notified)?;
        }
        Ok(rows)
    }

    pub(super) fn vault_balance_call(&self, row: &operations::Model) -> Result<(Address, Vec<u8>), SettleError> {
        let token: Address = row.token_address.parse().map_err(|_| SettleError::Row("a token address is malformed"))?;
        let account = vault_of(row, self.args.spec.contract)?;
        Ok((token, TokenContract::balanceOfCall { account }.abi_encode()))
    }

    /// Returns false if the contract would refuse the batch, or if outbound transfers wait for a reconciliation.
    async fn send_batch(
        &mut self,
        role: Role,
        rows: &[operations::Model],
        signatures: &Signatures,
    ) -> Result<bool, SettleError> {
        let begun_at = SystemTime::now();
        let signer = self.args.signer(role).clone();
        let input = Bytes::from(batch_input(role, rows, signatures, self.args.spec.item_gas)?);
        let ChainContext { spec, client, .. } = &self.args.context;
        let l1 = async { Ok(client.l1_charge(spec.l1_data, spec.contract, &input).await?) };
        let fee_market = async { Ok(client.fee_market().await?) };
        let ((ours, theirs), l1, fee_market) = tokio::try_join!(self.next_nonces(signer.address()), l1, fee_market)?;
        // Before a settlement by the same account stores a nonce after the unknown ones, and hides them.
        let is_sender = signer.address() == self.args.send_signer.address();
        if is_sender && self.is_unreconciled((ours, theirs)).await? && role == Role::Send {
            return Ok(false);
        }
        let gas = match role {
            Role::Collect => collect_gas(rows, spec.item_gas),
            Role::Settle | Role::Send => batch_gas_limit(rows.len(), spec.item_gas),
        };
        let gas_limit = gas + l1.gas;
        if !self.is_accepted(role, signer.address(), &input, gas_limit).await? {
            return Ok(false);
        }
        let spec = &self.args.spec;
        let fees = Fees::first(fee_market, l1.wei_per_gas(gas), spec.fees)?;
        let nonce = ours.max(theirs);
        self.reached(Step::Batched)?;

        let chain_tx = self.unsigned(signer.address(), nonce, spec.contract, &input, gas_limit)?;
        let signed = |row: &operations::Model| SignedOperation { id: row.id.clone(), revision: row.revision };
        let (id, attempt) = self.store(&signer, chain_tx, fees, rows.iter().map(signed).collect()).await?;
        tracing::info!(chain = %self.args.spec.chain, tx.nonce = nonce, operations = rows.len(),
            "sending a batch on {}", self.args.spec.chain);
        self.args.handle.note_progress(rows.iter().map(|row| (row, OperationStatus::Submitted)));
        self.report.batches += 1;
        self.report.operations += rows.len() as u64;
        self.send_stored(id, &attempt).await?;
        for row in rows {
            let mut span = span_of("settler.submit", row, begun_at);
            span.set("tx.hash", || attempt.tx_hash.clone());
            span.set("batch.operations", || i64::try_from(rows.len()).unwrap_or(i64::MAX));
        }
        Ok(true)
    }

    /// Unsigned transaction of this account.
    pub(super) fn unsigned(
        &self,
        sender: Address,
        nonce: i64,
        to: Address,
        input: &Bytes,
        gas_limit: u64,
    ) -> Result<chain_txs::Model, SettleError> {
        let now = self.args.clock.real_now::<Timestamp>().as_millis();
        Ok(chain_txs::Model {
            id: 0,
            chain: self.args.spec.chain.as_str().to_owned(),
            sender: sender.to_string(),
            nonce,
            to_address: to.to_string(),
            input: input.to_string(),
            gas_limit: i64::try_from(gas_limit).map_err(|_| SettleError::Row("a gas limit is out of range"))?,
            status: ChainTxStatus::Submitted,
            tx_hash: None,
            block_number: None,
            block_hash: None,
            created_at: now,
            updated_at: now,
        })
    }

    /// Signs a transaction and stores it with its operations before it is sent; returns its row id and its signed form.
    pub(super) async fn store(
        &self,
        signer: &OperatorSigner,
        chain_tx: chain_txs::Model,
        fees: Fees,
        operations: Vec<SignedOperation>,
    ) -> Result<(Option<i64>, Attempt), SettleError> {
        let attempt = self.sign(signer, &chain_tx, fees).await?;
        self.reached(Step::Signed)?;
        let submission = ChainTxSubmission { chain_tx, attempt: attempt.clone(), operations };
        let receipt =
            self.args.journal.submit(JournalWrite::Submission(self.args.lease.clone(), Box::new(submission))).await?;
        self.reached(Step::Stored)?;
        self.args.handle.count_submitted();
        metrics::SUBMITTED.add(&metrics::of(self.args.spec.chain), 1);
        Ok((receipt.chain_tx_id, attempt))
    }

    /// Sends a transaction that was just stored.
    pub(super) async fn send_stored(&mut self, tx_id: Option<i64>, attempt: &Attempt) -> Result<(), SettleError> {
        match tx_id {
            Some(id) => self.send(id, attempt).await,
            None => drop(self.broadcast(attempt).await),
        }
        self.reached(Step::Broadcast)
    }

    /// Signs `tx` with these fees.
    async fn sign(&self, signer: &OperatorSigner, tx: &chain_txs::Model, fees: Fees) -> Result<Attempt, SettleError> {
        let malformed = |_| SettleError::Row("a stored transaction is malformed");
        let (to, input) = called(tx)?;
        let signed = signer
            .sign(TxEip1559 {
                chain_id: self.args.spec.chain_id,
                nonce: u64::try_from(tx.nonce).map_err(malformed)?,
                gas_limit: u64::try_from(tx.gas_limit).map_err(malformed)?,
                max_fee_per_gas: fees.max_fee_wei,
                max_priority_fee_per_gas: fees.priority_fee_wei,
                to: TxKind::Call(alloy_address(to)),
                value: U256::ZERO,
                access_list: alloy::eips::eip2930::AccessList::default(),
                input,
            })
            .await?;
        Ok(Attempt {
            tx_hash: signed.hash.to_string(),
            chain: tx.chain.clone(),
            sender: tx.sender.clone(),
            nonce: tx.nonce,
            raw: signed.raw.to_string(),
            max_fee_per_gas: fees.max_fee_wei.to_string(),
            max_priority_fee_per_gas: fees.priority_fee_wei.to_string(),
            created_at: self.args.clock.real_now::<Timestamp>().as_millis(),
        })
    }

    /// Sends the signed bytes of an unmined transaction, and keeps the reason if they were rejected.
    pub(super) async fn send(&mut self, tx_id: i64, attempt: &Attempt) {
        self.unmined.entry(tx_id).or_default().sent = Some(Instant::now());
        let refused = self.broadcast(attempt).await;
        self.unmined.entry(tx_id).or_default().refused = refused;
    }

    /// Sends signed bytes; returns the reason if they were rejected. They are stored, so an error costs only time: the
    /// bytes are sent again.
    pub(super) async fn broadcast(&self, attempt: &Attempt) -> Option<BlockingError> {
        match self.args.client.broadcast(&attempt.raw).await {
            // The nonce is used: one of the stored hashes is mined, or another transaction took the nonce. `resolve`
            // checks.
            Ok(()) | Err(ClientError::NonceTooLow) => None,
            Err(error) => {
                tracing::warn!(chain = %self.args.spec.chain, %error, "a transaction was rejected; retrying");
                let why = format!("a transaction of {} was rejected: {error}", attempt.sender);
                Some(BlockingError { severity: severity_of_call(&error), why })
            }
        }
    }

    /// Signs an unmined transaction again with higher fees, stores it, and sends it.
    pub(super) async fn raise(
        &mut self,
        signer: &OperatorSigner,
        tx: &chain_txs::Model,
        last: &Attempt,
    ) -> Result<(), SettleError> {
        let ChainContext { spec, client, journal, .. } = &self.args.context;
        let fee = |text: &str| text.parse::<u128>().map_err(|_| SettleError::Row("a stored fee is malformed"));
        let before =
            Fees { max_fee_wei: fee(&last.max_fee_per_gas)?, priority_fee_wei: fee(&last.max_priority_fee_per_gas)? };
        let (to, input) = called(tx)?;
        let l1 = client.l1_charge(spec.l1_data, to, &input).await?;
        let l1_wei = l1.wei_per_gas(tx.gas_limit.unsigned_abs().saturating_sub(l1.gas));
        let fees = before.raised(client.fee_market().await?, l1_wei, spec.fees)?;
        let attempt = self.sign(signer, tx, fees).await?;
        self.reached(Step::Signed)?;
        journal.submit(JournalWrite::Attempt(self.args.lease.clone(), Box::new(attempt.clone()))).await?;
        self.reached(Step::Stored)?;
        tracing::warn!(chain = %spec.chain, tx.nonce = tx.nonce, fee.max_wei = fees.max_fee_wei,
            "an unmined transaction on {} is sent again with higher fees", spec.chain);
        self.report.raised += 1;
        metrics::REPLACED.add(&metrics::of(spec.chain), 1);
        self.send(tx.id, &attempt).await;
        self.reached(Step::Broadcast)
    }
}

/// Recipient and call data of a stored transaction.
fn called(tx: &chain_txs::Model) -> Result<(Address, Bytes), SettleError> {
    match (tx.to_address.parse(), tx.input.parse()) {
        (Ok(to), Ok(input)) => Ok((to, input)),
        _ => Err(SettleError::Row("a stored transaction is malformed")),
    }
}
