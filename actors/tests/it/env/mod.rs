//! Test environment: the service's actor tree over a new database, with chains and a PSP.

mod chain;
mod screener;
pub mod senses;

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_actors::auditors::AuditorsConfig;
use payferry_actors::chain::{ChainView, Checkpoint, Killed, NoCheckpoint, Step, wake_on_change};
use payferry_actors::compliance::identity::ComplianceConfig;
use payferry_actors::compliance::{ListScreener, ScreeningConfig};
use payferry_actors::observe::Quarantinable;
use payferry_actors::{
    ChainChoiceRequest, ChainSetup, InitiateError, InitiatePayment, OrderError, OutboundOrder, System, SystemConfig,
};
use payferry_devchain::{ChainConfig, Mining, Tags};
use payferry_domain::customer::{self, CustomerKind};
use payferry_domain::outbound::{OutboundId, OutboundTransfer};
use payferry_domain::payment::{Decision, Payment, Purpose, Status, Verdict, fixtures};
use payferry_domain::{Address, Amount, Chain, CustomerId, FeeBps, MerchantId, PaymentId, PspId, Timestamp, Token};
use payferry_entities::{Database, deliveries, events, psps};
use payferry_evm::ChainSpec;
use payferry_harness::PATIENCE;
use payferry_harness::database::TestDatabase;
use payferry_journal::audit::Actor;
use payferry_journal::customers::{self, NewCustomer, Opened};
use payferry_journal::psps::{Ceilings, PspPolicies};
use payferry_nodes::NodeConfig;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::WebhookConfig;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, QueryFilter, QueryOrder};

use self::senses::Senses;

pub use self::chain::{ChainEnv, Coin, GWEI, PAYERS, account, chain_config, operator, operator_signer, quantity};
pub use self::screener::TestScreener;

pub const MASTER: [u8; 32] = [9; 32];
/// Time between blocks, unless a test mines them.
pub const BLOCK_TIME: Duration = Duration::from_millis(50);

/// Options of an environment.
#[derive(Clone)]
pub struct Options {
    pub chains: Vec<Chain>,
    pub mining: Mining,
    /// `safe` and `finalized` of each chain.
    pub tags: Tags,
    /// Number of endpoints of each chain; without any, the service uses the chain in the process.
    pub endpoints: usize,
    /// Timeout of an endpoint's answer.
    pub timeout: Duration,
    /// Use of the process's log and metrics.
    pub senses: Senses,
    /// Change the configuration of each chain.
    pub tweaks: Vec<fn(&mut ChainSpec)>,
    /// Hook that can kill the settler at a step.
    pub checkpoint: Arc<dyn Checkpoint>,
    pub policies: PspPolicies,
    pub clock: Clock,
    /// Changes the configuration of the service.
    pub configure: Arc<dyn Fn(&mut SystemConfig)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            chains: vec![Chain::Base],
            mining: Mining::Interval(BLOCK_TIME),
            tags: Tags::JUMPING,
            endpoints: 0,
            timeout: Duration::from_secs(5),
            senses: Senses::Unused,
            tweaks: Vec::new(),
            checkpoint: Arc::new(NoCheckpoint),
            policies: PspPolicies::default(),
            clock: Clock::default(),
            configure: Arc::new(|_| {}),
        }
    }
}

impl Options {
    pub fn tweaked(mut self, tweak: fn(&mut ChainSpec)) -> Self {
        self.tweaks.push(tweak);
        self
    }

    /// Screens with this, and often.
    pub fn screened_by(self, screener: Arc<TestScreener>) -> Self {
        self.configured(move |config| {
            let brief = Duration::from_millis(20);
            config.screener = screener.clone();
            (config.screening.retry_min, config.screening.review_interval) = (brief, brief);
        })
    }

    pub fn configured(self, configure: impl Fn(&mut SystemConfig) + 'static) -> Self {
        Self { configure: Arc::new(configure), ..self }
    }
}

pub struct Env {
    pub chains: BTreeMap<Chain, ChainEnv>,
    pub psp: PspId,
    pub merchant: MerchantId,
    pub options: Options,
    system: Option<System>,
    /// Direct access for reads, because the service may be down.
    pub database: Database,
    // Dropped after the system.
    pub test_database: TestDatabase,
    _hold: senses::Hold,
}

/// The first chain.
impl Deref for Env {
    type Target = ChainEnv;

    fn deref(&self) -> &ChainEnv {
        &self.chains[&self.options.chains[0]]
    }
}

impl DerefMut for Env {
    fn deref_mut(&mut self) -> &mut ChainEnv {
        self.chains.get_mut(&self.options.chains[0]).expect("the environment has a chain")
    }
}

impl Env {
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let mut env = Self::unstarted(options).await;
        env.start().await;
        env
    }

    /// Creates the chains and the database, without a service.
    pub async fn unstarted(options: Options) -> Self {
        payferry_harness::install_tls();
        let hold = senses::hold(options.senses).await;
        let (mining, tags) = (options.mining, options.tags);
        let opened = options.chains.iter().map(async |chain| {
            let config = ChainConfig { mining, tags, ..chain_config(*chain) };
            let mut opened = ChainEnv::open(*chain, config, options.endpoints).await;
            options.tweaks.iter().for_each(|tweak| tweak(&mut opened.spec));
            (*chain, opened)
        });
        let (test_database, database, psp, merchant) = open_new().await;
        let policies = Expr::value(serde_json::to_string(&options.policies).unwrap());
        let changed = psps::Entity::update_many().col_expr(psps::Column::Settings, policies);
        changed.exec(database.writer()).await.unwrap();
        let chains = futures::future::join_all(opened).await.into_iter().collect();
        Self { chains, psp, merchant, options, system: None, database, test_database, _hold: hold }
    }

    /// Starts the service on the current database and chains, and waits until it has read every chain: before that it
    /// accepts no payments there.
    pub async fn start(&mut self) {
        self.start_blindly().await;
        let system = self.system();
        for chain in self.chains.values() {
            self.until_read(chain).await;
            let is_fresh = |view: ChainView| !view.is_stale(system.clock().now());
            self.until("the chain is fresh", async || system.chain_view(chain.chain).is_some_and(is_fresh)).await;
        }
    }

    /// The same without waiting.
    pub async fn start_blindly(&mut self) {
        let (options, clock) = (&self.options, self.options.clock.clone());
        let setup = |chain: &ChainEnv| ChainSetup {
            spec: chain.spec.clone(),
            client: chain.client(options.timeout),
            settler: operator_signer(),
            sender: operator_signer(),
            wake_ups: chain.endpoints.is_empty().then(|| wake_on_change(chain.devchain.heads())),
            checkpoint: options.checkpoint.clone(),
        };
        let mut config = SystemConfig {
            database: open(&self.test_database).await,
            node: NodeConfig::alone([]),
            sealer: Sealer::new(&MASTER),
            chains: self.chains.values().map(setup).collect(),
            screener: Arc::new(ListScreener::new("test", "1", [account(PAYERS[2])], clock.clone())),
            screening: ScreeningConfig::default(),
            identity: None,
            compliance: ComplianceConfig::default(),
            webhooks: WebhookConfig::default(),
            ceilings: Ceilings::default(),
            auditors: AuditorsConfig::default(),
            shards: 16,
            clock,
        };
        (options.configure)(&mut config);
        self.system = Some(System::start(config).await.unwrap());
    }

    /// Stops the service: cleanly, or as in a crash.
    pub async fn stop(&mut self, gently: bool) {
        let system = self.system.take().expect("the service runs");
        if gently {
            system.stop().await;
        } else {
            drop(system);
        }
        self.end_journal_session().await;
    }

    /// Ends the session of a stopped service's journal, as the end of its process does.
    async fn end_journal_session(&self) {
        if self.database.backend() != DbBackend::Postgres {
            return;
        }
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name LIKE '% journal %'";
        self.database.writer().execute_unprepared(sql).await.unwrap();
    }

    /// Stops the service, cleanly if `gently`, and starts another one over the same database and chains.
    pub async fn restart(&mut self, gently: bool) {
        self.stop(gently).await;
        self.start().await;
    }

    pub fn runs(&self) -> Option<&System> {
        self.system.as_ref()
    }

    pub fn clock(&self) -> &Clock {
        &self.options.clock
    }

    pub fn system(&self) -> &System {
        self.runs().expect("the service runs")
    }

    /// Releases a quarantined subject; returns true if it was quarantined.
    pub async fn release(&self, of: impl Into<Quarantinable>) -> bool {
        self.system().release(of, Vec::new()).await.unwrap()
    }

    /// The first chain.
    pub fn chain(&self) -> &ChainEnv {
        self
    }

    pub fn psp_vault(&self) -> Address {
        self.chain().vaults().of_psp(self.psp)
    }

    /// Vault of a payment with the default fee.
    pub fn vault(&self, payment: PaymentId) -> Address {
        self.chain().vaults().of_payment(payment, self.psp, FeeBps::DEFAULT)
    }

    /// Mines on every chain.
    pub async fn mine(&self, blocks: u64) {
        for chain in self.chains.values() {
            chain.mine(blocks).await;
        }
    }

    pub fn request(&self, tokens: &str) -> InitiatePayment {
        InitiatePayment {
            psp_id: self.psp,
            purpose: Purpose::PayIn,
            merchant_id: Some(self.merchant),
            customer_id: None,
            reference: None,
            description: None,
            metadata: None,
            amount: tokens.parse().unwrap(),
            token: Token::Usdc,
            chain: ChainChoiceRequest::Named(self.options.chains[0]),
            expires_in_secs: 1_200,
            answer: None,
            audit: None,
        }
    }

    pub async fn initiate(&self, tokens: &str) -> Payment {
        self.system().initiate(self.request(tokens)).await.unwrap()
    }

    /// Creates a payment of 10 tokens.
    pub async fn try_initiate(&self, chain: Chain, expires_in_secs: i64) -> Result<Payment, InitiateError> {
        let chain = ChainChoiceRequest::Named(chain);
        self.system().initiate(InitiatePayment { chain, expires_in_secs, ..self.request("10") }).await
    }

    /// Orders an outbound transfer of USDC.
    pub async fn order(
        &self,
        id: OutboundId,
        amount: Amount,
        chain: Chain,
        customer_id: Option<CustomerId>,
        to: Address,
    ) -> Result<OutboundTransfer, OrderError> {
        let order = OutboundOrder {
            id,
            psp_id: self.psp,
            customer_id,
            reference: None,
            metadata: None,
            amount,
            token: Token::Usdc,
            chain,
            to,
            answer: None,
            audit: None,
        };
        self.system().order_outbound(order).await
    }

    /// Creates a person who has accepted the terms.
    pub async fn create_customer(&self, email: &str, particulars: &serde_json::Value) -> CustomerId {
        let (id, now) = (CustomerId::generate(), self.clock().now());
        let context = ["customers", &id.to_string(), "particulars"];
        let new = NewCustomer {
            id,
            psp_id: self.psp,
            kind: CustomerKind::Individual,
            email: email.to_owned(),
            country: "GBR".to_owned(),
            currency: "GBP".to_owned(),
            particulars: Sealer::new(&MASTER).seal(&context, particulars.to_string().as_bytes()),
        };
        customers::create(self.system().database().writer(), &[new.row(now)], &Actor::Service, now).await.unwrap();
        self.change_customer(id, customer::Command::AcceptTerms).await;
        id
    }

    pub async fn change_customer(&self, id: CustomerId, command: customer::Command) {
        let mut opened = Opened::find(self.system().database(), id, Some(self.psp)).await.unwrap();
        opened.apply(&command, &Actor::Service, self.clock().now()).await.unwrap();
        opened.commit().await.unwrap();
    }

    pub async fn pay(&self, payment: &Payment, tokens: &str) -> alloy::primitives::B256 {
        self.pay_from(PAYERS[0], payment, tokens).await
    }

    pub async fn pay_from(&self, payer: &str, payment: &Payment, tokens: &str) -> alloy::primitives::B256 {
        let chain = &self.chains[&payment.terms.chain];
        chain.transfer(payer, Coin::Usdc, payment.terms.wallet, tokens.parse().unwrap()).await.1
    }

    /// Creates payments of 10 tokens and pays them.
    pub async fn initiate_and_pay(&self, count: usize) -> Vec<Payment> {
        let mut payments = Vec::new();
        for _ in 0..count {
            let payment = self.initiate("10").await;
            self.pay(&payment, "10").await;
            payments.push(payment);
        }
        payments
    }

    /// Creates this many payments of 10 tokens.
    pub async fn initiate_many(&self, count: usize) -> Vec<Payment> {
        futures::future::join_all((0..count).map(|_| self.initiate("10"))).await
    }

    /// Creates a payment of 10 tokens, pays it, and waits until it is settled.
    pub async fn initiate_and_settle(&self) -> Payment {
        let payment = self.initiate_and_pay(1).await.remove(0);
        self.until_status(payment.id(), Status::Settled).await
    }

    /// Creates a payment of 10 tokens and pays so much of it.
    pub async fn underpaid(&self, tokens: &str) -> Payment {
        let payment = self.initiate("10").await;
        self.pay(&payment, tokens).await;
        self.until_status(payment.id(), Status::Mismatched).await
    }

    pub async fn load(&self, id: PaymentId) -> Payment {
        payferry_journal::payments::load(&self.database, id).await.unwrap().expect("the payment exists")
    }

    pub async fn load_outbound(&self, id: OutboundId) -> OutboundTransfer {
        payferry_journal::outbound::load(&self.database, id).await.unwrap().expect("the outbound transfer exists")
    }

    /// Waits until the current head of a chain is read.
    pub async fn until_read(&self, chain: &ChainEnv) {
        let head = chain.devchain.head();
        let is_read = |view: ChainView| view.read_number > head.number || view.read_hash.0 == head.hash.0;
        let read = async || self.system().chain_view(chain.chain).is_some_and(is_read);
        self.until("the head is read", read).await;
    }

    /// Waits until the condition holds.
    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        self.until_some(what, async || condition().await.then_some(())).await;
    }

    /// Waits until the condition holds, for longer than usual.
    pub async fn until_within(&self, patience: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let since = Instant::now();
        while !condition().await {
            assert!(since.elapsed() < patience, "never {what}: {}", self.state());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until `ask` returns a value.
    pub async fn until_some<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        until_some(what, ask, async || self.state()).await
    }

    fn state(&self) -> String {
        let Some(system) = self.runs() else { return "the service does not run".to_owned() };
        let views = self.chains.keys().filter_map(|chain| system.chain_view(*chain));
        let views: Vec<_> = views.map(|view| (view.head_number, view.read_number, view.degraded_reason)).collect();
        format!("{views:?} {:#?}\n{}", system.observe(), senses::log_tail())
    }

    pub async fn until_payment(&self, id: PaymentId, what: &str, wanted: impl Fn(&Payment) -> bool) -> Payment {
        let loaded = async || Some(self.load(id).await).filter(&wanted);
        until_some(what, loaded, async || format!("{:#?} {}", self.load(id).await, self.state())).await
    }

    pub async fn until_status(&self, id: PaymentId, status: Status) -> Payment {
        self.until_payment(id, status.as_str(), |payment| payment.status == status).await
    }

    pub async fn until_settled(&self, payments: &[Payment]) {
        for payment in payments {
            self.until_status(payment.id(), Status::Settled).await;
        }
    }

    pub async fn events(&self, id: PaymentId) -> Vec<events::Model> {
        let of_payment = events::Entity::find().filter(events::Column::PaymentId.eq(id.to_string()));
        of_payment.order_by_asc(events::Column::Sequence).all(self.database.reader()).await.unwrap()
    }

    /// Asserts that every payment's sequence is gapless and in feed order, and that each event has one delivery.
    pub async fn check_feed(&self, payments: &[Payment]) {
        for payment in payments {
            let (events, now) = (self.events(payment.id()).await, self.load(payment.id()).await);
            let expected: Vec<i64> = (1..=i64::from(now.sequence)).collect();
            assert!(!expected.is_empty() || now.status == Status::Pending);
            assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), expected);
            assert!(events.is_sorted_by_key(|event| event.position));
            let of_payment =
                deliveries::Entity::find().filter(deliveries::Column::PaymentId.eq(payment.id().to_string()));
            let rows = of_payment.order_by_asc(deliveries::Column::Sequence).all(self.database.reader()).await;
            let delivered: Vec<_> = rows.unwrap().into_iter().map(|row| row.event_id).collect();
            assert_eq!(delivered, events.into_iter().map(|event| event.id).collect::<Vec<_>>());
        }
    }

    /// USDC balance of an account on the first chain, base units.
    pub async fn balance(&self, of: Address) -> i64 {
        self.chain().balance(Coin::Usdc, of).await
    }

    /// USDC balances of the PSP's vault and the treasury on all chains together, base units.
    pub async fn holdings(&self) -> (i64, i64) {
        let mut holdings = (0, 0);
        for chain in self.chains.values() {
            holdings.0 += chain.balance(Coin::Usdc, self.psp_vault()).await;
            holdings.1 += chain.balance(Coin::Usdc, chain.spec.treasury).await;
        }
        holdings
    }

    /// Asserts that this many payments of 10 tokens were settled, once each, and nothing else.
    pub async fn assert_settled(&self, payments: usize) {
        let payments = i64::try_from(payments).unwrap();
        assert_eq!(self.holdings().await, (payments * 9_900_000, payments * 100_000), "{}", senses::log_tail());
    }
}

/// Kills the settler once, after it has reached a series of steps.
#[derive(Default)]
pub struct SettlerKill(Mutex<VecDeque<Step>>);

impl SettlerKill {
    pub fn after(steps: &[Step]) -> Arc<Self> {
        let this = Self::default();
        this.arm(steps);
        Arc::new(this)
    }

    pub fn arm(&self, steps: &[Step]) {
        *self.0.lock() = steps.iter().copied().collect();
    }

    pub fn has_killed(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Checkpoint for SettlerKill {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        let mut steps = self.0.lock();
        if steps.pop_front_if(|next| *next == step).is_some() && steps.is_empty() {
            return Err(Killed(step));
        }
        Ok(())
    }
}

/// Calls `ask` until it returns a value. If it takes longer than [`PATIENCE`], the test fails with `state`.
pub async fn until_some<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>, state: impl AsyncFn() -> String) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "never {what}: {}", state().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Creates a database with a PSP and its merchant.
async fn open_new() -> (TestDatabase, Database, PspId, MerchantId) {
    let test_database = TestDatabase::create().await;
    let database = open(&test_database).await;
    let (psp, merchant) = (PspId::generate(), MerchantId::generate());
    test_database.add_psp(&psp.to_string(), &merchant.to_string()).await;
    (test_database, database, psp, merchant)
}

/// Opens the database, with retries because a shared machine may stall for seconds.
async fn open(test_database: &TestDatabase) -> Database {
    let since = Instant::now();
    loop {
        match Database::open(test_database.url()).await {
            Ok(database) => return database,
            Err(error) => assert!(since.elapsed() < PATIENCE, "could not open the database: {error}"),
        }
    }
}

/// A verdict without details.
pub fn verdict(decision: Decision, by_operator: bool, checked_at: Timestamp) -> Verdict {
    let provider = "test".to_owned();
    Verdict { by_operator, provider, plain_sender: None, checked_at, ..fixtures::verdict(decision) }
}
