//! Reads token movements from the chain: transfers into the PSP's vault and the treasury by source wallet, collections
//! by the wallet of their payment, transfers out of both, and their balances.

use std::collections::HashMap;

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolEvent};
use anyhow::Context;
use payferry_contracts::Payferry::Collected;
use payferry_contracts::Token::{Transfer, balanceOfCall};
use payferry_contracts::{collect_nonce, payment_salt, vault_address};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::sandbox::ChainInfo;
use crate::wire::{Amount, PspId, Token};

/// Number of blocks whose movements are read in one request.
const BLOCKS_A_REQUEST: u64 = 10;
/// Largest number of authorizations of a payment.
const ATTEMPTS_MAX: u16 = 20;

/// Amounts that a payment sent to the PSP's vault and to the treasury: from its wallet, or in a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledAmounts {
    /// To the vault.
    pub to_vault: Amount,
    /// To the treasury.
    pub to_treasury: Amount,
    /// Transactions.
    pub tx_hashes: Vec<B256>,
}

impl SettledAmounts {
    fn add(&mut self, to_vault: Amount, to_treasury: Amount, tx_hash: B256) {
        self.to_vault = self.to_vault.saturating_add(to_vault);
        self.to_treasury = self.to_treasury.saturating_add(to_treasury);
        if !self.tx_hashes.contains(&tx_hash) {
            self.tx_hashes.push(tx_hash);
        }
    }
}

/// Movements on a chain during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Movements {
    /// Into vault and treasury, by token and wallet of the payment.
    pub came: HashMap<(Token, Address), SettledAmounts>,
    /// Out of both, by token: payouts, for example.
    pub left: HashMap<Token, VaultAmounts>,
    /// Transfers out of the vault.
    pub sent: Vec<SentTransfer>,
}

/// Transfer out of the PSP's vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentTransfer {
    /// Token.
    pub token: Token,
    /// Recipient.
    pub to: Address,
    /// Amount.
    pub amount: Amount,
    /// Transaction.
    pub tx_hash: B256,
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
    let data = alloy::hex::encode_prefixed(balanceOfCall { account }.abi_encode());
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
    data: Bytes,
    transaction_hash: B256,
}

impl Log {
    fn decode<E: SolEvent>(&self) -> anyhow::Result<E> {
        let event = E::decode_raw_log(self.topics.iter().copied(), &self.data);
        event.with_context(|| format!("a log in {} is not {}", self.transaction_hash, E::SIGNATURE))
    }
}

/// Reads the movements into and out of vault and treasury in the blocks after `above` up to `head`. `psp` is the PSP
/// and the fee that its payments commit to, in basis points.
pub async fn movements(
    rpc: &Rpc,
    chain: &ChainInfo,
    psp: (PspId, u16),
    above: u64,
    head: u64,
) -> anyhow::Result<Movements> {
    let (vault, treasury, contract) = (chain.psp_vault, chain.treasury, chain.payferry);
    let (signature, ours) = (Transfer::SIGNATURE_HASH, [vault.into_word(), treasury.into_word()]);
    let shares = |is_vault: bool, value: U256| {
        let value = amount(value)?;
        anyhow::Ok(if is_vault { (value, Amount::ZERO) } else { (Amount::ZERO, value) })
    };
    let mut moved = Movements::default();
    for (token, token_address) in &chain.tokens {
        read_logs(rpc, *token_address, json!([signature, null, ours]), [above, head], |log| {
            let Transfer { from, to, value } = log.decode()?;
            // The contract passes on the sum of several collections. Their logs have the share of each.
            if from != contract {
                let (to_vault, to_treasury) = shares(to == vault, value)?;
                moved.came.entry((*token, from)).or_default().add(to_vault, to_treasury, log.transaction_hash);
            }
            Ok(())
        })
        .await?;
        read_logs(rpc, *token_address, json!([signature, ours]), [above, head], |log| {
            let Transfer { from, to, value } = log.decode()?;
            let (from_vault, from_treasury) = shares(from == vault, value)?;
            moved.left.entry(*token).or_default().add(from_vault, from_treasury);
            if from == vault {
                moved.sent.push(SentTransfer { token: *token, to, amount: from_vault, tx_hash: log.transaction_hash });
            }
            Ok(())
        })
        .await?;
    }
    let (psp_id, fee_bps) = psp;
    read_logs(rpc, contract, json!([Collected::SIGNATURE_HASH]), [above, head], |log| {
        let Collected { paymentId: id, nonce, token, pspAmount, treasuryFee, .. } = log.decode()?;
        let Some((token, _)) = chain.tokens.iter().find(|(_, address)| **address == token) else { return Ok(()) };
        // The treasury gets the fees of all PSPs. Only the nonce says to which vault the other share went.
        let is_nonce = |attempt| collect_nonce(chain.chain_id, contract, id, vault, fee_bps, attempt) == nonce;
        let to_vault = if (1..=ATTEMPTS_MAX).any(is_nonce) { amount(pspAmount)? } else { Amount::ZERO };
        let wallet = vault_address(contract, payment_salt(id, psp_id.ulid(), fee_bps));
        moved.came.entry((*token, wallet)).or_default().add(to_vault, amount(treasuryFee)?, log.transaction_hash);
        Ok(())
    })
    .await?;
    Ok(moved)
}

/// Calls `each` with the logs of a contract in the blocks after `above` up to `head`.
async fn read_logs(
    rpc: &Rpc,
    address: Address,
    topics: Value,
    [above, head]: [u64; 2],
    mut each: impl FnMut(Log) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut from = above + 1;
    while from <= head {
        let to = head.min(from + BLOCKS_A_REQUEST - 1);
        let filter = json!([{
            "fromBlock": format!("0x{from:x}"), "toBlock": format!("0x{to:x}"), "address": address, "topics": topics,
        }]);
        let logs: Vec<Log> = rpc.read("eth_getLogs", &filter).await?;
        logs.into_iter().try_for_each(&mut each)?;
        from = to + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::routing::post;
    use axum::{Json, Router};

    use super::*;
    use crate::client::Client;
    use crate::sandbox::Head;
    use crate::stub::serve;
    use crate::wire::Chain;

    const FEE_BPS: u16 = 100;
    const PAYER: Address = Address::repeat_byte(9);
    const TX: B256 = B256::repeat_byte(7);

    fn log(address: Address, event: &impl SolEvent) -> Value {
        let log = event.encode_log_data();
        json!({"address": address, "topics": log.topics(), "data": log.data, "transactionHash": TX})
    }

    /// A node that has these logs.
    async fn node(logs: Vec<Value>) -> Rpc {
        let answer = move |Json(calls): Json<Value>| async move {
            let filter = &calls[0]["params"][0];
            let matches = |wanted: &Value, found: &Value| match wanted {
                Value::Null => true,
                Value::Array(any) => any.contains(found),
                one => one == found,
            };
            let is_wanted = |log: &&Value| {
                let topics = filter["topics"].as_array().unwrap().iter().zip(log["topics"].as_array().unwrap());
                log["address"] == filter["address"] && topics.into_iter().all(|(wanted, found)| matches(wanted, found))
            };
            let found: Vec<&Value> = logs.iter().filter(is_wanted).collect();
            Json(json!([{"id": 0, "result": found}]))
        };
        let router = Router::new().fallback(post(answer));
        let client = Arc::new(Client::new(&serve(router).await, 1, Duration::from_secs(5)).unwrap());
        Rpc::of_sandbox(&client, Chain::Base)
    }

    #[tokio::test]
    async fn collections_are_movements_of_their_payments() {
        let [payferry, treasury, psp_vault, other_vault, usdc] = [1, 2, 3, 4, 5].map(Address::repeat_byte);
        let (tokens, head) = ([(Token::Usdc, usdc)].into(), Head { number: 1 });
        let chain = ChainInfo { chain_id: 8453, payferry, treasury, psp_vault, tokens, head, network: None };
        let psp = PspId::generate();
        let wallet = |id| vault_address(payferry, payment_salt(id, psp.ulid(), FEE_BPS));
        let collected = |id: u128, vault, attempt, psp_units: u64| {
            let nonce = collect_nonce(chain.chain_id, payferry, id, vault, FEE_BPS, attempt);
            let (psp_amount, fee) = (U256::from(psp_units), U256::from(1));
            log(
                payferry,
                &Collected { paymentId: id, nonce, payer: PAYER, token: usdc, pspAmount: psp_amount, treasuryFee: fee },
            )
        };
        let transfer = |from, to, value: u64| log(usdc, &Transfer { from, to, value: U256::from(value) });
        // One transaction with two payments of the PSP and one of another PSP, and a settlement from a wallet.
        let rpc = node(vec![
            collected(1, psp_vault, 1, 99),
            collected(2, psp_vault, 20, 199),
            transfer(payferry, psp_vault, 298),
            collected(3, other_vault, 1, 999),
            transfer(payferry, other_vault, 999),
            transfer(payferry, treasury, 3),
            transfer(wallet(4), psp_vault, 50),
            transfer(psp_vault, PAYER, 10),
        ])
        .await;
        let moved = movements(&rpc, &chain, (psp, FEE_BPS), 0, 1).await.unwrap();
        let settled = |to_vault, to_treasury| SettledAmounts {
            to_vault: Amount(to_vault),
            to_treasury: Amount(to_treasury),
            tx_hashes: vec![TX],
        };
        let came = [(1, settled(99, 1)), (2, settled(199, 1)), (3, settled(0, 1)), (4, settled(50, 0))];
        let came = came.map(|(id, settled)| ((Token::Usdc, wallet(id)), settled)).into();
        let left = [(Token::Usdc, VaultAmounts { vault: Amount(10), treasury: Amount::ZERO })].into();
        let sent = vec![SentTransfer { token: Token::Usdc, to: PAYER, amount: Amount(10), tx_hash: TX }];
        assert_eq!(moved, Movements { came, left, sent });
    }
}
