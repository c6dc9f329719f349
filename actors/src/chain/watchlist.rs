//! What watchers share with the rest of the process: wallets, waits for finality, and how each chain stands.
//!
//! It outlives the actors. Transfers are in the database, and a payment that starts asks again for the finality it waits for.
//! Wallets are in the database, too, but not all of them in an index: once the list is whole, a live payment's is here from
//! before it can be committed as such until long after it was committed as over. A wallet is one payment's for ever: one that
//! stays here is never wrong.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::{Bloom, keccak256};
use dashmap::DashMap;
use parking_lot::{Mutex, RwLock};
use payferry_domain::payment::TransferKey;
use payferry_domain::{Address, Chain, Finality, Hash32, PaymentId, Timestamp};
use payferry_evm::finality::Reach;
use tokio::sync::{Notify, watch};

/// Bits in a block's bloom filter.
const BLOOM_BITS: u16 = 2_048;
/// Watched wallets that a block's filter may be expected to name without reason; with more it is not asked.
const FALSE_ALARMS_MAX: f64 = 0.1;

/// Shared by watchers, settlers, payments and HTTP. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Watchlist {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    wallets: DashMap<Address, Watched>,
    /// Whether every live payment's wallet is among them.
    is_whole: AtomicBool,
    /// How often wallets were taken out.
    unwatched: AtomicU64,
    /// Those whose payments are over, the first of them first.
    retired: Mutex<VecDeque<Retired>>,
    /// How many ever were.
    retirements: AtomicU64,
    chains: [Lane; Chain::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    payment_id: PaymentId,
    /// Bits that a transfer to the wallet sets in a block's bloom filter.
    bits: [u16; 3],
    /// Which of all retirements is its payment's last, if that was over and has not been watched anew since.
    retirement: Option<u64>,
}

/// A wallet whose payment is over, and that is to be taken out.
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
    /// Why the chain cannot be read, if so: known before it was ever read.
    trouble: RwLock<Option<String>>,
    waits: Mutex<HashMap<TransferKey, FinalityWait>>,
    wake: Notify,
    moved: watch::Sender<()>,
}

/// A payment that waits until a block is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalityWait {
    /// Who waits.
    pub payment_id: PaymentId,
    /// For which transfer.
    pub key: TransferKey,
    /// At which revision of its row.
    pub revision: u32,
    /// In which block.
    pub block_number: u64,
    /// What has to be reached.
    pub finality: Finality,
}

/// How a chain stood when it was last looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainView {
    /// Which chain.
    pub chain: Chain,
    /// The newest block that an endpoint showed.
    pub head_number: u64,
    /// Its time.
    pub head_time: Timestamp,
    /// The last block that was read whole.
    pub read_number: u64,
    /// Its hash.
    pub read_hash: Hash32,
    /// Its time.
    pub read_time: Timestamp,
    /// The newest `safe` block.
    pub safe: Option<u64>,
    /// The newest `finalized` block.
    pub finalized: Option<u64>,
    /// Base fee of the head, wei per gas.
    pub base_fee_wei: u128,
    /// Why the chain cannot be read at the moment, if so.
    pub trouble: Option<String>,
    /// A head older than this is stale.
    pub outage: Duration,
    /// Blocks read, not older than the newest final one: number to hash and time.
    pub blocks: Arc<BTreeMap<u64, (Hash32, Timestamp)>>,
}

impl ChainView {
    /// How far finality has come.
    pub fn reach(&self) -> Reach {
        Reach { read: self.read_number, safe: self.safe, finalized: self.finalized }
    }

    /// Milliseconds since the newest block, at least 0.
    pub fn head_age_ms(&self, now: Timestamp) -> i64 {
        now.millis_since(self.head_time).max(0)
    }

    /// Whether the chain counts as down: no new block for the outage's length. Deadlines move on and `best` skips it.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.head_age_ms(now) > i64::try_from(self.outage.as_millis()).unwrap_or(i64::MAX)
    }

    /// The hash and time of a block that was read, unless it is too old to be remembered.
    pub fn block(&self, number: u64) -> Option<(Hash32, Timestamp)> {
        self.blocks.get(&number).copied()
    }
}

impl Watchlist {
    /// Nothing watched yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Routes transfers to `wallet` (on every chain) to a payment. To be called before the payment can be committed as
    /// live.
    pub fn watch(&self, wallet: Address, payment_id: PaymentId) {
        let watched = self.inner.wallets.entry(wallet);
        let new = || Watched { payment_id, bits: bloom_bits(wallet), retirement: None };
        watched.and_modify(|watched| watched.retirement = None).or_insert_with(new);
    }

    /// The payment is committed as over: its wallet is to be taken out, after a while, unless it is watched again.
    ///
    /// Not at once: what its actor had begun may still be committed, and bring it back.
    pub(crate) fn retire(&self, wallet: Address) {
        let retirement = self.inner.retirements.fetch_add(1, Ordering::Relaxed);
        let Some(mut watched) = self.inner.wallets.get_mut(&wallet) else { return };
        watched.retirement = Some(retirement);
        let payment_id = watched.payment_id;
        drop(watched);
        self.inner.retired.lock().push_back(Retired { payment_id, wallet, retirement, at: Instant::now() });
    }

    /// Takes up to so many that were over before `before` out of the line, but not off the list.
    pub(crate) fn retired(&self, before: Instant, limit: usize) -> Vec<Retired> {
        let mut retired = self.inner.retired.lock();
        let due = retired.iter().take(limit).take_while(|one| one.at <= before).count();
        retired.drain(..due).collect()
    }

    /// Puts them back into the line: they could not be looked up.
    pub(crate) fn defer(&self, retired: Vec<Retired>) {
        let mut line = self.inner.retired.lock();
        retired.into_iter().rev().for_each(|one| line.push_front(one));
    }

    /// Takes them off the list, except those that were watched again, and those of payments that are live all the same.
    pub(crate) fn unwatch(&self, retired: &[Retired], live: &HashSet<PaymentId>) {
        // Before: whoever misses one of them sees that it may have.
        self.inner.unwatched.fetch_add(1, Ordering::AcqRel);
        for Retired { payment_id, wallet, retirement, .. } in retired {
            if !live.contains(payment_id) {
                self.inner.wallets.remove_if(wallet, |_, watched| watched.retirement == Some(*retirement));
            }
        }
    }

    /// The payment was never made, and nobody knows of its wallet.
    pub(crate) fn forget(&self, wallet: Address) {
        self.inner.wallets.remove(&wallet);
    }

    /// How often wallets were taken out: where this has not changed meanwhile, none was.
    pub(crate) fn unwatched(&self) -> u64 {
        self.inner.unwatched.load(Ordering::Acquire)
    }

    /// The wallets of all live payments are here, and of those to come: they need not be looked for anywhere else.
    pub(crate) fn set_whole(&self) {
        self.inner.is_whole.store(true, Ordering::Release);
    }

    /// Whether the wallets of all live payments are here.
    pub(crate) fn is_whole(&self) -> bool {
        self.inner.is_whole.load(Ordering::Acquire)
    }

    /// Whose wallet it is, if it is watched.
    pub fn payment_of(&self, wallet: Address) -> Option<PaymentId> {
        self.inner.wallets.get(&wallet).map(|entry| entry.payment_id)
    }

    /// Watched wallets that the bloom filter of a block says got a transfer; none where the filter is so full that it
    /// would often say so without reason.
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

    /// How many wallets are watched.
    pub fn wallets_len(&self) -> usize {
        self.inner.wallets.len()
    }

    /// Sends `FinaliseTransfer` to the payment once the block has reached `finality`. One wait a transfer: a later call
    /// replaces it (the tier rose, or the transfer was mined again), the same call again changes nothing.
    pub fn await_finality(
        &self,
        payment_id: PaymentId,
        key: TransferKey,
        revision: u32,
        block_number: u64,
        finality: Finality,
    ) {
        let lane = self.lane(key.chain);
        lane.waits.lock().insert(key, FinalityWait { payment_id, key, revision, block_number, finality });
        if lane.view.read().as_ref().is_some_and(|view| view.reach().reached(block_number, finality)) {
            lane.wake.notify_one();
        }
    }

    /// How the chain stands; `None` before it was first looked at.
    pub fn view(&self, chain: Chain) -> Option<ChainView> {
        self.lane(chain).view.read().clone()
    }

    /// How far the chain's finality has come, without copying the view.
    pub fn reach(&self, chain: Chain) -> Option<Reach> {
        self.lane(chain).view.read().as_ref().map(ChainView::reach)
    }

    /// Replaces the chain's view.
    pub fn set_view(&self, view: ChainView) {
        let lane = self.lane(view.chain);
        *lane.view.write() = Some(view);
        lane.moved.send_replace(());
    }

    /// Changes whenever the chain's view does.
    pub fn moved(&self, chain: Chain) -> watch::Receiver<()> {
        self.lane(chain).moved.subscribe()
    }

    /// Notes why the chain cannot be read; answers whether that is news.
    pub(crate) fn set_trouble(&self, chain: Chain, trouble: Option<String>) -> bool {
        (*self.lane(chain).trouble.write()).clone_from(&trouble);
        let mut view = self.lane(chain).view.write();
        match view.as_mut() {
            Some(view) if view.trouble != trouble => {
                view.trouble = trouble;
                true
            }
            _ => false,
        }
    }

    /// Why the chain cannot be read at the moment, if so.
    pub fn trouble(&self, chain: Chain) -> Option<String> {
        self.lane(chain).trouble.read().clone()
    }

    /// Takes out the waits that are over.
    pub(crate) fn take_reached(&self, chain: Chain, reach: Reach) -> Vec<FinalityWait> {
        let mut waits = self.lane(chain).waits.lock();
        waits.extract_if(|_, wait| reach.reached(wait.block_number, wait.finality)).map(|(_, wait)| wait).collect()
    }

    /// Forgets the wait for a transfer whose row has moved on.
    pub(crate) fn drop_outdated(&self, key: TransferKey, revision: u32) {
        let mut waits = self.lane(key.chain).waits.lock();
        if waits.get(&key).is_some_and(|wait| wait.revision < revision) {
            waits.remove(&key);
        }
    }

    /// Returns when a payment asked for finality that is there already.
    pub(crate) async fn woken(&self, chain: Chain) {
        self.lane(chain).wake.notified().await;
    }

    fn lane(&self, chain: Chain) -> &Lane {
        let index = match chain {
            Chain::Base => 0,
            Chain::Polygon => 1,
            Chain::Arbitrum => 2,
        };
        &self.inner.chains[index]
    }
}

/// The bits of the filter that a topic with this address sets.
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
    fn a_filter_names_the_wallets_in_it_unless_it_is_full() {
        let list = Watchlist::new();
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
        assert!(list.wallets_in(&Bloom::repeat_byte(0xff)).is_empty(), "it says nothing");
    }

    fn key(log_index: u32) -> TransferKey {
        TransferKey { chain: Chain::Base, tx_hash: Hash32([1; 32]), log_index }
    }

    #[test]
    fn a_wait_is_replaced_and_taken_once() {
        let list = Watchlist::new();
        let payment = PaymentId::generate();
        list.await_finality(payment, key(0), 1, 10, Finality::Blocks(2));
        list.await_finality(payment, key(0), 1, 10, Finality::Blocks(2));
        list.await_finality(payment, key(1), 1, 10, Finality::Blocks(2));
        list.await_finality(payment, key(0), 1, 10, Finality::Blocks(5));
        let reach = |read| Reach { read, safe: None, finalized: None };
        assert!(list.take_reached(Chain::Base, reach(10)).is_empty());
        assert_eq!(list.take_reached(Chain::Base, reach(11)).iter().map(|wait| wait.key).collect::<Vec<_>>(), [key(1)]);
        assert!(list.take_reached(Chain::Base, reach(13)).is_empty());
        assert_eq!(list.take_reached(Chain::Base, reach(14)).len(), 1);
        assert!(list.take_reached(Chain::Base, reach(99)).is_empty());
    }

    #[test]
    fn a_row_that_moved_on_ends_the_wait_for_what_it_was() {
        let list = Watchlist::new();
        list.await_finality(PaymentId::generate(), key(0), 2, 10, Finality::Blocks(1));
        list.drop_outdated(key(0), 2);
        assert_eq!(list.inner.chains[0].waits.lock().len(), 1);
        list.drop_outdated(key(0), 3);
        assert!(list.inner.chains[0].waits.lock().is_empty());
    }
}
