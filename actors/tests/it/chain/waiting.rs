//! Transactions that are not mined, with the reason: a halted chain, or a nonce gap. Also blocks that an endpoint
//! lacks, which say nothing about the transactions mined in them.

use std::time::Duration;

use payferry_actors::chain::{ChainContext, SettlerArgs, Step};
use payferry_devchain::Dropped;
use payferry_evm::ChainClient;
use payferry_harness::endpoint::{Endpoint, Fault, ReportedHead, What};

use super::env::Env;
use crate::env::{GWEI, operator};

const UNITS: u64 = 10_000_000;
const STUCK_AFTER: Duration = Duration::from_millis(200);
/// Passes of the settler that take at least twice as long.
const PASSES: u64 = 8;

#[tokio::test]
async fn fees_rise_only_while_the_chain_produces_blocks() {
    let mut env = Env::new().await;
    env.spec.stuck_after = STUCK_AFTER;
    env.watch().await;
    env.queued(2, UNITS).await;
    env.read_all().await;
    env.settle().await;
    env.until_signed(2).await;
    env.settler_passes(PASSES).await;
    assert_eq!((env.attempts_len().await, env.report().await.raised), (1, 0), "no block left it out");
    assert_eq!(env.report().await.blocked_reason, None);
    env.until("its fee is raised", async || {
        env.pass_by(1).await;
        env.attempts_len().await >= 2
    })
    .await;
    // The chain halts again.
    let raised = env.report().await.raised;
    env.settler_passes(PASSES).await;
    assert!(env.report().await.raised <= raised + 1, "at most once more, for the blocks that existed");
    env.settle_all_once(2, UNITS).await;
    assert_eq!(env.txs().await.len(), 1);
}

/// Creates a nonce gap before the signed settlements: the signer's key used the nonce elsewhere, in a block that is
/// permanently reorged.
async fn nonce_left_out(env: &Env) {
    env.queued(2, UNITS).await;
    env.operator_sends(0, GWEI, GWEI / 2).await;
    env.mine(1).await;
    env.settle().await;
    env.sign_and_stop(2).await;
    assert_eq!(nonces(env).await, [1]);
    env.reorg(1, Dropped::Discard).await;
    env.read_all().await;
}

async fn nonces(env: &Env) -> Vec<i64> {
    env.txs().await.into_iter().map(|tx| tx.nonce).collect()
}

#[tokio::test]
async fn killed_while_filling_a_nonce_gap() {
    for step in [Step::Signed, Step::Stored, Step::Broadcast] {
        let mut env = Env::new().await;
        env.spec.stuck_after = STUCK_AFTER;
        env.watch().await;
        nonce_left_out(&env).await;
        env.settle_until_dead(&[step]).await;
        let stored: &[i64] = if step == Step::Signed { &[1] } else { &[1, 0] };
        assert_eq!(nonces(&env).await, stored, "{step:?}");
        env.settle().await;
        env.settle_all_once(2, UNITS).await;
        assert_eq!(nonces(&env).await, [1, 0], "{step:?}: the nonce is used once");
    }
}

#[tokio::test]
async fn nonce_gap_is_reported_and_filled_without_raising_fees() {
    let mut env = Env::new().await;
    env.spec.stuck_after = STUCK_AFTER;
    env.watch().await;
    nonce_left_out(&env).await;

    env.settle().await;
    let is_said = async || {
        let reason = env.report().await.blocked_reason;
        reason.is_some_and(|reason| reason.starts_with("nonce 0 is missing: "))
    };
    env.until("the gap is reported", async || is_said().await).await;
    env.settler_passes(PASSES).await;
    assert!(is_said().await);
    assert_eq!(env.attempts_len().await, 1, "nothing is signed while the chain is halted");
    env.settle_all_once(2, UNITS).await;
    assert_eq!(nonces(&env).await, [1, 0]);
    let filler = env.txs().await.remove(1);
    let operator = operator().to_string();
    assert_eq!((filler.sender, filler.to_address, filler.input.as_str()), (operator.clone(), operator, "0x"));
    assert!(env.operations().await.iter().all(|row| row.chain_tx_id != Some(filler.id) && row.attempts == 1));
    let ours = env.attempts().await.into_iter().filter(|attempt| attempt.nonce == 1).count();
    assert_eq!(ours, 1, "a higher fee would not help");
    env.until("both are final and nothing is held up", async || {
        env.mine(1).await;
        let is_final = env.txs().await.iter().all(|tx| tx.status.as_str() == "final");
        is_final && env.report().await.blocked_reason.is_none()
    })
    .await;
}

/// Creates a settlement that is mined in the newest block and not final, and stops the settler. Returns the block's
/// number.
async fn mined_and_left(env: &Env) -> u64 {
    env.queued(1, UNITS).await;
    env.settle().await;
    env.until_signed(1).await;
    env.mine(1).await;
    env.until("it is mined", async || env.operation().await.status.as_str() == "mined").await;
    env.stop_settler().await;
    let tx = env.txs().await.remove(0);
    assert_eq!(tx.status.as_str(), "mined");
    u64::try_from(tx.block_number.unwrap()).unwrap()
}

/// Mines so many blocks that the settlement's block is no longer cached.
async fn long_after(env: &Env) {
    env.mine_and_read(30).await;
}

#[tokio::test]
async fn endpoint_without_the_block_reorgs_nothing() {
    let env = Env::watching().await;
    let block = mined_and_left(&env).await;
    long_after(&env).await;
    // Like an endpoint that was restored from an earlier copy.
    let endpoint = Endpoint::before(&env.devchain).await;
    endpoint.show([Fault::of(What::Head(ReportedHead::At(block - 1)))]);
    let client = ChainClient::http_all([endpoint.url()], Duration::from_secs(2), true).unwrap();
    let args = SettlerArgs { context: ChainContext { client, ..env.context() }, ..env.settler_args() };
    env.settle_with(args).await;
    env.until("the settler reports that it cannot know", async || {
        let reason = env.report().await.blocked_reason;
        reason.is_some_and(|reason| reason.contains(&format!("block {block} ")))
    })
    .await;
    env.settler_passes(PASSES).await;
    assert_eq!((env.txs().await[0].status.as_str(), env.inbox.orphaned()), ("mined", 0));
    endpoint.behave();
    env.until("it is final", async || env.txs().await[0].status.as_str() == "final").await;
    assert_eq!(env.inbox.orphaned(), 0);
    env.assert_settled_once(1, UNITS).await;
}

#[tokio::test]
async fn replaced_block_is_reorged_at_any_depth_after_downtime() {
    let env = Env::watching().await;
    let block = mined_and_left(&env).await;
    assert_eq!(env.devchain.head().number, block);
    env.reorg(1, Dropped::Discard).await;
    long_after(&env).await;
    env.settle().await;
    env.until("the reorg is reported", async || env.inbox.orphaned() == 1).await;
    env.settle_all_once(1, UNITS).await;
    assert_eq!(env.txs().await.len(), 1, "the same transaction");
}
