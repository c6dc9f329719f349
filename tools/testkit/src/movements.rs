//! Reads token movements from the chain: transfers into the PSP's vault and the treasury by source wallet, transfers
//! out of both, and their balances.

use std::collections::HashMap;

use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::{SolCall, SolEvent};
use anyhow::{Context, ensure};
use payferry_contracts::Token as TokenContract;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::sandbox::ChainInfo;
use crate::wire::{Amount, Token};

/// Number of blocks whose movements are read in one request.
const BLOCKS_A_REQUEST: u64 = 10;

/// Amounts that a wallet sent to the PSP's vault and to the treasury.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledAmounts {
    /// To the vault.
    pub to_vault: Amount,
    /// To the treasury.
    pub to_treasury: Amount,
    /// Transactions.
    pub tx_hashes: Vec<B256>,
}

/// Movements on a chain during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Movements {
    /// Into vault and treasury, by token and source wallet.
    pub came: HashMap<(Token, Address), SettledAmounts>,
    /// Out of both, by token: payouts, for example.
    pub left: HashMap<Token, VaultAmounts>,
}

/// Amounts of one token on one chain in vault and treasury: balances or changes of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VaultAmounts {
    /// The PSP's vault.
    pub vault: Amount,
    /// The treasury.
    pub treasury: Amount,
}

impl VaultAmounts {
    /// Adds the shares of a settlement, saturating.
    pub fn add(&mut self, vault: Amount, treasury: Amount) {
        self.vault = self.vault.saturating_add(vault);
        self.treasury = self.treasury.saturating_add(treasury);
    }
}

/// Reads the balances of every token at the newest block of a chain. Returns the block number, too.
pub async fn holdings(rpc: &Rpc, chain: &ChainInfo) -> anyhow::Result<(u64, HashMap<Token, VaultAmounts>)> {
    let head: alloy::primitives::U64 = rpc.read("eth_blockNumber", &json!([])).await?;
    let head: u64 = head.to();
    let mut holdings = HashMap::new();
    for (token, contract) in &chain.tokens {
        let vault = balance(rpc, *contract, chain.psp_vault, head).await?;
        let treasury = balance(rpc, *contract, chain.treasury, head).await?;
        holdings.insert(*token, VaultAmounts { vault, treasury });
    }
    Ok((head, holdings))
}

async fn balance(rpc: &Rpc, token: Address, account: Address, block: u64) -> anyhow::Result<Amount> {
    let data = alloy::hex::encode_prefixed(TokenContract::balanceOfCall { account }.abi_encode());
    let answer: U256 = rpc.read("eth_call", &json!([{"to": token, "data": data}, format!("0x{block:x}")])).await?;
    amount(answer)
}

fn amount(units: U256) -> anyhow::Result<Amount> {
    Ok(Amount(i64::try_from(units).context("the balance is larger than any amount")?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    topics: Vec<B256>,
    data: U256,
    transaction_hash: B256,
}

/// Reads the movements into and out of vault and treasury in the blocks after `above` up to `head`.
pub async fn movements(rpc: &Rpc, chain: &ChainInfo, above: u64, head: u64) -> anyhow::Result<Movements> {
    let (vault, treasury) = (chain.psp_vault.into_word(), chain.treasury.into_word());
    let (signature, ours) = (TokenContract::Transfer::SIGNATURE_HASH, [vault, treasury]);
    let mut moved = Movements::default();
    for (token, contract) in &chain.tokens {
        let mut from = above + 1;
        while from <= head {
            let to = head.min(from + BLOCKS_A_REQUEST - 1);
            let logs = async |topics: Value| {
                let filter = json!([{
                    "fromBlock": format!("0x{from:x}"), "toBlock": format!("0x{to:x}"), "address": contract,
                    "topics": topics,
                }]);
                let logs: Vec<Log> = rpc.read("eth_getLogs", &filter).await?;
                let odd = logs.iter().find(|log| log.topics.len() != 3);
                ensure!(odd.is_none(), "a Transfer log of {token} does not have three topics");
                anyhow::Ok(logs)
            };
            for Log { topics, data, transaction_hash } in logs(json!([signature, null, ours])).await? {
                let entry = moved.came.entry((*token, Address::from_word(topics[1]))).or_default();
                let share = if topics[2] == vault { &mut entry.to_vault } else { &mut entry.to_treasury };
                *share = share.saturating_add(amount(data)?);
                if !entry.tx_hashes.contains(&transaction_hash) {
                    entry.tx_hashes.push(transaction_hash);
                }
            }
            for Log { topics, data, .. } in logs(json!([signature, ours])).await? {
                let entry = moved.left.entry(*token).or_default();
                let share = if topics[1] == vault { &mut entry.vault } else { &mut entry.treasury };
                *share = share.saturating_add(amount(data)?);
            }
            from = to + 1;
        }
    }
    Ok(moved)
}
