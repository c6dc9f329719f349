//! Base fees that are set by a test, and their decrease by EIP-1559.

use payferry_devchain::{ChainConfig, Devchain, Dropped, Mining};
use serde_json::{Value, json};

use crate::env::{Env, GWEI, config, on_disk, payee, quantity};

const HIGH_WEI: u64 = 4_000_000_000;

async fn base_fee_of(chain: &Devchain, block: u64) -> u64 {
    let block = chain.call("eth_getBlockByNumber", json!([format!("{block:#x}"), false])).await.unwrap();
    quantity(&block["baseFeePerGas"])
}

/// Returns the base fee that nodes report for the next block.
async fn base_fee_next(chain: &Devchain) -> u64 {
    let history = chain.call("eth_feeHistory", json!(["0x1", "latest", [50]])).await.unwrap();
    quantity(&history["baseFeePerGas"][1])
}

/// Returns the base fee after an empty block.
fn after_an_empty_block(wei: u64) -> u64 {
    wei - wei / 8
}

#[tokio::test]
async fn only_a_set_base_fee_can_be_below_the_minimum() {
    let env = Env::new().await;
    let chain = &env.chain;
    let before = base_fee_of(chain, chain.head().number).await;
    chain.set_next_base_fee(7).await.unwrap();
    let low = chain.mine(2).await.unwrap()[0].number;
    assert_eq!([base_fee_of(chain, low).await, base_fee_of(chain, low + 1).await], [7, config().base_fee_min_wei]);
    assert!(before > 7);
}

#[tokio::test]
async fn a_transaction_below_the_base_fee_waits_until_it_falls() {
    let env = Env::new().await;
    env.chain.set_next_base_fee(HIGH_WEI).await.unwrap();
    let hash = env.transfer(payee(1), 5).await;
    let mut blocks = 0;
    let receipt = loop {
        env.chain.mine(1).await.unwrap();
        blocks += 1;
        if let Some(receipt) = env.receipt(hash).await {
            break receipt;
        }
        assert!(blocks < 100, "it is never mined");
    };
    let block = receipt.block_number.unwrap();
    let fees = [base_fee_of(&env.chain, block - 1).await, base_fee_of(&env.chain, block).await].map(u128::from);
    assert!(fees[0] > GWEI && fees[1] <= GWEI, "{fees:?}");
    assert_eq!(env.token_balance(payee(1), "latest").await, 5);
}

#[tokio::test]
async fn a_set_base_fee_persists_over_a_restart_until_it_is_used() {
    let (_folder, config) = on_disk();
    let chain = Devchain::open(config.clone()).await.unwrap();
    chain.set_next_base_fee(HIGH_WEI).await.unwrap();
    chain.close().await;
    let chain = Devchain::open(config.clone()).await.unwrap();
    assert_eq!(base_fee_next(&chain).await, HIGH_WEI);
    let number = chain.mine(1).await.unwrap()[0].number;
    assert_eq!(base_fee_of(&chain, number).await, HIGH_WEI);
    let head = chain.head();
    chain.close().await;
    let chain = Devchain::open(config).await.unwrap();
    assert_eq!(chain.head(), head);
    assert_eq!(base_fee_next(&chain).await, after_an_empty_block(HIGH_WEI), "it is used only once");
}

#[tokio::test]
async fn a_reorg_uses_the_set_base_fee_in_its_first_block() {
    let env = Env::new().await;
    let chain = &env.chain;
    let fork = chain.mine(1).await.unwrap()[0].number;
    let usual = base_fee_next(chain).await;
    chain.mine(2).await.unwrap();
    chain.set_next_base_fee(HIGH_WEI).await.unwrap();
    chain.reorg(2, Dropped::Discard).await.unwrap();
    let fees = [base_fee_of(chain, fork + 1).await, base_fee_of(chain, fork + 2).await];
    assert_eq!(fees, [HIGH_WEI, after_an_empty_block(HIGH_WEI)]);
    chain.reorg(3, Dropped::Discard).await.unwrap();
    assert_eq!(base_fee_of(chain, fork + 1).await, usual);
}

#[tokio::test]
async fn a_block_for_a_transaction_uses_the_set_base_fee() {
    let env = Env::with(ChainConfig { mining: Mining::PerTransaction, ..config() }).await;
    let wei = u64::try_from(GWEI / 2).unwrap();
    env.call::<Value>("anvil_setNextBlockBaseFeePerGas", json!([wei])).await.unwrap();
    let hash = env.transfer(payee(1), 5).await;
    let receipt = env.receipt(hash).await.unwrap();
    assert_eq!(receipt.effective_gas_price, u128::from(wei) + 1_000_000);
}
