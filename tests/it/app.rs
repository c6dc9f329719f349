//! A whole service in this process for tests: the actor tree and the HTTP interface over a database in its own folder.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::http::Method;
use futures::future::try_join_all;
use parking_lot::Mutex;
use payferry::config::Environment;
use payferry::http::{AppState, HttpConfig};
use payferry::sandbox::{Folder, Payer, SandboxEnv, documents_folder};
use payferry::terms::ConsentTerms;
use payferry_accounts::documents::{DocumentStore, PSP_BYTES_MAX};
use payferry_accounts::keys::{ApiKey, KeyMode, RevokedKeys};
use payferry_accounts::tenants::psp_row;
use payferry_actors::auditors::AuditorsConfig;
use payferry_actors::compliance::identity::{ComplianceConfig, IdentityProvider};
use payferry_actors::compliance::{KytError, KytScreener, ListScreener, ScreenRequest, ScreeningConfig};
use payferry_actors::{System, SystemConfig, pauses};
use payferry_domain::customer::{Command, CustomerKind};
use payferry_domain::payment::{Decision, Verdict};
use payferry_domain::{Amount, Chain, CustomerId, KeyId, KeyScope as Scope, PspId, Timestamp, Token};
use payferry_entities::{Database, api_keys};
use payferry_evm::ChainClient;
use payferry_harness::database::TestDatabase;
use payferry_harness::endpoint::Endpoint;
use payferry_httpkit::{Draining, Limits};
use payferry_journal::audit::Actor;
use payferry_journal::customers::{self, NewCustomer, Opened};
use payferry_journal::psps::PspPolicies;
use payferry_migration::migrate;
use payferry_nodes::NodeConfig;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::WebhookConfig;
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, PaginatorTrait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Reply, column, get_until, until, with};

/// Master key of every test.
pub const MASTER_KEY: [u8; 32] = [7; 32];

/// A running service.
pub struct TestApp {
    /// Router that receives the requests.
    pub router: Router,
    /// State of the handlers.
    pub state: AppState,
    /// Key of the first PSP, with every scope.
    pub key: String,
    /// First PSP.
    pub psp_id: PspId,
    env: Option<SandboxEnv>,
    /// Endpoints of Base, if two of them must agree.
    pub endpoints: Vec<Endpoint>,
    /// The database, for direct access.
    pub database: TestDatabase,
    folder: TempDir,
}

/// Block time of the test's chains.
pub const BLOCK_TIME: Duration = Duration::from_millis(50);
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the ledger auditor.
const LEDGER_INTERVAL: Duration = Duration::from_millis(200);

/// Options of a test's service.
#[derive(Default)]
pub struct TestConfig {
    /// `true` in the production environment, `false` in the sandbox environment.
    pub is_production: bool,
    /// Limits; by default those of the environment.
    pub limits: Option<Limits>,
    /// `true` if chains run.
    pub chains: bool,
    /// A token that is disabled on a chain.
    pub token_off: Option<(Chain, Token)>,
    /// Amount of a payment on Base from which two endpoints must agree; without it, there is only one endpoint.
    pub agree_from: Option<Amount>,
    /// Replaces the sandbox's KYT provider.
    pub screener: Option<Arc<dyn KytScreener>>,
    /// Identity provider; none by default.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    pub compliance: ComplianceConfig,
    /// Interval of background reconciliations; none by default.
    pub vaults_interval: Option<Duration>,
    /// `true` if the reconciliation includes the treasury.
    pub treasury_kept: bool,
    /// Bytes of the documents of one PSP; by default those of the configuration.
    pub documents_of_psp_max: Option<u64>,
    /// Additional routes.
    pub routes: Router<AppState>,
    /// Existing database, instead of a new one.
    pub database: Option<TestDatabase>,
}

impl TestApp {
    pub async fn start() -> Self {
        Self::start_with(TestConfig::default()).await
    }

    /// Starts a service with three chains.
    pub async fn start_with_chains() -> Self {
        Self::start_with(TestConfig { chains: true, ..TestConfig::default() }).await
    }

    /// Starts a service with three chains and this KYT provider.
    pub async fn start_with_screener(screener: &FixedScreener) -> Self {
        let screener: Option<Arc<dyn KytScreener>> = Some(Arc::new(screener.clone()));
        Self::start_with(TestConfig { chains: true, screener, ..TestConfig::default() }).await
    }

    pub async fn start_with(config: TestConfig) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let temp = TempDir::new().unwrap();
        let test_database = match config.database {
            Some(database) => database,
            None => TestDatabase::create().await,
        };
        let database = Database::open(test_database.url()).await.unwrap();
        migrate(&database.long_timeout()).await.unwrap();
        let env = if config.chains { Some(open_chains(temp.path()).await) } else { None };
        let clock = env.as_ref().map_or_else(Clock::default, |env| env.clock().clone());
        let mut chains = env.as_ref().map_or_else(Vec::new, |env| env.setups().unwrap());
        if let Some((chain, off)) = config.token_off {
            let setup = chains.iter_mut().find(|setup| setup.spec.chain == chain).unwrap();
            setup.spec.tokens.retain(|(token, _)| *token != off);
        }
        let mut endpoints = Vec::new();
        if let (Some(agree_from), Some(env)) = (config.agree_from, &env) {
            for _ in 0..2 {
                endpoints.push(Endpoint::before(env.chain(Chain::Base).devchain()).await);
            }
            let setup = chains.iter_mut().find(|setup| setup.spec.chain == Chain::Base).unwrap();
            setup.spec.agree_from = agree_from;
            setup.client = ChainClient::http_all(endpoints.iter().map(Endpoint::url), ENDPOINT_TIMEOUT, true).unwrap();
        }
        let empty = || ListScreener::new("test", "1", [], clock.clone());
        let screener = env.as_ref().map_or_else(empty, |env| env.accounts().screener(clock.clone()));
        let TestConfig { vaults_interval, treasury_kept, .. } = config;
        let environment = if config.is_production { Environment::Production } else { Environment::Sandbox };
        let limits = if config.is_production { Limits::production() } else { Limits::sandbox() };
        let limits = config.limits.unwrap_or(limits);
        let system = System::start(SystemConfig {
            database,
            node: NodeConfig::alone([]),
            sealer: Sealer::new(&MASTER_KEY),
            clock,
            chains,
            screener: config.screener.unwrap_or_else(|| Arc::new(screener)),
            screening: ScreeningConfig::default(),
            identity: config.identity,
            compliance: config.compliance,
            webhooks: WebhookConfig { url_policy: environment.url_policy(), ..WebhookConfig::default() },
            ceilings: payferry_journal::psps::Ceilings::default(),
            auditors: AuditorsConfig { ledger_interval: LEDGER_INTERVAL, vaults_interval, treasury_kept },
            shards: 1,
        })
        .await
        .unwrap();
        let public_url = "https://pay.example/".parse().unwrap();
        let documents = DocumentStore::in_folder(&documents_folder(temp.path()), Sealer::new(&MASTER_KEY)).unwrap();
        let documents = documents.with_psp_bytes_max(config.documents_of_psp_max.unwrap_or(PSP_BYTES_MAX));
        let terms = ConsentTerms::default();
        let (revoked_keys, draining, closing) = (RevokedKeys::default(), Draining::default(), CancellationToken::new());
        let http = HttpConfig { public_url, environment, revoked_keys, limits, documents, terms, draining, closing };
        let state = AppState::new(system, http);
        let router = payferry::http::router_with(state.clone(), config.routes);
        let (key, psp_id) = (String::new(), PspId::generate());
        let mut app = Self { router, state, key, psp_id, env, endpoints, database: test_database, folder: temp };
        app.renew_psp().await;
        if app.env.is_some() {
            let read = |app: &Self| Chain::ALL.iter().all(|chain| app.state.system.chain_view(*chain).is_some());
            until("every chain is read", async || read(&app).then_some(())).await;
        }
        app
    }

    /// Continues with a new PSP, so that the next case of a test sees no data of the previous ones.
    pub async fn renew_psp(&mut self) {
        self.psp_id = self.add_psp().await;
        self.key = self.add_key(self.psp_id, &[Scope::Full]).await;
    }

    /// Returns the chains.
    pub fn env(&self) -> &SandboxEnv {
        self.env.as_ref().unwrap()
    }

    /// Creates a merchant of the first PSP.
    pub async fn add_merchant(&self) -> String {
        let merchant =
            json!({ "external_id": "shop", "name": "Shop", "email": "owner@shop.example", "business_id": "1" });
        let reply = self.post("/merchants/sync", &json!({ "merchants": [merchant] })).await;
        reply.json["merchants"][0]["merchant_id"].as_str().unwrap().to_owned()
    }

    /// Asks for a payment of 10 USDC on Base, with these changes of the request.
    pub async fn initiate(&self, changes: &Value) -> Reply {
        let merchant_id = self.add_merchant().await;
        let body = json!({ "merchant_id": merchant_id, "amount": "10", "currency": "USDC", "chain": "base" });
        self.post("/payments/initiate", &with(&body, changes)).await
    }

    /// Creates a payment of 10 USDC on Base; returns the answer.
    pub async fn add_payment(&self) -> Reply {
        self.initiate(&json!({})).await.ok(201)
    }

    /// Creates a payment of 10 USDC on Base, pays this amount, and waits until it has this status.
    pub async fn paid(&self, amount: &str, status: &str) -> Reply {
        let made = self.add_payment().await;
        self.pay(&made, amount).await;
        self.payment_when(&made, status).await;
        made
    }

    /// Sends money to a payment's wallet.
    pub async fn pay(&self, payment: &Reply, amount: &str) {
        let (chain, token) = (payment.string("chain").parse().unwrap(), payment.string("currency").parse().unwrap());
        self.send(payment, Payer::Clean, chain, token, amount).await;
    }

    /// Sends money of this payer to a payment's wallet, in any token on any chain.
    pub async fn send(&self, payment: &Reply, payer: Payer, chain: Chain, token: Token, amount: &str) {
        let (wallet, amount) = (payment.wallet().parse().unwrap(), amount.parse().unwrap());
        self.env().chain(chain).transfer(payer, token, wallet, amount).await.unwrap();
    }

    /// Waits until the payment has this status.
    pub async fn payment_when(&self, payment: &Reply, status: &str) -> Reply {
        self.when(&payment.path(), status).await
    }

    /// Waits until the object at this path has this status.
    pub async fn when(&self, path: &str, status: &str) -> Reply {
        self.get_until(path, |read| read["status"] == status).await
    }

    /// Names of the payment's events that are announced to the PSP, in order.
    pub async fn events_of(&self, payment: &Reply) -> Vec<Value> {
        column(&self.get(&format!("{}/webhooks", payment.path())).await["deliveries"], "event")
    }

    /// Creates another PSP.
    pub async fn add_psp(&self) -> PspId {
        let id = PspId::generate();
        self.insert(psp_row(id, "Test", &PspPolicies::default(), Timestamp(0))).await;
        id
    }

    /// Creates another PSP; returns its key, with every scope.
    pub async fn stranger(&self) -> String {
        self.add_key(self.add_psp().await, &[Scope::Full]).await
    }

    /// Creates another key.
    pub async fn add_key(&self, psp_id: PspId, scopes: &[Scope]) -> String {
        self.add_key_as(psp_id, scopes, |_| {}).await.1
    }

    /// Creates another key, with a change of its row.
    pub async fn add_key_as(
        &self,
        psp_id: PspId,
        scopes: &[Scope],
        change: impl FnOnce(&mut api_keys::Model),
    ) -> (KeyId, String) {
        let mode = self.state.config.environment.key_mode();
        let key = ApiKey::generate(mode);
        let mut row = key.row(self.state.sealer(), psp_id, "test", scopes, Timestamp(0));
        change(&mut row);
        self.insert(row).await;
        (key.id(), key.expose().to_owned())
    }

    /// Inserts a customer with these particulars.
    pub async fn add_customer(&self, kind: CustomerKind, particulars: &str) -> CustomerId {
        let (id, now) = (CustomerId::generate(), self.state.clock().now());
        let sealed = self.state.sealer().seal(&["customers", &id.to_string(), "particulars"], particulars.as_bytes());
        let new = NewCustomer {
            id,
            psp_id: self.psp_id,
            kind,
            email: "ada@example.com".to_owned(),
            country: "GBR".to_owned(),
            currency: "GBP".to_owned(),
            particulars: sealed,
        };
        customers::create(self.writer(), &[new.row(now)], &Actor::Service, now).await.unwrap();
        id
    }

    /// Applies a command to a customer, without checking permissions.
    pub async fn change_customer(&self, id: CustomerId, command: &Command, by: &Actor) {
        let mut opened = Opened::find(self.state.database(), id, None).await.unwrap();
        opened.apply(command, by, self.state.clock().now()).await.unwrap();
        opened.commit().await.unwrap();
    }

    /// Folder of the documents.
    pub fn documents_folder(&self) -> std::path::PathBuf {
        documents_folder(self.folder.path())
    }

    pub fn reader(&self) -> &payferry_entities::Connection {
        self.state.database().reader()
    }

    /// Number of rows of a table.
    pub async fn count<E: EntityTrait>(&self) -> u64
    where
        E::Model: Sync,
    {
        E::find().count(self.reader()).await.unwrap()
    }

    /// Inserts a row.
    pub async fn insert<M, A>(&self, row: M)
    where
        M: IntoActiveModel<A>,
        A: ActiveModelTrait,
    {
        A::Entity::insert(row.into_active_model()).exec_without_returning(self.writer()).await.unwrap();
    }

    pub fn writer(&self) -> &payferry_entities::Connection {
        self.state.database().writer()
    }

    /// Creates a request with the first PSP's key.
    pub fn request(&self, method: Method, path: &str) -> Call {
        Call::new(self.router.clone(), method, path).key(&self.key)
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request(Method::GET, path).send().await
    }

    /// Requests a refund and waits until it is sent.
    pub async fn refunded(&self, payment: &Reply, body: &Value) -> Reply {
        let path = format!("{}/refunds", payment.path());
        let asked = self.post(&path, body).await.ok(202);
        self.when(&format!("{path}/{}", asked.string("refund_id")), "sent").await
    }

    /// Sets or lifts a pause of the operator.
    pub async fn pause(&self, scope: pauses::Scope, is_held: bool) {
        let (transaction, now) = (self.state.database().begin().await.unwrap(), self.state.clock().now());
        if is_held {
            pauses::set(&transaction, scope, "a test", &Actor::Operator, now).await.unwrap();
        } else {
            pauses::lift(&transaction, scope, &Actor::Operator, now).await.unwrap();
        }
        transaction.commit().await.unwrap();
        self.state.system.refresh_pauses().await.unwrap();
    }

    /// Repeats the read until the answer is as wanted.
    pub async fn get_until(&self, path: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
        get_until(path, async || self.get(path).await, wanted).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.request(Method::POST, path).json(body).send().await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.request(Method::PATCH, path).json(body).send().await
    }

    /// Reads with another key.
    pub async fn get_as(&self, key: &str, path: &str) -> Reply {
        self.request(Method::GET, path).key(key).send().await
    }

    /// Posts with another key.
    pub async fn post_as(&self, key: &str, path: &str, body: &Value) -> Reply {
        self.request(Method::POST, path).key(key).json(body).send().await
    }

    /// Posts with an idempotency key.
    pub async fn post_keyed(&self, idempotency_key: &str, path: &str, body: &Value) -> Reply {
        self.request(Method::POST, path).idempotency_key(idempotency_key).json(body).send().await
    }

    /// Reads without an API key, as a payer's browser does.
    pub async fn open(&self, path: &str) -> Reply {
        self.request(Method::GET, path).without_key().send().await
    }
}

/// Opens new chains in this folder, as copies of a template that the first process of a build makes.
async fn open_chains(path: &Path) -> SandboxEnv {
    let built = std::env::current_exe().and_then(|exe| exe.metadata()?.modified()).unwrap();
    let built = built.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let templates = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let template = templates.join(format!("chains-{built}"));
    if !template.exists() {
        let new = TempDir::new_in(templates).unwrap();
        SandboxEnv::open(&Folder::open(new.path()).unwrap(), BLOCK_TIME).await.unwrap().close().await;
        // Fails if another process has made the template since.
        let _ = std::fs::rename(new.path(), &template);
    }
    let folder = Folder::open(path).unwrap();
    for file in Chain::ALL.map(|chain| folder.chain(chain)) {
        std::fs::copy(template.join(file.file_name().unwrap()), file).unwrap();
    }
    let env = SandboxEnv::open(&folder, BLOCK_TIME).await.unwrap();
    // The template's blocks are old, and the service accepts no payments on a chain without a recent block.
    try_join_all(env.chains().map(|(_, chain)| chain.devchain().mine(1))).await.unwrap();
    env
}

/// Returns a valid sandbox key that is in no database.
pub fn unknown_key() -> String {
    ApiKey::generate(KeyMode::Test).expose().to_owned()
}

/// Returns a key with the id of this one, a wrong secret and a valid checksum.
pub fn forged(key: &str) -> String {
    let body = &key[..key.len() - 8];
    let (head, secret) = body.split_at(body.len() - 64);
    let flipped: String = secret.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    let forged = format!("{head}{flipped}");
    format!("{forged}{:08x}", crc32fast::hash(forged.as_bytes()))
}

/// A KYT provider with one configurable answer to everything; without one it fails.
#[derive(Clone)]
pub struct FixedScreener(Arc<Mutex<Option<Decision>>>);

impl FixedScreener {
    pub fn new(decision: Option<Decision>) -> Self {
        Self(Arc::new(Mutex::new(decision)))
    }

    pub fn set(&self, decision: Decision) {
        *self.0.lock() = Some(decision);
    }
}

#[async_trait::async_trait]
impl KytScreener for FixedScreener {
    #[allow(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn name(&self) -> &str {
        "doubtful"
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        Ok(Verdict {
            decision: (*self.0.lock()).ok_or_else(|| KytError("it is speechless".to_owned()))?,
            by_operator: false,
            risk_level: Some("medium".to_owned()),
            score: Some(55),
            flags: vec!["mixer".to_owned()],
            provider: "doubtful".to_owned(),
            provider_ref: None,
            list_version: None,
            plain_sender: None,
            checked_at: Clock::default().now(),
        })
    }
}
