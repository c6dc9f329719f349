//! Measures token transfers per second on a devchain, on one thread, and its upper bound.
//!
//! `cargo run --release -p payferry-devchain --example throughput [transfers]`
//!
//! Each measurement uses the same signed transfers of a test USDC, from 200 payers to new addresses:
//!
//! - decoding and signature recovery only (the upper bound);
//! - the whole chain in memory;
//! - the whole chain with a file (each transaction on disk before the response, 500 in flight);
//! - the replay of that file.
//!
//! The same follows for a day of empty blocks.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use std::time::{Duration, Instant};

use alloy::consensus::transaction::SignerRecoverable;
use alloy::consensus::{TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, Bytes, U256, keccak256};
use alloy::sol_types::SolCall;
use futures::StreamExt;
use payferry_contracts::{Token, test_usdc_init_code};
use payferry_devchain::{ChainConfig, DevWallet, Devchain, GenesisAccount};
use serde_json::json;

const PAYERS: usize = 200;
const IN_FLIGHT: usize = 500;
const BLOCK_EVERY: usize = 1_000;
const GWEI: u128 = 1_000_000_000;
const CHAIN_ID: u64 = 8453;
/// One day with two blocks per second.
const IDLE_BLOCKS: u64 = 172_800;

fn main() {
    let count = std::env::args().nth(1).map_or(20_000, |text| text.parse().unwrap());
    // The store's thread and the blocking step are separate, but never run at the same time as useful work in memory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(run(count));
}

async fn run(count: u64) {
    let payers: Vec<DevWallet> = (0..PAYERS).map(|number| DevWallet::from_seed(&format!("payer {number}"))).collect();
    let owner = DevWallet::from_seed("owner");
    let token = owner.address().create(0);
    let transfers: Vec<Bytes> = (0..count)
        .map(|number| {
            let payer = &payers[usize::try_from(number).unwrap() % PAYERS];
            let to = Address::from_word(keccak256(number.to_be_bytes()));
            let input = Token::transferCall { to, value: U256::from(1_000_000) }.abi_encode();
            payer.sign_call(CHAIN_ID, payer.next_nonce(), token, input.into(), 100_000, 100 * GWEI, GWEI).0
        })
        .collect();
    println!("{count} transfers, {} bytes each", transfers[0].len());

    let start = Instant::now();
    for raw in &transfers {
        TxEnvelope::decode_2718(&mut raw.as_ref()).unwrap().recover_signer().unwrap();
    }
    report("decoding and signature recovery only", count, start.elapsed());

    let chain = prepare(ChainConfig::default(), &owner, &payers).await;
    let elapsed = pay(&chain, &transfers, 1).await;
    report("devchain in memory, one at a time", count, elapsed);

    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("throughput.chain");
    let config = ChainConfig { path: Some(path.clone()), ..ChainConfig::default() };
    let chain = prepare(config.clone(), &owner, &payers).await;
    let elapsed = pay(&chain, &transfers, IN_FLIGHT).await;
    report("devchain with a file, 500 in flight", count, elapsed);
    let head = chain.head();
    chain.close().await;
    drop(chain);

    let start = Instant::now();
    let chain = Devchain::open(ChainConfig { genesis: genesis(&owner, &payers), chain_id: CHAIN_ID, ..config }).await;
    assert_eq!(chain.unwrap().head(), head);
    report("replay of that file", count, start.elapsed());
    println!("{} bytes of file per transfer", std::fs::metadata(path).unwrap().len() / count);

    let path = folder.path().join("idle.chain");
    let config = ChainConfig { path: Some(path.clone()), ..ChainConfig::default() };
    let chain = Devchain::open(config.clone()).await.unwrap();
    let start = Instant::now();
    let head = chain.advance_time(IDLE_BLOCKS, 1).await.unwrap();
    report("empty blocks with a file", head.number, start.elapsed());
    chain.close().await;
    drop(chain);
    let start = Instant::now();
    assert_eq!(Devchain::open(config).await.unwrap().head(), head);
    report("replay of that file", head.number, start.elapsed());
    println!("{} bytes of file per empty block", std::fs::metadata(path).unwrap().len() / IDLE_BLOCKS);
}

fn report(what: &str, count: u64, elapsed: Duration) {
    println!("{what:<40} {:>9.0} per second", count as f64 / elapsed.as_secs_f64());
}

fn genesis(owner: &DevWallet, payers: &[DevWallet]) -> Vec<GenesisAccount> {
    let balance = U256::from(10).pow(U256::from(24));
    let wallets = std::iter::once(owner).chain(payers);
    wallets.map(|wallet| GenesisAccount { address: wallet.address(), balance, ..Default::default() }).collect()
}

/// Opens a chain on which every payer holds tokens.
async fn prepare(config: ChainConfig, owner: &DevWallet, payers: &[DevWallet]) -> Devchain {
    let config = ChainConfig { genesis: genesis(owner, payers), chain_id: CHAIN_ID, ..config };
    let chain = Devchain::open(config).await.unwrap();
    let (deployment, _) = owner.sign(TxEip1559 {
        chain_id: CHAIN_ID,
        gas_limit: 20_000_000,
        max_fee_per_gas: 100 * GWEI,
        input: test_usdc_init_code(owner.address()),
        ..Default::default()
    });
    chain.send_raw(deployment).await.unwrap();
    let token = owner.address().create(0);
    let to = payers.iter().map(DevWallet::address).collect();
    let values = vec![U256::from(10).pow(U256::from(15)); payers.len()];
    let mint = Token::mintBatchCall { to, values }.abi_encode();
    chain.send_raw(owner.sign_call(CHAIN_ID, 1, token, mint.into(), 20_000_000, 100 * GWEI, GWEI).0).await.unwrap();
    chain.mine(1).await.unwrap();
    chain
}

/// Sends and mines all transfers, and checks that they arrived.
async fn pay(chain: &Devchain, transfers: &[Bytes], in_flight: usize) -> Duration {
    let before = chain.head().number;
    let start = Instant::now();
    for burst in transfers.chunks(BLOCK_EVERY) {
        let sends = burst.iter().map(|raw| chain.send_raw(raw.clone()));
        let mut sends = futures::stream::iter(sends).buffered(in_flight);
        while let Some(sent) = sends.next().await {
            sent.unwrap();
        }
        chain.mine(1).await.unwrap();
    }
    let elapsed = start.elapsed();
    let filter = json!([{"fromBlock": format!("{:#x}", before + 1), "toBlock": "latest"}]);
    let logs = chain.call("eth_getLogs", filter).await.unwrap();
    assert_eq!(logs.as_array().unwrap().len(), transfers.len());
    elapsed
}
