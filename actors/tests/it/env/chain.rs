//! A chain of a test: a devchain with the settlement contract, both tokens, a look-alike, and named accounts.

use std::time::Duration;

use alloy::consensus::TxEip1559;
use alloy::primitives::{Address as Account, B256, Bytes, U256, keccak256};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{
    CREATE2_DEPLOYER, Grants, Payferry, TestUSDC, Token as TokenContract, create2_deploy_input, payferry_address,
    payferry_init_code, test_usdc_init_code, test_usdt_init_code,
};
use payferry_devchain::{ChainConfig, DevWallet, Devchain, Dropped, GenesisAccount};
use payferry_domain::{Address, Amount, Chain, OperationId, Token};
use payferry_evm::wallet::{OperatorSigner, Vaults, alloy_address, domain_address};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_harness::endpoint::Endpoint;
use serde_json::{Value, json};

use super::until_some;

/// Accounts with money of every coin: two neutral ones, and one on the sanctions list.
pub const PAYERS: [&str; 3] = ["payer", "other", "outlaw"];
/// Deployer, and owner of the tokens.
const OWNER: &str = "owner";
/// Account that signs for the service and pays its gas.
const OPERATOR: &str = "operator";
const TREASURY: Account = Account::repeat_byte(0x77);
/// Limit of outbound transfers of each token in 24 hours, in base units.
const SEND_LIMIT: u64 = 1 << 60;
/// More than a batch of 250 mints needs.
const CALL_GAS: u64 = 15_000_000;
pub const GWEI: u128 = 1_000_000_000;
/// Tip of every transaction, including the service's.
const TIP_WEI: u128 = 1_000_000;
/// Number of transfers per transaction of a batch.
const MINT_BATCH_MAX: usize = 250;

/// A token contract of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coin {
    Usdc,
    Usdt,
    /// Resembles USDC and is worth nothing.
    LookAlike,
}

impl Coin {
    pub const ALL: [Self; 3] = [Self::Usdc, Self::Usdt, Self::LookAlike];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usdc => "usdc",
            Self::Usdt => "usdt",
            Self::LookAlike => "lookalike",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|coin| coin.as_str() == name)
    }
}

impl From<Token> for Coin {
    fn from(token: Token) -> Self {
        match token {
            Token::Usdc => Self::Usdc,
            Token::Usdt => Self::Usdt,
        }
    }
}

/// Returns the account of this name, the same on every chain.
pub fn account(name: &str) -> Address {
    domain_address(DevWallet::from_seed(name).address())
}

/// Account of the service's operator.
pub fn operator() -> Address {
    account(OPERATOR)
}

/// Signer of the service's transactions.
pub fn operator_signer() -> OperatorSigner {
    OperatorSigner::from_bytes(&DevWallet::from_seed(OPERATOR).signer().to_bytes().0).unwrap()
}

/// Configuration of a chain on which the named accounts can pay for gas.
pub fn chain_config(chain: Chain) -> ChainConfig {
    let names = PAYERS.into_iter().chain([OWNER, OPERATOR]);
    let balance = U256::from(10).pow(U256::from(21));
    let rich = |name| GenesisAccount { address: DevWallet::from_seed(name).address(), balance, ..Default::default() };
    ChainConfig { chain_id: chain.default_id(), genesis: names.map(rich).collect(), ..ChainConfig::default() }
}

pub struct ChainEnv {
    pub chain: Chain,
    pub devchain: Devchain,
    pub spec: ChainSpec,
    /// Endpoints over HTTP through which the service uses the chain; empty if it uses the chain in the process.
    pub endpoints: Vec<Endpoint>,
    /// Held while a transaction gets its nonce.
    sending: tokio::sync::Mutex<()>,
}

impl ChainEnv {
    pub async fn open(chain: Chain, config: ChainConfig, endpoints: usize) -> Self {
        let devchain = Devchain::open(config).await.unwrap();
        let (owner, gas) = (DevWallet::from_seed(OWNER).address(), alloy_address(operator()));
        let factory = payferry_init_code(owner);
        let coins = Coin::ALL.map(|coin| {
            let salt = keccak256(format!("{} on {chain}", coin.as_str()));
            let code = if coin == Coin::Usdt { test_usdt_init_code(owner) } else { test_usdc_init_code(owner) };
            (domain_address(CREATE2_DEPLOYER.create2_from_code(salt, &code)), create2_deploy_input(salt, &code))
        });
        let [usdc, usdt, lookalike] = coins.each_ref().map(|(address, _)| *address);
        let contract = domain_address(payferry_address(&factory, B256::ZERO));
        let tokens = vec![(Token::Usdc, usdc), (Token::Usdt, usdt)];
        let mut spec = ChainSpec::new(chain, contract, domain_address(TREASURY), tokens).sandbox();
        spec.lookalikes = vec![lookalike];
        let mut this = Self { chain, devchain, spec, endpoints: Vec::new(), sending: tokio::sync::Mutex::default() };
        let deployer = domain_address(CREATE2_DEPLOYER);
        this.call_as_owner(deployer, create2_deploy_input(B256::ZERO, &factory).to_vec()).await;
        // A look-alike, too: it cannot be sent back without a limit.
        let limits = [usdc, usdt, lookalike].map(|token| (alloy_address(token), U256::from(SEND_LIMIT))).to_vec();
        for call in (Grants { settler: gas, sender: gas, treasury: TREASURY, limits }).calls() {
            this.call_as_owner(contract, call.to_vec()).await;
        }
        let units = 1_000_000_000_000_000_u64;
        for (address, deployment) in coins {
            this.call_as_owner(deployer, deployment.to_vec()).await;
            this.mint(address, &PAYERS.map(account), units).await;
        }
        // Enough for every reorg of a story, and for a `finalized` block above the genesis.
        this.mine(30).await;
        assert!(this.balance(Coin::LookAlike, account(PAYERS[0])).await > 0, "the tokens were not minted");
        for _ in 0..endpoints {
            this.endpoints.push(Endpoint::before(&this.devchain).await);
        }
        this
    }

    /// Client with the service's view of the chain: faults apply.
    pub fn client(&self, timeout: Duration) -> ChainClient {
        if self.endpoints.is_empty() {
            return ChainClient::new(self.devchain.transport()).with_timeout(timeout);
        }
        ChainClient::http_all(self.endpoints.iter().map(Endpoint::url), timeout, true).unwrap()
    }

    /// The contract has the same address on every chain.
    pub fn vaults(&self) -> Vaults {
        Vaults::new(self.spec.contract)
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.devchain.call(method, params).await.unwrap()
    }

    /// Calls a contract; not mined yet. Reads the nonce each time, because a reorg that drops transactions releases
    /// their nonces.
    pub async fn call_as(&self, from: &str, to: Address, input: Vec<u8>, tip_wei: u128) -> (Bytes, B256) {
        let wallet = DevWallet::from_seed(from);
        let _nonce = self.sending.lock().await;
        let nonce = quantity(&self.ask("eth_getTransactionCount", json!([wallet.address(), "pending"])).await);
        let (raw, hash) = wallet.sign(TxEip1559 {
            chain_id: self.devchain.chain_id(),
            nonce,
            gas_limit: CALL_GAS,
            max_fee_per_gas: 100 * GWEI,
            max_priority_fee_per_gas: tip_wei,
            to: alloy_address(to).into(),
            input: input.into(),
            ..Default::default()
        });
        assert_eq!(self.devchain.send_raw(raw.clone()).await.unwrap(), hash);
        (raw, hash)
    }

    /// Calls as the owner, first in its block; not mined yet.
    pub async fn call_as_owner(&self, to: Address, input: Vec<u8>) -> B256 {
        self.call_as(OWNER, to, input, 2 * TIP_WEI).await.1
    }

    /// Pauses or resumes the contract, first in its block; not mined yet.
    pub async fn set_contract_paused(&self, is_settle_paused: bool, is_send_paused: bool) {
        let resume = Payferry::unpauseCall { settle_: !is_settle_paused, send_: !is_send_paused };
        self.call_as_owner(self.spec.contract, resume.abi_encode()).await;
        let pause = Payferry::pauseCall { settle_: is_settle_paused, send_: is_send_paused };
        self.call_as_owner(self.spec.contract, pause.abi_encode()).await;
    }

    /// Sends a transaction of the signer's key that the service does not know.
    pub async fn operator_sends(&self, nonce: u64, max_fee_wei: u128, tip_wei: u128) {
        let (wallet, to) = (DevWallet::from_seed(OPERATOR), TREASURY);
        let id = self.devchain.chain_id();
        let (raw, _) = wallet.sign_call(id, nonce, to, Bytes::new(), 100_000, max_fee_wei, tip_wei);
        self.devchain.send_raw(raw).await.unwrap();
    }

    /// Contract of a coin.
    pub fn coin(&self, coin: Coin) -> Address {
        match coin {
            Coin::Usdc => self.spec.token_address(Token::Usdc).unwrap(),
            Coin::Usdt => self.spec.token_address(Token::Usdt).unwrap(),
            Coin::LookAlike => self.spec.lookalikes[0],
        }
    }

    /// Coin of a contract.
    pub fn coin_of(&self, contract: Address) -> Option<Coin> {
        Coin::ALL.into_iter().find(|coin| self.coin(*coin) == contract)
    }

    /// Sends a signed transfer into the mempool; returns it and its hash.
    pub async fn transfer(&self, from: &str, coin: Coin, to: Address, amount: Amount) -> (Bytes, B256) {
        let value = U256::from(amount.units().unsigned_abs());
        let call = TokenContract::transferCall { to: alloy_address(to), value };
        self.call_as(from, self.coin(coin), call.abi_encode(), TIP_WEI).await
    }

    /// Mints to each account, in as few transactions as possible; not mined yet.
    pub async fn mint(&self, token: Address, to: &[Address], units: u64) {
        for some in to.chunks(MINT_BATCH_MAX) {
            let (to, values) = (some.iter().copied().map(alloy_address).collect(), vec![U256::from(units); some.len()]);
            self.call_as_owner(token, TokenContract::mintBatchCall { to, values }.abi_encode()).await;
        }
    }

    /// Adds an account to USDC's blacklist or removes it; not mined yet.
    pub async fn set_blacklisted(&self, address: Address, is_listed: bool) {
        let account = alloy_address(address);
        let input = if is_listed {
            TestUSDC::blacklistCall { account }.abi_encode()
        } else {
            TestUSDC::unBlacklistCall { account }.abi_encode()
        };
        self.call_as_owner(self.coin(Coin::Usdc), input).await;
    }

    /// The same, mined.
    pub async fn blacklist(&self, address: Address, is_listed: bool) {
        self.set_blacklisted(address, is_listed).await;
        self.mine(1).await;
    }

    pub async fn mine(&self, blocks: u64) {
        self.devchain.mine(blocks).await.unwrap();
    }

    pub async fn reorg(&self, depth: u64, dropped: Dropped) {
        self.devchain.reorg(depth, dropped).await.unwrap();
    }

    /// Reorgs this block and all later ones.
    pub async fn reorg_from(&self, block: u64, dropped: Dropped) {
        self.devchain.reorg_from(block, dropped).await.unwrap();
    }

    /// Balance of an account, base units.
    pub async fn balance(&self, coin: Coin, of: Address) -> i64 {
        let data = Bytes::from(TokenContract::balanceOfCall { account: alloy_address(of) }.abi_encode());
        let answer = self.ask("eth_call", json!([{"to": self.coin(coin), "data": data}, "latest"])).await;
        let bytes: Bytes = serde_json::from_value(answer).unwrap();
        TokenContract::balanceOfCall::abi_decode_returns(&bytes).unwrap().to::<u64>().try_into().unwrap()
    }

    /// Receipt of a transaction; null if it is not mined.
    pub async fn receipt(&self, hash: impl serde::Serialize) -> Value {
        self.ask("eth_getTransactionReceipt", json!([hash])).await
    }

    /// Waits until a transaction is mined; returns its block's number.
    pub async fn mined(&self, hash: B256) -> u64 {
        let number = async || self.receipt(hash).await["blockNumber"].as_str().map(|number| quantity(&json!(number)));
        until_some("mined", number, async || format!("{hash}")).await
    }

    /// Waits for this many more blocks.
    pub async fn blocks(&self, count: u64) {
        let until = self.devchain.head().number + count;
        let mined = async || (self.devchain.head().number >= until).then_some(());
        until_some("mined", mined, async || "the chain is halted".to_owned()).await;
    }

    /// Returns `true` if a transaction of the service is in the mempool.
    pub async fn has_unmined(&self) -> bool {
        let count = async |block: &str| self.ask("eth_getTransactionCount", json!([operator(), block])).await;
        count("pending").await != count("latest").await
    }

    /// Ids of the operations that the contract has executed, in order, one entry per execution.
    pub async fn executed(&self) -> Vec<String> {
        let done = [Payferry::Settled::SIGNATURE_HASH, Payferry::Sent::SIGNATURE_HASH];
        let filter =
            json!([{"address": self.spec.contract, "fromBlock": "0x0", "toBlock": "latest", "topics": [done]}]);
        let logs = self.ask("eth_getLogs", filter).await;
        let id = |log: &Value| {
            let topic: U256 = log["topics"][1].as_str().unwrap().parse().unwrap();
            OperationId::from_ulid(topic.to::<u128>().into()).to_string()
        };
        let mut ids: Vec<String> = logs.as_array().unwrap().iter().map(id).collect();
        ids.sort_unstable();
        ids
    }
}

/// Value of a hexadecimal quantity.
pub fn quantity(text: &Value) -> u64 {
    u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}
