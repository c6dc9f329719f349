//! The watcher on a healthy chain.

use payferry_domain::payment::Presence;
use payferry_domain::{Amount, Chain, Finality, PaymentId, Token};
use payferry_entities::{chain_headers, transfers};
use sea_orm::{EntityTrait, IntoActiveModel};

use super::env::{Env, Progress};
use crate::env::Coin;

#[tokio::test]
async fn transfer_is_final_at_exactly_the_required_confirmations() {
    let env = Env::watching().await;
    let payment = env.payment().await;
    env.watchlist.watch(env.vault(payment), payment);
    env.pay(payment, 10_000_000).await;
    env.read_all().await;
    let seen = env.inbox.observed(payment);
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].amount, seen[0].token, seen[0].presence),
        (Amount::from_tokens(10), Some(Token::Usdc), Presence::Present)
    );
    env.await_finality(payment, &seen[0], Finality::Blocks(4));
    for _ in 0..2 {
        env.mine_and_read(1).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(env.inbox.finalised(payment), 0, "three confirmations");
    env.mine(1).await;
    env.until("it is final", async || env.inbox.finalised(payment) == 1).await;
    // Requested again when it is already reached.
    env.await_finality(payment, &seen[0], Finality::Blocks(4));
    env.until("it is final again", async || env.inbox.finalised(payment) == 2).await;

    env.await_finality(payment, &seen[0], Finality::Finalized);
    env.mine_and_read(6).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(env.inbox.finalised(payment), 2, "nine blocks above it, and ten are required");
    env.mine(1).await;
    env.until("it is finalized", async || env.inbox.finalised(payment) == 3).await;
}

#[tokio::test]
async fn records_only_possible_payments() {
    let env = Env::watching().await;
    // Never added to the watchlist: found in the database.
    let payment = env.payment().await;
    let wallet = env.vault(payment);
    env.send_money(wallet, 0).await;
    env.send_money(wallet, u64::MAX).await;
    env.send_money(wallet, 7).await;
    env.mint(env.coin(Coin::LookAlike), &[wallet], 9).await;
    env.send_money(env.spec.treasury, 1_000).await;
    env.mine_and_read(1).await;
    let seen: Vec<_> = env.inbox.observed(payment).iter().map(|fact| (fact.amount.units(), fact.token)).collect();
    assert_eq!(seen, [(7, Some(Token::Usdc)), (9, None)]);
    assert_eq!(env.transfers().await.len(), 2);
}

#[tokio::test]
async fn new_watcher_resumes_at_the_cursor_and_reports_unapplied_transfers() {
    let env = Env::watching().await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.mine_and_read(20).await;
    env.stop_watcher().await;

    env.inbox.notified.lock().clear();
    env.pay(payment, 6).await;
    env.mine(2).await;
    env.watch().await;
    env.read_all().await;
    let amounts: Vec<i64> = env.inbox.observed(payment).iter().map(|fact| fact.amount.units()).collect();
    assert_eq!(amounts, [5, 6], "the first one again, because it was not applied");
    let report = env.watcher_report().await;
    assert_eq!((report.blocks_read, report.transfers_recorded), (3, 1));
}

#[tokio::test]
async fn outage_is_reported_before_later_progress() {
    let env = Env::watching().await;
    env.mine_and_read(1).await;
    env.inbox.progress.lock().clear();
    let before = env.devchain.head();
    env.devchain.jump_time(100).await.unwrap();
    env.read_all().await;
    let after = env.devchain.head();
    let time = |secs: u64| payferry_domain::Timestamp::from_secs(i64::try_from(secs).unwrap());
    let gap = Progress::StoodStill { outage: after.number, from: time(before.timestamp), to: time(after.timestamp) };
    env.until("progress is reported", async || env.inbox.progress.lock().len() >= 2).await;
    assert_eq!(*env.inbox.progress.lock(), [gap, Progress::To(time(after.timestamp))]);
    // The next watcher reports the outage again, in case the first one died in between, although its blocks are forgotten.
    env.mine_and_read(1).await;
    env.stop_watcher().await;
    chain_headers::Entity::delete_many().exec(env.database.writer()).await.unwrap();
    env.inbox.progress.lock().clear();
    env.watch().await;
    assert_eq!(env.inbox.progress.lock().first(), Some(&gap));
}

#[tokio::test]
async fn outage_before_final_blocks_that_are_read_together_is_reported() {
    let env = Env::watching().await;
    env.mine_and_read(1).await;
    let before = env.devchain.head().timestamp;
    env.stop_watcher().await;
    env.devchain.jump_time(100).await.unwrap();
    env.mine(200).await;
    env.inbox.progress.lock().clear();
    env.watch().await;
    env.read_all().await;
    let from = payferry_domain::Timestamp::from_secs(i64::try_from(before).unwrap());
    let is_told = |progress: &Progress| matches!(progress, Progress::StoodStill { from: began, .. } if *began == from);
    env.until("the outage is reported", async || env.inbox.progress.lock().iter().any(is_told)).await;
}

#[tokio::test]
async fn thousand_transfers_of_one_block_are_recorded_and_reported_once() {
    let env = Env::new().await;
    let payments = env.payments(1_000).await;
    for payment in &payments {
        env.watchlist.watch(env.vault(*payment), *payment);
    }
    env.watch().await;
    env.read_all().await;
    let started = std::time::Instant::now();
    env.pay_all(&payments, 10_000_000).await;
    println!("1,000 transfers: mined in {:?}", started.elapsed());
    let started = std::time::Instant::now();
    env.read_all().await;
    let notified = |env: &Env| env.inbox.notified.lock().len();
    env.until("all are reported", async || notified(&env) >= 1_000).await;
    println!("recorded and reported after {:?} more", started.elapsed());
    assert_eq!((notified(&env), env.transfers().await.len()), (1_000, 1_000));
    assert!(payments.iter().all(|payment| env.inbox.observed(*payment).len() == 1));
}

#[tokio::test]
async fn wrong_chain_is_not_read() {
    let mut env = Env::new().await;
    let usdt = env.coin(Coin::Usdt);
    env.spec.tokens = vec![(Token::Usdc, env.spec.treasury)];
    let error = env.spec.check(&env.client()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("base: no contract at {}, expected USDC", env.spec.treasury));
    env.watch().await;
    env.until("the watcher reports it", async || env.watcher_report().await.degraded_reason.is_some()).await;
    assert_eq!(env.watcher_report().await.degraded_reason, Some(error.to_string()));
    assert!(env.watchlist.view(Chain::Base).is_none());
    env.stop_watcher().await;

    env.spec.tokens = vec![(Token::Usdc, env.spec.contract)];
    let error = env.spec.check(&env.client()).await.unwrap_err();
    assert!(error.to_string().contains("must have 6 decimals, found none") || error.is_transient(), "{error}");
    // A contract of the first version has no `VERSION`.
    env.spec.contract = usdt;
    let error = env.spec.check(&env.client()).await.unwrap_err();
    assert!(error.to_string().contains("is not version 2; run `payferry deploy`"), "{error}");
    env.spec.chain_id = 1;
    let error = env.spec.check(&env.client()).await.unwrap_err();
    assert_eq!(error.to_string(), "base: the endpoint serves chain 8453, expected chain id 1");
}

/// Rows for this many transfers of a payment in transaction `n`, recorded in block 1.
fn recorded(env: &Env, n: usize, payment: PaymentId, count: i64) -> Vec<transfers::Model> {
    let row = |log_index: i64| transfers::Model {
        chain: "base".to_owned(),
        tx_hash: format!("0x{n:064x}"),
        log_index,
        payment_id: payment.to_string(),
        token_address: env.coin(Coin::Usdc).to_string(),
        from_address: env.spec.treasury.to_string(),
        to_address: env.vault(payment).to_string(),
        amount: 1,
        block_number: 1,
        block_hash: format!("0x{:064x}", 1),
        presence: "present".to_owned(),
        revision: 1,
        ..transfers::Model::default()
    };
    (0..count).map(row).collect()
}

#[tokio::test]
async fn unresponsive_payments_do_not_block_newer_reports() {
    let env = Env::new().await;
    // No payment applies anything here: more payments than one sweep reads, and very many transfers of one of them.
    let stuck = env.payments(22).await;
    let count = |n: usize| if n == 0 { 2_500 } else { 100 };
    let rows = stuck.iter().enumerate().flat_map(|(n, payment)| recorded(&env, n, *payment, count(n)));
    let rows: Vec<_> = rows.map(IntoActiveModel::into_active_model).collect();
    for rows in rows.chunks(500) {
        transfers::Entity::insert_many(rows.to_vec()).exec(env.database.writer()).await.unwrap();
    }
    let payment = env.payment().await;
    let newest = transfers::Model { block_number: 2, ..recorded(&env, 99, payment, 1).remove(0) };
    transfers::Entity::insert(newest.into_active_model()).exec(env.database.writer()).await.unwrap();
    env.watch().await;
    env.until("it is reported again", async || env.inbox.observed(payment).len() == 1).await;
    assert_eq!(env.inbox.observed(stuck[0]).len(), 100, "only some at a time per payment");
}
