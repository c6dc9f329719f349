//! Conditions that must not delay an unrelated settlement.

use std::time::Duration;

use alloy::primitives::U256;
use payferry_devchain::{DevWallet, Dropped, Faults};
use payferry_entities::{ChainTxStatus, chain_tx_attempts, chain_txs, operations};
use payferry_evm::wallet::{alloy_address, domain_address};
use payferry_journal::chain::Role;
use sea_orm::ActiveValue::{NotSet, Set};
use sea_orm::sea_query::{Condition, Expr};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel};

use super::env::Env;
use super::fees;
use crate::env::operator;

/// More transactions than one pass reads.
const BEFORE: i64 = 1_001;
/// Consecutive passes that meet the same error. They would not fit into the test's timeout if the settler waited for
/// each.
const LOOKS: u32 = 12;

fn tx_of(env: &Env, sender: String, nonce: i64, status: ChainTxStatus) -> chain_txs::ActiveModel {
    let tx = chain_txs::Model {
        chain: "base".to_owned(),
        sender,
        nonce,
        to_address: env.spec.treasury.to_string(),
        input: "0x".to_owned(),
        gas_limit: 100_000,
        status,
        ..chain_txs::Model::default()
    };
    chain_txs::ActiveModel { id: NotSet, ..tx.into_active_model() }
}

/// Inserts `BEFORE` transactions of another account with this status and with nonces below ours.
async fn before_ours(env: &Env, status: ChainTxStatus, block_number: i64) {
    let row = |place: &i64| chain_txs::ActiveModel {
        tx_hash: Set(Some(format!("0x{place:064x}"))),
        block_number: Set(Some(block_number)),
        block_hash: Set(Some(format!("0x{place:064x}"))),
        ..tx_of(env, env.spec.treasury.to_string(), place - BEFORE, status)
    };
    for places in (0..BEFORE).collect::<Vec<_>>().chunks(100) {
        let rows = places.iter().map(row);
        chain_txs::Entity::insert_many(rows).exec(env.database.writer()).await.unwrap();
    }
}

#[tokio::test]
async fn many_unfinal_transactions_hide_no_other_transactions() {
    let env = Env::new().await;
    // In blocks that are far from final, and from being read.
    before_ours(&env, ChainTxStatus::Mined, 1_000_000).await;
    env.settling(2, 10_000_000).await;
    env.settle_all_once(2, 10_000_000).await;
    env.mine_until("ours is final", async || {
        let txs = env.txs().await;
        let ours: Vec<_> = txs.iter().filter(|tx| tx.nonce >= 0).collect();
        let open = usize::try_from(BEFORE).unwrap();
        ours.iter().all(|tx| tx.status.as_str() == "final") && env.report().await.open == open
    })
    .await;
}

#[tokio::test]
async fn old_reverted_transactions_do_not_hide_current_ones() {
    let mut env = Env::new().await;
    env.spec.in_flight_max = 1;
    env.spec.batch_items_max = 1;
    before_ours(&env, ChainTxStatus::Reverted, 1).await;
    env.mine(20).await;
    env.settling(2, 10_000_000).await;
    let ours = async || env.txs().await.into_iter().filter(|tx| tx.nonce >= 0).count();
    env.until("one is in progress", async || ours().await == 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(ours().await, 1, "one at a time is configured");
    env.settle_all_once(2, 10_000_000).await;
}

#[tokio::test]
async fn invalid_token_answers_delay_only_its_own_operations() {
    let env = Env::new().await;
    env.start().await;
    let payments = env.paid(3, 10_000_000).await;
    env.handle.set_paused(Role::Settle, true);
    env.queue_settlements(&payments, 10_000_000).await;
    let broken = [(operations::Column::TokenAddress, Expr::value(env.spec.treasury.to_string()))];
    env.update_operations(operations::Column::PaymentId.eq(payments[0].to_string()), broken).await;
    env.handle.set_paused(Role::Settle, false);
    env.mine_until("the others are mined", async || {
        let rows = env.operations().await;
        rows.iter().filter(|row| row.status.as_str() == "mined").count() == 2
    })
    .await;
    env.assert_settled_once(2, 10_000_000).await;
}

#[tokio::test]
async fn unfinal_transactions_are_sent_again_at_startup() {
    let env = Env::new().await;
    env.settling(1, 10_000_000).await;
    env.mine_until_all("mined").await;
    let tx = env.txs().await.remove(0);
    let hash = tx.tx_hash.unwrap();
    env.stop_settler().await;
    env.stop_watcher().await;
    // Its block is reorged while no actor runs, and no watcher notifies the next settler.
    let number = u64::try_from(tx.block_number.unwrap()).unwrap();
    env.reorg_from(number, Dropped::Discard).await;
    assert!(env.receipt(&hash).await.is_null());
    env.settle().await;
    env.mine_until("it is in a block again", async || !env.receipt(&hash).await.is_null()).await;
    env.assert_settled_once(1, 10_000_000).await;
}

/// Resets the rows of the operations, as if the database had no results.
pub(crate) async fn reset_results(env: &Env) {
    let unheard = [
        (operations::Column::Status, Expr::value("queued")),
        (operations::Column::ChainTxId, Expr::value(None::<i64>)),
        (operations::Column::TxHash, Expr::value(None::<String>)),
        (operations::Column::BlockNumber, Expr::value(None::<i64>)),
    ];
    env.update_operations(Condition::all(), unheard).await;
}

/// An operation that the chain has carried out without the database knowing is sent again, refused by the contract, and
/// found where it was done: in one of our transactions, or by its event.
async fn done_before(forgotten: bool) {
    let env = Env::new().await;
    env.settling(1, 10_000_000).await;
    env.mine_until_all("mined").await;
    let done = env.operation().await.tx_hash;
    assert!(done.is_some());
    env.stop_settler().await;
    reset_results(&env).await;
    if forgotten {
        chain_txs::Entity::delete_many().exec(env.database.writer()).await.unwrap();
        chain_tx_attempts::Entity::delete_many().exec(env.database.writer()).await.unwrap();
    }
    // The search halves steps that the endpoint does not allow.
    env.mine(40).await;
    env.devchain.set_faults(Faults { logs_range_blocks_max: 7, ..Faults::default() });
    env.settle().await;
    env.mine_until("it is found where it was done", async || {
        let row = env.operation().await;
        row.status.as_str() == "mined" && row.tx_hash == done
    })
    .await;
    env.assert_settled_once(1, 10_000_000).await;
}

cases! {
    #[tokio::test]

    completed_operation_is_found_in_our_transactions => done_before(false);
    completed_operation_is_found_by_its_event => done_before(true);
}

/// Inserts the oldest transaction of an account that no longer signs for us. It offers too little to be mined and
/// cannot be signed again. Its account is processed before ours.
async fn left_by_a_former_account(env: &Env) {
    let ours = operator().to_string();
    let is_before = |wallet: &DevWallet| domain_address(wallet.address()).to_string() < ours;
    let former = (0..1_000).map(|n| DevWallet::from_seed(&format!("former {n}"))).find(is_before).unwrap();
    env.devchain.set_balance(former.address(), U256::from(10).pow(U256::from(18))).await.unwrap();
    let sender = domain_address(former.address()).to_string();
    let (raw, hash) =
        former.sign_call(env.devchain.chain_id(), 0, env.spec.treasury.0.into(), Vec::new().into(), 100_000, 1, 1);
    tx_of(env, sender.clone(), 0, ChainTxStatus::Submitted).insert(env.database.writer()).await.unwrap();
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
    let payments = env.paid(4, 10_000_000).await;
    env.start().await;
    let is_told = async || {
        let reason = env.report().await.blocked_reason;
        reason.is_some_and(|reason| reason.contains("no longer configured as a signer"))
    };
    env.until("many passes met the error", async || env.report().await.failures >= LOOKS).await;
    env.queue_settlements(&payments[..2], 10_000_000).await;
    env.until_signed(2).await;
    assert!(is_told().await);
    env.queue_settlements(&payments[2..], 10_000_000).await;
    env.until_signed(4).await;
    assert!(is_told().await, "later transactions do not hide the error");
    // Not mined, and replaced with higher fees.
    fees::until_mined_at(&env, fees::RAISED_WEI).await;
    assert!(env.report().await.raised >= 1);
    env.assert_settled_once(4, 10_000_000).await;
    assert!(is_told().await);
}

#[tokio::test]
async fn gas_balance_is_kept_on_read_errors() {
    let env = Env::new().await;
    let operator = alloy_address(operator());
    env.devchain.set_balance(operator, U256::from(123_000_000_000_000_000_u64)).await.unwrap();
    assert_eq!(env.handle.gas_balance_wei(), None, "nothing was read yet");
    env.settle().await;
    let is = async |wei: u128| env.handle.gas_balance_wei() == Some(wei);
    env.until("it is read", async || is(123_000_000_000_000_000).await).await;
    env.stop_settler().await;
    env.devchain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    env.devchain.set_balance(operator, U256::from(7)).await.unwrap();
    env.settle().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(is(123_000_000_000_000_000).await);
    env.stop_settler().await;
    env.devchain.set_faults(Faults::default());
    env.settle().await;
    env.until("it is read again", async || is(7).await).await;
}
