//! What the chain says of the money: every token movement into the PSP's vault and to the treasury during the run, by the
//! wallet that it came from, all that left both, and what both hold.

use std::collections::HashMap;

use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::{SolCall, SolEvent};
use anyhow::{Context, ensure};
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Amount, Chain, Token};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ground::ChainGround;
use super::rpc::Rpc;

/// Blocks whose movements are read in one request.
const BLOCKS_A_REQUEST: u64 = 10;

/// What left a wallet for the PSP's vault and for the treasury.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// To the vault.
    pub to_vault: Amount,
    /// To the treasury.
    pub to_treasury: Amount,
    /// In these transactions.
    pub tx_hashes: Vec<B256>,
}

/// Every movement of a chain during the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Movements {
    /// Into vault and treasury, by token and the wallet that it came from.
    pub came: HashMap<(Token, Address), Moved>,
    /// Out of them, by token: payouts, say.
    pub left: HashMap<Token, Holds>,
}

/// What vault and treasury hold of one token on one chain, or what they gained or lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holds {
    /// The PSP's vault.
    pub vault: Amount,
    /// The treasury.
    pub treasury: Amount,
}

/// What is compared in the end: by how much both grew, and what the payments of the run say.
#[derive(Debug, Clone, Serialize)]
pub struct Holding {
    /// The chain.
    pub chain: Chain,
    /// The token.
    pub token: Token,
    /// By how much the PSP's vault grew during the run.
    pub vault_grew: String,
    /// By how much the treasury did.
    pub treasury_grew: String,
    /// What the run's payments say that they settled to the vault, and what strangers' payments moved there meanwhile, without
    /// what left it.
    pub vault_expected: String,
    /// The same of the treasury.
    pub treasury_expected: String,
    /// Whether they are equal.
    pub equal: bool,
    /// By how much the PSP's balance grew, promised money included; null if that was not compared.
    pub balance_grew: Option<String>,
    /// By how much its postings in the ledger say that it did, strangers' included.
    pub postings_say: Option<String>,
}

impl Holding {
    /// Whether everything that is compared here is equal.
    pub fn is_well(&self) -> bool {
        self.equal && self.balance_grew == self.postings_say
    }
}

/// Balances of every token on a chain, as its newest block has them; answers that block's number, too.
pub async fn holdings(rpc: &Rpc, place: &ChainGround) -> anyhow::Result<(u64, HashMap<Token, Holds>)> {
    let head: alloy::primitives::U64 = rpc.read("eth_blockNumber", &json!([])).await?;
    let head: u64 = head.to();
    let mut holdings = HashMap::new();
    for (token, contract) in &place.tokens {
        let vault = balance(rpc, *contract, place.psp_vault, head).await?;
        let treasury = balance(rpc, *contract, place.treasury, head).await?;
        holdings.insert(*token, Holds { vault, treasury });
    }
    Ok((head, holdings))
}

async fn balance(rpc: &Rpc, token: Address, account: Address, block: u64) -> anyhow::Result<Amount> {
    let data = alloy::hex::encode_prefixed(TokenContract::balanceOfCall { account }.abi_encode());
    let answer: U256 = rpc.read("eth_call", &json!([{"to": token, "data": data}, format!("0x{block:x}")])).await?;
    amount(answer)
}

fn amount(units: U256) -> anyhow::Result<Amount> {
    Ok(Amount(i64::try_from(units).context("a balance is larger than any amount")?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    topics: Vec<B256>,
    data: U256,
    transaction_hash: B256,
}

/// Every movement to and from the vault and the treasury in the blocks after `above` up to `head`.
pub async fn movements(rpc: &Rpc, place: &ChainGround, above: u64, head: u64) -> anyhow::Result<Movements> {
    let (vault, treasury) = (place.psp_vault.into_word(), place.treasury.into_word());
    let (signature, ours) = (TokenContract::Transfer::SIGNATURE_HASH, [vault, treasury]);
    let mut moved = Movements::default();
    for (token, contract) in &place.tokens {
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
                ensure!(odd.is_none(), "a movement of {token} has not three topics");
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
