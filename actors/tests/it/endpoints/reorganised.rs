//! Reorgs of depth 1 to 20, with money at every stage: seen, confirmed, settled.

use std::ops::RangeInclusive;
use std::time::Duration;

use alloy::primitives::{B256, Bytes};
use payferry_devchain::{BlockRef, Dropped};
use payferry_domain::payment::{Payment, Status};

use super::behind;
use crate::env::senses::{Senses, logged, metric};
use crate::env::{BLOCK_TIME, Coin, Env, Options, PAYERS};

const DEPTH_MAX: u64 = 20;

/// A payment, and the signed transaction that paid it with its hash.
type Paid = (Payment, Bytes, B256);

async fn pay_another(env: &Env) -> Paid {
    let payment = env.initiate("10").await;
    let (raw, hash) = env.chain().transfer(PAYERS[0], Coin::Usdc, payment.terms.wallet, payment.terms.amount).await;
    (payment, raw, hash)
}

/// Creates three payments whose transfers are at different stages, the oldest furthest; the last one is in the newest
/// block. Mining is paused, and all blocks are read.
async fn at_different_stages(env: &Env, depth: u64) -> Vec<Paid> {
    let devchain = &env.chain().devchain;
    let mut paid = Vec::new();
    for wait in [depth, depth / 2] {
        paid.push(pay_another(env).await);
        env.chain().blocks(wait.max(1)).await;
    }
    devchain.pause_mining();
    // Waits for a block in progress.
    devchain.mine(1).await.unwrap();
    paid.push(pay_another(env).await);
    devchain.mine(1).await.unwrap();
    env.until_read(env.chain()).await;
    paid
}

/// Reorgs the last blocks, resumes mining, and returns the head of the new branch.
async fn reorg_last_blocks(env: &Env, depth: u64, dropped: Dropped) -> BlockRef {
    let head = env.chain().devchain.reorg(depth, dropped).await.unwrap();
    env.chain().devchain.resume_mining();
    head
}

async fn until_read(env: &Env, branch: BlockRef) {
    // The dropped branch was one block shorter.
    let read = async || env.view().read_number >= branch.number;
    env.until("the new branch is read", read).await;
    env.chain().blocks(2).await;
    env.until_read(env.chain()).await;
}

async fn env() -> Env {
    Env::with(Options { senses: Senses::Shared, ..behind(1) }).await
}

/// At each depth, reorgs payments at different stages, carries on with `then` (which gets them, and all payments so
/// far), and asserts that everything settles once.
async fn at_each_depth(
    depths: RangeInclusive<u64>,
    dropped: Dropped,
    then: impl AsyncFn(&Env, &[Paid], &[Payment], BlockRef),
) -> Env {
    let env = env().await;
    let mut all = Vec::new();
    for depth in depths {
        let paid = at_different_stages(&env, depth).await;
        all.extend(paid.iter().map(|(payment, ..)| payment.clone()));
        let branch = reorg_last_blocks(&env, depth, dropped).await;
        then(&env, &paid, &all, branch).await;
        env.finish(&all).await;
    }
    env
}

async fn with_the_same_transactions(depths: RangeInclusive<u64>) {
    let _env = at_each_depth(depths, Dropped::Remine, async |env, _, _, branch| until_read(env, branch).await).await;
    assert!(metric("payferry_settler_submitted_total", &["chain=base"]) > 0);
    assert!(metric("payferry_chain_reorgs_total", &["chain=base"]) > 0);
    assert!(logged(&["chain base was reorganised", "depth="]));
}

/// The payers' transactions return one by one, some blocks later; the settler sends the settlements again.
async fn in_later_blocks(depths: RangeInclusive<u64>) {
    at_each_depth(depths, Dropped::Discard, async |env, paid, _, branch| {
        for (_, raw, _) in paid {
            env.chain().blocks(2).await;
            // A transaction below the fork is already included.
            let _ = env.chain().devchain.send_raw(raw.clone()).await;
        }
        until_read(env, branch).await;
    })
    .await;
}

/// The payers' transactions are permanently gone: unconfirmed payments stay unconfirmed, confirmed ones are orphaned, and
/// nothing is settled without money. When the payers pay again, everything is settled once.
async fn gone(depths: RangeInclusive<u64>) {
    at_each_depth(depths, Dropped::Discard, async |env, paid, all, branch| {
        until_read(env, branch).await;
        let mut lost = Vec::new();
        for (payment, _, hash) in paid {
            if !env.chain().receipt(hash).await.is_null() {
                continue;
            }
            let state = env.until_status(payment.id(), Status::Pending).await;
            assert_eq!(state.amount_received().units(), 0, "{state:#?}");
            lost.push(payment);
        }
        assert!(!lost.is_empty(), "the last transfer was in the last block");
        env.assert_true_to_chain(all).await;
        tokio::time::sleep(BLOCK_TIME * 10).await;
        env.assert_true_to_chain(all).await;
        for payment in lost {
            env.pay(payment, "10").await;
        }
    })
    .await;
}

cases! {
    #[tokio::test(flavor = "multi_thread")]

    remined_in_the_same_order_up_to_depth_10 => with_the_same_transactions(1..=10);
    remined_in_the_same_order_up_to_depth_20 => with_the_same_transactions(11..=DEPTH_MAX);
    remined_in_later_blocks_up_to_depth_10 => in_later_blocks(1..=10);
    remined_in_later_blocks_up_to_depth_20 => in_later_blocks(11..=DEPTH_MAX);
    dropped_for_good_up_to_depth_10 => gone(1..=10);
    dropped_for_good_up_to_depth_20 => gone(11..=DEPTH_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn reorged_settlement_batch_is_sent_again() {
    let env = env().await;
    let paid = env.initiate_and_pay(5).await;
    env.chain().blocks(6).await;
    env.until_settled(&paid).await;
    let before = metric("payferry_settler_taken_back_total", &[]);
    // Only our transactions of the last blocks; the payers' money came before.
    let loaded = futures::future::join_all(paid.iter().map(|payment| env.load(payment.id()))).await;
    let newest = loaded.iter().flat_map(|payment| &payment.transfers).map(|t| t.block.number).max().unwrap();
    env.chain().devchain.pause_mining();
    // Waits for a block in progress.
    env.chain().devchain.mine(1).await.unwrap();
    env.until_read(env.chain()).await;
    let depth = env.chain().devchain.head().number - newest;
    let branch = reorg_last_blocks(&env, depth, Dropped::Discard).await;
    until_read(&env, branch).await;
    env.until("the settlements are orphaned", async || metric("payferry_settler_taken_back_total", &[]) > before).await;
    let is_mined = async || env.balance(env.chain().spec.treasury).await == 500_000;
    env.until("the settlements are mined again", is_mined).await;
    env.until_settled(&paid).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    env.assert_balances(&paid, 5).await;
}
