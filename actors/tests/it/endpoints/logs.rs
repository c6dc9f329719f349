//! Logs that an endpoint omits, repeats or invents.

use payferry_domain::payment::{Label, Status};
use payferry_harness::endpoint::{Fault, What};

use super::behind;
use crate::env::senses::{logged, metric};
use crate::env::{Coin, Env, Options};

const LOGS: [&str; 1] = ["eth_getLogs"];

/// Block receipts are not available, as with many providers: only the rescan finds omitted logs.
fn no_receipts() -> Fault {
    Fault::of(What::Error(-32_601, "the method eth_getBlockReceipts does not exist")).on(["eth_getBlockReceipts"])
}

fn looking_soon() -> Options {
    behind(1).tweaked(|spec| spec.second_look_blocks = 20)
}

#[tokio::test(flavor = "multi_thread")]
async fn omission_of_all_logs_is_found_in_receipts() {
    let env = Env::with(behind(1)).await;
    env.show(Fault::of(What::MissingLogs(1)).on(LOGS));
    let payment = env.initiate("10").await;
    env.pay(&payment, "10").await;
    env.finish(&[payment]).await;
    assert!(logged(&["an endpoint omitted logs of a block"]));
    assert!(metric("payferry_chain_logs_left_out_total", &["chain=base"]) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn omission_of_one_log_is_detected_by_the_bloom_filter() {
    let env = Env::with(behind(1)).await;
    env.show(Fault::of(What::MissingLogs(2)).on(LOGS));
    let payments = env.initiate_many(4).await;
    // In one block.
    env.chain().devchain.pause_mining();
    for payment in &payments {
        env.pay(payment, "10").await;
    }
    env.chain().devchain.mine(1).await.unwrap();
    env.chain().devchain.resume_mining();
    env.finish(&payments).await;
    assert!(logged(&["an endpoint omitted logs of a block"]));
    assert!(metric("payferry_chain_logs_left_out_total", &["chain=base"]) > 0);
    assert_eq!(metric("payferry_chain_logs_missed_total", &[]), 0, "nothing was left for the rescan");
}

#[tokio::test(flavor = "multi_thread")]
async fn omitted_transfers_are_found_by_the_rescan() {
    let env = Env::with(looking_soon()).await;
    let payments = env.initiate_many(3).await;
    env.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    let mut last = 0;
    for payment in &payments {
        let hash = env.pay(payment, "10").await;
        last = env.chain().mined(hash).await;
    }
    env.until("the blocks are read", async || env.view().read_number > last).await;
    for payment in &payments {
        let payment = env.load(payment.id()).await;
        assert_eq!((payment.status, payment.transfers.len()), (Status::Pending, 0));
    }
    env.endpoint().show([no_receipts()]);
    env.finish(&payments).await;
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 3);
    assert!(logged(&["an endpoint of base omitted transfers to payments; a rescan found them"]));
    assert!(metric("payferry_chain_second_look_number", &["chain=base"]) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rescan_resumes_after_a_restart() {
    let mut env = Env::with(looking_soon()).await;
    let payment = env.initiate("10").await;
    env.chain().blocks(60).await;
    env.until("blocks are rescanned", async || env.second_look_from().await > 30).await;
    env.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    let hash = env.pay(&payment, "10").await;
    let number = env.chain().mined(hash).await;
    env.until("the block is read", async || env.view().read_number > number).await;
    let from = env.second_look_from().await;
    assert!(from > 30 && from <= number, "{from}, {number}");
    // Range queries of the rescan need not have failed; only the recorded position matters.
    env.endpoint().close_connections().await;
    env.stop(false).await;
    env.start_blindly().await;
    assert!(env.second_look_from().await >= from);
    env.endpoint().show([no_receipts()]);
    env.endpoint().listen_again().await;
    env.finish(&[payment]).await;
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_endpoint_provides_logs_omitted_by_the_first() {
    let env = Env::with(Options { endpoints: 2, ..looking_soon() }).await;
    let payment = env.initiate("10").await;
    // Permanently.
    env.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    env.chain().endpoints[1].show([no_receipts()]);
    env.pay(&payment, "10").await;
    env.finish(&[payment]).await;
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_omitted_until_after_the_deadline_are_not_lost() {
    let env = Env::with(looking_soon()).await;
    let payment = env.try_initiate(env.chain().chain, 300).await.unwrap();
    env.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    let hash = env.pay(&payment, "10").await;
    env.chain().mined(hash).await;
    env.chain().devchain.advance_time(400, 30).await.unwrap();
    env.until_status(payment.id(), Status::Failed).await;
    env.endpoint().show([no_receipts()]);
    // In time by its block, but found after the payment ended: it reopens the payment for the PSP to decide.
    let found = env.until_status(payment.id(), Status::Mismatched).await;
    assert_eq!(found.transfers.len(), 1);
    assert_eq!(found.transfers[0].first_block_time, found.transfers[0].block.time);
    assert!(found.transfers[0].first_block_time < found.expires_at, "the time of its own block is kept");
    assert!(found.labels.contains(Label::Late), "{found:#?}");
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 1);
    env.assert_balances(&[payment], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_logs_count_once() {
    let env = Env::with(looking_soon()).await;
    env.show(Fault::of(What::DuplicateLogs).on(LOGS));
    let payments = env.initiate_and_pay(2).await;
    env.finish(&payments).await;
    env.chain().blocks(60).await;
    for payment in &payments {
        let payment = env.load(payment.id()).await;
        assert_eq!((payment.transfers.len(), payment.labels.contains(Label::Overpaid)), (1, false));
    }
    assert_eq!(metric("payferry_chain_logs_missed_total", &[]), 0);
    assert!(metric("payferry_chain_logs_repeated_total", &["chain=base"]) > 0);
    assert!(logged(&["an endpoint returned logs more than once; duplicates are ignored"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_transfer_confirms_nothing() {
    let env = Env::with(looking_soon()).await;
    let (unpaid, paid) = (env.initiate("10").await, env.initiate("10").await);
    let forged = What::ForgedLog { contract: env.chain().coin(Coin::Usdc), to: unpaid.terms.wallet, units: 10_000_000 };
    env.show(Fault::of(forged).on(LOGS));
    env.pay(&paid, "10").await;
    env.until_status(paid.id(), Status::Settled).await;
    env.chain().blocks(60).await;
    let state = env.load(unpaid.id()).await;
    assert_eq!((state.status, state.transfers.len()), (Status::Pending, 0));
    assert!(metric("payferry_chain_logs_forged_total", &["chain=base"]) > 0);
    assert!(logged(&["an endpoint of base reported a transfer that its transaction did not emit"]));
    env.endpoint().behave();
    env.pay(&unpaid, "10").await;
    env.finish(&[unpaid, paid]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_transfer_is_rejected_without_block_receipts() {
    let env = Env::with(Options { endpoints: 2, ..looking_soon() }).await;
    let unpaid = env.initiate("10").await;
    let forged = What::ForgedLog { contract: env.chain().coin(Coin::Usdc), to: unpaid.terms.wallet, units: 10_000_000 };
    env.endpoint().show([Fault::of(forged).on(LOGS).times(4), no_receipts()]);
    env.chain().endpoints[1].show([no_receipts()]);
    env.until_noticed("inconsistent", &["cannot be read", "a transfer has no receipt"]).await;
    // The invented log is gone with the next pass, and the chain continues.
    env.pay(&unpaid, "10").await;
    env.finish(&[unpaid]).await;
}
