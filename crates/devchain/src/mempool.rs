//! Accepted transactions that are not mined yet, by sender and nonce, with replacement.
//!
//! Not here: a minimum fee for acceptance (a transaction that offers less than the base fee waits), and expiry.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;

use alloy::consensus::Transaction as _;
use alloy::primitives::map::{AddressMap, B256Map};
use alloy::primitives::{Address, B256, U256};
use revm::primitives::eip3860::MAX_INITCODE_SIZE;
use revm::state::AccountInfo;

use crate::error::RpcError;
use crate::tx::Tx;

/// Maximum number of transactions. Beyond it, sends fail with `txpool is full`.
const TXS_MAX: usize = 100_000;

/// Maximum number of transactions that a client learns at once that follows the arrivals.
const NEWEST_MAX: usize = 10_000;

/// Minimum increase of both fees for a replacement, in percent.
const REPLACEMENT_BUMP_PERCENT: u128 = 10;

#[derive(Debug)]
pub(crate) struct Mempool {
    chain_id: u64,
    block_gas_limit: u64,
    senders: AddressMap<Queue>,
    hashes: B256Map<Arc<Tx>>,
    arrivals: u64,
    /// The transactions that arrived last, mined or not, the oldest first.
    newest: VecDeque<Arc<Tx>>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    txs: BTreeMap<u64, Pooled>,
    cost: U256,
}

#[derive(Clone, Debug)]
struct Pooled {
    tx: Arc<Tx>,
    arrival: u64,
}

impl Mempool {
    pub(crate) fn new(chain_id: u64, block_gas_limit: u64) -> Self {
        Self {
            chain_id,
            block_gas_limit,
            senders: AddressMap::default(),
            hashes: B256Map::default(),
            arrivals: 0,
            newest: VecDeque::new(),
        }
    }

    /// Returns a copy for a snapshot.
    pub(crate) fn copy(&self) -> Self {
        let (senders, hashes) = (self.senders.clone(), self.hashes.clone());
        Self { senders, hashes, ..Self::new(self.chain_id, self.block_gas_limit) }
    }

    /// Replaces the transactions by those of a copy.
    pub(crate) fn restore(&mut self, copy: Self) {
        self.senders = copy.senders;
        self.hashes = copy.hashes;
    }

    pub(crate) fn txs(&self) -> impl Iterator<Item = &Arc<Tx>> {
        self.hashes.values()
    }

    /// Number of transactions that have ever arrived.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Returns the transactions that arrived after the first `arrivals`, at most the newest [`NEWEST_MAX`].
    pub(crate) fn arrived_after(&self, arrivals: u64) -> impl Iterator<Item = &Arc<Tx>> {
        let count = usize::try_from(self.arrivals.saturating_sub(arrivals)).unwrap_or(usize::MAX);
        self.newest.iter().skip(self.newest.len().saturating_sub(count))
    }

    /// Adds a transaction, with the rules and error messages of geth.
    pub(crate) fn add(&mut self, tx: &Arc<Tx>, account: &AccountInfo) -> Result<(), RpcError> {
        if self.hashes.contains_key(&tx.hash) {
            return Err(RpcError::server("already known"));
        }
        self.check(tx, account)?;
        let queue = self.senders.get(&tx.sender);
        let replaced = queue.and_then(|queue| queue.txs.get(&tx.nonce()));
        if let Some(old) = replaced {
            // At least one more wei each, because a percentage of zero is zero.
            let bump = |fee: u128| fee.saturating_mul(REPLACEMENT_BUMP_PERCENT).div_ceil(100).max(1);
            let raised = |new: u128, old: u128| new >= old.saturating_add(bump(old));
            if !raised(tx.max_fee(), old.tx.max_fee()) || !raised(tx.max_tip(), old.tx.max_tip()) {
                return Err(RpcError::server("replacement transaction underpriced"));
            }
        } else if self.hashes.len() >= TXS_MAX {
            return Err(RpcError::server("txpool is full"));
        }
        let queued = queue.map_or(U256::ZERO, |queue| queue.cost);
        let others = queued.saturating_sub(replaced.map_or(U256::ZERO, |old| old.tx.cost()));
        let cost = others.saturating_add(tx.cost());
        if cost > account.balance {
            return Err(RpcError::server(format!(
                "insufficient funds for gas * price + value: balance {}, tx cost {}, overshot {}",
                account.balance,
                tx.cost(),
                cost - account.balance
            )));
        }
        self.put(tx);
        Ok(())
    }

    fn check(&self, tx: &Tx, account: &AccountInfo) -> Result<(), RpcError> {
        let envelope = &tx.envelope;
        if let Some(id) = envelope.chain_id()
            && id != self.chain_id
        {
            let message = format!("invalid chain id for signer: have {id} want {}", self.chain_id);
            return Err(RpcError::server(message));
        }
        if tx.gas_limit() > self.block_gas_limit {
            return Err(RpcError::server("exceeds block gas limit"));
        }
        let size = envelope.input().len();
        if envelope.is_create() && size > MAX_INITCODE_SIZE {
            let message = format!("max initcode size exceeded: code size {size}, limit {MAX_INITCODE_SIZE}");
            return Err(RpcError::server(message));
        }
        if tx.max_tip() > tx.max_fee() {
            return Err(RpcError::server(format!(
                "max priority fee per gas higher than max fee per gas: address {}, maxPriorityFeePerGas: {}, maxFeePerGas: {}",
                tx.sender,
                tx.max_tip(),
                tx.max_fee()
            )));
        }
        if tx.nonce() < account.nonce {
            let message = format!("nonce too low: next nonce {}, tx nonce {}", account.nonce, tx.nonce());
            return Err(RpcError::server(message));
        }
        let needed = crate::execute::intrinsic_gas(tx);
        if tx.gas_limit() < needed {
            let message = format!("intrinsic gas too low: gas {}, minimum needed {needed}", tx.gas_limit());
            return Err(RpcError::server(message));
        }
        Ok(())
    }

    /// Adds a transaction without checks, because it was accepted before.
    pub(crate) fn put(&mut self, tx: &Arc<Tx>) {
        self.arrivals += 1;
        let pooled = Pooled { tx: Arc::clone(tx), arrival: self.arrivals };
        let queue = self.senders.entry(tx.sender).or_default();
        queue.cost = queue.cost.saturating_add(tx.cost());
        if let Some(old) = queue.txs.insert(tx.nonce(), pooled) {
            queue.cost = queue.cost.saturating_sub(old.tx.cost());
            self.hashes.remove(&old.tx.hash);
        }
        self.hashes.insert(tx.hash, Arc::clone(tx));
        if self.newest.len() == NEWEST_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(Arc::clone(tx));
    }

    pub(crate) fn get(&self, hash: &B256) -> Option<&Arc<Tx>> {
        self.hashes.get(hash)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    pub(crate) fn remove(&mut self, hash: &B256) -> Option<Arc<Tx>> {
        let tx = self.hashes.remove(hash)?;
        if let Some(queue) = self.senders.get_mut(&tx.sender) {
            queue.txs.remove(&tx.nonce());
            queue.cost = queue.cost.saturating_sub(tx.cost());
            if queue.txs.is_empty() {
                self.senders.remove(&tx.sender);
            }
        }
        Some(tx)
    }

    /// Removes transactions whose nonce has passed, because they can never be mined.
    pub(crate) fn prune(&mut self, sender: &Address, nonce: u64) {
        let Some(queue) = self.senders.get_mut(sender) else { return };
        let live = queue.txs.split_off(&nonce);
        for stale in std::mem::replace(&mut queue.txs, live).into_values() {
            queue.cost = queue.cost.saturating_sub(stale.tx.cost());
            self.hashes.remove(&stale.tx.hash);
        }
        if queue.txs.is_empty() {
            self.senders.remove(sender);
        }
    }

    /// Returns the nonce after the sender's pending transactions without gaps.
    pub(crate) fn next_nonce(&self, sender: &Address, account_nonce: u64) -> u64 {
        let Some(queue) = self.senders.get(sender) else { return account_nonce };
        let run = queue.txs.range(account_nonce..).zip(account_nonce..);
        account_nonce + run.take_while(|((nonce, _), expected)| *nonce == expected).count() as u64
    }

    /// Returns the number of transactions that can be mined now, and of those that wait for an earlier nonce.
    pub(crate) fn counts(&self, nonce_of: impl Fn(&Address) -> u64) -> (u64, u64) {
        let ready = |sender: &Address| {
            let nonce = nonce_of(sender);
            self.next_nonce(sender, nonce) - nonce
        };
        let pending = self.senders.keys().map(ready).sum::<u64>();
        (pending, self.hashes.len() as u64 - pending)
    }

    /// Returns the candidates for the next block: the transactions of each sender without gaps that cover the base fee.
    pub(crate) fn candidates(&self, base_fee: u64, nonce_of: impl Fn(&Address) -> u64) -> Candidates {
        let mut candidates = Candidates { base_fee, runs: Vec::new(), ready: BinaryHeap::new() };
        for (sender, queue) in &self.senders {
            let nonce = nonce_of(sender);
            let run = queue.txs.range(nonce..).zip(nonce..);
            let run: Vec<Pooled> = run
                .take_while(|((nonce, pooled), expected)| *nonce == expected && pooled.tx.tip(base_fee).is_some())
                .map(|((_, pooled), _)| pooled.clone())
                .collect();
            candidates.runs.push(run.into_iter().peekable());
            candidates.advance(candidates.runs.len() - 1);
        }
        candidates
    }
}

/// Transactions in block order: the highest tip first, then the oldest; those of one sender by nonce.
pub(crate) struct Candidates {
    base_fee: u64,
    runs: Vec<Peekable<std::vec::IntoIter<Pooled>>>,
    /// Tip and arrival of the next transaction of a run.
    ready: BinaryHeap<(u128, Reverse<u64>, usize)>,
}

impl Candidates {
    /// Returns the best transaction. `advance` with its run makes the next transaction of the sender available; without
    /// it, the rest of the run is skipped.
    pub(crate) fn next(&mut self) -> Option<(Arc<Tx>, usize)> {
        let (_, _, run) = self.ready.pop()?;
        Some((self.runs[run].next()?.tx, run))
    }

    pub(crate) fn advance(&mut self, run: usize) {
        if let Some(pooled) = self.runs[run].peek() {
            let tip = pooled.tx.tip(self.base_fee).unwrap_or_default();
            self.ready.push((tip, Reverse(pooled.arrival), run));
        }
    }
}
