//! One simulated chain: opened from its file, with deployed contracts and tokens and funded payers. Its accounts have
//! well-known keys, the same in every sandbox, without value anywhere else.
//!
//! Deliberately absent: the service's view of the chain (it uses JSON-RPC, as with a real chain).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alloy::consensus::TxEip1559;
use alloy::primitives::{Address, B256, Bytes, TxKind, U64, U256, keccak256};
use alloy::signers::SignerSync as _;
use alloy::sol_types::SolCall;
use anyhow::{Context, anyhow, bail, ensure};
use payferry_actors::compliance::ListScreener;
use payferry_contracts::{
    CREATE2_DEPLOYER, Grants, MULTICALL3, PAYFERRY_DEPLOY_GAS_MAX, Payferry, TestUSDC, Token as TokenContract,
    create2_deploy_input, multicall3_code, payferry_address, payferry_init_code, test_usdc_init_code,
    test_usdt_init_code,
};
use payferry_devchain::{ChainConfig, DevWallet, Devchain, DevchainOpenError, GenesisAccount, Mining, Tags};
use payferry_domain::{Amount, Chain, Hash32, Token};
use payferry_evm::ChainSpec;
use payferry_evm::eip3009::{Eip3009Domain, ReceiveWithAuthorization};
use payferry_evm::wallet::{OperatorSigner, alloy_address, alloy_hash, domain_address};
use payferry_runtime::clock::Clock;
use serde_json::json;
use tokio::sync::Mutex;

/// Name and version of the sandbox's sanctions list in verdicts.
const SANCTIONS_LIST: (&str, &str) = ("sandbox", "1");
/// Blocks with the contracts and the payers' funds; reorgs never go below them.
pub const FOUNDATION_BLOCKS: u64 = 8;
/// Accounts on each chain for clients that sign transactions themselves.
const TEST_ACCOUNTS: usize = 4;
/// Payers on each chain. Each has its own nonces, so that many payments can be pending at once.
const PAYERS: usize = 16;
/// Initial balance for gas of every account, in whole coins.
const GAS_COINS: u64 = 1_000_000_000;
/// Initial balance of each payer in each token.
const PAYER_FUNDS: Amount = Amount::from_tokens(9_000_000_000_000);
/// Maximum amount of one payer transfer.
pub const TRANSFER_MAX: Amount = Amount::from_tokens(1_000_000_000);
/// Gas limit of a transfer of coins to an account or a contract wallet.
const COIN_TRANSFER_GAS: u64 = 60_000;
/// Gas limit of a token transfer.
const TRANSFER_GAS: u64 = 120_000;
/// Gas limit of minting to all accounts.
const MINT_GAS: u64 = 5_000_000;
/// Gas limit of a grant of the admin.
const GRANT_GAS: u64 = 300_000;
/// Limit of outbound transfers of each token in 24 hours, in base units: more than the sandbox ever moves.
const SEND_LIMIT: u128 = 1 << 66;
/// Maximum fee per gas of the sandbox's own transactions, in wei.
const MAX_FEE_WEI: u128 = 100_000_000_000;
const PRIORITY_FEE_WEI: u128 = 1_000_000;

/// EIP-155 id of a chain of the sandbox. No public chain has it, so a transaction that is signed here is valid nowhere
/// else.
const fn chain_id(chain: Chain) -> u64 {
    match chain {
        Chain::Base => 7_700_008_453,
        Chain::Polygon => 7_700_000_137,
        Chain::Arbitrum => 7_700_042_161,
    }
}

/// An authorization that is valid at once, to sign.
#[derive(Debug, Clone, Copy)]
pub struct Unsigned {
    /// Payer.
    pub from: payferry_domain::Address,
    /// Recipient.
    pub to: payferry_domain::Address,
    /// Amount.
    pub value: Amount,
    /// Its end, exclusive, in seconds since the epoch.
    pub valid_before: u64,
    /// Nonce.
    pub nonce: Hash32,
}

/// The accounts of one chain.
#[derive(Debug)]
pub struct Accounts {
    /// Deploys the contracts and owns the test tokens.
    pub deployer: DevWallet,
    /// Admin of the contracts: grants the roles.
    pub admin: DevWallet,
    /// Settles, and pays for the gas of it.
    pub settler: DevWallet,
    /// Sends outbound transfers, and pays for the gas of it.
    pub sender: DevWallet,
    /// Payers whose funds are clean.
    pub payers: Vec<DevWallet>,
    /// A payer on the sandbox's sanctions list.
    pub sanctioned: DevWallet,
    /// A payer whose money the sandbox's screening leaves to the operator.
    pub review: DevWallet,
    /// Accounts for clients, whose funds are clean. The sandbox itself does not use them.
    pub test: Vec<DevWallet>,
}

impl Accounts {
    /// Returns the accounts that every sandbox has.
    pub fn known() -> Self {
        let wallet = |name: &str| DevWallet::from_seed(&format!("payferry sandbox {name}"));
        Self {
            deployer: wallet("deployer"),
            admin: wallet("admin"),
            settler: wallet("settler"),
            sender: wallet("sender"),
            payers: (0..PAYERS).map(|n| wallet(&format!("payer {n}"))).collect(),
            sanctioned: wallet("sanctioned payer"),
            review: wallet("review payer"),
            test: (0..TEST_ACCOUNTS).map(|n| wallet(&format!("test account {n}"))).collect(),
        }
    }

    /// Signers of the settler and the sender.
    pub(crate) fn operator_signers(&self) -> anyhow::Result<[OperatorSigner; 2]> {
        let signer = |wallet: &DevWallet| OperatorSigner::from_bytes(&wallet.signer().to_bytes().0);
        Ok([signer(&self.settler)?, signer(&self.sender)?])
    }

    /// The sandbox's KYT provider: blocks the sanctioned payer, leaves the one for reviews to the operator, and allows all
    /// others.
    pub fn screener(&self, clock: Clock) -> ListScreener {
        let (name, version) = SANCTIONS_LIST;
        let [listed, doubtful] = [&self.sanctioned, &self.review].map(|wallet| domain_address(wallet.address()));
        ListScreener::new(name, version, [listed], clock).with_doubtful([doubtful])
    }

    /// Account that receives the fees.
    pub fn treasury() -> Address {
        DevWallet::from_seed("payferry sandbox treasury").address()
    }

    /// Payers, whatever screening says about them. Their positions are those of [`SandboxChain::turns`].
    fn all_payers(&self) -> impl Iterator<Item = &DevWallet> {
        self.payers.iter().chain([&self.sanctioned, &self.review])
    }

    /// All accounts that hold tokens from the start.
    fn funded(&self) -> impl Iterator<Item = &DevWallet> {
        self.all_payers().chain(&self.test)
    }

    /// All accounts with a gas balance, and Multicall3, for the genesis block.
    pub fn genesis(&self) -> Vec<GenesisAccount> {
        let balance = U256::from(GAS_COINS) * U256::from(10).pow(U256::from(18));
        [&self.deployer, &self.admin, &self.settler, &self.sender]
            .into_iter()
            .chain(self.funded())
            .map(|wallet| GenesisAccount { address: wallet.address(), balance, ..GenesisAccount::default() })
            .chain([GenesisAccount { address: MULTICALL3, code: multicall3_code(), ..GenesisAccount::default() }])
            .collect()
    }
}

payferry_domain::named! {
    /// Sender of a sandbox transfer.
    Payer, "a payer of the sandbox" {
        /// An address without findings.
        Clean = "clean",
        /// An address on the sandbox's sanctions list.
        Sanctioned = "sanctioned",
        /// An address that screening leaves to the operator.
        Review = "review",
    }
}

/// A running chain of the sandbox.
#[derive(Debug)]
pub struct SandboxChain {
    devchain: Devchain,
    spec: ChainSpec,
    accounts: Arc<Accounts>,
    /// One lock per payer: the nonce is read, used and stored before the next transfer of the same payer.
    turns: Vec<Mutex<()>>,
    next_payer: AtomicUsize,
    /// The same lock for the deployer.
    deployer_turn: Mutex<()>,
}

/// Contracts of a chain, at the same addresses in every sandbox.
struct Deployed {
    contract: Address,
    payferry: Bytes,
    grants: Grants,
    tokens: [(Token, Address, B256, Bytes); 2],
    spec: ChainSpec,
}

impl Deployed {
    fn on(chain: Chain, accounts: &Accounts) -> Self {
        let payferry = payferry_init_code(accounts.admin.address());
        let owner = accounts.deployer.address();
        let codes = [(Token::Usdc, test_usdc_init_code(owner)), (Token::Usdt, test_usdt_init_code(owner))];
        let tokens = codes.map(|(token, code)| {
            let salt = token_salt(chain, token);
            (token, CREATE2_DEPLOYER.create2_from_code(salt, &code), salt, code)
        });
        let contract = payferry_address(&payferry, B256::ZERO);
        let grants = Grants {
            settler: accounts.settler.address(),
            sender: accounts.sender.address(),
            treasury: Accounts::treasury(),
            limits: tokens.iter().map(|(_, token, ..)| (*token, U256::from(SEND_LIMIT))).collect(),
        };
        let taken = tokens.each_ref().map(|(token, address, ..)| (*token, domain_address(*address)));
        let (ours, treasury) = (domain_address(contract), domain_address(Accounts::treasury()));
        let mut spec = ChainSpec::new(chain, ours, treasury, taken.to_vec()).sandbox();
        spec.chain_id = chain_id(chain);
        Self { contract, payferry, grants, tokens, spec }
    }
}

/// Chain specification, equal in every sandbox.
pub fn known_spec(chain: Chain) -> ChainSpec {
    Deployed::on(chain, &Accounts::known()).spec
}

impl SandboxChain {
    /// Opens the chain stored in `file` (in memory without a file) and deploys missing contracts.
    pub async fn open(
        chain: Chain,
        file: Option<PathBuf>,
        block_time: Duration,
        accounts: Arc<Accounts>,
    ) -> anyhow::Result<Self> {
        let config = ChainConfig {
            chain_id: chain_id(chain),
            path: file,
            mining: Mining::Interval(block_time),
            tags: Tags::JUMPING,
            genesis: accounts.genesis(),
            ..ChainConfig::default()
        };
        let devchain = Devchain::open(config).await.map_err(|error| match error {
            DevchainOpenError::OtherChain(file) => anyhow!(
                "{} has other chain ids or accounts than this version (earlier ones used the chain ids of mainnet): start \
                 with a new data folder (--data-dir)",
                file.display()
            ),
            error => error.into(),
        })?;
        devchain.pause_mining();
        let Deployed { contract, payferry, grants, tokens, spec } = Deployed::on(chain, &accounts);
        let turns = accounts.all_payers().map(|_| Mutex::default()).collect();
        let this =
            Self { devchain, spec, accounts, turns, next_payer: AtomicUsize::new(0), deployer_turn: Mutex::default() };
        this.deploy(contract, B256::ZERO, &payferry).await.context("the settlement contract could not be deployed")?;
        this.grant(contract, &grants).await.context("the roles could not be granted")?;
        for (token, address, salt, code) in tokens {
            this.deploy(address, salt, &code).await.with_context(|| format!("{token} could not be deployed"))?;
            this.fund(address).await.with_context(|| format!("the accounts could not be funded with {token}"))?;
        }
        let missing = FOUNDATION_BLOCKS.saturating_sub(this.devchain.head().number);
        if missing > 0 {
            this.devchain.mine(missing).await?;
        }
        this.devchain.resume_mining();
        Ok(this)
    }

    /// The underlying development chain.
    pub fn devchain(&self) -> &Devchain {
        &self.devchain
    }

    /// Chain specification for the service.
    pub fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// Sends a signed token transfer from a payer to `to`. Returns its hash once it is stored on disk.
    pub async fn transfer(
        &self,
        payer: Payer,
        token: Token,
        to: payferry_domain::Address,
        amount: Amount,
    ) -> anyhow::Result<Hash32> {
        ensure!(amount <= TRANSFER_MAX, "a transfer moves at most {TRANSFER_MAX}");
        let contract = self.spec.token_address(token).ok_or_else(|| anyhow!("there is no {token} on this chain"))?;
        let (turn, wallet) = self.turn(payer);
        let call = TokenContract::transferCall { to: alloy_address(to), value: units(amount) };
        let _turn = turn.lock().await;
        let hash = self.send(wallet, alloy_address(contract), call.abi_encode().into(), TRANSFER_GAS).await?;
        Ok(Hash32(hash.0))
    }

    /// Signs a `ReceiveWithAuthorization` as a payer, and returns the payer and the signature. `terms` makes the message for
    /// the payer's account.
    pub fn sign_authorization(
        &self,
        payer: Payer,
        domain: &Eip3009Domain,
        terms: impl Fn(payferry_domain::Address) -> Unsigned,
    ) -> anyhow::Result<(payferry_domain::Address, Vec<u8>)> {
        let (_, wallet) = self.turn(payer);
        let from = domain_address(wallet.address());
        let Unsigned { from, to, value, valid_before, nonce } = terms(from);
        let hash = domain.signing_hash(&ReceiveWithAuthorization {
            from: alloy_address(from),
            to: alloy_address(to),
            value: units(value),
            validAfter: U256::ZERO,
            validBefore: U256::from(valid_before),
            nonce: alloy_hash(nonce),
        });
        let signature = wallet.signer().sign_hash_sync(&alloy_hash(hash))?;
        Ok((from, signature.as_bytes().to_vec()))
    }

    /// Sends coins, which pay for gas, from a payer to `to`.
    pub async fn transfer_coins(&self, to: payferry_domain::Address, coins: u64) -> anyhow::Result<Hash32> {
        let (turn, wallet) = self.turn(Payer::Clean);
        let _turn = turn.lock().await;
        let value = U256::from(coins) * U256::from(10).pow(U256::from(18));
        let hash = self.send_with(wallet, alloy_address(to), value, Bytes::new(), COIN_TRANSFER_GAS).await?;
        Ok(Hash32(hash.0))
    }

    /// Makes USDC refuse transfers to and from an account, or accept them again; USDT refuses no recipient. The change is in
    /// a block when this returns.
    pub async fn refuse(&self, account: payferry_domain::Address, is_refused: bool) -> anyhow::Result<Hash32> {
        let token = self.spec.token_address(Token::Usdc).ok_or_else(|| anyhow!("there is no USDC on this chain"))?;
        let account = alloy_address(account);
        let call = if is_refused {
            TestUSDC::blacklistCall { account }.abi_encode()
        } else {
            TestUSDC::unBlacklistCall { account }.abi_encode()
        };
        let _turn = self.deployer_turn.lock().await;
        let hash = self.send(&self.accounts.deployer, alloy_address(token), call.into(), TRANSFER_GAS).await?;
        self.devchain.mine(1).await?;
        Ok(Hash32(hash.0))
    }

    /// The next payer of this kind, and its lock.
    fn turn(&self, payer: Payer) -> (&Mutex<()>, &DevWallet) {
        let Accounts { payers, sanctioned, review, .. } = &*self.accounts;
        match payer {
            Payer::Clean => {
                let index = self.next_payer.fetch_add(1, Ordering::Relaxed) % payers.len();
                (&self.turns[index], &payers[index])
            }
            Payer::Sanctioned => (&self.turns[payers.len()], sanctioned),
            Payer::Review => (&self.turns[payers.len() + 1], review),
        }
    }

    async fn send(&self, wallet: &DevWallet, to: Address, input: Bytes, gas: u64) -> anyhow::Result<B256> {
        self.send_with(wallet, to, U256::ZERO, input, gas).await
    }

    async fn send_with(
        &self,
        wallet: &DevWallet,
        to: Address,
        value: U256,
        input: Bytes,
        gas_limit: u64,
    ) -> anyhow::Result<B256> {
        // Read for each transaction: a reorg that drops transactions makes their nonces available again.
        let nonce = self.devchain.call("eth_getTransactionCount", json!([wallet.address(), "pending"])).await?;
        let (raw, _) = wallet.sign(TxEip1559 {
            chain_id: self.devchain.chain_id(),
            nonce: serde_json::from_value::<U64>(nonce)?.to(),
            gas_limit,
            max_fee_per_gas: MAX_FEE_WEI,
            max_priority_fee_per_gas: PRIORITY_FEE_WEI,
            to: TxKind::Call(to),
            value,
            input,
            ..TxEip1559::default()
        });
        Ok(self.devchain.send_raw(raw).await?)
    }

    async fn deploy(&self, address: Address, salt: B256, init_code: &[u8]) -> anyhow::Result<()> {
        if self.has_code(address).await? {
            return Ok(());
        }
        let input = create2_deploy_input(salt, init_code);
        self.send(&self.accounts.deployer, CREATE2_DEPLOYER, input, PAYFERRY_DEPLOY_GAS_MAX).await?;
        self.devchain.mine(1).await?;
        ensure!(self.has_code(address).await?, "no code at {address} after the deployment");
        Ok(())
    }

    /// Grants the roles, the treasury and the limits.
    async fn grant(&self, contract: Address, grants: &Grants) -> anyhow::Result<()> {
        // All grants are in one block, so checking the treasury is enough.
        if self.treasury(contract).await? == grants.treasury {
            return Ok(());
        }
        for call in grants.calls() {
            self.send(&self.accounts.admin, contract, call, GRANT_GAS).await?;
        }
        self.devchain.mine(1).await?;
        ensure!(self.treasury(contract).await? == grants.treasury, "the admin's transactions reverted");
        Ok(())
    }

    async fn treasury(&self, contract: Address) -> anyhow::Result<Address> {
        self.read(contract, &Payferry::treasuryCall {}).await
    }

    async fn has_code(&self, address: Address) -> anyhow::Result<bool> {
        let code = self.devchain.call("eth_getCode", json!([address, "latest"])).await?;
        Ok(code.as_str().is_some_and(|code| code.len() > 2))
    }

    /// Gives the accounts their tokens.
    async fn fund(&self, token: Address) -> anyhow::Result<()> {
        let to: Vec<Address> = self.accounts.funded().map(DevWallet::address).collect();
        // One transaction funds all accounts, so checking the last one is enough.
        let Some(last) = to.last() else { bail!("there are no accounts") };
        if !self.balance(token, *last).await?.is_zero() {
            return Ok(());
        }
        let values = vec![units(PAYER_FUNDS); to.len()];
        let call = TokenContract::mintBatchCall { to: to.clone(), values };
        self.send(&self.accounts.deployer, token, call.abi_encode().into(), MINT_GAS).await?;
        self.devchain.mine(1).await?;
        ensure!(!self.balance(token, *last).await?.is_zero(), "the tokens were not minted");
        Ok(())
    }

    async fn balance(&self, token: Address, account: Address) -> anyhow::Result<U256> {
        self.read(token, &TokenContract::balanceOfCall { account }).await
    }

    async fn read<C: SolCall>(&self, to: Address, call: &C) -> anyhow::Result<C::Return> {
        let data = Bytes::from(call.abi_encode());
        let answer = self.devchain.call("eth_call", json!([{"to": to, "data": data}, "latest"])).await?;
        let bytes: Bytes = serde_json::from_value(answer)?;
        Ok(C::abi_decode_returns(&bytes)?)
    }
}

fn token_salt(chain: Chain, token: Token) -> B256 {
    keccak256(format!("payferry sandbox {token} on {chain}"))
}

fn units(amount: Amount) -> U256 {
    U256::from(amount.units().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn open(file: &std::path::Path) -> SandboxChain {
        let day = Duration::from_hours(24);
        SandboxChain::open(Chain::Base, Some(file.to_owned()), day, Arc::new(Accounts::known())).await.unwrap()
    }

    #[tokio::test]
    async fn deploys_once_and_transfers_concurrently() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("base.chain");
        let chain = open(&file).await;
        let founded = chain.devchain().head();
        assert_eq!(founded.number, FOUNDATION_BLOCKS);
        let to = payferry_domain::Address([9; 20]);
        let pays = (0..100).map(|_| chain.transfer(Payer::Clean, Token::Usdt, to, Amount::from_tokens(2)));
        let hashes: std::collections::BTreeSet<_> =
            futures::future::join_all(pays).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(hashes.len(), 100);
        chain.devchain().mine(1).await.unwrap();
        let usdt = alloy_address(chain.spec().token_address(Token::Usdt).unwrap());
        assert_eq!(chain.balance(usdt, alloy_address(to)).await.unwrap(), U256::from(200_000_000));
        let specs = (chain.spec().contract, chain.spec().tokens.clone());
        chain.devchain().close().await;
        drop(chain);
        let again = open(&file).await;
        assert_eq!((again.spec().contract, again.spec().tokens.clone()), specs);
        assert_eq!(again.devchain().head().number, founded.number + 1, "the reopened chain deploys nothing");
        let client = payferry_evm::ChainClient::new(again.devchain().transport());
        again.spec().check(&client).await.unwrap();
    }

    #[tokio::test]
    async fn chains_with_the_ids_of_mainnet_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (file, accounts) = (temp.path().join("base.chain"), Accounts::known());
        let earlier = ChainConfig {
            chain_id: Chain::Base.default_id(),
            path: Some(file.clone()),
            genesis: accounts.genesis(),
            ..ChainConfig::default()
        };
        Devchain::open(earlier).await.unwrap().close().await;
        let refused = SandboxChain::open(Chain::Base, Some(file), Duration::from_hours(24), Arc::new(accounts)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("start with a new data folder"), "{refused}");
        for chain in Chain::ALL {
            assert_eq!(known_spec(chain).chain_id, chain_id(chain));
            assert_ne!(chain_id(chain), chain.default_id());
        }
    }

    #[tokio::test]
    async fn coins_and_tokens_arrive() {
        let temp = tempfile::tempdir().unwrap();
        let chain = open(&temp.path().join("base.chain")).await;
        let to = payferry_domain::Address([9; 20]);
        chain.transfer_coins(to, 2).await.unwrap();
        for payer in [Payer::Clean, Payer::Sanctioned, Payer::Review] {
            chain.transfer(payer, Token::Usdc, to, Amount::from_tokens(1)).await.unwrap();
        }
        chain.devchain().mine(1).await.unwrap();
        let coins = chain.devchain().call("eth_getBalance", json!([alloy_address(to), "latest"])).await.unwrap();
        assert_eq!(coins, "0x1bc16d674ec80000");
        let usdc = alloy_address(chain.spec().token_address(Token::Usdc).unwrap());
        assert_eq!(chain.balance(usdc, alloy_address(to)).await.unwrap(), U256::from(3_000_000));
        let test = chain.accounts.test[0].address();
        assert_eq!(chain.balance(usdc, test).await.unwrap(), units(PAYER_FUNDS));
    }

    #[tokio::test]
    async fn payers_continue_after_a_reorg_drops_their_transfers() {
        let temp = tempfile::tempdir().unwrap();
        let chain = open(&temp.path().join("base.chain")).await;
        let to = payferry_domain::Address([9; 20]);
        for _ in 0..PAYERS_TRIED {
            chain.transfer(Payer::Clean, Token::Usdc, to, Amount(1)).await.unwrap();
        }
        chain.devchain().mine(1).await.unwrap();
        chain.devchain().reorg(1, payferry_devchain::Dropped::Discard).await.unwrap();
        for _ in 0..PAYERS_TRIED {
            chain.transfer(Payer::Clean, Token::Usdc, to, Amount(1)).await.unwrap();
        }
        chain.devchain().mine(1).await.unwrap();
        let usdc = alloy_address(chain.spec().token_address(Token::Usdc).unwrap());
        assert_eq!(chain.balance(usdc, alloy_address(to)).await.unwrap(), U256::from(PAYERS_TRIED));
        assert!(chain.transfer(Payer::Clean, Token::Usdc, to, Amount::MAX).await.is_err());
    }

    const PAYERS_TRIED: usize = PAYERS * 2;
}
