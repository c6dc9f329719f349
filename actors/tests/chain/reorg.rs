//! Reorged blocks.

use payferry_devchain::{Dropped, Wallet};
use payferry_domain::Finality;
use payferry_domain::payment::Presence;

use crate::world::{CHAIN_ID, GWEI, World, report, stop};

#[tokio::test]
async fn dropped_transfer_is_orphaned_and_never_final() {
    let world = World::new().await;
    let watcher = world.watch().await;
    let payment = world.payment().await;
    world.pay(payment, 5).await;
    world.read_all().await;
    let seen = world.inbox.observed(payment)[0];
    world.watchlist.await_finality(payment, seen.key, seen.revision, seen.block.number, Finality::Blocks(3));
    world.chain.mine(1).await.unwrap();
    world.read_all().await;
    world.chain.reorg(2, Dropped::Discard).await.unwrap();
    world.chain.mine(3).await.unwrap();
    world.read_all().await;
    let facts = world.inbox.observed(payment);
    let told: Vec<_> = facts.iter().map(|fact| (fact.presence, fact.revision)).collect();
    assert_eq!(told, [(Presence::Present, 1), (Presence::Orphaned, 2)]);
    assert_eq!(world.inbox.finalised(payment), 0);
    assert_eq!(report(&watcher).await.blocks_orphaned, 2);
    stop(watcher).await;
}

/// Mines the dropped transfer again behind another log, so that its log index changes too.
async fn remine_behind_a_stranger(world: &World) {
    let stranger = Wallet::from_seed("stranger");
    world.chain.reorg(1, Dropped::Remine).await.unwrap();
    let input = alloy::sol_types::SolCall::abi_encode(&payferry_contracts::Token::approveCall {
        spender: stranger.address(),
        value: alloy::primitives::U256::from(1),
    });
    let to = payferry_evm::wallet::alloy_address(world.token);
    let (raw, _) = stranger.sign_call(CHAIN_ID, 0, to, input.into(), 200_000, GWEI, GWEI / 2);
    world.chain.send_raw(raw).await.unwrap();
    world.chain.mine(1).await.unwrap();
}

async fn assert_remined(world: &World, payment: payferry_domain::PaymentId) {
    world.read_all().await;
    let facts = world.inbox.observed(payment);
    let [first, .., again] = facts.as_slice() else { panic!("{facts:?}") };
    assert!(facts.iter().any(|fact| fact.key == first.key && fact.presence == Presence::Orphaned));
    assert_eq!((first.key.log_index, again.key.log_index), (0, 1));
    assert_eq!((again.key.tx_hash, again.presence), (first.key.tx_hash, Presence::Present));
    assert!(again.block.number > first.block.number);
    assert_eq!(again.first_block_time, Some(first.block.time), "the first block time is kept");
    let present: Vec<_> = world.transfers().await.into_iter().filter(|row| row.presence == "present").collect();
    assert_eq!(present.len(), 1);
}

#[tokio::test]
async fn remined_transfer_gets_its_new_position() {
    let world = World::new().await;
    let watcher = world.watch().await;
    let payment = world.payment().await;
    world.pay(payment, 5).await;
    world.read_all().await;
    remine_behind_a_stranger(&world).await;
    assert_remined(&world, payment).await;
    stop(watcher).await;
}

#[tokio::test]
async fn reorg_during_downtime_is_noticed_at_startup() {
    let world = World::new().await;
    let watcher = world.watch().await;
    let payment = world.payment().await;
    world.pay(payment, 5).await;
    world.read_all().await;
    stop(watcher).await;
    remine_behind_a_stranger(&world).await;
    let watcher = world.watch().await;
    assert_remined(&world, payment).await;
    assert_eq!(report(&watcher).await.blocks_orphaned, 1);
    stop(watcher).await;
}

#[tokio::test]
async fn reorg_deeper_than_one_pass_finds_the_common_block() {
    let mut world = World::new().await;
    world.spec.fallback_depth_blocks = 200;
    world.spec.has_finalized = false;
    let watcher = world.watch().await;
    let payment = world.payment().await;
    world.pay(payment, 5).await;
    world.chain.mine(60).await.unwrap();
    world.read_all().await;
    world.chain.reorg(61, Dropped::Remine).await.unwrap();
    world.chain.mine(1).await.unwrap();
    world.read_all().await;
    assert_eq!(report(&watcher).await.blocks_orphaned, 61);
    let facts = world.inbox.observed(payment);
    assert_eq!(facts.last().map(|fact| fact.presence), Some(Presence::Present));
    assert_eq!(world.transfers().await.iter().filter(|row| row.presence == "present").count(), 1);
    stop(watcher).await;
}
