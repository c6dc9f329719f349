//! Nonces that an account does not get past: used by somebody else, or by nobody.
//!
//! A chain takes an account's transactions in the order of their nonces, so that all others wait for the one in question,
//! whatever they offer. Deliberately absent: fees (`submit`), and what is only slow to be mined (`resolve`).

use std::time::Duration;

use alloy::primitives::Bytes;
use payferry_domain::Address;
use payferry_entities::chain_txs;
use payferry_evm::fees::Fees;
use payferry_evm::wallet::OperatorSigner;
use payferry_journal::chain::queue;
use tokio::time::Instant;

use super::checkpoint::Step;
use super::errors::SettleError;
use super::settler::{SettlerArgs, SettlerState};

/// How long a nonce must have been used by something that is none of our hashes before the transaction is given up.
const USURPED_FOR: Duration = Duration::from_secs(5);
/// Nonces before ours that are looked through for one that is missing; the next look goes on from what the chain says then.
const GAP_NONCES_MAX: i64 = 512;
/// What a transaction without value and call data takes.
const FILLER_GAS: u64 = 21_000;

impl SettlerState {
    /// The nonce that the chain wants next of the transaction's account, by an endpoint's newest block.
    pub(super) async fn next_nonce_of(&self, tx: &chain_txs::Model) -> Result<i64, SettleError> {
        let next = self.args.client.nonce(sender_of(tx)?, "latest").await?;
        i64::try_from(next).map_err(|_| SettleError::Row("a nonce is out of range"))
    }

    /// Whether the account's nonce was used, finally, by a transaction that is none of ours. `next` is what the chain wants
    /// next by its newest block.
    pub(super) async fn was_usurped(&mut self, tx: &chain_txs::Model, next: i64) -> Result<bool, SettleError> {
        let SettlerArgs { spec, client, .. } = &self.args;
        if next <= tx.nonce {
            self.usurped.remove(&tx.id);
            return Ok(false);
        }
        let since = *self.usurped.entry(tx.id).or_insert_with(Instant::now);
        let tag = match self.args.watchlist.reach(spec.chain) {
            _ if spec.has_finalized => "finalized".to_owned(),
            Some(reach) => format!("{:#x}", reach.read.saturating_sub(spec.fallback_depth_blocks)),
            None => return Ok(false),
        };
        let used = |nonce: u64| i64::try_from(nonce).is_ok_and(|nonce| nonce > tx.nonce);
        Ok(since.elapsed() >= USURPED_FOR && used(client.nonce(sender_of(tx)?, &tag).await?))
    }

    /// The nonce is gone for good: what the transaction carried is queued again.
    pub(super) async fn give_up(&mut self, tx: &chain_txs::Model) -> Result<(), SettleError> {
        tracing::error!(chain = %self.args.spec.chain, tx.nonce = tx.nonce,
            "a nonce of ours was used by somebody else; its operations are queued again");
        let rows = queue::carried(&self.args.database, &[tx.id]).await?;
        let requeued = rows.iter().filter(|row| row.status == "submitted").map(|row| self.requeued(row, "nonce lost"));
        let operations = requeued.collect();
        self.record(tx, "cancelled", None, operations).await?;
        self.reached(Step::Recorded)
    }

    /// The chain wants a lower nonce than the lowest of ours that waits, `first`. If it is one that nobody has used (an endpoint
    /// once said too much, or a block was taken back with somebody's transaction), nothing of the account is mined any more:
    /// that is said, and once the chain has made blocks without it, the nonce is used up by a transaction to ourselves.
    pub(super) async fn mend_gap(
        &mut self,
        signer: &OperatorSigner,
        first: &chain_txs::Model,
        next: i64,
        is_passed_over: bool,
    ) -> Result<(), SettleError> {
        let SettlerArgs { spec, client, database, .. } = &self.args;
        let end = first.nonce.min(next.saturating_add(GAP_NONCES_MAX));
        let ours = queue::txs_by_nonce(database, spec.chain, &first.sender, next, end).await?;
        let is_missing = |nonce: &i64| ours.get(nonce).is_none_or(|tx| tx.status == "cancelled");
        // All of them are ours and mined: the endpoint is behind, or `resolve` is about to see that a block was taken back.
        let Some(nonce) = (next..end).find(is_missing) else { return Ok(()) };
        let missing = |why: &str| {
            let waits = format!("the transaction of {} with nonce {} waits for it", first.sender, first.nonce);
            SettleError::Item { what: format!("nonce {nonce} is missing"), why: format!("{waits}; {why}") }
        };
        if !is_passed_over {
            return Err(missing("it will be used up when the chain makes blocks without it"));
        }
        let anywhere = client.nonce_anywhere(signer.address()).await?;
        if i64::try_from(anywhere).is_ok_and(|anywhere| anywhere > nonce) {
            return Err(missing("an endpoint says that it is used, and another one that it is not"));
        }
        if ours.contains_key(&nonce) {
            // What was signed with it may not be wanted any more, and is not to go out again.
            return Err(missing("it was used by somebody whose transaction the chain has taken back: use it up"));
        }
        tracing::error!(chain = %spec.chain, tx.nonce = nonce,
            "a nonce of ours was left out; it is used up, so that what waits behind it goes on");
        match self.fill(signer, nonce).await {
            Err(SettleError::Fees(error)) => Err(missing(&error.to_string())),
            outcome => outcome,
        }
    }

    /// Uses up a nonce: a transaction to ourselves that moves nothing and carries no operation, stored before it is sent as any
    /// other. If somebody else is faster, it is given up like any other.
    async fn fill(&mut self, signer: &OperatorSigner, nonce: i64) -> Result<(), SettleError> {
        let SettlerArgs { spec, client, .. } = &self.args;
        let fees = Fees::first(client.fee_market().await?, spec.fees)?;
        let (account, input) = (signer.address(), Bytes::new());
        let gas_limit = FILLER_GAS + self.l1_gas(&input).await?;
        let chain_tx = self.unsigned(account, nonce, account, &input, gas_limit)?;
        let (id, raw) = self.store(signer, chain_tx, fees, Vec::new()).await?;
        self.send_stored(id, &raw).await
    }
}

fn sender_of(tx: &chain_txs::Model) -> Result<Address, SettleError> {
    tx.sender.parse().map_err(|_| SettleError::Row("a sender is malformed"))
}
