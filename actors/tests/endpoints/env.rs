//! Test environment: an actor tree over a new database, and chains behind scripted endpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, Bytes, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_actors::chain::{ChainView, NoCheckpoint};
use payferry_actors::compliance::identity::ComplianceConfig;
use payferry_actors::compliance::{ListScreener, ScreeningConfig};
use payferry_actors::{ChainChoiceRequest, ChainSetup, InitiateError, InitiatePayment, System, SystemConfig};
use payferry_contracts as contracts;
use payferry_devchain::{ChainConfig, Devchain, GenesisAccount, Mining, Wallet};
use payferry_domain::payment::{Payment, Status};
use payferry_domain::{Address, Amount, Chain, Finality, FinalityPolicy, MerchantId, PaymentId, PspId, Token};
use payferry_entities::{Database, chain_cursors, events, merchants, psps};
use payferry_evm::wallet::{OperatorSigner, Vaults, alloy_address, domain_address};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_harness::database::TestDatabase;
use payferry_harness::endpoint::Endpoint;
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::WebhookConfig;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};
use serde_json::json;

use crate::senses;

/// Timeout for an expected condition.
pub const PATIENCE: Duration = Duration::from_mins(2);
const GWEI: u128 = 1_000_000_000;
const OPERATOR: [u8; 32] = [7; 32];
/// Time between blocks.
pub const BLOCK_TIME: Duration = Duration::from_millis(50);

/// Options of an environment.
#[derive(Clone)]
pub struct Options {
    pub chains: Vec<Chain>,
    pub endpoints: usize,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// `true` if the log and the metrics must belong to this test only.
    pub alone: bool,
    /// Changes the configuration of each chain.
    pub tweak: fn(&mut ChainSpec),
}

impl Default for Options {
    fn default() -> Self {
        let (chains, timeout) = (vec![Chain::Base], Duration::from_secs(5));
        Self { chains, endpoints: 1, timeout, alone: true, tweak: |_| {} }
    }
}

/// One chain with its endpoints and deployed contracts.
pub struct ChainEnv {
    pub chain: Chain,
    pub devchain: Devchain,
    pub endpoints: Vec<Endpoint>,
    pub payer: Wallet,
    pub factory: Address,
    pub treasury: Address,
    pub token: Address,
}

pub struct Env {
    pub system: System,
    pub sites: Vec<ChainEnv>,
    pub psp: PspId,
    pub merchant: MerchantId,
    database: TestDatabase,
    options: Options,
    /// Dropped last.
    hold: senses::Hold,
}

impl Env {
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let hold = senses::listen(options.alone).await;
        let mut sites = Vec::new();
        for chain in &options.chains {
            sites.push(ChainEnv::new(*chain, options.endpoints).await);
        }
        let database = TestDatabase::create().await;
        let opened = Database::open(database.url()).await.unwrap();
        Migrator::up(opened.long_timeout(), None).await.unwrap();
        let (psp, merchant) = tenants(&opened).await;
        let system = start(&sites, opened, &options).await;
        let env = Self { system, sites, psp, merchant, database, options, hold };
        for chain_env in &env.sites {
            env.until_read(chain_env).await;
        }
        env
    }

    /// Drops the tree without a clean stop and starts another one over the same database and chains.
    pub async fn restart(self) -> Self {
        let Self { system, sites, psp, merchant, database, options, hold } = self;
        drop(system);
        let opened = Database::open(database.url()).await.unwrap();
        let system = start(&sites, opened, &options).await;
        Self { system, sites, psp, merchant, database, options, hold }
    }

    /// The first chain.
    pub fn chain_env(&self) -> &ChainEnv {
        &self.sites[0]
    }

    /// The first endpoint of the first chain.
    pub fn endpoint(&self) -> &Endpoint {
        &self.chain_env().endpoints[0]
    }

    pub fn view(&self) -> ChainView {
        self.system.chain_view(self.chain_env().chain).unwrap()
    }

    pub fn trouble(&self) -> Option<String> {
        self.system.chain_view(self.chain_env().chain)?.trouble
    }

    pub async fn try_initiate(&self, chain: Chain, expires_in_secs: i64) -> Result<Payment, InitiateError> {
        let request = InitiatePayment {
            psp_id: self.psp,
            purpose: payferry_domain::payment::Purpose::PayIn,
            merchant_id: Some(self.merchant),
            customer_id: None,
            reference: None,
            metadata: None,
            amount: "10".parse().unwrap(),
            token: Token::Usdc,
            chain: ChainChoiceRequest::Named(chain),
            expires_in_secs,
            answer: None,
        };
        self.system.initiate(request).await
    }

    /// Creates a payment of 10 on the first chain.
    pub async fn initiate(&self) -> Payment {
        self.try_initiate(self.chain_env().chain, 1_200).await.unwrap()
    }

    /// Pays a payment of the first chain in full.
    pub async fn pay(&self, payment: &Payment) -> B256 {
        self.chain_env().pay(payment.terms.wallet, "10").await.1
    }

    pub async fn load(&self, id: PaymentId) -> Payment {
        payferry_journal::payments::load(self.system.database(), id).await.unwrap().unwrap()
    }

    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let since = Instant::now();
        while !condition().await {
            if since.elapsed() > PATIENCE {
                let views: Vec<_> =
                    self.sites.iter().map(|chain_env| self.system.chain_view(chain_env.chain)).collect();
                let views: Vec<_> =
                    views.iter().flatten().map(|view| (view.head_number, view.read_number, &view.trouble)).collect();
                panic!("never {what}: {views:?} {:#?}\n{}", self.system.observe(), senses::log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn until_status(&self, payment: &Payment, status: Status) -> Payment {
        let since = Instant::now();
        loop {
            let payment = self.load(payment.id()).await;
            if payment.status == status {
                return payment;
            }
            let tail = if since.elapsed() < PATIENCE { String::new() } else { senses::log_tail() };
            assert!(since.elapsed() < PATIENCE, "never {status:?}: {payment:#?}\n{tail}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn until_settled(&self, payments: &[Payment]) {
        for payment in payments {
            self.until_status(payment, Status::Settled).await;
        }
    }

    /// Waits until the current head is read.
    pub async fn until_read(&self, chain_env: &ChainEnv) {
        let head = chain_env.devchain.head().number;
        let read = async || self.system.chain_view(chain_env.chain).is_some_and(|view| view.read_number >= head);
        self.until("the head is read", read).await;
    }

    /// Waits until the operator sees the problem: its kind as a metric, and a log line with these words.
    pub async fn until_noticed(&self, kind: &str, words: &[&str]) {
        let (chain, kind) = (format!("chain={}", self.chain_env().chain), format!("kind={kind}"));
        self.until(&format!("{kind} is shown"), async || {
            senses::metric("payferry_chain_trouble", &[&chain, &kind]) > 0 && self.trouble().is_some()
        })
        .await;
        self.until(&format!("{words:?} is logged"), async || senses::logged(words)).await;
    }

    /// Asserts that every confirmed or settled payment has its money in the current chain.
    pub async fn assert_true_to_chain(&self, payments: &[Payment]) {
        for payment in payments {
            let payment = self.load(payment.id()).await;
            if !matches!(payment.status, Status::Confirmed | Status::Settled) {
                continue;
            }
            let chain_env = self.sites.iter().find(|chain_env| chain_env.chain == payment.terms.chain).unwrap();
            let mut held = 0;
            for transfer in payment.transfers.iter().filter(|transfer| transfer.counted) {
                let hash = transfer.key.tx_hash.to_string();
                let receipt = chain_env.devchain.call("eth_getTransactionReceipt", json!([hash])).await.unwrap();
                if receipt["blockHash"] == transfer.block.hash.to_string() && receipt["status"] == "0x1" {
                    held += transfer.amount.units();
                }
            }
            assert!(held >= payment.terms.amount.units(), "not in the chain: {payment:#?}\n{}", senses::log_tail());
        }
    }

    /// Asserts that this many payments of 10 were settled once each and nothing else was, that each feed is gapless,
    /// and that no log line or metric contains an endpoint's key.
    pub async fn assert_balances(&self, payments: &[Payment], settled: usize) {
        let mut expected = 0;
        for chain_env in &self.sites {
            let of_site = payments.iter().filter(|payment| payment.terms.chain == chain_env.chain).count();
            expected += of_site;
        }
        assert!(settled <= expected);
        let mut holdings = (0, 0);
        for chain_env in &self.sites {
            let vault = Vaults::new(chain_env.factory).of_psp(self.psp);
            let (psp, treasury) = (chain_env.balance(vault).await, chain_env.balance(chain_env.treasury).await);
            holdings = (holdings.0 + psp, holdings.1 + treasury);
        }
        let settled = i64::try_from(settled).unwrap();
        assert_eq!(holdings, (settled * 9_900_000, settled * 100_000), "{}", senses::log_tail());
        for payment in payments {
            let of_payment = events::Entity::find()
                .filter(events::Column::PaymentId.eq(payment.id().to_string()))
                .order_by_asc(events::Column::Sequence);
            let events = of_payment.all(self.system.database().reader()).await.unwrap();
            let expected: Vec<i64> = (1..=i64::from(self.load(payment.id()).await.sequence)).collect();
            assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), expected);
        }
        senses::assert_discreet();
    }

    /// Recorded position of the rescan: the first block not rescanned.
    pub async fn second_look_from(&self) -> u64 {
        let row = chain_cursors::Entity::find_by_id(self.chain_env().chain.as_str());
        let row = row.one(self.system.database().reader()).await.unwrap().unwrap();
        u64::try_from(row.second_look_from).unwrap()
    }
}

async fn start(sites: &[ChainEnv], database: Database, options: &Options) -> System {
    let clock = Clock::default();
    let chains = sites.iter().map(|chain_env| {
        let mut spec = ChainSpec::new(
            chain_env.chain,
            chain_env.factory,
            chain_env.treasury,
            vec![(Token::Usdc, chain_env.token)],
        )
        .sandbox();
        spec.finality = FinalityPolicy::flat(Finality::Blocks(2));
        spec.poll_interval = Duration::from_millis(50);
        spec.batch_window = Duration::from_millis(50);
        (options.tweak)(&mut spec);
        let urls = chain_env.endpoints.iter().map(Endpoint::url);
        ChainSetup {
            spec,
            client: ChainClient::http_all(urls, options.timeout, true).unwrap(),
            signer: OperatorSigner::from_bytes(&OPERATOR).unwrap(),
            wake_ups: None,
            checkpoint: Arc::new(NoCheckpoint),
        }
    });
    let config = SystemConfig {
        database,
        sealer: Sealer::new(&[9; 32]),
        clock: clock.clone(),
        chains: chains.collect(),
        screener: Arc::new(ListScreener::new("test", "1", [], clock)),
        screening: ScreeningConfig::default(),
        identity: None,
        compliance: ComplianceConfig::default(),
        webhooks: WebhookConfig::default(),
        ceilings: payferry_journal::psps::Ceilings::default(),
        auditors: payferry_actors::auditors::AuditorsConfig::default(),
        shards: 16,
    };
    System::start(config).await.unwrap()
}

impl ChainEnv {
    async fn new(chain: Chain, endpoints: usize) -> Self {
        let payer = Wallet::from_seed("payer");
        let gas = alloy_address(OperatorSigner::from_bytes(&OPERATOR).unwrap().address());
        let rich =
            |address| GenesisAccount { address, balance: U256::from(10).pow(U256::from(21)), ..Default::default() };
        let config = ChainConfig {
            chain_id: chain.default_id(),
            mining: Mining::Interval(BLOCK_TIME),
            finalized_depth: 32,
            genesis: vec![rich(payer.address()), rich(gas)],
            ..ChainConfig::default()
        };
        let devchain = Devchain::open(config).await.unwrap();
        let treasury = alloy::primitives::Address::repeat_byte(0x77);
        let init_code = contracts::payferry_init_code(payer.address(), gas, gas, treasury);
        let token = domain_address(payer.address().create(1));
        let mut chain_env = Self {
            chain,
            devchain,
            endpoints: Vec::new(),
            payer,
            factory: domain_address(contracts::payferry_address(&init_code, B256::ZERO)),
            treasury: domain_address(treasury),
            token,
        };
        let deployment = contracts::create2_deploy_input(B256::ZERO, &init_code);
        chain_env.send(Some(domain_address(contracts::CREATE2_DEPLOYER)), deployment.to_vec()).await;
        chain_env.send(None, contracts::test_usdc_init_code(chain_env.payer.address()).to_vec()).await;
        let mint =
            contracts::Token::mintCall { to: chain_env.payer.address(), value: U256::from(1_000_000_000_000_u64) };
        chain_env.send(Some(token), mint.abi_encode()).await;
        let since = Instant::now();
        while chain_env.balance(domain_address(chain_env.payer.address())).await == 0 {
            assert!(since.elapsed() < PATIENCE, "the contracts were not deployed in time");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..endpoints {
            chain_env.endpoints.push(Endpoint::before(&chain_env.devchain).await);
        }
        chain_env
    }

    /// Sends the payer's tokens to a wallet; returns the signed bytes and their hash.
    pub async fn pay(&self, to: Address, tokens: &str) -> (Bytes, B256) {
        let amount: Amount = tokens.parse().unwrap();
        let input = contracts::Token::transferCall { to: alloy_address(to), value: U256::from(amount.units()) };
        self.send(Some(self.token), input.abi_encode()).await
    }

    async fn send(&self, to: Option<Address>, input: Vec<u8>) -> (Bytes, B256) {
        let (raw, hash) = self.payer.sign(TxEip1559 {
            chain_id: self.devchain.chain_id(),
            nonce: self.payer.next_nonce(),
            gas_limit: 4_000_000,
            max_fee_per_gas: 10 * GWEI,
            max_priority_fee_per_gas: 1_000_000,
            to: to.map_or(TxKind::Create, |to| TxKind::Call(alloy_address(to))),
            input: input.into(),
            ..Default::default()
        });
        assert_eq!(self.devchain.send_raw(raw.clone()).await.unwrap(), hash);
        (raw, hash)
    }

    pub async fn balance(&self, of: Address) -> i64 {
        let input = contracts::Token::balanceOfCall { account: alloy_address(of) }.abi_encode();
        let call = json!([{"to": self.token, "data": format!("0x{}", hex::encode(input))}, "latest"]);
        let word = self.devchain.call("eth_call", call).await.unwrap();
        let word = word.as_str().unwrap();
        i64::from_str_radix(word.get(word.len().saturating_sub(15)..).unwrap_or("0"), 16).unwrap_or(0)
    }

    /// Waits for this many more blocks.
    pub async fn blocks(&self, count: u64) {
        let until = self.devchain.head().number + count;
        let since = Instant::now();
        while self.devchain.head().number < until {
            assert!(since.elapsed() < PATIENCE, "the chain is halted");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn is_mined(&self, hash: B256) -> bool {
        !self.devchain.call("eth_getTransactionReceipt", json!([hash])).await.unwrap().is_null()
    }

    /// Resets the payer's nonce to the chain's.
    pub async fn forget_discarded(&self) {
        let count =
            self.devchain.call("eth_getTransactionCount", json!([self.payer.address(), "latest"])).await.unwrap();
        self.payer.set_nonce(u64::from_str_radix(&count.as_str().unwrap()[2..], 16).unwrap());
    }

    /// Waits until a transaction is mined; returns its block's number.
    pub async fn mined(&self, hash: B256) -> u64 {
        let since = Instant::now();
        loop {
            let receipt = self.devchain.call("eth_getTransactionReceipt", json!([hash])).await.unwrap();
            if let Some(number) = receipt["blockNumber"].as_str() {
                return u64::from_str_radix(&number[2..], 16).unwrap();
            }
            assert!(since.elapsed() < PATIENCE, "not mined in time");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn tenants(database: &Database) -> (PspId, MerchantId) {
    let (psp, merchant) = (PspId::generate(), MerchantId::generate());
    let row = psps::Model {
        id: psp.to_string(),
        name: "Ferry".to_owned(),
        settings: "{}".to_owned(),
        created_at: 0,
        updated_at: 0,
    };
    row.into_active_model().insert(database.writer()).await.unwrap();
    let row = merchants::Model {
        id: merchant.to_string(),
        psp_id: psp.to_string(),
        external_id: "m".to_owned(),
        name: "Shop".to_owned(),
        email: "shop@example.com".to_owned(),
        business_id: "b".to_owned(),
        created_at: 0,
        updated_at: 0,
    };
    row.into_active_model().insert(database.writer()).await.unwrap();
    (psp, merchant)
}
