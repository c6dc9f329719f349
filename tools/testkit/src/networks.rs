//! Test networks on which payers pay: endpoints, contracts and keys, from a file.
//!
//! Keys of test networks only: the main networks are refused. Neither a key nor the URL of an endpoint, which may contain one,
//! is in an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use alloy::primitives::{Address, B256, U64, U256};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use anyhow::{Context, ensure};
use payferry_contracts::Payferry::treasuryCall;
use payferry_contracts::Token::balanceOfCall;
use payferry_contracts::{psp_salt, vault_address};
use payferry_devchain::DevWallet;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use crate::payers::Fees;
use crate::rpc::Rpc;
use crate::sandbox::{ChainInfo, ClockInfo, Head, Network, SandboxInfo};
use crate::wire::{Amount, Chain, PspId, Token};

/// Networks with real money: Ethereum, Base, Polygon and Arbitrum.
const MAIN_NETWORKS: [u64; 5] = [1, 8_453, 137, 42_161, 42_170];
/// Timeout of a request to an endpoint.
const DEADLINE: Duration = Duration::from_secs(20);
/// Largest number of accounts of one chain.
const PAYERS_MAX: usize = 64;

/// The file, with the name of a chain for each table.
#[derive(Deserialize)]
#[serde(transparent)]
struct File(BTreeMap<Chain, FileChain>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileChain {
    rpc_url: Url,
    /// Payferry's contract.
    contract: Address,
    usdc: Option<Address>,
    usdt: Option<Address>,
    private_keys: Vec<B256>,
}

/// Adds up what each token of each chain needs, and compares it with the balances of the payers, who pay in turn.
pub fn check_balances(place: &SandboxInfo, paid: impl Iterator<Item = (Chain, Token, Amount)>) -> anyhow::Result<()> {
    let mut needs: BTreeMap<(Chain, Token), Amount> = BTreeMap::new();
    for (chain, token, amount) in paid {
        let sum = needs.entry((chain, token)).or_default();
        *sum = sum.saturating_add(amount);
    }
    for ((chain, token), need) in needs {
        let Some(network) = place.chains.get(&chain).and_then(|info| info.network.as_ref()) else { continue };
        let least = network.least_balances.get(&token).copied().unwrap_or_default();
        let count = network.payers.len();
        let has = least.units().saturating_mul(i64::try_from(count)?);
        ensure!(
            has >= need.units(),
            "the payments need {need} {token} on {chain} in all, and each of the {count} payers an equal share: one has only {least}"
        );
    }
    Ok(())
}

/// Returns the place of a run of this PSP on the test networks in the file.
pub async fn place(file: &Path, psp_id: PspId) -> anyhow::Result<SandboxInfo> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let File(chains) = parsed(&text).with_context(|| file.display().to_string())?;
    let mut places = BTreeMap::new();
    for (chain, of_file) in chains {
        places.insert(chain, of_file.place(psp_id).await.with_context(|| format!("{}: {chain}", file.display()))?);
    }
    Ok(SandboxInfo { psp_id, clock: ClockInfo { offset_seconds: 0 }, chains: places, keeps_ledger: true })
}

/// Parses the file. An error of the parser would show the line, which may have a key.
fn parsed(text: &str) -> anyhow::Result<File> {
    let parsed = toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        anyhow::anyhow!("line {line}: {}", error.message())
    });
    let File(chains) = parsed?;
    ensure!(!chains.is_empty(), "there is no chain: expected tables named base, polygon or arbitrum");
    for (chain, of_file) in &chains {
        let FileChain { private_keys, usdc, usdt, .. } = of_file;
        ensure!((1..=PAYERS_MAX).contains(&private_keys.len()), "{chain}: expected 1 to {PAYERS_MAX} private_keys");
        ensure!(usdc.is_some() || usdt.is_some(), "{chain}: expected the address of a token, usdc or usdt");
    }
    Ok(File(chains))
}

impl FileChain {
    async fn place(self, psp_id: PspId) -> anyhow::Result<ChainInfo> {
        let Self { rpc_url, contract, usdc, usdt, private_keys } = self;
        let rpc = Rpc::of_network(rpc_url, DEADLINE)?;
        let chain_id: U64 = rpc.read("eth_chainId", &json!([])).await.context("the endpoint does not answer")?;
        let chain_id: u64 = chain_id.to();
        ensure!(
            !MAIN_NETWORKS.contains(&chain_id),
            "{chain_id} is a main network, and payments there are of real money"
        );
        let head: U64 = rpc.read("eth_blockNumber", &json!([])).await?;
        let treasury = read(&rpc, contract, &treasuryCall {}).await;
        let treasury = treasury.with_context(|| format!("{contract} is not Payferry's contract"))?;
        let tokens: BTreeMap<Token, Address> = [(Token::Usdc, usdc), (Token::Usdt, usdt)]
            .into_iter()
            .filter_map(|(token, at)| Some((token, at?)))
            .collect();
        let (mut payers, mut balances) = (Vec::new(), BTreeMap::new());
        for (number, key) in (1..).zip(private_keys) {
            let signer =
                PrivateKeySigner::from_bytes(&key).ok().with_context(|| format!("private key {number} is invalid"))?;
            let payer = DevWallet::of(signer);
            let nonce: U64 = rpc.read("eth_getTransactionCount", &json!([payer.address(), "pending"])).await?;
            payer.set_nonce(nonce.to());
            let coins: U256 = rpc.read("eth_getBalance", &json!([payer.address(), "latest"])).await?;
            ensure!(!coins.is_zero(), "the payer {} has no coins for gas", payer.address());
            for (token, address) in &tokens {
                let balance = read(&rpc, *address, &balanceOfCall { account: payer.address() }).await;
                let balance = balance.with_context(|| format!("{address} is not the contract of {token}"))?;
                let balance = Amount(i64::try_from(balance).unwrap_or(i64::MAX));
                let least = balances.entry(*token).or_insert(balance);
                *least = balance.min(*least);
            }
            payers.push(payer);
        }
        let gas_price: U256 = rpc.read("eth_gasPrice", &json!([])).await?;
        let priority: U256 = rpc.read("eth_maxPriorityFeePerGas", &json!([])).await?;
        // The base fee may double several times before a transfer is in a block.
        let fees =
            Fees { most: (gas_price * U256::from(4) + priority).saturating_to(), priority: priority.saturating_to() };
        let network = Network { rpc, payers: payers.into(), least_balances: balances, fees };
        Ok(ChainInfo {
            chain_id,
            payferry: contract,
            treasury: Address::from_word(treasury.into()),
            psp_vault: vault_address(contract, psp_salt(psp_id.ulid())),
            tokens,
            head: Head { number: head.to() },
            network: Some(network),
        })
    }
}

/// Calls a function of a contract that changes nothing and returns one word.
async fn read(rpc: &Rpc, to: Address, call: &(impl SolCall + Sync)) -> anyhow::Result<U256> {
    let data = alloy::hex::encode_prefixed(call.abi_encode());
    let word: B256 = rpc.read("eth_call", &json!([{"to": to, "data": data}, "latest"])).await?;
    Ok(word.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Client;

    const KEY: &str = "0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318";

    fn file(chain: &str, keys: &str) -> String {
        let address = Address::repeat_byte(1);
        format!(
            "[{chain}]\nrpc_url = \"http://127.0.0.1:1/secret\"\ncontract = \"{address}\"\nusdc = \"{address}\"\nprivate_keys = [{keys}]\n"
        )
    }

    #[test]
    fn a_file_names_chains_contracts_and_keys() {
        let File(chains) = parsed(&file("base", &format!("\"{KEY}\""))).unwrap();
        let FileChain { usdt, private_keys, .. } = &chains[&Chain::Base];
        assert_eq!((chains.len(), *usdt, private_keys.len()), (1, None, 1));
    }

    #[test]
    fn payments_need_an_equal_share_of_each_payer() {
        let client = Arc::new(Client::new("http://127.0.0.1:1", 1, DEADLINE).unwrap());
        let network = Network {
            rpc: Rpc::of_sandbox(&client, Chain::Base),
            payers: (0..4).map(|number| DevWallet::from_seed(&number.to_string())).collect(),
            least_balances: BTreeMap::from([(Token::Usdc, Amount::from_tokens(10))]),
            fees: Fees { most: 2, priority: 1 },
        };
        let [payferry, treasury, psp_vault] = [1, 2, 3].map(Address::repeat_byte);
        let (tokens, head, network) = (BTreeMap::new(), Head { number: 0 }, Some(network));
        let base = ChainInfo { chain_id: 84_532, payferry, treasury, psp_vault, tokens, head, network };
        let (psp_id, clock) = (PspId::generate(), ClockInfo { offset_seconds: 0 });
        let place = SandboxInfo { psp_id, clock, chains: BTreeMap::from([(Chain::Base, base)]), keeps_ledger: true };
        let paid = |tokens: &[i64]| {
            let paid = tokens.iter().map(|tokens| (Chain::Base, Token::Usdc, Amount::from_tokens(*tokens)));
            check_balances(&place, paid)
        };
        paid(&[30, 10]).unwrap();
        let error = paid(&[30, 11]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the payments need 41.00 USDC on base in all, and each of the 4 payers an equal share: one has only 10.00"
        );
    }

    #[test]
    fn errors_name_the_place_and_no_secret() {
        let short = &KEY[..40];
        for (text, says) in [
            (String::new(), "there is no chain"),
            (file("solana", &format!("\"{KEY}\"")), "line 1: "),
            (file("base", ""), "base: expected 1 to 64 private_keys"),
            (file("base", &format!("\"{short}\"")), "line 5: "),
            (file("base", &format!("\"{KEY}\"")).replace("usdc =", "usdd ="), "unknown field `usdd`"),
            (file("base", &format!("\"{KEY}\"")).replace("usdc = ", "# "), "base: expected the address of a token"),
        ] {
            let error = format!("{:#}", parsed(&text).err().unwrap());
            assert!(error.contains(says) && !error.contains(&KEY[4..20]), "{says}: {error}");
        }
    }
}
