//! A base fee that jumps, before something is signed and after: nothing goes out above the ceiling, it is said why, and when
//! the fee falls all goes out, once. A settlement and a sending are in the same boat, each in a transaction of its own.

use std::sync::Arc;
use std::time::Duration;

use payferry_actors::chain::{ChainSpec, Settler, SettlerArgs, SettlerMessage};
use payferry_actors::observe::{Books, Mailbox};
use payferry_domain::{Address, PaymentId};
use serde_json::json;

use crate::world::{World, settler_report, stop};

const UNITS: u64 = 10_000_000;
/// What each withdrawal takes out of the PSP's vault.
const SENT: u64 = 1_000_000;
/// The most that a transaction may offer.
const CEILING_WEI: u128 = 100_000_000;
/// More than is ever offered at the usual base fee, and less than the ceiling.
pub(crate) const RAISED_WEI: u64 = 60_000_000;
/// More than may be offered.
const DEAR_WEI: u64 = 1_000_000_000;
/// Blocks in which it says the same: enough for many looks at the chain.
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

/// Money of so many payments, and of the PSP.
async fn funded(world: &World, payments: usize) -> Vec<PaymentId> {
    let payments = world.payments(payments).await;
    world.send_money(world.vaults.of_psp(world.psp), u128::from(SENT) * 100).await;
    world.pay_all(&payments, UNITS).await;
    payments
}

/// A settlement of each payment and two withdrawals.
async fn queue(world: &World, payments: &[PaymentId]) {
    world.queue_settlements(payments, UNITS.try_into().unwrap()).await;
    world.queue_withdrawals(&recipients(), SENT).await;
}

/// Two settlements in one transaction and two withdrawals in another, on their way. Whoever signed them raises nothing and is
/// gone: however slow the test is, nothing offers more before the next settler begins.
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

/// Blocks above the ceiling; the settler says all the time that it cannot go on.
async fn stays_dear(world: &World, settler: &Mailbox<SettlerMessage>) {
    world
        .until("it says why", async || {
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

/// Mines at this base fee until everything is carried out.
pub(crate) async fn until_mined_at(world: &World, base_fee_wei: u64) {
    world
        .until("everything is mined", async || {
            world.mine_at(base_fee_wei).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.operations().await.iter().all(|row| row.status == "mined")
        })
        .await;
}

/// Every unit is where it belongs, and no operation was in two transactions.
pub(crate) async fn assert_done_once(world: &World, payments: u64) {
    assert_moved_once(world, payments).await;
    let rows = world.operations().await;
    assert!(rows.iter().all(|row| row.attempts == 1), "{rows:?}");
}

/// Every unit is where it belongs, and nothing was offered above the ceiling.
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
async fn nothing_is_signed_above_the_ceiling_and_all_goes_out_once_when_the_fee_has_fallen() {
    let world = world().await;
    let payments = funded(&world, 2).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.mine_at(DEAR_WEI).await;
    queue(&world, &payments).await;
    stays_dear(&world, &settler).await;
    assert!(world.txs().await.is_empty() && world.attempts().await.is_empty(), "nothing is signed");
    assert!(world.operations().await.iter().all(|row| row.status == "queued"), "and nothing is lost");
    // It falls by itself, an eighth with each empty block.
    world.mine_until_all("mined").await;
    assert_done_once(&world, 2).await;
    world.until("it goes on", async || world.handle.trouble().is_none()).await;
    assert_eq!(settler_report(&settler).await.failures, 0);
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn what_waits_for_the_fee_and_is_wanted_no_more_is_no_trouble() {
    let world = world().await;
    let payments = funded(&world, 1).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.mine_at(DEAR_WEI).await;
    world.handle.set_paused(payferry_actors::chain::Role::Send, true);
    queue(&world, &payments).await;
    stays_dear(&world, &settler).await;
    world.handle.set_paused(payferry_actors::chain::Role::Settle, true);
    world.until("nothing is held up", async || world.handle.trouble().is_none()).await;
    assert!(world.txs().await.is_empty());
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn what_was_sent_before_a_jump_within_the_ceiling_goes_out_again_with_a_higher_fee_and_is_done_once() {
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
async fn what_was_sent_before_a_jump_above_the_ceiling_waits_and_goes_on_when_the_fee_has_fallen() {
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
    assert_eq!(world.attempts().await.len(), before, "nothing is signed, neither again nor anew");
    let statuses: Vec<_> = world.txs().await.into_iter().map(|tx| tx.status).collect();
    assert_eq!(statuses, ["submitted", "submitted"]);
    until_mined_at(&world, RAISED_WEI).await;
    assert_done_once(&world, 3).await;
    let attempts = world.attempts().await;
    for nonce in [0, 1] {
        assert!(attempts.iter().filter(|attempt| attempt.nonce == nonce).count() >= 2, "nonce {nonce}");
    }
    world.until("it goes on", async || world.handle.trouble().is_none()).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn what_a_settler_said_that_is_gone_is_over_when_the_next_one_gets_on() {
    let world = world().await;
    let payments = funded(&world, 1).await;
    let (watcher, settler) = (world.watch().await, world.settle().await);
    world.mine_at(DEAR_WEI).await;
    queue(&world, &payments).await;
    stays_dear(&world, &settler).await;
    stop(settler).await;
    assert!(world.handle.trouble().is_some(), "nobody has found that it is over");
    world.mine_at(RAISED_WEI / 10).await;
    let settler = world.settle().await;
    world.until("it goes on", async || world.handle.trouble().is_none()).await;
    stop(settler).await;
    stop(watcher).await;
}

/// One payment more, whose money comes without taking along what waits to be mined.
async fn funded_later(world: &World) -> PaymentId {
    let payment = world.payment().await;
    world.send_money(world.vaults.of_payment(payment), UNITS.into()).await;
    // More than ours offer, and less than the owner does.
    world.mine_at(RAISED_WEI).await;
    assert_eq!(world.balance(world.vaults.of_payment(payment)).await, UNITS);
    payment
}
