//! A chain with a funded owner that has deployed a test USDC and holds a billion of it.

use alloy::consensus::TxEip1559;
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::providers::RootProvider;
use alloy::rpc::client::RpcClient;
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{Token, test_usdc_init_code};
use payferry_devchain::{ChainConfig, DevWallet, Devchain, GenesisAccount, RpcError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub const GWEI: u128 = 1_000_000_000;
pub const CHAIN_ID: u64 = 8453;

pub struct Env {
    pub chain: Devchain,
    pub owner: DevWallet,
    pub token: Address,
}

pub fn config() -> ChainConfig {
    let owner = DevWallet::from_seed("owner").address();
    let ether = U256::from(10).pow(U256::from(18));
    ChainConfig {
        chain_id: CHAIN_ID,
        genesis: vec![GenesisAccount { address: owner, balance: ether * U256::from(1_000), ..Default::default() }],
        ..ChainConfig::default()
    }
}

/// Returns a configuration of a chain with a file, and the folder of the file, which is removed on drop.
pub fn on_disk() -> (TempDir, ChainConfig) {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().join("base.chain"));
    (folder, ChainConfig { path, ..config() })
}

impl Env {
    pub async fn new() -> Self {
        Self::with(config()).await
    }

    /// Opens the chain. On a new chain, deploys the token.
    pub async fn with(config: ChainConfig) -> Self {
        let chain = Devchain::open(config).await.unwrap();
        let owner = DevWallet::from_seed("owner");
        let env = Self { chain, token: owner.address().create(0), owner };
        let nonce = env.nonce("pending").await;
        env.owner.set_nonce(nonce);
        if nonce == 0 {
            env.owner.next_nonce();
            let (raw, hash) = env.owner.sign(TxEip1559 {
                chain_id: CHAIN_ID,
                gas_limit: 3_000_000,
                max_fee_per_gas: GWEI,
                max_priority_fee_per_gas: 1_000_000,
                to: TxKind::Create,
                input: test_usdc_init_code(env.owner.address()),
                ..Default::default()
            });
            env.send(&raw).await.unwrap();
            let mint = Token::mintCall { to: env.owner.address(), value: U256::from(10).pow(U256::from(15)) };
            env.send(&env.call_raw(mint.abi_encode(), GWEI).0).await.unwrap();
            env.chain.mine(1).await.unwrap();
            assert_eq!(env.receipt(hash).await.unwrap().contract_address, Some(env.token));
        }
        env
    }

    pub fn provider(&self) -> RootProvider {
        RootProvider::new(RpcClient::new(self.chain.transport(), true))
    }

    pub async fn call<T: DeserializeOwned>(&self, method: &str, params: Value) -> Result<T, RpcError> {
        let value = self.chain.call(method, params).await?;
        Ok(serde_json::from_value(value).unwrap())
    }

    pub async fn send(&self, raw: &Bytes) -> Result<B256, RpcError> {
        self.chain.send_raw(raw.clone()).await
    }

    /// Returns a call of the token by its owner, with the next nonce.
    pub fn call_raw(&self, input: Vec<u8>, max_fee: u128) -> (Bytes, B256) {
        let nonce = self.owner.next_nonce();
        self.owner.sign_call(CHAIN_ID, nonce, self.token, input.into(), 150_000, max_fee, 1_000_000)
    }

    pub fn transfer_raw(&self, to: Address, units: u64) -> (Bytes, B256) {
        self.call_raw(Token::transferCall { to, value: U256::from(units) }.abi_encode(), GWEI)
    }

    pub async fn transfer(&self, to: Address, units: u64) -> B256 {
        let (raw, hash) = self.transfer_raw(to, units);
        assert_eq!(self.send(&raw).await.unwrap(), hash);
        hash
    }

    /// Sends this many transfers concurrently. Each task returns the hash when its transaction is accepted.
    pub fn transfer_many(&self, count: usize) -> JoinSet<B256> {
        let mut sends = JoinSet::new();
        for _ in 0..count {
            let ((raw, hash), chain) = (self.transfer_raw(payee(1), 1), self.chain.clone());
            sends.spawn(async move {
                assert_eq!(chain.send_raw(raw).await.unwrap(), hash);
                hash
            });
        }
        sends
    }

    /// Transfers and mines.
    pub async fn pay(&self, to: Address, units: u64) -> TransactionReceipt {
        let hash = self.transfer(to, units).await;
        self.chain.mine(1).await.unwrap();
        self.receipt(hash).await.unwrap()
    }

    pub async fn receipt(&self, hash: B256) -> Option<TransactionReceipt> {
        self.call("eth_getTransactionReceipt", json!([hash])).await.unwrap()
    }

    pub async fn nonce(&self, tag: &str) -> u64 {
        self.quantity("eth_getTransactionCount", json!([self.owner.address(), tag])).await
    }

    /// Makes a call that returns a quantity.
    pub async fn quantity(&self, method: &str, params: Value) -> u64 {
        self.call::<U256>(method, params).await.unwrap().to()
    }

    pub async fn balance(&self, of: Address) -> u64 {
        self.quantity("eth_getBalance", json!([of, "latest"])).await
    }

    /// Returns the block, without its transactions.
    pub async fn block(&self, number: u64) -> Value {
        self.call("eth_getBlockByNumber", json!([format!("{number:#x}"), false])).await.unwrap()
    }

    pub async fn token_balance(&self, of: Address, block: impl serde::Serialize) -> u64 {
        let input = Bytes::from(Token::balanceOfCall { account: of }.abi_encode());
        let output: Bytes = self.call("eth_call", json!([{"to": self.token, "input": input}, block])).await.unwrap();
        U256::from_be_slice(&output).to()
    }

    pub async fn logs(&self, filter: &Filter) -> Vec<Log> {
        self.call("eth_getLogs", json!([filter])).await.unwrap()
    }

    pub fn transfers(&self) -> Filter {
        Filter::new().address(self.token).event_signature(Token::Transfer::SIGNATURE_HASH)
    }
}

pub fn quantity(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("not a quantity: {value}"));
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

pub fn payee(number: u8) -> Address {
    Address::repeat_byte(number)
}
