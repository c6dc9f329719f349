//! Nonce conflicts, gaps, and nonces that the database does not know.
//!
//! A chain executes an account's transactions in nonce order, so a missing or conflicting nonce blocks all later ones,
//! whatever their fees. Deliberately absent: fees (`submit`), and transactions that are merely slow (`resolve`).

use std::time::Duration;

use alloy::primitives::Bytes;
use payferry_domain::Address;
use payferry_entities::{ChainTxStatus, OperationStatus, chain_txs};
use payferry_evm::fees::Fees;
use payferry_evm::wallet::OperatorSigner;
use payferry_journal::audit::Actor;
use payferry_journal::chain::queue;
use tokio::time::Instant;

use super::ChainContext;
use super::checkpoint::Step;
use super::errors::SettleError;
use super::settler::SettlerState;
use crate::pauses::{self, Scope};

/// Time for which a nonce must have been used without any of our hashes before the transaction is given up.
const NONCE_TAKEN_FOR: Duration = Duration::from_secs(5);
/// Maximum number of nonces before ours that are searched for a gap; the next pass continues from the chain's nonce
/// then.
const GAP_NONCES_MAX: i64 = 512;
/// Gas of a transaction without value and call data.
const FILLER_GAS: u64 = 21_000;

impl SettlerState {
    /// Next nonce of the transaction's account, by an endpoint's newest block.
    pub(super) async fn next_nonce_of(&self, tx: &chain_txs::Model) -> Result<i64, SettleError> {
        let next = self.args.client.nonce(sender_of(tx)?, "latest").await?;
        i64::try_from(next).map_err(|_| SettleError::Row("a nonce is out of range"))
    }

    /// True if the account's nonce was used, finally, by a transaction that is not ours. `next` is the chain's next
    /// nonce by its newest block.
    pub(super) async fn nonce_was_taken(&mut self, tx: &chain_txs::Model, next: i64) -> Result<bool, SettleError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        if next <= tx.nonce {
            self.unmined.entry(tx.id).or_default().nonce_taken = None;
            return Ok(false);
        }
        let since = *self.unmined.entry(tx.id).or_default().nonce_taken.get_or_insert_with(Instant::now);
        let tag = match self.args.watchlist.reach(spec.chain) {
            _ if spec.has_finalized => "finalized".to_owned(),
            Some(reach) => format!("{:#x}", reach.read.saturating_sub(spec.fallback_depth_blocks)),
            None => return Ok(false),
        };
        let used = |nonce: u64| i64::try_from(nonce).is_ok_and(|nonce| nonce > tx.nonce);
        Ok(since.elapsed() >= NONCE_TAKEN_FOR && used(client.nonce(sender_of(tx)?, &tag).await?))
    }

    /// Next nonce of the account: by the database, and by an endpoint's newest block. If the endpoint's is too high,
    /// a nonce is left out, and filled later when the transaction is not mined.
    pub(super) async fn next_nonces(&self, account: Address) -> Result<(i64, i64), SettleError> {
        let ChainContext { spec, client, database, .. } = &self.args.context;
        // In this order, so that each of our transactions that the chain counts is stored.
        let theirs = client.nonce(account, "latest").await?;
        let ours = queue::next_nonce(database, spec.chain, account).await?.unwrap_or(0);
        Ok((ours, i64::try_from(theirs).map_err(|_| SettleError::Row("a nonce is out of range"))?))
    }

    /// True if outbound transfers of the chain wait until a reconciliation has posted those that the database does not
    /// know. If they were sent again, they would be paid twice.
    pub(super) async fn is_unreconciled(&self, (ours, theirs): (i64, i64)) -> Result<bool, SettleError> {
        if theirs > ours {
            self.hold_outbound(&format!("its next nonce is {theirs} on the chain and {ours} in the database")).await?;
            return Ok(true);
        }
        Ok(pauses::is_set(&self.args.database, self.unreconciled()).await?)
    }

    /// Pauses outbound transfers of the chain until a reconciliation.
    async fn hold_outbound(&self, why: &str) -> Result<(), SettleError> {
        let ChainContext { database, clock, .. } = &self.args.context;
        let scope = self.unreconciled();
        if pauses::is_set(database, scope).await? {
            return Ok(());
        }
        let account = self.args.send_signer.address();
        let reason =
            format!("the sender {account} has transactions that the database does not know: {why}; run reconcile");
        tracing::error!(%scope, "outbound transfers are paused: {reason}");
        let transaction = database.begin().await?;
        pauses::set(&transaction, scope, &reason, &Actor::Service, clock.real_now()).await?;
        transaction.commit().await?;
        Ok(())
    }

    fn unreconciled(&self) -> Scope {
        Scope::Unreconciled(self.args.spec.chain, self.args.send_signer.address())
    }

    /// Gives up a transaction with a taken nonce: its operations are queued again.
    pub(super) async fn give_up(&mut self, tx: &chain_txs::Model) -> Result<(), SettleError> {
        if sender_of(tx)? == self.args.send_signer.address() {
            self.hold_outbound(&format!("nonce {} was used by another transaction", tx.nonce)).await?;
        }
        tracing::error!(chain = %self.args.spec.chain, tx.nonce = tx.nonce,
            "a nonce was taken by another transaction; its operations are queued again");
        let rows = queue::carried(&self.args.database, &[tx.id]).await?;
        let requeued = rows
            .iter()
            .filter(|row| row.status == OperationStatus::Submitted)
            .map(|row| self.requeued(row, "nonce lost"));
        let operations = requeued.collect();
        self.record(tx, ChainTxStatus::Cancelled, None, operations).await?;
        self.reached(Step::Recorded)
    }

    /// Handles a chain nonce below `first`, our lowest waiting nonce. If an unused nonce lies in between (an endpoint
    /// once reported too high a nonce, or a foreign transaction was orphaned), no transaction of the account can be
    /// mined. The gap is reported, and once the chain has made blocks without the nonce, a transaction to ourselves
    /// fills it.
    pub(super) async fn fill_gap(
        &mut self,
        signer: &OperatorSigner,
        first: &chain_txs::Model,
        next: i64,
        is_passed_over: bool,
    ) -> Result<(), SettleError> {
        let ChainContext { spec, client, database, .. } = &self.args.context;
        let end = first.nonce.min(next.saturating_add(GAP_NONCES_MAX));
        let ours = queue::txs_by_nonce(database, spec.chain, &first.sender, next, end).await?;
        let is_missing = |nonce: &i64| ours.get(nonce).is_none_or(|tx| tx.status == ChainTxStatus::Cancelled);
        // All of them are ours and mined: the endpoint lags, or `resolve` is about to see that a block was orphaned.
        let Some(nonce) = (next..end).find(is_missing) else { return Ok(()) };
        let missing = |why: &str| {
            let waits = format!("the transaction of {} with nonce {} waits for it", first.sender, first.nonce);
            SettleError::Item { what: format!("nonce {nonce} is missing"), why: format!("{waits}; {why}") }
        };
        if !is_passed_over {
            return Err(missing("it will be filled when the chain makes blocks without it"));
        }
        let anywhere = client.nonce_anywhere(signer.address()).await?;
        if i64::try_from(anywhere).is_ok_and(|anywhere| anywhere > nonce) {
            return Err(missing("the endpoints disagree if it is used"));
        }
        if ours.contains_key(&nonce) {
            // Operations signed with it may not be wanted any more and must not be sent again.
            return Err(missing(
                "it was used by a foreign transaction that was orphaned: send any transaction with this nonce",
            ));
        }
        tracing::error!(chain = %spec.chain, tx.nonce = nonce,
            "a nonce is missing; a transaction to ourselves fills it, so that later transactions can be mined");
        match self.fill(signer, nonce).await {
            Err(SettleError::Fees(error)) => Err(missing(&error.to_string())),
            outcome => outcome,
        }
    }

    /// Fills a nonce with a transaction to ourselves that moves nothing and has no operations, stored before it is sent
    /// like any other. If another transaction takes the nonce first, it is given up like any other.
    async fn fill(&mut self, signer: &OperatorSigner, nonce: i64) -> Result<(), SettleError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        let (account, input) = (signer.address(), Bytes::new());
        let l1 = client.l1_charge(spec.l1_data, account, &input).await?;
        let fees = Fees::first(client.fee_market().await?, l1.wei_per_gas(FILLER_GAS), spec.fees)?;
        let gas_limit = FILLER_GAS + l1.gas;
        let chain_tx = self.unsigned(account, nonce, account, &input, gas_limit)?;
        let (id, attempt) = self.store(signer, chain_tx, fees, Vec::new()).await?;
        self.send_stored(id, &attempt).await
    }
}

fn sender_of(tx: &chain_txs::Model) -> Result<Address, SettleError> {
    tx.sender.parse().map_err(|_| SettleError::Row("a sender is malformed"))
}
