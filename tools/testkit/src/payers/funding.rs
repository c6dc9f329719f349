//! Funds the payers: gas from the sandbox's deployer account, tokens minted by it.

use std::time::Duration;

use alloy::consensus::TxEip1559;
use alloy::primitives::{Address, B256, Bytes, TxKind, U64, U256};
use alloy::sol_types::SolCall;
use anyhow::{bail, ensure};
use payferry_contracts::Token as TokenContract;
use payferry_devchain::DevWallet;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::FEES;
use crate::rpc::{Rpc, RpcFailure};
use crate::sandbox::{ChainInfo, deployer};
use crate::wire::Amount;

/// Coins of each payer for gas: enough for a full mempool of transfers at the offered fee.
const GAS_COINS: u64 = 1_000_000;
const FUNDS: Amount = Amount::from_tokens(1_000_000_000_000);
const SEND_GAS: u64 = 21_000;
const MINT_GAS: u64 = 5_000_000;
/// Attempts. Another load tester may use the same account at the same moment.
const TRIES_MAX: u32 = 5;
/// Longest wait for the transactions to be mined.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Receipt {
    status: U64,
}

/// Gives each payer gas and tokens, and waits until the transactions are mined.
pub(super) async fn fund(rpc: &Rpc, chain: &ChainInfo, payers: &[DevWallet]) -> anyhow::Result<()> {
    let giver = deployer();
    let mut failure = String::new();
    for _ in 0..TRIES_MAX {
        let nonce: U64 = rpc.call("eth_getTransactionCount", &json!([giver.address(), "pending"])).await?;
        let signed = sign_all(&giver, nonce.to(), chain, payers);
        let raw = signed.iter().map(|(raw, _)| format!("[\"{raw}\"]"));
        let results = rpc.batch("eth_sendRawTransaction", raw).await?;
        let refused = results.into_iter().find_map(Result::err);
        match refused {
            None => return arrived(rpc, &signed).await,
            Some(RpcFailure::Refused(said)) => failure = said,
            Some(other) => return Err(other.into()),
        }
        tokio::time::sleep(POLL * 4).await;
    }
    bail!("{failure}")
}

fn sign_all(giver: &DevWallet, nonce: u64, chain: &ChainInfo, payers: &[DevWallet]) -> Vec<(Bytes, B256)> {
    let addresses: Vec<Address> = payers.iter().map(DevWallet::address).collect();
    let coins = U256::from(GAS_COINS) * U256::from(10).pow(U256::from(18));
    let values = vec![U256::from(FUNDS.units().unsigned_abs()); addresses.len()];
    let mint = TokenContract::mintBatchCall { to: addresses.clone(), values }.abi_encode();
    let gas = addresses.iter().map(|to| (*to, coins, SEND_GAS, Bytes::new()));
    let tokens = chain.tokens.values().map(|token| (*token, U256::ZERO, MINT_GAS, Bytes::from(mint.clone())));
    let calls = gas.chain(tokens).zip(nonce..);
    calls
        .map(|((to, value, gas_limit, input), nonce)| {
            giver.sign(TxEip1559 {
                chain_id: chain.chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: FEES.most,
                max_priority_fee_per_gas: FEES.priority,
                to: TxKind::Call(to),
                value,
                input,
                ..TxEip1559::default()
            })
        })
        .collect()
}

async fn arrived(rpc: &Rpc, signed: &[(Bytes, B256)]) -> anyhow::Result<()> {
    let since = Instant::now();
    loop {
        let asked = signed.iter().map(|(_, hash)| format!("[\"{hash}\"]"));
        let mut receipts = Vec::new();
        for receipt in rpc.batch("eth_getTransactionReceipt", asked).await? {
            receipts.push(serde_json::from_str::<Option<Receipt>>(receipt?.get())?);
        }
        if let Some(receipts) = receipts.into_iter().collect::<Option<Vec<_>>>() {
            ensure!(receipts.iter().all(|receipt| receipt.status.to::<u64>() == 1), "a funding transaction reverted");
            return Ok(());
        }
        ensure!(since.elapsed() < PATIENCE, "the funding transactions were not mined within {} s", PATIENCE.as_secs());
        tokio::time::sleep(POLL).await;
    }
}
