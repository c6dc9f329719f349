//! A whole service in this process for tests: the actor tree and the HTTP interface over a database in its own folder.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use payferry::config::Environment;
use payferry::http::consent::Terms;
use payferry::http::{AppState, HttpConfig};
use payferry::sandbox::{Folder, Payer, SandboxEnv, documents_folder};
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::keys::{ApiKey, KeyMode};
use payferry_actors::auditors::AuditorsConfig;
use payferry_actors::compliance::identity::{ComplianceConfig, IdentityProvider};
use payferry_actors::compliance::{KytError, KytScreener, ListScreener, ScreenRequest, ScreeningConfig};
use payferry_actors::{System, SystemConfig};
use payferry_domain::customer::{Command, CustomerKind};
use payferry_domain::payment::{Decision, Verdict};
use payferry_domain::{Chain, CustomerId, KeyId, KeyScope as Scope, PspId, Timestamp, Token};
use payferry_entities::{Database, api_keys, psps};
use payferry_harness::PATIENCE;
use payferry_harness::database::TestDatabase;
use payferry_httpkit::Limits;
use payferry_journal::audit::Actor;
use payferry_journal::customers::{self, NewCustomer, Opened};
use payferry_journal::psps::PspPolicies;
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::{UrlPolicy, WebhookConfig};
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, PaginatorTrait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

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
    /// The database, for direct access.
    pub database: TestDatabase,
    folder: TempDir,
}

/// Block time of the test's chains.
pub const BLOCK_TIME: Duration = Duration::from_millis(50);
/// Interval of the ledger auditor.
const LEDGER_INTERVAL: Duration = Duration::from_millis(200);

/// Numbers that differ in every run.
const VARYING: [&str; 11] = [
    "block_number",
    "log_index",
    "confirmations",
    "duration_ms",
    "head_age_ms",
    "age_ms",
    "messages",
    "wait_ms",
    "wait_ms_max",
    "handling_ms",
    "handling_ms_max",
];
/// Numbers that are times, in milliseconds since the epoch: years 2020 to 2100.
const MOMENTS_MS: std::ops::Range<u64> = 1_577_836_800_000..4_102_444_800_000;

/// Options of a test's service.
pub struct TestConfig {
    pub environment: Environment,
    pub limits: Limits,
    /// `true` if chains run.
    pub chains: bool,
    /// A token that is disabled on a chain.
    pub token_off: Option<(Chain, Token)>,
    /// Replaces the sandbox's KYT provider.
    pub screener: Option<Arc<dyn KytScreener>>,
    /// Identity provider; none by default.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    pub compliance: ComplianceConfig,
    /// Interval of background reconciliations; none by default.
    pub vaults_interval: Option<Duration>,
    /// `true` if the reconciliation includes the treasury.
    pub treasury_kept: bool,
    /// Additional routes.
    pub routes: Router<AppState>,
    /// Existing database, instead of a new one.
    pub database: Option<TestDatabase>,
}

impl Default for TestConfig {
    fn default() -> Self {
        Self {
            environment: Environment::Sandbox,
            limits: Limits::sandbox(),
            chains: false,
            token_off: None,
            screener: None,
            identity: None,
            compliance: ComplianceConfig::default(),
            vaults_interval: None,
            treasury_kept: false,
            routes: Router::new(),
            database: None,
        }
    }
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
        Migrator::up(database.long_timeout(), None).await.unwrap();
        let mut env = None;
        if config.chains {
            env = Some(SandboxEnv::open(&Folder::open(temp.path()).unwrap(), BLOCK_TIME).await.unwrap());
        }
        let clock = env.as_ref().map_or_else(Clock::default, |env| env.clock().clock().clone());
        let mut chains = env.as_ref().map_or_else(Vec::new, |env| env.setups().unwrap());
        if let Some((chain, off)) = config.token_off {
            let setup = chains.iter_mut().find(|setup| setup.spec.chain == chain).unwrap();
            setup.spec.tokens.retain(|(token, _)| *token != off);
        }
        let screener = match &env {
            Some(env) => env.screener(),
            None => ListScreener::new("test", "1", [], clock.clone()),
        };
        let url_policy = match config.environment {
            Environment::Sandbox => UrlPolicy::Sandbox,
            Environment::Production => UrlPolicy::Production,
        };
        let has_chains = env.is_some();
        let system = System::start(SystemConfig {
            database,
            sealer: Sealer::new(&MASTER_KEY),
            clock,
            chains,
            screener: config.screener.unwrap_or_else(|| Arc::new(screener)),
            screening: ScreeningConfig::default(),
            identity: config.identity,
            compliance: config.compliance,
            webhooks: WebhookConfig { url_policy, ..WebhookConfig::default() },
            ceilings: payferry_journal::psps::Ceilings::default(),
            auditors: AuditorsConfig {
                ledger_interval: LEDGER_INTERVAL,
                vaults_interval: config.vaults_interval,
                treasury_kept: config.treasury_kept,
            },
            shards: 1,
        })
        .await
        .unwrap();
        let public_url = "https://pay.example/".parse().unwrap();
        let documents = DocumentStore::in_folder(&documents_folder(temp.path()), Sealer::new(&MASTER_KEY)).unwrap();
        let terms = Terms::default();
        let (environment, limits) = (config.environment, config.limits);
        let http = HttpConfig { public_url, environment, limits, documents, terms, closing: CancellationToken::new() };
        let state = AppState::new(system, http);
        let router = payferry::http::router_with(state.clone(), config.routes);
        let (key, psp_id) = (String::new(), PspId::generate());
        let mut app = Self { router, state, key, psp_id, env, database: test_database, folder: temp };
        app.psp_id = app.add_psp().await;
        app.key = app.add_key(app.psp_id, &[Scope::Full]).await;
        if has_chains {
            let read = |app: &Self| Chain::ALL.iter().all(|chain| app.state.system.chain_view(*chain).is_some());
            until("every chain is read", async || read(&app).then_some(())).await;
        }
        app
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
        let row = psps::Model {
            id: id.to_string(),
            name: "Test".to_owned(),
            settings: serde_json::to_string(&PspPolicies::default()).unwrap(),
            created_at: 0,
            updated_at: 0,
        };
        self.insert(row).await;
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
        let mut call = Call { router: self.router.clone(), parts: Request::new(()).into_parts().0, body: Vec::new() };
        call.parts.method = method;
        call.parts.uri = path.parse().unwrap();
        call.key(&self.key)
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

/// Repeats `ask` until it returns a value.
pub async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < deadline {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited too long until {what}");
}

/// Repeats the read of `path` until the answer is as wanted.
pub async fn get_until(path: &str, get: impl AsyncFn() -> Reply, wanted: impl Fn(&Reply) -> bool) -> Reply {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let reply = get().await;
        if wanted(&reply) {
            return reply;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited too long at {path}: {} {}", reply.status, reply.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `body` with some fields changed.
pub fn with(body: &Value, changes: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

/// This field of every item of a list.
pub fn column(list: &Value, field: &str) -> Vec<Value> {
    list.as_array().unwrap_or_else(|| panic!("not a list: {list:#}")).iter().map(|item| item[field].clone()).collect()
}

/// Asserts that each request is refused because of exactly these field errors, in order: `a: empty, b: required`.
pub async fn assert_refused<S: AsRef<str>>(cases: &[(Value, S)], send: impl AsyncFn(&Value) -> Reply) {
    for (request, faults) in cases {
        let refused = send(request).await;
        assert_eq!(refused.faults(), faults.as_ref(), "{request}: {}", refused.text());
        refused.assert_problem(422, "validation_failed");
    }
}

/// Asserts that each of these values of a field is refused with this error of that field, such as `amount: wrong_type`.
pub async fn assert_values_refused(cases: &[(&str, Value)], send: impl AsyncFn(&Value) -> Reply) {
    for (fault, values) in cases {
        let field = fault.split(':').next().unwrap();
        for value in values.as_array().unwrap() {
            assert_refused(&[(json!({ field: value }), *fault)], &send).await;
        }
    }
}

/// Asserts that `value` has these fields; others may have any value. A name is a path such as `transfers/0/status`.
#[track_caller]
pub fn assert_has(value: &Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("not named fields: {fields}") };
    for (path, wanted) in fields {
        let found = value.pointer(&format!("/{path}")).unwrap_or(&Value::Null);
        assert_eq!(*found, wanted, "{path} in {value:#}");
    }
}

/// Returns a valid sandbox key that is in no database.
pub fn unknown_key() -> String {
    ApiKey::generate(KeyMode::Test).expose().to_owned()
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

/// A request to be sent.
pub struct Call {
    router: Router,
    parts: axum::http::request::Parts,
    body: Vec<u8>,
}

impl Call {
    pub fn key(self, key: &str) -> Self {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {key}"))
    }

    pub fn without_key(mut self) -> Self {
        self.parts.headers.remove(AUTHORIZATION);
        self
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.parts.headers.insert(name, value.parse().unwrap());
        self
    }

    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub fn json(self, body: &Value) -> Self {
        self.bytes(body.to_string())
    }

    /// Sets any bytes as the body, with the JSON content type.
    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header(CONTENT_TYPE.as_str(), "application/json")
    }

    /// Sends the request and returns the response without reading its body.
    pub async fn begin(self) -> Response<Body> {
        let request = Request::from_parts(self.parts, Body::from(self.body));
        self.router.oneshot(request).await.unwrap()
    }

    pub async fn send(self) -> Reply {
        let (parts, body) = self.begin().await.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply { status: parts.status, headers: parts.headers, bytes, json }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    pub json: Value,
}

/// The body.
impl Deref for Reply {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.json
    }
}

impl Reply {
    /// Asserts the status.
    #[track_caller]
    pub fn ok(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts the status and these fields of the body.
    #[track_caller]
    pub fn assert(&self, status: u16, fields: Value) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_has(&self.json, fields);
    }

    /// Asserts that it is the stored answer to an earlier request with the same idempotency key.
    #[track_caller]
    pub fn assert_replays(&self, first: &Self) {
        assert_eq!((self.header("idempotent-replayed"), self.status), (Some("true"), first.status), "{}", self.text());
        assert_eq!(self.bytes, first.bytes);
    }

    /// Asserts that the request is refused because of exactly these field errors, in order.
    #[track_caller]
    pub fn assert_invalid(&self, faults: &str) {
        self.assert_problem(422, "validation_failed");
        assert_eq!(self.faults(), faults, "{}", self.text());
    }

    /// Id of the payment or transfer.
    pub fn id(&self) -> &str {
        self.string("payment_id")
    }

    /// Path of the payment.
    pub fn path(&self) -> String {
        format!("/payments/{}", self.id())
    }

    /// Wallet of the payment.
    pub fn wallet(&self) -> &str {
        self.string("intermediary_wallet")
    }

    /// Path of the payment's page.
    pub fn page_path(&self) -> &str {
        self.string("magic_link").strip_prefix("https://pay.example").unwrap()
    }

    /// A field with a text.
    #[track_caller]
    pub fn string(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    /// Returns `field: code` of every field error, in order, separated by commas.
    pub fn faults(&self) -> String {
        self.fault_list().join(", ")
    }

    /// Like [`Self::faults`], in alphabetical order.
    pub fn faults_sorted(&self) -> String {
        let mut faults = self.fault_list();
        faults.sort();
        faults.join(", ")
    }

    fn fault_list(&self) -> Vec<String> {
        let errors = self.json["errors"].as_array().into_iter().flatten();
        errors.map(|e| format!("{}: {}", e["field"].as_str().unwrap(), e["code"].as_str().unwrap())).collect()
    }

    /// Asserts that the page contains all of these texts.
    #[track_caller]
    pub fn assert_shows(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.text().contains(text), "{text} is missing in {}", self.text());
        }
    }

    /// Asserts that the page contains none of these texts.
    #[track_caller]
    pub fn assert_hides(&self, texts: &[&str]) {
        for text in texts {
            assert!(!self.text().contains(text), "{text} is shown in {}", self.text());
        }
    }

    /// Status and body, with ids, times, addresses and secrets redacted.
    pub fn redacted(&self) -> Value {
        serde_json::json!({ "body": redact(&self.json), "status": self.status.as_u16() })
    }

    /// Asserts that it is a problem document with this status and code.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.json["status"], status);
        assert_eq!(self.json["message"], self.json["detail"]);
        assert_eq!(self.json["request_id"].as_str(), self.header("x-request-id"));
        for field in ["type", "title", "detail", "code"] {
            assert!(!self.json[field].as_str().unwrap().is_empty(), "{field}");
        }
        assert!(self.json["errors"].is_array());
    }
}

/// `value` with ids, times, addresses and secrets redacted and its keys sorted.
pub fn redact(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact_text(text)),
        Value::Number(number) if number.as_u64().is_some_and(|number| MOMENTS_MS.contains(&number)) => json!("[time]"),
        Value::Array(items) => items.iter().map(redact).collect(),
        Value::Object(fields) => {
            let redacted = |(key, value): (&String, &Value)| {
                let value = if VARYING.contains(&key.as_str()) { json!("[number]") } else { redact(value) };
                (key.clone(), value)
            };
            let sorted: BTreeMap<_, _> = fields.iter().map(redacted).collect();
            sorted.into_iter().collect()
        }
        other => other.clone(),
    }
}

fn redact_text(text: &str) -> String {
    if text.starts_with("customers/") || text.starts_with("/ops/") {
        return text.split('/').map(redact_text).collect::<Vec<_>>().join("/");
    }
    let ulid = |text: &str| text.len() == 26 && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if let Some((prefix, rest)) = text.rsplit_once('_')
        && ulid(rest)
    {
        return format!("[{prefix}]");
    }
    if text.starts_with("whsec_") {
        return "[secret]".to_owned();
    }
    if text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T' {
        return "[time]".to_owned();
    }
    if let Some(link) = text.strip_prefix("https://pay.example/pay/") {
        return format!("https://pay.example/pay/[{} characters]", link.len());
    }
    redact_hex(text)
}

/// Redacts addresses and hashes anywhere in the text.
fn redact_hex(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut redacted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits {
            40 => redacted.push_str("[address]"),
            64 => redacted.push_str("[hash]"),
            _ => redacted.extend(["0x", &part[..digits]]),
        }
        redacted.push_str(&part[digits..]);
    }
    redacted
}
