//! Test environment: a tree over a new database and one chain, with a payer who has tokens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_actors::chain::{Checkpoint, NoCheckpoint, wake_on_change};
use payferry_actors::compliance::identity::{ComplianceConfig, IdentityProvider};
use payferry_actors::compliance::{KytScreener, ListScreener, ScreeningConfig};
use payferry_actors::{ChainChoiceRequest, ChainSetup, InitiatePayment, System, SystemConfig};
use payferry_contracts as contracts;
use payferry_devchain::{ChainConfig, Devchain, GenesisAccount, Mining, Wallet};
use payferry_domain::payment::{Payment, Status};
use payferry_domain::{Address, Amount, Chain, Finality, FinalityPolicy, MerchantId, PaymentId, PspId, Token};
use payferry_entities::{Database, deliveries, events, merchants, psps};
use payferry_evm::wallet::{OperatorSigner, alloy_address, domain_address};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_harness::PATIENCE;
use payferry_harness::database::{Held, Lock, TestDatabase};
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::WebhookConfig;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};

const CHAIN: Chain = Chain::Base;
const GWEI: u128 = 1_000_000_000;
/// Transfers per transaction of a flood.
const FLOOD_BATCH: usize = 100;
/// Options of an environment.
#[derive(Clone, Default)]
pub struct Options {
    /// Replaces the sanctions list that contains the outlaw.
    pub screener: Option<Arc<dyn KytScreener>>,
    pub screening: ScreeningConfig,
    /// Identity provider.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    pub compliance: ComplianceConfig,
    pub webhooks: WebhookConfig,
    pub clock: Clock,
    /// Finality of the payments in blocks, instead of the sandbox's.
    pub finality_blocks: Option<u32>,
    /// Hook that can kill the settler at a step.
    pub checkpoint: Option<Arc<dyn Checkpoint>>,
}

/// Factory, treasury and tokens.
type Deployed = (Address, Address, Vec<(Token, Address)>);

pub struct Env {
    pub system: System,
    pub chain: Devchain,
    pub test_database: Arc<TestDatabase>,
    pub psp: PspId,
    pub merchant: MerchantId,
    deployed: Deployed,
    payer: Arc<Wallet>,
    outlaw: Arc<Wallet>,
    operator: [u8; 32],
    pub options: Options,
}

impl Env {
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let test_database = Arc::new(TestDatabase::create().await);
        let (payer, outlaw) = (Arc::new(Wallet::from_seed("payer")), Arc::new(Wallet::from_seed("outlaw")));
        let operator = [7_u8; 32];
        let gas = alloy_address(OperatorSigner::from_bytes(&operator).unwrap().address());
        let rich =
            |address| GenesisAccount { address, balance: U256::from(10).pow(U256::from(21)), ..Default::default() };
        let config = ChainConfig {
            chain_id: CHAIN.default_id(),
            mining: Mining::Interval(Duration::from_millis(50)),
            genesis: vec![rich(payer.address()), rich(outlaw.address()), rich(gas)],
            ..ChainConfig::default()
        };
        let chain = Devchain::open(config).await.unwrap();
        let deployed = deploy(&chain, &payer, &outlaw, gas).await;
        let database = open(&test_database).await;
        Migrator::up(database.long_timeout(), None).await.unwrap();
        let (psp, merchant) = tenants(&database).await;
        let system = start(&chain, &deployed, &operator, database, &outlaw, &options).await;
        Self { system, chain, test_database, psp, merchant, deployed, payer, outlaw, operator, options }
    }

    /// Stops the tree, cleanly if `gently`, and starts another one over the same database and chain.
    pub async fn restart(self, gently: bool) -> Self {
        if gently {
            self.system.clone().stop().await;
        }
        self.go_on().await
    }

    /// Starts a tree over the same database and chain.
    pub async fn go_on(self) -> Self {
        drop(self.system);
        let database = open(&self.test_database).await;
        let system = start(&self.chain, &self.deployed, &self.operator, database, &self.outlaw, &self.options).await;
        Self { system, ..self }
    }

    pub async fn initiate(&self, tokens: &str) -> Payment {
        self.system.initiate(self.request(tokens)).await.unwrap()
    }

    pub fn request(&self, tokens: &str) -> InitiatePayment {
        InitiatePayment {
            psp_id: self.psp,
            purpose: payferry_domain::payment::Purpose::PayIn,
            merchant_id: Some(self.merchant),
            customer_id: None,
            reference: None,
            metadata: None,
            amount: tokens.parse().unwrap(),
            token: Token::Usdc,
            chain: ChainChoiceRequest::Named(CHAIN),
            expires_in_secs: 1_200,
            answer: None,
        }
    }

    pub async fn pay(&self, payment: &Payment, tokens: &str) -> B256 {
        self.transfer(&self.payer, payment.terms.wallet, tokens).await
    }

    pub async fn pay_tainted(&self, payment: &Payment, tokens: &str) -> B256 {
        self.transfer(&self.outlaw, payment.terms.wallet, tokens).await
    }

    /// Sends this many transfers of the smallest amount, in a few blocks.
    pub async fn flood(&self, payment: &Payment, transfers: usize) {
        let wallet = alloy_address(payment.terms.wallet);
        for place in (0..transfers).step_by(FLOOD_BATCH) {
            let count = FLOOD_BATCH.min(transfers - place);
            let to = vec![wallet; count];
            let input = contracts::Token::mintBatchCall { to, values: vec![U256::from(1); count] }.abi_encode();
            call(&self.chain, &self.payer, Some(self.deployed.2[0].1), input).await;
        }
    }

    /// Makes the token reject transfers to and from this account, once mined.
    pub async fn bar(&self, account: Address) {
        let input = contracts::TestUSDC::blacklistCall { account: alloy_address(account) }.abi_encode();
        call(&self.chain, &self.payer, Some(self.deployed.2[0].1), input).await;
    }

    async fn transfer(&self, from: &Wallet, to: Address, tokens: &str) -> B256 {
        let amount: Amount = tokens.parse().unwrap();
        let input = contracts::Token::transferCall { to: alloy_address(to), value: U256::from(amount.units()) };
        call(&self.chain, from, Some(self.deployed.2[0].1), input.abi_encode()).await
    }

    pub async fn load(&self, id: PaymentId) -> Payment {
        payferry_journal::payments::load(self.system.database(), id).await.unwrap().unwrap()
    }

    pub async fn until(&self, id: PaymentId, what: &str, wanted: impl Fn(&Payment) -> bool) -> Payment {
        let since = Instant::now();
        loop {
            let payment = self.load(id).await;
            if wanted(&payment) {
                return payment;
            }
            assert!(since.elapsed() < PATIENCE, "never {what}: {payment:#?} {:#?}", self.system.observe());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn until_status(&self, id: PaymentId, status: Status) -> Payment {
        self.until(id, status.as_str(), |payment| payment.status == status).await
    }

    /// Number of transfers that no payment has applied.
    pub async fn unapplied(&self) -> usize {
        payferry_journal::payments::unapplied_on(self.system.database(), CHAIN, None, 100).await.unwrap().len()
    }

    /// Blocks all other writers until it is released.
    pub async fn lock_database(&self) -> Held {
        self.test_database.lock(Lock::Writes).await
    }

    /// Names of a payment's events, by sequence.
    pub async fn events_of(&self, id: PaymentId) -> Vec<String> {
        self.events(id).await.into_iter().map(|event| event.name).collect()
    }

    async fn events(&self, id: PaymentId) -> Vec<events::Model> {
        let of_payment = events::Entity::find().filter(events::Column::PaymentId.eq(id.to_string()));
        of_payment.order_by_asc(events::Column::Sequence).all(self.system.database().reader()).await.unwrap()
    }

    /// Asserts that every payment's sequence is gapless and in feed order, and that each event has one delivery.
    pub async fn check_feed(&self, payments: &[Payment]) {
        for payment in payments {
            let events = self.events(payment.id()).await;
            let expected: Vec<i64> = (1..=i64::from(self.load(payment.id()).await.sequence)).collect();
            assert!(!expected.is_empty());
            assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), expected);
            assert!(events.is_sorted_by_key(|event| event.position));
            let of_payment =
                deliveries::Entity::find().filter(deliveries::Column::PaymentId.eq(payment.id().to_string()));
            let rows = of_payment.order_by_asc(deliveries::Column::Sequence).all(self.system.database().reader()).await;
            let delivered: Vec<_> = rows.unwrap().into_iter().map(|row| row.event_id).collect();
            assert_eq!(delivered, events.into_iter().map(|event| event.id).collect::<Vec<_>>());
        }
    }

    /// Balances of the PSP's vault and the treasury, base units.
    pub async fn holdings(&self) -> (i64, i64) {
        let vault = payferry_evm::wallet::Vaults::new(self.deployed.0).of_psp(self.psp);
        (self.balance(vault).await, self.balance(self.deployed.1).await)
    }

    /// Balance of an account, base units.
    pub async fn balance(&self, of: Address) -> i64 {
        let input = contracts::Token::balanceOfCall { account: alloy_address(of) }.abi_encode();
        let params =
            serde_json::json!([{"to": self.deployed.2[0].1, "data": format!("0x{}", hex::encode(input))}, "latest"]);
        let word = self.chain.call("eth_call", params).await.unwrap();
        let word = word.as_str().unwrap();
        i64::from_str_radix(&word[word.len() - 15..], 16).unwrap()
    }
}

async fn open(test_database: &TestDatabase) -> Database {
    Database::open(test_database.url()).await.unwrap()
}

async fn start(
    chain: &Devchain,
    deployed: &Deployed,
    operator: &[u8; 32],
    database: Database,
    outlaw: &Wallet,
    options: &Options,
) -> System {
    let clock = options.clock.clone();
    let list = || Arc::new(ListScreener::new("test", "1", [domain_address(outlaw.address())], clock.clone()));
    let mut spec = ChainSpec::new(CHAIN, deployed.0, deployed.1, deployed.2.clone()).sandbox();
    if let Some(blocks) = options.finality_blocks {
        spec.finality = FinalityPolicy::flat(Finality::Blocks(blocks));
    }
    let config = SystemConfig {
        database,
        sealer: Sealer::new(&[9; 32]),
        clock: clock.clone(),
        chains: vec![ChainSetup {
            spec,
            client: ChainClient::new(chain.transport()),
            signer: OperatorSigner::from_bytes(operator).unwrap(),
            wake_ups: Some(wake_on_change(chain.heads())),
            checkpoint: options.checkpoint.clone().unwrap_or_else(|| Arc::new(NoCheckpoint)),
        }],
        screener: options.screener.clone().unwrap_or_else(|| list()),
        screening: options.screening.clone(),
        identity: options.identity.clone(),
        compliance: options.compliance.clone(),
        webhooks: options.webhooks.clone(),
        ceilings: payferry_journal::psps::Ceilings::default(),
        auditors: payferry_actors::auditors::AuditorsConfig::default(),
        shards: 16,
    };
    let system = System::start(config).await.unwrap();
    let since = Instant::now();
    while system.chain_view(CHAIN).is_none_or(|view| view.is_stale(system.clock().now())) {
        assert!(since.elapsed() < PATIENCE, "the chain was never read");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    system
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

async fn deploy(chain: &Devchain, payer: &Wallet, outlaw: &Wallet, operator: alloy::primitives::Address) -> Deployed {
    let treasury = alloy::primitives::Address::repeat_byte(0x77);
    let init_code = contracts::payferry_init_code(payer.address(), operator, operator, treasury);
    let deployment = contracts::create2_deploy_input(B256::ZERO, &init_code);
    call(chain, payer, Some(domain_address(contracts::CREATE2_DEPLOYER)), deployment.to_vec()).await;
    let token = payer.address().create(1);
    call(chain, payer, None, contracts::test_usdc_init_code(payer.address()).to_vec()).await;
    for to in [payer, outlaw] {
        let mint = contracts::Token::mintCall { to: to.address(), value: U256::from(1_000_000_000_000_u64) };
        call(chain, payer, Some(domain_address(token)), mint.abi_encode()).await;
    }
    let factory = domain_address(contracts::payferry_address(&init_code, B256::ZERO));
    let since = Instant::now();
    loop {
        let code = chain.call("eth_getCode", serde_json::json!([factory, "latest"])).await.unwrap();
        let minted =
            chain.call("eth_getTransactionCount", serde_json::json!([payer.address(), "latest"])).await.unwrap();
        if code != "0x" && minted == "0x4" {
            return (factory, domain_address(treasury), vec![(Token::Usdc, domain_address(token))]);
        }
        assert!(since.elapsed() < PATIENCE, "the contracts were not deployed in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends a transaction of `from`: a call, or a deployment.
async fn call(chain: &Devchain, from: &Wallet, to: Option<Address>, input: Vec<u8>) -> B256 {
    let (raw, hash) = from.sign(TxEip1559 {
        chain_id: chain.chain_id(),
        nonce: from.next_nonce(),
        gas_limit: 4_000_000,
        max_fee_per_gas: 10 * GWEI,
        max_priority_fee_per_gas: 1_000_000,
        to: to.map_or(TxKind::Create, |to| TxKind::Call(alloy_address(to))),
        input: input.into(),
        ..Default::default()
    });
    assert_eq!(chain.send_raw(raw).await.unwrap(), hash);
    hash
}
