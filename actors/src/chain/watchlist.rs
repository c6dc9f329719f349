//! State that watchers share with the process: watched wallets, waits for finality, and a view of each chain.
//!
//! It outlives the actors. Transfers are in the database, and a payment that starts registers its wait for finality
//! again. Wallets are in the database too, but not all of them are indexed there. Once the list is complete, it
//! contains the wallet of every live payment: from before the payment can be committed as live until long after it is
//! committed as ended. A wallet belongs to one payment forever, so an entry that stays too long is never wrong.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::{Bloom, keccak256};
use dashmap::DashMap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use payferry_domain::{Address, Amount, Asset, Chain, FinalityProgress, Hash32, PaymentId, Timestamp};
use payferry_evm::eip3009::Eip3009Domain;
use tokio::sync::{Notify, watch};

use super::deposits::PspVaults;
use super::finality_waits::{FinalityWait, FinalityWaits, HeldTransfer};

/// Bits in a block's bloom filter.
const BLOOM_BITS: u16 = 2_048;
/// Maximum expected number of watched wallets that a block's bloom filter matches falsely; above it, the filter is not
/// used.
const FALSE_ALARMS_MAX: f64 = 0.1;

/// Watchlist shared by watchers, settlers, payments and HTTP. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Watchlist {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    wallets: DashMap<Address, Watched>,
    /// True if the wallets of all live payments are in the list.
    is_whole: AtomicBool,
    /// Number of removals of wallets.
    unwatched: AtomicU64,
    /// Retired wallets, oldest first.
    retired: Mutex<VecDeque<Retired>>,
    /// Number of retirements so far.
    retirements: AtomicU64,
    psp_vaults: PspVaults,
    chains: [Lane; Chain::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    payment_id: PaymentId,
    /// Bits that a transfer to the wallet sets in a block's bloom filter.
    bits: [u16; 3],
    /// Number of the payment's last retirement, unless the wallet has been watched again since.
    retirement: Option<u64>,
}

/// Wallet of an ended payment, due for removal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    pub(crate) payment_id: PaymentId,
    wallet: Address,
    retirement: u64,
    at: Instant,
}

#[derive(Debug, Default)]
struct Lane {
    view: RwLock<Option<ChainView>>,
    /// Reason why the chain cannot be read, if any; known even before the first read.
    degraded_reason: RwLock<Option<String>>,
    /// Domains of the tokens that support transfers by signature; `None` until the tokens were read.
    eip3009: RwLock<Option<Vec<Eip3009Domain>>>,
    /// Largest amount of one outbound transfer, per token address.
    send_max: RwLock<HashMap<Address, Amount>>,
    waits: Mutex<FinalityWaits>,
    wake: Notify,
    moved: watch::Sender<()>,
}

/// State of a chain at the last poll.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainView {
    /// The chain.
    pub chain: Chain,
    /// Number of the newest block that an endpoint reported.
    pub head_number: u64,
    /// Time of that block.
    pub head_time: Timestamp,
    /// Number of the last block read completely.
    pub read_number: u64,
    /// Hash of that block.
    pub read_hash: Hash32,
    /// Time of that block.
    pub read_time: Timestamp,
    /// The newest `safe` block.
    pub safe: Option<u64>,
    /// The newest `finalized` block.
    pub finalized: Option<u64>,
    /// Base fee of the head, wei per gas.
    pub base_fee_wei: u128,
    /// L1 charge of one settlement in a full batch, wei; `None` if it is not known yet.
    pub l1_fee_wei: Option<u128>,
    /// Reason why the chain cannot currently be read, if any.
    pub degraded_reason: Option<String>,
    /// A head older than this is stale.
    pub outage: Duration,
    /// Blocks read since the newest final one: number to hash and time.
    pub blocks: Arc<BTreeMap<u64, (Hash32, Timestamp)>>,
}

impl ChainView {
    /// Progress of finality.
    pub fn reach(&self) -> FinalityProgress {
        FinalityProgress { read: self.read_number, safe: self.safe, finalized: self.finalized }
    }

    /// Milliseconds since the newest block, at least 0.
    pub fn head_age_ms(&self, now: Timestamp) -> i64 {
        now.millis_since(self.head_time).max(0)
    }

    /// True if the chain counts as down: no new block for the outage period. Deadlines are extended and `best` skips
    /// the chain.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.head_age_ms(now) > i64::try_from(self.outage.as_millis()).unwrap_or(i64::MAX)
    }

    /// Hash and time of a remembered block.
    pub fn block(&self, number: u64) -> Option<(Hash32, Timestamp)> {
        self.blocks.get(&number).copied()
    }
}

impl Watchlist {
    /// Vaults of PSPs, on every chain.
    pub(super) fn psp_vaults(&self) -> &PspVaults {
        &self.inner.psp_vaults
    }

    /// Routes transfers to `wallet` (on every chain) to a payment. Call it before the payment can be committed as live.
    pub fn watch(&self, wallet: Address, payment_id: PaymentId) {
        let watched = self.inner.wallets.entry(wallet);
        let new = || Watched { payment_id, bits: bloom_bits(wallet), retirement: None };
        watched.and_modify(|watched| watched.retirement = None).or_insert_with(new);
    }

    /// Marks the wallet of an ended payment for removal, unless it is watched again.
    ///
    /// The removal is delayed: a command that the payment's actor has already started may still commit and reopen the
    /// payment.
    pub(crate) fn retire(&self, wallet: Address) {
        let retirement = self.inner.retirements.fetch_add(1, Ordering::Relaxed);
        let Some(mut watched) = self.inner.wallets.get_mut(&wallet) else { return };
        watched.retirement = Some(retirement);
        let payment_id = watched.payment_id;
        drop(watched);
        self.inner.retired.lock().push_back(Retired { payment_id, wallet, retirement, at: Instant::now() });
    }

    /// Marks all wallets for removal except these and those that are marked already.
    pub(crate) fn retire_others(&self, live: &HashSet<Address>) {
        let wallets =
            self.inner.wallets.iter().filter(|entry| entry.retirement.is_none() && !live.contains(entry.key()));
        let ended: Vec<Address> = wallets.map(|entry| *entry.key()).collect();
        for wallet in ended {
            self.retire(wallet);
        }
    }

    /// Takes up to `limit` wallets retired before `before` from the removal queue. They stay in the list.
    pub(crate) fn retired(&self, before: Instant, limit: usize) -> Vec<Retired> {
        let mut retired = self.inner.retired.lock();
        let due = retired.iter().take(limit).take_while(|one| one.at <= before).count();
        retired.drain(..due).collect()
    }

    /// Returns wallets to the removal queue because they could not be looked up.
    pub(crate) fn defer(&self, retired: Vec<Retired>) {
        let mut line = self.inner.retired.lock();
        retired.into_iter().rev().for_each(|one| line.push_front(one));
    }

    /// Removes these wallets from the list, except those watched again and those of payments that are live after all.
    pub(crate) fn unwatch(&self, retired: &[Retired], live: &HashSet<PaymentId>) {
        // Counted before the removal, so that a reader that misses a wallet notices it.
        self.inner.unwatched.fetch_add(1, Ordering::AcqRel);
        for Retired { payment_id, wallet, retirement, .. } in retired {
            if !live.contains(payment_id) {
                self.inner.wallets.remove_if(wallet, |_, watched| watched.retirement == Some(*retirement));
            }
        }
    }

    /// Removes the wallet of a payment that was never created. The wallet is unknown to the outside.
    pub(crate) fn forget(&self, wallet: Address) {
        self.inner.wallets.remove(&wallet);
    }

    /// Number of removals. If it has not changed, no wallet was removed in between.
    pub(crate) fn unwatched(&self) -> u64 {
        self.inner.unwatched.load(Ordering::Acquire)
    }

    /// Marks the list as complete: it has the wallets of all live payments, now and in future, so no other lookup is
    /// needed.
    pub(crate) fn set_whole(&self) {
        self.inner.is_whole.store(true, Ordering::Release);
    }

    /// True if the list has the wallets of all live payments.
    pub(crate) fn is_whole(&self) -> bool {
        self.inner.is_whole.load(Ordering::Acquire)
    }

    /// Payment of a watched wallet.
    pub fn payment_of(&self, wallet: Address) -> Option<PaymentId> {
        self.inner.wallets.get(&wallet).map(|entry| entry.payment_id)
    }

    /// Watched wallets that received a transfer according to a block's bloom filter. Empty if the filter is so full
    /// that false matches are likely.
    pub(crate) fn wallets_in(&self, bloom: &Bloom) -> Vec<Address> {
        let ones: u32 = bloom.iter().map(|byte| byte.count_ones()).sum();
        let full = f64::from(ones) / f64::from(BLOOM_BITS);
        let watched = u32::try_from(self.inner.wallets.len()).unwrap_or(u32::MAX);
        if full.powi(3) * f64::from(watched) > FALSE_ALARMS_MAX {
            return Vec::new();
        }
        let is_set = |bit: &u16| bloom[usize::from(BLOOM_BITS - 1 - bit) / 8] & (1 << (bit % 8)) != 0;
        let wallets = self.inner.wallets.iter();
        wallets.filter(|entry| entry.bits.iter().all(is_set)).map(|entry| *entry.key()).collect()
    }

    /// Number of watched wallets.
    pub fn wallets_len(&self) -> usize {
        self.inner.wallets.len()
    }

    /// Sends `FinaliseTransfers` to the payment once the block has reached `finality`. There is one wait per transfer: a
    /// later call replaces it (the tier rose, or the row has a newer revision); repeating the call has no effect.
    pub fn await_finality(&self, wait: FinalityWait) {
        let lane = self.lane(wait.key.chain);
        lane.waits.lock().insert(wait);
        if lane.view.read().as_ref().is_some_and(|view| view.reach().reached(wait.block_number, wait.finality)) {
            lane.wake.notify_one();
        }
    }

    /// View of the chain; `None` before the first poll.
    pub fn view(&self, chain: Chain) -> Option<ChainView> {
        self.lane(chain).view.read().clone()
    }

    /// Progress of the chain's finality, without copying the view.
    pub fn reach(&self, chain: Chain) -> Option<FinalityProgress> {
        self.lane(chain).view.read().as_ref().map(ChainView::reach)
    }

    /// Replaces the chain's view.
    pub fn set_view(&self, view: ChainView) {
        let lane = self.lane(view.chain);
        *lane.view.write() = Some(view);
        lane.moved.send_replace(());
    }

    /// Receiver that is notified on every change of the chain's view.
    pub fn moved(&self, chain: Chain) -> watch::Receiver<()> {
        self.lane(chain).moved.subscribe()
    }

    /// Records why the chain cannot be read, if so.
    pub(crate) fn set_degraded_reason(&self, chain: Chain, reason: Option<String>) {
        (*self.lane(chain).degraded_reason.write()).clone_from(&reason);
        if let Some(view) = self.lane(chain).view.write().as_mut() {
            view.degraded_reason = reason;
        }
    }

    /// Reason why the chain cannot currently be read, if any.
    pub fn degraded_reason(&self, chain: Chain) -> Option<String> {
        self.lane(chain).degraded_reason.read().clone()
    }

    /// Replaces the domains of the chain's tokens that support transfers by signature (EIP-3009).
    pub(crate) fn set_eip3009(&self, chain: Chain, domains: Vec<Eip3009Domain>) {
        *self.lane(chain).eip3009.write() = Some(domains);
    }

    /// True if it is known which of the chain's tokens support transfers by signature.
    pub fn knows_eip3009(&self, chain: Chain) -> bool {
        self.lane(chain).eip3009.read().is_some()
    }

    /// Domain of the chain's token at this address, if it supports transfers by signature (EIP-3009). `None` until the
    /// chain was read.
    pub fn eip3009(&self, chain: Chain, token: Address) -> Option<Eip3009Domain> {
        self.lane(chain).eip3009.read().as_ref()?.iter().find(|domain| domain.token() == token).cloned()
    }

    /// State that the chain's watcher publishes beside its view: the reason why the chain cannot be read, the domains of tokens, and
    /// the largest outbound transfers.
    pub(super) fn terms(&self, chain: Chain) -> (Option<String>, Vec<Eip3009Domain>, Vec<(Address, Amount)>) {
        let lane = self.lane(chain);
        let send_max = lane.send_max.read().iter().map(|(address, amount)| (*address, *amount)).collect();
        (lane.degraded_reason.read().clone(), lane.eip3009.read().clone().unwrap_or_default(), send_max)
    }

    /// Replaces the largest amounts of one outbound transfer.
    pub(crate) fn set_send_max(&self, chain: Chain, send_max: HashMap<Address, Amount>) {
        *self.lane(chain).send_max.write() = send_max;
    }

    /// Largest amount of one outbound transfer of this token by the contract's limit. `None` until the chain was read,
    /// and for tokens that are not configured.
    pub(crate) fn send_max(&self, asset: Asset) -> Option<Amount> {
        self.lane(asset.chain).send_max.read().get(&asset.address).copied()
    }

    /// Waits for finality on the chain, locked.
    pub(crate) fn waits(&self, chain: Chain) -> MutexGuard<'_, FinalityWaits> {
        self.lane(chain).waits.lock()
    }

    /// Reported transfers on which two endpoints do not agree.
    pub fn held(&self, chain: Chain) -> Vec<HeldTransfer> {
        self.waits(chain).held()
    }

    /// Returns when a payment has requested a finality that is already reached.
    pub(crate) async fn woken(&self, chain: Chain) {
        self.lane(chain).wake.notified().await;
    }

    fn lane(&self, chain: Chain) -> &Lane {
        &self.inner.chains[chain as usize]
    }
}

/// Bits of the bloom filter that a topic with this address sets.
fn bloom_bits(wallet: Address) -> [u16; 3] {
    let mut topic = [0; 32];
    topic[12..].copy_from_slice(&wallet.0);
    let hash = keccak256(topic);
    [0, 2, 4].map(|at| u16::from_be_bytes([hash[at], hash[at + 1]]) % BLOOM_BITS)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{B256, BloomInput};

    use super::*;

    #[test]
    fn bloom_filter_matches_its_wallets_unless_it_is_full() {
        let list = Watchlist::default();
        let wallets: Vec<Address> = (0..50).map(|byte| Address([byte; 20])).collect();
        for wallet in &wallets {
            list.watch(*wallet, PaymentId::generate());
        }
        let mut bloom = Bloom::ZERO;
        for wallet in &wallets[..2] {
            let topic = B256::left_padding_from(&wallet.0);
            bloom.accrue(BloomInput::Raw(topic.as_slice()));
        }
        let mut named = list.wallets_in(&bloom);
        named.sort_unstable();
        assert_eq!(named, wallets[..2]);
        assert!(list.wallets_in(&Bloom::ZERO).is_empty());
        assert!(list.wallets_in(&Bloom::repeat_byte(0xff)).is_empty(), "a full filter is ignored");
    }
}
