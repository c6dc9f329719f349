//! Operation numbers that the contract reports as done: by another operation after the counter was reset, or by the
//! operation itself when an endpoint lags.

use std::collections::BTreeSet;

use payferry_actors::chain::Step;
use payferry_devchain::Faults;
use payferry_domain::outbound;
use payferry_domain::payment::Command;
use payferry_domain::{Address, PaymentId};
use payferry_entities::{chain_counters, chain_tx_attempts, chain_txs, operations};
use sea_orm::EntityTrait;
use sea_orm::sea_query::{Condition, Expr};

use super::blocking_error::reset_results;
use super::env::Env;
use super::send;

const UNITS: u64 = 1_000_000;
/// Long after every block of a test, in 2096.
const LATER_MS: i64 = 4_000_000_000_000;

/// Resets the database to a state before any operation, so that numbers are assigned again. Returns the transactions
/// that it had recorded.
async fn restore(env: &Env) -> BTreeSet<String> {
    let forgotten = env.operations().await.into_iter().filter_map(|row| row.tx_hash).collect();
    operations::Entity::delete_many().exec(env.database.writer()).await.unwrap();
    chain_txs::Entity::delete_many().exec(env.database.writer()).await.unwrap();
    chain_tx_attempts::Entity::delete_many().exec(env.database.writer()).await.unwrap();
    forgotten
}

async fn made_later(env: &Env) {
    env.update_operations(Condition::all(), [(operations::Column::CreatedAt, Expr::value(LATER_MS))]).await;
}

/// Mines until the only operation is mined, in none of these transactions and under a new number.
async fn until_done_anew(env: &Env, foreign: &BTreeSet<String>) -> operations::Model {
    let used = i64::try_from(foreign.len()).unwrap();
    env.mine_until("it is mined", async || {
        let row = env.operation().await;
        assert!(row.tx_hash.as_ref().is_none_or(|hash| !foreign.contains(hash)), "another's: {row:?}");
        assert_ne!(row.status, "failed", "{row:?}");
        row.status == "mined"
    })
    .await;
    let row = env.operation().await;
    assert!(row.number > used, "{row:?}");
    let counter = chain_counters::Entity::find_by_id("operation:base").one(env.database.reader()).await.unwrap();
    assert_eq!(counter.unwrap().next, row.number + 1, "later operations do not get used numbers");
    row
}

/// Transactions that settled the payment according to the notifications.
fn notified_settled(env: &Env, payment: PaymentId) -> BTreeSet<String> {
    let hashes = env.inbox.find(|id, command| match command {
        Command::CompleteSettlement { tx_hash, .. } if id == payment => Some(tx_hash.to_string()),
        _ => None,
    });
    hashes.into_iter().collect()
}

/// Creates three settlements that the database then loses, and a payment whose settlement gets the number of one of
/// them.
async fn restored(env: &Env) -> (BTreeSet<String>, PaymentId) {
    env.settle().await;
    let payments = env.payments(4).await;
    // One transaction each, so that there are as many as numbers.
    for before in payments[..3].chunks(1) {
        env.pay_all(before, 10_000_000).await;
        env.queue_settlements(before, 10_000_000).await;
        env.mine_until_all("mined").await;
    }
    env.stop_settler().await;
    let foreign = restore(env).await;
    assert_eq!(foreign.len(), 3);
    let payment = payments[3];
    env.pay(payment, 7_000_000).await;
    env.queue_settlements(&[payment], 7_000_000).await;
    (foreign, payment)
}

/// Asserts that the payment is settled once by its own transaction and notified, and that the others' money did not
/// move.
async fn assert_settled_anew(env: &Env, foreign: &BTreeSet<String>, payment: PaymentId) {
    let row = until_done_anew(env, foreign).await;
    assert_eq!((row.amount, row.psp_amount, row.treasury_fee), (7_000_000, 6_930_000, 70_000));
    assert_eq!(row.attempts, 2, "refused once");
    env.mine_until("the result is reported", async || !notified_settled(env, payment).is_empty()).await;
    assert_eq!(notified_settled(env, payment), row.tx_hash.into_iter().collect(), "its own transaction");
    assert_eq!(env.balance(env.vault(payment)).await, 0);
    assert_eq!(env.balance(env.spec.treasury).await, 3 * 100_000 + 70_000);
    assert_eq!(env.balance(env.psp_vault()).await, 3 * 9_900_000 + 6_930_000);
}

/// A settlement gets the number of another one, whose event is found or lies too far back to be searched.
async fn settled_under_a_used_number(is_far_back: bool) {
    let env = Env::watching().await;
    let (foreign, payment) = restored(&env).await;
    if is_far_back {
        made_later(&env).await;
        env.mine(40).await;
        env.devchain.set_faults(Faults { logs_range_blocks_max: 7, ..Faults::default() });
    }
    env.settle().await;
    assert_settled_anew(&env, &foreign, payment).await;
}

#[tokio::test]
async fn killed_before_and_after_the_commit_of_a_new_number() {
    // Before the new number, only the mined transaction is recorded.
    for (nth, has_fresh) in [(1, false), (2, true)] {
        let env = Env::watching().await;
        let (foreign, payment) = restored(&env).await;
        env.settle_until_dead(&vec![Step::Recorded; nth]).await;
        let row = env.operation().await;
        assert_eq!(row.number > 3, has_fresh, "number {}", row.number);
        env.settle().await;
        assert_settled_anew(&env, &foreign, payment).await;
    }
}

cases! {
    #[tokio::test]

    settlement_with_a_used_number_settles_by_its_own_transaction => settled_under_a_used_number(false);
    number_used_before_the_operation_existed_belongs_to_another => settled_under_a_used_number(true);
}

/// A withdrawal.
#[derive(Clone, Copy)]
struct Withdrawal {
    to: Address,
    amount: u64,
}

/// A withdrawal gets the number of an older one, which was created `is_long_before` or just before.
async fn sent_under_a_used_number(before: Withdrawal, now: Withdrawal, is_long_before: bool) {
    let env = send::env().await;
    env.start().await;
    env.send_money(env.psp_vault(), UNITS * 10).await;
    env.mine(1).await;
    env.queue_withdrawals(&[before.to], before.amount).await;
    env.mine_until_all("mined").await;
    env.stop_settler().await;
    let foreign = restore(&env).await;
    env.queue_withdrawals(&[now.to], now.amount).await;
    if is_long_before {
        made_later(&env).await;
    }
    env.settle().await;
    until_done_anew(&env, &foreign).await;
    let of_before = if before.to == now.to { before.amount } else { 0 };
    assert_eq!(env.balance(now.to).await, of_before + now.amount);
    assert_eq!(env.balance(env.psp_vault()).await, 10 * UNITS - before.amount - now.amount);
    let is_failed = |command: &outbound::Command| matches!(command, outbound::Command::Fail { .. });
    assert!(env.inbox.find_outbound(|_, command| is_failed(command).then_some(())).is_empty());
}

const FIRST: Withdrawal = Withdrawal { to: Address([1; 20]), amount: UNITS };

cases! {
    #[tokio::test]

    withdrawal_with_a_used_number_is_sent_by_its_own_transaction =>
        sent_under_a_used_number(FIRST, Withdrawal { to: Address([2; 20]), ..FIRST }, true);
    older_withdrawal_to_the_same_account_is_not_mistaken_for_it => sent_under_a_used_number(FIRST, FIRST, true);
    withdrawal_of_another_amount_is_not_mistaken_for_it =>
        sent_under_a_used_number(FIRST, Withdrawal { amount: 2 * UNITS, ..FIRST }, false);
}

#[tokio::test]
async fn contract_refusal_counts_as_done_despite_a_lagging_endpoint() {
    let env = Env::new().await;
    env.start().await;
    let payments = env.paid(1, 10_000_000).await;
    // State that calls return: the funds are present and not settled.
    let shown = env.devchain.head().number;
    env.mine(4).await;
    env.queue_settlements(&payments, 10_000_000).await;
    env.mine_until_all("mined").await;
    let done = env.operation().await.tx_hash;
    assert!(done.is_some());
    env.stop_settler().await;
    reset_results(&env).await;
    let fall_behind = || {
        let head_lag_blocks = env.devchain.head().number - shown;
        env.devchain.set_faults(Faults { methods: vec!["eth_call".to_owned()], head_lag_blocks, ..Faults::default() });
    };
    fall_behind();
    env.settle().await;
    env.mine_until("it is found where it was done", async || {
        fall_behind();
        let row = env.operation().await;
        assert_ne!(row.status, "failed", "{row:?}");
        row.status == "mined" && row.tx_hash == done
    })
    .await;
    assert_eq!(env.inbox.failed(), 0);
    assert_eq!(env.operation().await.attempts, 2, "it was refused");
    env.assert_settled_once(1, 10_000_000).await;
}
