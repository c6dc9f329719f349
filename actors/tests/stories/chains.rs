//! One chain of a story: a devchain that mines on request, with the settlement contract, both tokens, a look-alike, and
//! named accounts.

use std::time::Duration;

use alloy::primitives::{Address as Account, B256, Bytes, U256, keccak256};
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{
    CREATE2_DEPLOYER, PAYFERRY_DEPLOY_GAS_MAX, Payferry, TestUSDC, Token as TokenContract, create2_deploy_input,
    payferry_address, payferry_init_code, test_usdc_init_code, test_usdt_init_code,
};
use payferry_devchain::{ChainConfig, Devchain, Dropped, GenesisAccount, Wallet};
use payferry_domain::{Address, Amount, Chain, Token};
use payferry_evm::wallet::{OperatorSigner, alloy_address, domain_address};
use payferry_evm::{ChainClient, ChainSpec};
use serde_json::{Value, json};

/// Accounts with money of every coin: two neutral ones, and one on the sanctions list.
pub const PAYERS: [&str; 3] = ["payer", "other", "outlaw"];
/// Deployer, and owner of the tokens.
const OWNER: &str = "owner";
/// Operator key, which pays the service's gas.
pub const OPERATOR: [u8; 32] = [7; 32];
const TREASURY: Account = Account::repeat_byte(0x77);
const CALL_GAS: u64 = 3_000_000;
const GWEI: u128 = 1_000_000_000;
/// Tip of every transaction, including the service's.
const TIP_WEI: u128 = 1_000_000;

/// A token contract of a story.
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
    domain_address(Wallet::from_seed(name).address())
}

#[derive(Clone)]
pub struct StoryChain {
    pub chain: Chain,
    pub devchain: Devchain,
    pub spec: ChainSpec,
}

impl StoryChain {
    pub async fn open(chain: Chain) -> Self {
        let gas = alloy_address(OperatorSigner::from_bytes(&OPERATOR).unwrap().address());
        let names = PAYERS.iter().chain([&OWNER]).map(|name| Wallet::from_seed(name).address());
        let rich =
            |address| GenesisAccount { address, balance: U256::from(10).pow(U256::from(21)), ..Default::default() };
        let config = ChainConfig {
            chain_id: chain.default_id(),
            genesis: names.chain([gas]).map(rich).collect(),
            ..ChainConfig::default()
        };
        let devchain = Devchain::open(config).await.unwrap();
        let owner = Wallet::from_seed(OWNER).address();
        let factory = payferry_init_code(owner, gas, gas, TREASURY);
        let coins = Coin::ALL.map(|coin| {
            let salt = keccak256(format!("{} on {chain}", coin.as_str()));
            let code = if coin == Coin::Usdt { test_usdt_init_code(owner) } else { test_usdc_init_code(owner) };
            (CREATE2_DEPLOYER.create2_from_code(salt, &code), create2_deploy_input(salt, &code))
        });
        let [usdc, usdt, lookalike] = coins.each_ref().map(|(address, _)| domain_address(*address));
        let contract = domain_address(payferry_address(&factory, B256::ZERO));
        let tokens = vec![(Token::Usdc, usdc), (Token::Usdt, usdt)];
        let mut spec = ChainSpec::new(chain, contract, domain_address(TREASURY), tokens).sandbox();
        spec.lookalikes = vec![lookalike];
        spec.poll_interval = Duration::from_millis(100);
        spec.batch_window = Duration::from_millis(20);
        let this = Self { chain, devchain, spec };
        this.owner_sends(
            CREATE2_DEPLOYER,
            create2_deploy_input(B256::ZERO, &factory).to_vec(),
            PAYFERRY_DEPLOY_GAS_MAX,
        )
        .await;
        let to: Vec<Account> = PAYERS.iter().map(|name| Wallet::from_seed(name).address()).collect();
        for (address, deployment) in coins {
            this.owner_sends(CREATE2_DEPLOYER, deployment.to_vec(), CALL_GAS).await;
            let values = vec![U256::from(1_000_000_000_000_000_u64); to.len()];
            let mint = TokenContract::mintBatchCall { to: to.clone(), values };
            this.owner_sends(address, mint.abi_encode(), CALL_GAS).await;
        }
        // Enough for every reorg of a story, and for a `finalized` block.
        this.mine(12).await;
        assert!(this.balance(Coin::LookAlike, account(PAYERS[0])).await > 0, "the tokens were not minted");
        this
    }

    /// Client with the service's view of the chain: faults apply.
    pub fn client(&self) -> ChainClient {
        ChainClient::new(self.devchain.transport()).with_timeout(Duration::from_secs(2))
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.devchain.call(method, params).await.unwrap()
    }

    /// Reads the nonce each time, because a reorg that drops transactions releases their nonces.
    async fn send(&self, from: &str, to: Account, input: Vec<u8>, gas: u64) -> B256 {
        self.send_tipping(from, to, input, gas, TIP_WEI).await
    }

    async fn send_tipping(&self, from: &str, to: Account, input: Vec<u8>, gas: u64, tip_wei: u128) -> B256 {
        let wallet = Wallet::from_seed(from);
        let nonce = self.ask("eth_getTransactionCount", json!([wallet.address(), "pending"])).await;
        let nonce = u64::from_str_radix(nonce.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let id = self.devchain.chain_id();
        let (raw, hash) = wallet.sign_call(id, nonce, to, input.into(), gas, 100 * GWEI, tip_wei);
        self.devchain.send_raw(raw).await.unwrap();
        hash
    }

    /// Sends as the owner, first in its block.
    async fn owner_sends(&self, to: Account, input: Vec<u8>, gas: u64) -> B256 {
        self.send_tipping(OWNER, to, input, gas, 2 * TIP_WEI).await
    }

    fn coin_at(&self, coin: Coin) -> Account {
        alloy_address(self.coin(coin))
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

    /// Sends a signed transfer into the mempool.
    pub async fn transfer(&self, from: &str, coin: Coin, to: Address, amount: Amount) -> B256 {
        let value = U256::from(amount.units().unsigned_abs());
        let call = TokenContract::transferCall { to: alloy_address(to), value };
        self.send(from, self.coin_at(coin), call.abi_encode(), CALL_GAS).await
    }

    /// Adds an account to USDC's blacklist or removes it, and mines that.
    pub async fn blacklist(&self, address: Address, is_listed: bool) {
        let account = alloy_address(address);
        let input = if is_listed {
            TestUSDC::blacklistCall { account }.abi_encode()
        } else {
            TestUSDC::unBlacklistCall { account }.abi_encode()
        };
        self.owner_sends(self.coin_at(Coin::Usdc), input, CALL_GAS).await;
        self.mine(1).await;
    }

    pub async fn mine(&self, blocks: u64) {
        self.devchain.mine(blocks).await.unwrap();
    }

    pub async fn reorg(&self, depth: u64, dropped: Dropped) {
        self.devchain.reorg(depth, dropped).await.unwrap();
    }

    /// Balance of an account, base units.
    pub async fn balance(&self, coin: Coin, of: Address) -> i64 {
        let data = Bytes::from(TokenContract::balanceOfCall { account: alloy_address(of) }.abi_encode());
        let answer = self.ask("eth_call", json!([{"to": self.coin_at(coin), "data": data}, "latest"])).await;
        let bytes: Bytes = serde_json::from_value(answer).unwrap();
        TokenContract::balanceOfCall::abi_decode_returns(&bytes).unwrap().to::<u64>().try_into().unwrap()
    }

    /// Returns `true` if a transaction of the service is in the mempool.
    pub async fn has_unmined(&self) -> bool {
        let operator = alloy_address(OperatorSigner::from_bytes(&OPERATOR).unwrap().address());
        let count = async |block: &str| self.ask("eth_getTransactionCount", json!([operator, block])).await;
        count("pending").await != count("latest").await
    }

    /// Numbers of the operations that the contract has executed, in order, one entry per execution.
    pub async fn executed(&self) -> Vec<i64> {
        let done = [Payferry::Settled::SIGNATURE_HASH, Payferry::Sent::SIGNATURE_HASH];
        let filter = json!([{"address": alloy_address(self.spec.contract), "fromBlock": "0x0", "toBlock": "latest", "topics": [done]}]);
        let logs = self.ask("eth_getLogs", filter).await;
        let number = |log: &Value| i64::from_str_radix(log["topics"][1].as_str().unwrap().trim_start_matches("0x"), 16);
        let mut numbers: Vec<i64> = logs.as_array().unwrap().iter().map(|log| number(log).unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }
}
