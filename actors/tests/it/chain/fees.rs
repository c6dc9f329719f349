//! A base fee that jumps before or after transactions are signed. Nothing is sent above the ceiling, the settler
//! reports why, and once the fee falls everything is sent once. Each case covers a settlement and an outbound transfer,
//! in separate transactions.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Bytes;
use payferry_actors::chain::{ChainContext, SettlerArgs};
use payferry_contracts::{ITEM_GAS, batch_gas_limit};
use payferry_domain::{Address, PaymentId};
use payferry_evm::config::CONTRACT_VERSION;
use payferry_evm::{ChainSpec, L1Data};
use payferry_journal::chain::Role;
use serde_json::json;

use super::env::Env;
use crate::env::quantity;

const UNITS: u64 = 10_000_000;
/// Amount of each withdrawal from the PSP's vault.
const SENT: u64 = 1_000_000;
/// Highest fee that a transaction may offer.
const CEILING_WEI: u128 = 100_000_000;
/// Above any offer at the usual base fee, and below the ceiling.
pub(crate) const RAISED_WEI: u64 = 60_000_000;
/// Above the ceiling.
const DEAR_WEI: u64 = 1_000_000_000;
/// Number of blocks with the same report: enough for many passes over the chain.
const LOOKS: u32 = 20;

fn recipients() -> [Address; 2] {
    [Address([1; 20]), Address([2; 20])]
}

pub(crate) async fn env() -> Env {
    let mut env = Env::new().await;
    env.spec.fees.max_fee_wei = CEILING_WEI;
    env.spec.stuck_after = Duration::from_millis(300);
    env
}

/// Funds this many payments, and the PSP.
async fn funded(env: &Env, payments: usize) -> Vec<PaymentId> {
    env.send_money(env.psp_vault(), SENT * 100).await;
    env.paid(payments, UNITS).await
}

/// Queues a settlement of each payment and two withdrawals.
async fn queue(env: &Env, payments: &[PaymentId]) {
    env.queue_settlements(payments, UNITS).await;
    env.queue_withdrawals(&recipients(), SENT).await;
}

/// Sends two settlements in one transaction and two withdrawals in another. The settler that signed them never raises
/// fees and stops, so that however slow the test is, nothing offers more before the next settler starts.
pub(crate) async fn under_way(env: &Env) {
    let payments = funded(env, 2).await;
    let spec = Arc::new(ChainSpec { stuck_after: Duration::from_hours(1), ..env.spec.clone() });
    let args = SettlerArgs { context: ChainContext { spec, ..env.context() }, ..env.settler_args() };
    env.settle_with(args).await;
    queue(env, &payments).await;
    env.sign_and_stop(4).await;
    let offers: Vec<u128> = offers(env).await.into_iter().map(|(_, wei)| wei).collect();
    assert!(offers.len() == 2 && offers.iter().all(|wei| *wei < RAISED_WEI.into()), "{offers:?}");
}

/// Nonce and highest fee of every attempt.
async fn offers(env: &Env) -> Vec<(i64, u128)> {
    let offers = env.attempts().await.into_iter();
    offers.map(|attempt| (attempt.nonce, attempt.max_fee_per_gas.parse().unwrap())).collect()
}

async fn is_held_up_by_the_ceiling(env: &Env) -> bool {
    let said = [env.report().await.blocked_reason, env.handle.blocked_reason()];
    let is_the_ceiling = |reason: &String| reason.ends_with(&format!("and the ceiling is {CEILING_WEI}"));
    said.iter().all(|reason| reason.as_ref().is_some_and(is_the_ceiling))
}

/// Mines blocks above the ceiling; the settler reports throughout that it cannot continue.
async fn stays_expensive(env: &Env) {
    env.until("the settler reports the ceiling", async || {
        env.mine_at(DEAR_WEI).await;
        is_held_up_by_the_ceiling(env).await
    })
    .await;
    for _ in 0..LOOKS {
        env.mine_at(DEAR_WEI).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(is_held_up_by_the_ceiling(env).await, "{:?}", env.report().await);
    }
}

async fn until_not_blocked(env: &Env) {
    env.until("settling is not blocked", async || env.handle.blocked_reason().is_none()).await;
}

/// Mines at this base fee until every operation is mined.
pub(crate) async fn until_mined_at(env: &Env, base_fee_wei: u64) {
    env.until("everything is mined", async || {
        env.mine_at(base_fee_wei).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        env.operations().await.iter().all(|row| row.status.as_str() == "mined")
    })
    .await;
}

/// Asserts all balances, and that no operation was in two transactions.
pub(crate) async fn assert_done_once(env: &Env, payments: u64) {
    assert_moved_once(env, payments).await;
    let rows = env.operations().await;
    assert!(rows.iter().all(|row| row.attempts == 1), "{rows:?}");
}

/// Asserts all balances, and that no offer exceeded the ceiling.
pub(crate) async fn assert_moved_once(env: &Env, payments: u64) {
    let [one, other] = recipients();
    assert_eq!((env.balance(one).await, env.balance(other).await), (SENT, SENT));
    assert_eq!(env.balance(env.spec.treasury).await, payments * (UNITS / 100));
    let vault = SENT * 98 + payments * (UNITS - UNITS / 100);
    assert_eq!(env.balance(env.psp_vault()).await, vault);
    let offers = offers(env).await;
    assert!(offers.iter().all(|(_, wei)| *wei <= CEILING_WEI), "{offers:?}");
}

/// Queues everything of so many payments while the fee is above the ceiling.
async fn held_up(env: &Env, payments: usize) {
    let payments = funded(env, payments).await;
    env.start().await;
    env.mine_at(DEAR_WEI).await;
    queue(env, &payments).await;
    stays_expensive(env).await;
}

#[tokio::test]
async fn signs_nothing_above_the_ceiling_and_sends_all_once_later() {
    let env = env().await;
    held_up(&env, 2).await;
    assert!(env.txs().await.is_empty() && env.attempts().await.is_empty(), "nothing is signed");
    assert!(env.operations().await.iter().all(|row| row.status.as_str() == "queued"), "nothing is lost");
    // The fee falls by an eighth with each empty block.
    env.mine_until_all("mined").await;
    assert_done_once(&env, 2).await;
    until_not_blocked(&env).await;
    assert_eq!(env.report().await.failures, 0);
}

#[tokio::test]
async fn pausing_operations_that_wait_for_the_fee_clears_the_error() {
    let env = env().await;
    env.handle.set_paused(Role::Send, true);
    held_up(&env, 1).await;
    env.handle.set_paused(Role::Settle, true);
    until_not_blocked(&env).await;
    assert!(env.txs().await.is_empty());
}

#[tokio::test]
async fn fee_jump_below_the_ceiling_raises_offers_and_mines_once() {
    let env = env().await;
    env.watch().await;
    under_way(&env).await;
    let first: Vec<String> = env.attempts().await.into_iter().map(|attempt| attempt.tx_hash).collect();
    env.settle().await;
    until_mined_at(&env, RAISED_WEI).await;
    assert_done_once(&env, 2).await;
    let txs = env.txs().await;
    assert_eq!(txs.iter().map(|tx| tx.nonce).collect::<Vec<_>>(), [0, 1]);
    for tx in &txs {
        let hash = tx.tx_hash.as_ref().unwrap();
        assert!(!first.contains(hash), "it was signed again");
        let paid = quantity(&env.receipt(hash).await["effectiveGasPrice"]);
        assert!((RAISED_WEI..=u64::try_from(CEILING_WEI).unwrap()).contains(&paid), "{paid}");
    }
    assert!(env.report().await.raised >= 2);
}

#[tokio::test]
async fn sent_transactions_wait_while_the_fee_is_above_the_ceiling() {
    let env = env().await;
    env.watch().await;
    under_way(&env).await;
    let later = funded_later(&env).await;
    env.mine_at(DEAR_WEI).await;
    env.settle().await;
    stays_expensive(&env).await;
    let before = env.attempts_len().await;
    env.queue_settlements(&[later], UNITS).await;
    stays_expensive(&env).await;
    assert_eq!(env.attempts_len().await, before, "nothing is signed, neither new nor again");
    let statuses: Vec<_> = env.txs().await.into_iter().map(|tx| tx.status.as_str()).collect();
    assert_eq!(statuses, ["submitted", "submitted"]);
    until_mined_at(&env, RAISED_WEI).await;
    assert_done_once(&env, 3).await;
    let attempts = env.attempts().await;
    for nonce in [0, 1] {
        assert!(attempts.iter().filter(|attempt| attempt.nonce == nonce).count() >= 2, "nonce {nonce}");
    }
    until_not_blocked(&env).await;
}

#[tokio::test]
async fn next_settler_clears_the_error_of_a_stopped_one() {
    let env = env().await;
    held_up(&env, 1).await;
    env.stop_settler().await;
    assert!(env.handle.blocked_reason().is_some(), "the error is still reported");
    env.mine_at(RAISED_WEI / 10).await;
    env.settle().await;
    until_not_blocked(&env).await;
}

/// Creates one more payment and funds it without including the waiting transactions in a block.
async fn funded_later(env: &Env) -> PaymentId {
    let payment = env.payment().await;
    env.send_money(env.vault(payment), UNITS).await;
    // More than our transactions offer, and less than the owner's.
    env.mine_at(RAISED_WEI).await;
    assert_eq!(env.balance(env.vault(payment)).await, UNITS);
    payment
}

/// Runtime code of a contract that returns these words to every call.
fn returning(words: &[u128]) -> Bytes {
    let mut code = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let offset = u8::try_from(place * 32).unwrap();
        // PUSH16 word, PUSH1 offset, MSTORE
        code.push(0x6f);
        code.extend(word.to_be_bytes());
        code.extend([0x60, offset, 0x52]);
    }
    // PUSH1 length, PUSH0, RETURN
    code.extend([0x60, u8::try_from(words.len() * 32).unwrap(), 0x5f, 0xf3]);
    code.into()
}

async fn until_l1_fee_is_known(env: &Env) {
    env.until("the L1 data fee of a settlement is known", async || {
        env.watchlist.view(env.spec.chain).is_some_and(|view| view.l1_fee_wei.is_some_and(|wei| wei > 0))
    })
    .await;
}

/// Asserts that nothing is sent while the L1 data of a batch costs more than the ceiling, and that all is sent once when
/// it costs less. Returns the gas limits of the transactions.
async fn l1_data_above_the_ceiling(l1_data: L1Data, contract: &str, dear: &[u128], cheap: &[u128]) -> Vec<i64> {
    let mut env = env().await;
    env.spec.l1_data = l1_data;
    let set = async |words: &[u128]| {
        env.devchain.call("anvil_setCode", json!([contract, returning(words)])).await.unwrap();
    };
    set(dear).await;
    let payments = funded(&env, 2).await;
    env.start().await;
    queue(&env, &payments).await;
    env.until("the settler reports the ceiling", async || {
        env.mine(1).await;
        is_held_up_by_the_ceiling(&env).await
    })
    .await;
    let reason = env.handle.blocked_reason().unwrap();
    assert!(reason.contains(" for L1 data, and the ceiling is "), "{reason}");
    assert!(env.txs().await.is_empty() && env.attempts().await.is_empty(), "nothing is signed");
    set(cheap).await;
    env.mine_until_all("mined").await;
    assert_done_once(&env, 2).await;
    until_not_blocked(&env).await;
    until_l1_fee_is_known(&env).await;
    env.txs().await.into_iter().map(|tx| tx.gas_limit).collect()
}

/// Contract of an OP stack chain that returns the L1 data fee.
const ORACLE: &str = "0x420000000000000000000000000000000000000F";

/// The contract's answer can be decoded as its version, and not as a limit.
#[tokio::test]
async fn l1_data_fee_is_known_while_the_limits_cannot_be_read() {
    let mut env = env().await;
    env.spec.l1_data = L1Data::OpStack;
    for (contract, word) in [(ORACLE, 1_000_000), (&env.spec.contract.to_string(), u128::from(CONTRACT_VERSION))] {
        env.devchain.call("anvil_setCode", json!([contract, returning(&[word])])).await.unwrap();
    }
    env.watch().await;
    until_l1_fee_is_known(&env).await;
}

#[tokio::test]
async fn l1_data_fee_of_an_op_stack_chain_counts_towards_the_ceiling() {
    let limits = l1_data_above_the_ceiling(L1Data::OpStack, ORACLE, &[CEILING_WEI * 1_000_000], &[1_000_000]).await;
    assert_eq!(limits, [batch_gas_limit(2, ITEM_GAS); 2].map(|gas| i64::try_from(gas).unwrap()));
}

#[tokio::test]
async fn l1_data_gas_of_arbitrum_counts_towards_the_ceiling() {
    let interface = "0x00000000000000000000000000000000000000c8";
    let (dear, cheap) = ([1_000_000, CEILING_WEI, 1], [10_000, 1_000, 1]);
    let limits = l1_data_above_the_ceiling(L1Data::Arbitrum, interface, &dear, &cheap).await;
    assert_eq!(limits, [batch_gas_limit(2, ITEM_GAS) + 15_000; 2].map(|gas| i64::try_from(gas).unwrap()));
}
