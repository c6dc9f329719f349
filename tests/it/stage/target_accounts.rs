//! On-chain balances of the PSP and the treasury.

use std::collections::BTreeMap;

use payferry_domain::{Chain, Token};
use payferry_harness::psp::Psp;
use reqwest::Method;
use serde_json::{Value, json};

/// Target accounts of the money, by chain.
pub struct TargetAccounts {
    http: reqwest::Client,
    by_chain: BTreeMap<Chain, Purse>,
}

/// Target accounts on one chain. Addresses are text, as in the API.
pub struct Purse {
    pub rpc_url: String,
    pub tokens: BTreeMap<Token, String>,
    pub psp_vault: String,
    pub treasury: String,
}

impl TargetAccounts {
    pub fn new(by_chain: BTreeMap<Chain, Purse>) -> Self {
        Self { http: reqwest::Client::new(), by_chain }
    }

    /// Reads the accounts from a sandbox.
    pub async fn of_sandbox(psp: &Psp) -> Self {
        let facts = psp.ok(Method::GET, "/sandbox", Value::Null).await;
        let purse = |chain: Chain| {
            let fact = |pointer: &str| {
                let fact = facts["chains"][chain.as_str()].pointer(pointer).and_then(Value::as_str);
                fact.unwrap_or_else(|| panic!("no {pointer} of {chain} in {facts:#}")).to_owned()
            };
            let purse = Purse {
                rpc_url: format!("{}/sandbox/rpc/{chain}", psp.url),
                tokens: Token::ALL.map(|token| (token, fact(&format!("/tokens/{token}")))).into(),
                psp_vault: fact("/psp_vault"),
                treasury: fact("/treasury"),
            };
            (chain, purse)
        };
        Self::new(Chain::ALL.map(purse).into())
    }

    /// Balances of the PSP's vault and the treasury, base units.
    pub async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64) {
        let purse = &self.by_chain[&chain];
        let contract = &purse.tokens[&token];
        let vault = self.balance(&purse.rpc_url, contract, &purse.psp_vault).await;
        (vault, self.balance(&purse.rpc_url, contract, &purse.treasury).await)
    }

    async fn balance(&self, rpc_url: &str, contract: &str, of: &str) -> i64 {
        let data = format!("0x70a08231{:0>64}", of.trim_start_matches("0x"));
        let params = json!([{"to": contract, "data": data}, "latest"]);
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": params});
        let answer: Value = self.http.post(rpc_url).json(&call).send().await.unwrap().json().await.unwrap();
        let word = answer["result"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
        i64::from_str_radix(&word[word.len() - 15..], 16).unwrap()
    }
}
