//! Conditions that must not delay an unrelated settlement.

use std::time::Duration;

use alloy::primitives::U256;
use payferry_devchain::{Dropped, Faults, Wallet};
use payferry_entities::{chain_tx_attempts, chain_txs, operations};
use payferry_evm::wallet::domain_address;
use sea_orm::sea_query::Expr;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter};
use serde_json::json;

use crate::env::{CHAIN_ID, Env, settler_report, stop};

/// More transactions than one pass reads.
const BEFORE: i64 = 1_001;
/// Consecutive passes that meet the same error. They would not fit into the test's timeout if the settler waited for
/// each.
const LOOKS: u32 = 12;

/// Inserts `BEFORE` transactions of another account with this status and with nonces below ours.
async fn before_ours(env: &Env, status: &str, block_number: i64) {
    let row = |place: i64| chain_txs::Model {
        id: 0,
        chain: "base".to_owned(),
        sender: env.treasury.to_string(),
        nonce: place - BEFORE,
        to_address: env.treasury.to_string(),
        input: "0x".to_owned(),
        gas_limit: 1,
        status: status.to_owned(),
        tx_hash: Some(format!("0x{place:064x}")),
        block_number: Some(block_number),
        block_hash: Some(format!("0x{place:064x}")),
        created_at: 0,
        updated_at: 0,
    };
    for places in (0..BEFORE).collect::<Vec<_>>().chunks(100) {
        let rows = places.iter().map(|place| {
            let mut row = row(*place).into_active_model();
            row.id = sea_orm::ActiveValue::NotSet;
            row
        });
        chain_txs::Entity::insert_many(rows).exec(env.database.writer()).await.unwrap();
    }
}

#[tokio::test]
async fn many_unfinal_transactions_hide_no_other_transactions() {
    let env = Env::new().await;
    // In blocks that are far from final, and from being read.
    before_ours(&env, "mined", 1_000_000).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let payments = env.payments(2).await;
    env.pay_all(&payments, 10_000_000).await;
    env.queue_settlements(&payments, 10_000_000).await;
    env.mine_until_all("mined").await;
    env.assert_settled_once(2, 10_000_000).await;
    env.until("ours is final", async || {
        env.chain.mine(1).await.unwrap();
        let txs = env.txs().await;
        let ours: Vec<_> = txs.iter().filter(|tx| tx.nonce >= 0).collect();
        let open = usize::try_from(BEFORE).unwrap();
        ours.iter().all(|tx| tx.status == "final") && settler_report(&settler).await.open == open
    })
    .await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn old_reverted_transactions_do_not_hide_current_ones() {
    let mut env = Env::new().await;
    env.spec.in_flight_max = 1;
    env.spec.batch_items_max = 1;
    before_ours(&env, "reverted", 1).await;
    env.chain.mine(20).await.unwrap();
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let payments = env.payments(2).await;
    env.pay_all(&payments, 10_000_000).await;
    env.queue_settlements(&payments, 10_000_000).await;
    let ours = async || env.txs().await.into_iter().filter(|tx| tx.nonce >= 0).count();
    env.until("one is in progress", async || ours().await == 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(ours().await, 1, "one at a time is configured");
    env.mine_until_all("mined").await;
    env.assert_settled_once(2, 10_000_000).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn invalid_token_answers_delay_only_its_own_operations() {
    let env = Env::new().await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let payments = env.payments(3).await;
    env.pay_all(&payments, 10_000_000).await;
    env.handle.set_paused(crate::env::SETTLE, true);
    env.queue_settlements(&payments, 10_000_000).await;
    let broken = operations::Entity::update_many()
        .col_expr(operations::Column::TokenAddress, Expr::value(env.treasury.to_string()))
        .filter(operations::Column::PaymentId.eq(payments[0].to_string()));
    broken.exec(env.database.writer()).await.unwrap();
    env.handle.set_paused(crate::env::SETTLE, false);
    env.until("the others are mined", async || {
        env.chain.mine(1).await.unwrap();
        let rows = env.operations().await;
        rows.iter().filter(|row| row.status == "mined").count() == 2
    })
    .await;
    env.assert_settled_once(2, 10_000_000).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn unfinal_transactions_are_sent_again_at_startup() {
    let env = Env::new().await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let payments = env.payments(1).await;
    env.pay_all(&payments, 10_000_000).await;
    env.queue_settlements(&payments, 10_000_000).await;
    env.mine_until_all("mined").await;
    let tx = env.txs().await.remove(0);
    let hash = tx.tx_hash.unwrap();
    stop(settler).await;
    stop(watcher).await;
    // Its block is reorged while no actor runs, and no watcher notifies the next settler.
    let number = u64::try_from(tx.block_number.unwrap()).unwrap();
    let depth = env.chain.head().number - number + 1;
    env.chain.reorg(depth, Dropped::Discard).await.unwrap();
    let receipt = async || env.chain.call("eth_getTransactionReceipt", json!([hash])).await.unwrap();
    assert!(receipt().await.is_null());
    let settler = env.settle().await;
    env.until("it is in a block again", async || {
        env.chain.mine(1).await.unwrap();
        !receipt().await.is_null()
    })
    .await;
    env.assert_settled_once(1, 10_000_000).await;
    stop(settler).await;
}

/// Resets the rows of the operations, as if the database had no results.
pub(crate) async fn reset_results(env: &Env) {
    let unheard = operations::Entity::update_many()
        .col_expr(operations::Column::Status, Expr::value("queued"))
        .col_expr(operations::Column::ChainTxId, Expr::value(None::<i64>))
        .col_expr(operations::Column::TxHash, Expr::value(None::<String>))
        .col_expr(operations::Column::BlockNumber, Expr::value(None::<i64>));
    unheard.exec(env.database.writer()).await.unwrap();
}

/// An operation that the chain has carried out without the database knowing is sent again, refused by the contract, and
/// found where it was done: in one of our transactions, or by its event.
async fn done_before(forgotten: bool) {
    let env = Env::new().await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let payments = env.payments(1).await;
    env.pay_all(&payments, 10_000_000).await;
    env.queue_settlements(&payments, 10_000_000).await;
    env.mine_until_all("mined").await;
    let done = env.operations().await.remove(0).tx_hash;
    assert!(done.is_some());
    stop(settler).await;
    if forgotten {
        chain_txs::Entity::delete_many().exec(env.database.writer()).await.unwrap();
        chain_tx_attempts::Entity::delete_many().exec(env.database.writer()).await.unwrap();
    }
    reset_results(&env).await;
    // The search halves steps that the endpoint does not allow.
    env.chain.mine(40).await.unwrap();
    env.chain.set_faults(Faults { logs_range_blocks_max: 7, ..Faults::default() });
    let settler = env.settle().await;
    env.until("it is found where it was done", async || {
        env.chain.mine(1).await.unwrap();
        let row = env.operations().await.remove(0);
        row.status == "mined" && row.tx_hash == done
    })
    .await;
    env.assert_settled_once(1, 10_000_000).await;
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn completed_operation_is_found_in_our_transactions() {
    done_before(false).await;
}

#[tokio::test]
async fn completed_operation_is_found_by_its_event() {
    done_before(true).await;
}

/// Inserts the oldest transaction of an account that no longer signs for us. It offers too little to be mined and
/// cannot be signed again. Its account is processed before ours.
async fn left_by_a_former_account(env: &Env) {
    let ours = domain_address(env.operator.address()).to_string();
    let is_before = |wallet: &Wallet| domain_address(wallet.address()).to_string() < ours;
    let former = (0..1_000).map(|n| Wallet::from_seed(&format!("former {n}"))).find(is_before).unwrap();
    env.chain.set_balance(former.address(), U256::from(10).pow(U256::from(18))).await.unwrap();
    let sender = domain_address(former.address()).to_string();
    let (raw, hash) = former.sign_call(CHAIN_ID, 0, env.treasury.0.into(), Vec::new().into(), 100_000, 1, 1);
    let tx = chain_txs::Model {
        id: 0,
        chain: "base".to_owned(),
        sender: sender.clone(),
        nonce: 0,
        to_address: env.treasury.to_string(),
        input: "0x".to_owned(),
        gas_limit: 100_000,
        status: "submitted".to_owned(),
        tx_hash: None,
        block_number: None,
        block_hash: None,
        created_at: 0,
        updated_at: 0,
    };
    let mut tx = tx.into_active_model();
    tx.id = sea_orm::ActiveValue::NotSet;
    tx.insert(env.database.writer()).await.unwrap();
    let attempt = chain_tx_attempts::Model {
        tx_hash: hash.to_string(),
        chain: "base".to_owned(),
        sender,
        nonce: 0,
        raw: raw.to_string(),
        max_fee_per_gas: "1".to_owned(),
        max_priority_fee_per_gas: "1".to_owned(),
        created_at: 0,
    };
    attempt.into_active_model().insert(env.database.writer()).await.unwrap();
}

#[tokio::test]
async fn unsignable_transaction_blocks_no_other_and_stays_reported() {
    let mut env = Env::new().await;
    env.spec.stuck_after = Duration::from_millis(300);
    left_by_a_former_account(&env).await;
    let payments = env.payments(4).await;
    env.pay_all(&payments, 10_000_000).await;
    let (watcher, settler) = (env.watch().await, env.settle().await);
    let is_told = async || {
        let trouble = settler_report(&settler).await.trouble;
        trouble.is_some_and(|trouble| trouble.contains("no longer configured as a signer"))
    };
    env.until("many passes met the error", async || settler_report(&settler).await.failures >= LOOKS).await;
    env.queue_settlements(&payments[..2], 10_000_000).await;
    env.until("ours are signed", async || settler_report(&settler).await.operations == 2).await;
    assert!(is_told().await);
    env.queue_settlements(&payments[2..], 10_000_000).await;
    env.until("they all are", async || settler_report(&settler).await.operations == 4).await;
    assert!(is_told().await, "later transactions do not hide the error");
    // Not mined, and replaced with higher fees.
    env.until("ours are mined", async || {
        env.mine_at(60_000_000).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        env.operations().await.iter().all(|row| row.status == "mined")
    })
    .await;
    assert!(settler_report(&settler).await.raised >= 1);
    env.assert_settled_once(4, 10_000_000).await;
    assert!(is_told().await);
    stop(settler).await;
    stop(watcher).await;
}

#[tokio::test]
async fn gas_balance_is_kept_on_read_errors() {
    let env = Env::new().await;
    let operator = env.operator.address();
    env.chain.set_balance(operator, U256::from(123_000_000_000_000_000_u64)).await.unwrap();
    assert_eq!(env.handle.gas_balance_wei(), None, "nothing was read yet");
    let settler = env.settle().await;
    let is = async |wei: u128| env.handle.gas_balance_wei() == Some(wei);
    env.until("it is read", async || is(123_000_000_000_000_000).await).await;
    stop(settler).await;
    env.chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    env.chain.set_balance(operator, U256::from(7)).await.unwrap();
    let settler = env.settle().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(is(123_000_000_000_000_000).await);
    stop(settler).await;
    env.chain.set_faults(Faults::default());
    let settler = env.settle().await;
    env.until("it is read again", async || is(7).await).await;
    stop(settler).await;
}
