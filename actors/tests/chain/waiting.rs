//! Transactions that are not mined, with the reason: a halted chain, or a nonce gap. Also blocks that an endpoint
//! lacks, which say nothing about the transactions mined in them.

use std::sync::Arc;
use std::time::Duration;

use payferry_actors::chain::{Settler, SettlerArgs, SettlerMessage, Step};
use payferry_devchain::Dropped;
use payferry_domain::payment::Command;
use payferry_evm::ChainClient;
use payferry_evm::wallet::{alloy_address, domain_address};
use payferry_harness::endpoint::{Endpoint, Fault, HeadShown, What};
use payferry_runtime::observe::{Books, Mailbox};

use crate::crash::{KillAt, until_dead};
use crate::world::{CHAIN_ID, GWEI, World, settler_report, stop};

const UNITS: u64 = 10_000_000;
const STUCK_AFTER: Duration = Duration::from_millis(200);
/// Far more than that.
const LONG: Duration = Duration::from_secs(1);

/// Creates this many paid payments and queues their settlements.
async fn queued(world: &World, payments: usize) {
    let payments = world.payments(payments).await;
    world.pay_all(&payments, UNITS).await;
    world.queue_settlements(&payments, UNITS.try_into().unwrap()).await;
}

async fn until_signed(world: &World, settler: &Mailbox<SettlerMessage>, operations: u64) {
    world.until("they are signed", async || settler_report(settler).await.operations == operations).await;
}

fn orphaned(world: &World) -> usize {
    world.inbox.count(|command| matches!(command, Command::OrphanSettlement { .. }))
}

#[tokio::test]
async fn fees_rise_only_while_the_chain_produces_blocks() {
    let mut world = World::new().await;
    world.spec.stuck_after = STUCK_AFTER;
    let watcher = world.watch().await;
    queued(&world, 2).await;
    world.read_all().await;
    let settler = world.settle().await;
    until_signed(&world, &settler, 2).await;
    tokio::time::sleep(LONG).await;
    assert_eq!((world.attempts().await.len(), settler_report(&settler).await.raised), (1, 0), "no block left it out");
    assert_eq!(settler_report(&settler).await.trouble, None);
    world
        .until("its fee is raised", async || {
            world.pass_by(1).await;
            world.attempts().await.len() >= 2
        })
        .await;
    // The chain halts again.
    let raised = settler_report(&settler).await.raised;
    tokio::time::sleep(LONG).await;
    assert!(settler_report(&settler).await.raised <= raised + 1, "at most once more, for the blocks that existed");
    world.mine_until_all("mined").await;
    world.assert_settled_once(2, UNITS).await;
    assert_eq!(world.txs().await.len(), 1);
    stop(settler).await;
    stop(watcher).await;
}

/// Creates a nonce gap before the signed settlements: the operator's key used the nonce elsewhere, in a block that is
/// reorged for good.
async fn nonce_left_out(world: &World) {
    queued(world, 2).await;
    let to = alloy_address(world.treasury);
    let (raw, _) = world.operator.sign_call(CHAIN_ID, 0, to, Vec::new().into(), 100_000, GWEI, GWEI / 2);
    world.chain.send_raw(raw).await.unwrap();
    world.chain.mine(1).await.unwrap();
    let settler = world.settle().await;
    until_signed(world, &settler, 2).await;
    stop(settler).await;
    assert_eq!(nonces(world).await, [1]);
    world.chain.reorg(1, Dropped::Discard).await.unwrap();
    world.read_all().await;
}

async fn nonces(world: &World) -> Vec<i64> {
    world.txs().await.into_iter().map(|tx| tx.nonce).collect()
}

#[tokio::test]
async fn killed_while_filling_a_nonce_gap() {
    for step in [Step::Signed, Step::Stored, Step::Broadcast] {
        let mut world = World::new().await;
        world.spec.stuck_after = STUCK_AFTER;
        let watcher = world.watch().await;
        nonce_left_out(&world).await;
        let settler = world.settle_until(Arc::new(KillAt::first(step))).await;
        until_dead(&world, &settler, step).await;
        let stored: &[i64] = if step == Step::Signed { &[1] } else { &[1, 0] };
        assert_eq!(nonces(&world).await, stored, "{step:?}");
        let settler = world.settle().await;
        world.mine_until_all("mined").await;
        world.assert_settled_once(2, UNITS).await;
        assert_eq!(nonces(&world).await, [1, 0], "{step:?}: the nonce is used once");
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn nonce_gap_is_reported_and_filled_without_raising_fees() {
    let mut world = World::new().await;
    world.spec.stuck_after = STUCK_AFTER;
    let watcher = world.watch().await;
    nonce_left_out(&world).await;

    let settler = world.settle().await;
    let is_said = async || {
        let trouble = settler_report(&settler).await.trouble;
        trouble.is_some_and(|trouble| trouble.starts_with("nonce 0 is missing: "))
    };
    world.until("the gap is reported", async || is_said().await).await;
    tokio::time::sleep(LONG).await;
    assert!(is_said().await);
    assert_eq!(world.attempts().await.len(), 1, "nothing is signed while the chain is halted");
    world.mine_until_all("mined").await;
    world.assert_settled_once(2, UNITS).await;
    assert_eq!(nonces(&world).await, [1, 0]);
    let filler = world.txs().await.remove(1);
    let operator = domain_address(world.operator.address()).to_string();
    assert_eq!((filler.sender, filler.to_address, filler.input.as_str()), (operator.clone(), operator, "0x"));
    assert!(world.operations().await.iter().all(|row| row.chain_tx_id != Some(filler.id) && row.attempts == 1));
    let ours = world.attempts().await.into_iter().filter(|attempt| attempt.nonce == 1).count();
    assert_eq!(ours, 1, "a higher fee would not help");
    world
        .until("both are final and nothing is held up", async || {
            world.chain.mine(1).await.unwrap();
            let is_final = world.txs().await.iter().all(|tx| tx.status == "final");
            is_final && settler_report(&settler).await.trouble.is_none()
        })
        .await;
    stop(settler).await;
    stop(watcher).await;
}

/// Creates a settlement that is mined in the newest block and not final, and stops the settler. Returns the block's
/// number.
async fn mined_and_left(world: &World) -> u64 {
    queued(world, 1).await;
    let settler = world.settle().await;
    until_signed(world, &settler, 1).await;
    world.chain.mine(1).await.unwrap();
    world.until("it is mined", async || world.operations().await[0].status == "mined").await;
    stop(settler).await;
    let tx = world.txs().await.remove(0);
    assert_eq!(tx.status, "mined");
    u64::try_from(tx.block_number.unwrap()).unwrap()
}

/// Mines so many blocks that the settlement's block is no longer cached.
async fn long_after(world: &World) {
    world.chain.mine(30).await.unwrap();
    world.read_all().await;
}

#[tokio::test]
async fn endpoint_without_the_block_reorgs_nothing() {
    let world = World::new().await;
    let watcher = world.watch().await;
    let block = mined_and_left(&world).await;
    long_after(&world).await;
    // Like an endpoint that was restored from an earlier copy.
    let endpoint = Endpoint::before(&world.chain).await;
    endpoint.show([Fault::of(What::Head(HeadShown::At(block - 1)))]);
    let client = ChainClient::http_all([endpoint.url()], Duration::from_secs(2), true).unwrap();
    let args = SettlerArgs { client, ..world.settler_args() };
    let settler = Settler::start(&Books::default(), args, None).await.unwrap();
    world
        .until("the settler reports that it cannot know", async || {
            let trouble = settler_report(&settler).await.trouble;
            trouble.is_some_and(|trouble| trouble.contains(&format!("block {block} ")))
        })
        .await;
    tokio::time::sleep(LONG).await;
    assert_eq!((world.txs().await[0].status.as_str(), orphaned(&world)), ("mined", 0));
    endpoint.behave();
    world.until("it is final", async || world.txs().await[0].status == "final").await;
    assert_eq!(orphaned(&world), 0);
    world.assert_settled_once(1, UNITS).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn replaced_block_is_reorged_at_any_depth_after_downtime() {
    let world = World::new().await;
    let watcher = world.watch().await;
    let block = mined_and_left(&world).await;
    assert_eq!(world.chain.head().number, block);
    world.chain.reorg(1, Dropped::Discard).await.unwrap();
    long_after(&world).await;
    let settler = world.settle().await;
    world.until("the reorg is reported", async || orphaned(&world) == 1).await;
    world.mine_until_all("mined").await;
    world.assert_settled_once(1, UNITS).await;
    assert_eq!(world.txs().await.len(), 1, "the same transaction");
    stop(settler).await;
    stop(watcher).await;
}
