//! Logs that an endpoint omits, repeats or invents.

use payferry_domain::payment::{Label, Payment, Status};
use payferry_harness::endpoint::{Fault, What};

use crate::senses::{logged, metric};
use crate::world::{Options, World};

const LOGS: [&str; 1] = ["eth_getLogs"];

/// Block receipts are not available, as with many providers: only the rescan finds omitted logs.
fn no_receipts() -> Fault {
    Fault::of(What::Error(-32_601, "the method eth_getBlockReceipts does not exist")).on(["eth_getBlockReceipts"])
}

fn looking_soon() -> Options {
    Options { tweak: |spec| spec.second_look_blocks = 20, ..Options::default() }
}

async fn finish(world: &World, payments: &[Payment]) {
    world.until_settled(payments).await;
    world.assert_true_to_chain(payments).await;
    world.assert_books(payments, payments.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn omission_of_all_logs_is_found_in_receipts() {
    let world = World::new().await;
    world.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS)]);
    let payment = world.initiate().await;
    world.pay(&payment).await;
    finish(&world, &[payment]).await;
    assert!(logged(&["an endpoint omitted logs of a block"]));
    assert!(metric("payferry_chain_logs_left_out_total", &["chain=base"]) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn omission_of_one_log_is_detected_by_the_bloom_filter() {
    let world = World::new().await;
    world.endpoint().show([Fault::of(What::MissingLogs(2)).on(LOGS)]);
    let payments = [world.initiate().await, world.initiate().await, world.initiate().await, world.initiate().await];
    // In one block.
    world.site().devchain.pause_mining();
    for payment in &payments {
        world.pay(payment).await;
    }
    world.site().devchain.mine(1).await.unwrap();
    world.site().devchain.resume_mining();
    finish(&world, &payments).await;
    assert!(logged(&["an endpoint omitted logs of a block"]));
    assert!(metric("payferry_chain_logs_left_out_total", &["chain=base"]) > 0);
    assert_eq!(metric("payferry_chain_logs_missed_total", &[]), 0, "nothing was left for the rescan");
}

#[tokio::test(flavor = "multi_thread")]
async fn omitted_transfers_are_found_by_the_rescan() {
    let world = World::with(looking_soon()).await;
    let payments = [world.initiate().await, world.initiate().await, world.initiate().await];
    world.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    let mut last = 0;
    for payment in &payments {
        let hash = world.pay(payment).await;
        last = world.site().mined(hash).await;
    }
    world.until("the blocks are read", async || world.view().read_number > last).await;
    for payment in &payments {
        let payment = world.load(payment.id()).await;
        assert_eq!((payment.status, payment.transfers.len()), (Status::Pending, 0));
    }
    world.endpoint().show([no_receipts()]);
    finish(&world, &payments).await;
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 3);
    assert!(logged(&["an endpoint of base omitted transfers to payments; a rescan found them"]));
    assert!(metric("payferry_chain_second_look_number", &["chain=base"]) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rescan_resumes_after_a_restart() {
    let world = World::with(looking_soon()).await;
    let payment = world.initiate().await;
    world.site().blocks(60).await;
    world.until("blocks are rescanned", async || world.second_look_from().await > 30).await;
    world.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    let hash = world.pay(&payment).await;
    let number = world.site().mined(hash).await;
    world.until("the block is read", async || world.view().read_number > number).await;
    let from = world.second_look_from().await;
    assert!(from > 30 && from <= number, "{from}, {number}");
    // Range queries of the rescan need not have failed; only the recorded position matters.
    world.endpoint().go_away().await;
    let world = world.restart().await;
    assert!(world.second_look_from().await >= from);
    world.endpoint().show([no_receipts()]);
    world.endpoint().come_back().await;
    finish(&world, &[payment]).await;
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_endpoint_provides_logs_omitted_by_the_first() {
    let world = World::with(Options { endpoints: 2, ..looking_soon() }).await;
    let payment = world.initiate().await;
    // Permanently.
    world.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    world.site().endpoints[1].show([no_receipts()]);
    world.pay(&payment).await;
    finish(&world, &[payment]).await;
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_omitted_until_after_the_deadline_are_not_lost() {
    let world = World::with(looking_soon()).await;
    let payment = world.try_initiate(world.site().chain, 300).await.unwrap();
    world.endpoint().show([Fault::of(What::MissingLogs(1)).on(LOGS), no_receipts()]);
    let hash = world.pay(&payment).await;
    world.site().mined(hash).await;
    world.site().devchain.advance_time(400, 30).await.unwrap();
    world.until_status(&payment, Status::Failed).await;
    world.endpoint().show([no_receipts()]);
    // In time by its block, but found after the payment ended: it reopens the payment for the PSP to decide.
    let found = world.until_status(&payment, Status::Mismatched).await;
    assert_eq!(found.transfers.len(), 1);
    assert_eq!(found.transfers[0].first_block_time, found.transfers[0].block.time);
    assert!(found.transfers[0].first_block_time < found.expires_at, "the time of its own block is kept");
    assert!(found.labels.contains(Label::Late), "{found:#?}");
    assert_eq!(metric("payferry_chain_logs_missed_total", &["chain=base"]), 1);
    world.assert_books(&[payment], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_logs_count_once() {
    let world = World::with(looking_soon()).await;
    world.endpoint().show([Fault::of(What::DuplicateLogs).on(LOGS)]);
    let payments = [world.initiate().await, world.initiate().await];
    for payment in &payments {
        world.pay(payment).await;
    }
    finish(&world, &payments).await;
    world.site().blocks(60).await;
    for payment in &payments {
        let payment = world.load(payment.id()).await;
        assert_eq!((payment.transfers.len(), payment.labels.contains(Label::Overpaid)), (1, false));
    }
    assert_eq!(metric("payferry_chain_logs_missed_total", &[]), 0);
    assert!(metric("payferry_chain_logs_repeated_total", &["chain=base"]) > 0);
    assert!(logged(&["an endpoint returned logs more than once; duplicates are ignored"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_transfer_confirms_nothing() {
    let world = World::with(looking_soon()).await;
    let (unpaid, paid) = (world.initiate().await, world.initiate().await);
    let forged = What::ForgedLog { contract: world.site().token, to: unpaid.terms.wallet, units: 10_000_000 };
    world.endpoint().show([Fault::of(forged).on(LOGS)]);
    world.pay(&paid).await;
    world.until_status(&paid, Status::Settled).await;
    world.site().blocks(60).await;
    let state = world.load(unpaid.id()).await;
    assert_eq!((state.status, state.transfers.len()), (Status::Pending, 0));
    assert!(metric("payferry_chain_logs_forged_total", &["chain=base"]) > 0);
    assert!(logged(&["an endpoint of base shows a transfer that its transaction did not make"]));
    world.endpoint().behave();
    world.pay(&unpaid).await;
    finish(&world, &[unpaid, paid]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_transfer_is_rejected_without_block_receipts() {
    let world = World::with(Options { endpoints: 2, ..looking_soon() }).await;
    let unpaid = world.initiate().await;
    let forged = What::ForgedLog { contract: world.site().token, to: unpaid.terms.wallet, units: 10_000_000 };
    world.endpoint().show([Fault::of(forged).on(LOGS).times(4), no_receipts()]);
    world.site().endpoints[1].show([no_receipts()]);
    world.until_noticed("inconsistent", &["cannot be read", "a transfer has no receipt"]).await;
    // The invented log is gone with the next pass, and the chain continues.
    world.pay(&unpaid).await;
    finish(&world, &[unpaid]).await;
}
