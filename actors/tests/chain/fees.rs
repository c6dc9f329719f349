//! A base fee that jumps before or after transactions are signed. Nothing is sent above the ceiling, the settler
//! reports why, and once the fee falls everything is sent once. Each case covers a settlement and an outbound transfer,
//! in separate transactions.

use std::sync::Arc;
use std::time::Duration;

use payferry_actors::chain::{Settler, SettlerArgs, SettlerMessage};
use payferry_domain::{Address, PaymentId};
use payferry_evm::ChainSpec;
use payferry_runtime::observe::{Books, Mailbox};
use serde_json::json;

use crate::world::{World, settler_report, stop};

const UNITS: u64 = 10_000_000;
/// Amount of each withdrawal from the PSP's vault.
const SENT: u64 = 1_000_000;
/// Highest fee that a transaction may offer.
const CEILING_WEI: u128 = 100_000_000;
/// Above any offer at the usual base fee, and below the ceiling.
pub(crate) const RAISED_WEI: u64 = 60_000_000;
/// Above the ceiling.
const DEAR_WEI: u64 = 1_000_000_000;
/// Number of blocks with the same report: enough for many passes over the chain.
const LOOKS: u32 = 20;

fn recipients() -> [Address; 2] {
    [Address([1; 20]), Address([2; 20])]
}

pub(crate) async fn world() -> World {
    let mut world = World::new().await;
    world.spec.fees.max_fee_wei = CEILING_WEI;
    world.spec.stuck_after = Duration::from_millis(300);
    world
}

/// Funds this many payments, and the PSP.
async fn funded(world: &World, payments: usize) -> Vec<PaymentId> {
    let payments = world.payments(payments).await;
    world.send_money(world.vaults.of_psp(world.psp), u128::from(SENT) * 100).await;
    world.pay_all(&payments, UNITS).await;
    payments
}

/// Queues a settlement of each payment and two withdrawals.
async fn queue(world: &World, payments: &[PaymentId]) {
    world.queue_settlements(payments, UNITS.try_into().unwrap()).await;
    world.queue_withdrawals(&recipients(), SENT).await;
}

/// Sends two settlements in one transaction and two withdrawals in another. The settler that signed them never raises
/// fees and stops, so that however slow the test is, nothing offers more before the next settler starts.
pub(crate) async fn under_way(world: &World) {
    let payments = funded(world, 2).await;
    let spec = Arc::new(ChainSpec { stuck_after: Duration::from_hours(1), ..world.spec.clone() });
    let args = SettlerArgs { spec, ..world.settler_args() };
    let settler = Settler::start(&Books::default(), args, None).await.unwrap();
    queue(world, &payments).await;
    world.until("they are signed", async || settler_report(&settler).await.operations == 4).await;
    stop(settler).await;
    let offers: Vec<u128> = offers(world).await.into_iter().map(|(_, wei)| wei).collect();
    assert!(offers.len() == 2 && offers.iter().all(|wei| *wei < RAISED_WEI.into()), "{offers:?}");
}

/// Nonce and highest fee of every attempt.
async fn offers(world: &World) -> Vec<(i64, u128)> {
    let offer = |attempt: payferry_entities::chain_tx_attempts::Model| {
        (attempt.nonce, attempt.max_fee_per_gas.parse().unwrap())
    };
    world.attempts().await.into_iter().map(offer).collect()
}

async fn is_held_up_by_the_ceiling(world: &World, settler: &Mailbox<SettlerMessage>) -> bool {
    let said = [settler_report(settler).await.trouble, world.handle.trouble()];
    let is_the_ceiling = |trouble: &String| trouble.ends_with(&format!("and the ceiling is {CEILING_WEI}"));
    said.iter().all(|trouble| trouble.as_ref().is_some_and(is_the_ceiling))
}

/// Mines blocks above the ceiling; the settler reports throughout that it cannot continue.
async fn stays_dear(world: &World, settler: &Mailbox<SettlerMessage>) {
    world
        .until("the settler reports the ceiling", async || {
            world.mine_at(DEAR_WEI).await;
            is_held_up_by_the_ceiling(world, settler).await
        })
        .await;
    for _ in 0..LOOKS {
        world.mine_at(DEAR_WEI).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(is_held_up_by_the_ceiling(world, settler).await, "{:?}", settler_report(settler).await);
    }
}

/// Mines at this base fee until every operation is mined.
pub(crate) async fn until_mined_at(world: &World, base_fee_wei: u64) {
    world
        .until("everything is mined", async || {
            world.mine_at(base_fee_wei).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.operations().await.iter().all(|row| row.status == "mined")
        })
        .await;
}

/// Asserts all balances, and that no operation was in two transactions.
pub(crate) async fn assert_done_once(world: &World, payments: u64) {
    assert_moved_once(world, payments).await;
    let rows = world.operations().await;
    assert!(rows.iter().all(|row| row.attempts == 1), "{rows:?}");
}

/// Asserts all balances, and that no offer exceeded the ceiling.
pub(crate) async fn assert_moved_once(world: &World, payments: u64) {
    let [one, other] = recipients();
    assert_eq!((world.balance(one).await, world.balance(other).await), (SENT, SENT));
    assert_eq!(world.balance(world.treasury).await, payments * (UNITS / 100));
    let vault = SENT * 98 + payments * (UNITS - UNITS / 100);
    assert_eq!(world.balance(world.vaults.of_psp(world.psp)).await, vault);
    let offers = offers(world).await;
    assert!(offers.iter().all(|(_, wei)| *wei <= CEILING_WEI), "{offers:?}");
}

#[tokio::test]
async fn signs_nothing_above_the_ceiling_and_sends_all_once_later() {
    let world = world().await;
    let payments = funded(&world, 2).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.mine_at(DEAR_WEI).await;
    queue(&world, &payments).await;
    stays_dear(&world, &settler).await;
    assert!(world.txs().await.is_empty() && world.attempts().await.is_empty(), "nothing is signed");
    assert!(world.operations().await.iter().all(|row| row.status == "queued"), "nothing is lost");
    // The fee falls by an eighth with each empty block.
    world.mine_until_all("mined").await;
    assert_done_once(&world, 2).await;
    world.until("the settler continues", async || world.handle.trouble().is_none()).await;
    assert_eq!(settler_report(&settler).await.failures, 0);
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn pausing_operations_that_wait_for_the_fee_clears_the_error() {
    let world = world().await;
    let payments = funded(&world, 1).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.mine_at(DEAR_WEI).await;
    world.handle.set_paused(payferry_journal::chain::Role::Send, true);
    queue(&world, &payments).await;
    stays_dear(&world, &settler).await;
    world.handle.set_paused(payferry_journal::chain::Role::Settle, true);
    world.until("no trouble is reported", async || world.handle.trouble().is_none()).await;
    assert!(world.txs().await.is_empty());
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn fee_jump_below_the_ceiling_raises_offers_and_mines_once() {
    let world = world().await;
    let watcher = world.watch().await;
    under_way(&world).await;
    let first: Vec<String> = world.attempts().await.into_iter().map(|attempt| attempt.tx_hash).collect();
    let settler = world.settle().await;
    until_mined_at(&world, RAISED_WEI).await;
    assert_done_once(&world, 2).await;
    let txs = world.txs().await;
    assert_eq!(txs.iter().map(|tx| tx.nonce).collect::<Vec<_>>(), [0, 1]);
    for tx in &txs {
        let hash = tx.tx_hash.as_ref().unwrap();
        assert!(!first.contains(hash), "it was signed again");
        let receipt = world.chain.call("eth_getTransactionReceipt", json!([hash])).await.unwrap();
        let paid = u64::from_str_radix(&receipt["effectiveGasPrice"].as_str().unwrap()[2..], 16).unwrap();
        assert!((RAISED_WEI..=u64::try_from(CEILING_WEI).unwrap()).contains(&paid), "{paid}");
    }
    assert!(settler_report(&settler).await.raised >= 2);
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn sent_transactions_wait_while_the_fee_is_above_the_ceiling() {
    let world = world().await;
    let watcher = world.watch().await;
    under_way(&world).await;
    let later = funded_later(&world).await;
    world.mine_at(DEAR_WEI).await;
    let settler = world.settle().await;
    stays_dear(&world, &settler).await;
    let before = world.attempts().await.len();
    world.queue_settlements(&[later], UNITS.try_into().unwrap()).await;
    stays_dear(&world, &settler).await;
    assert_eq!(world.attempts().await.len(), before, "nothing is signed, neither new nor again");
    let statuses: Vec<_> = world.txs().await.into_iter().map(|tx| tx.status).collect();
    assert_eq!(statuses, ["submitted", "submitted"]);
    until_mined_at(&world, RAISED_WEI).await;
    assert_done_once(&world, 3).await;
    let attempts = world.attempts().await;
    for nonce in [0, 1] {
        assert!(attempts.iter().filter(|attempt| attempt.nonce == nonce).count() >= 2, "nonce {nonce}");
    }
    world.until("the settler continues", async || world.handle.trouble().is_none()).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn next_settler_clears_the_error_of_a_stopped_one() {
    let world = world().await;
    let payments = funded(&world, 1).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.mine_at(DEAR_WEI).await;
    queue(&world, &payments).await;
    stays_dear(&world, &settler).await;
    stop(settler).await;
    assert!(world.handle.trouble().is_some(), "the error is still reported");
    world.mine_at(RAISED_WEI / 10).await;
    let settler = world.settle().await;
    world.until("the settler continues", async || world.handle.trouble().is_none()).await;
    stop(settler).await;
    stop(watcher).await;
}

/// Creates one more payment and funds it without including the waiting transactions in a block.
async fn funded_later(world: &World) -> PaymentId {
    let payment = world.payment().await;
    world.send_money(world.vaults.of_payment(payment), UNITS.into()).await;
    // More than our transactions offer, and less than the owner's.
    world.mine_at(RAISED_WEI).await;
    assert_eq!(world.balance(world.vaults.of_payment(payment)).await, UNITS);
    payment
}
