//! A whole service in this process, for tests: the tree and the interface over a database in a folder of its own.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use payferry::http::{AppState, Environment, HttpConfig, Limits};
use payferry::keys::{ApiKey, KeyMode, Scope};
use payferry_actors::clock::Clock;
use payferry_actors::compliance::{ListScreener, ScreeningConfig};
use payferry_actors::psps::PspPolicies;
use payferry_actors::seal::Sealer;
use payferry_actors::webhook::WebhookConfig;
use payferry_actors::{System, SystemConfig};
use payferry_domain::{KeyId, PspId, Timestamp};
use payferry_entities::{Database, api_keys, psps};
use payferry_migration::{Migrator, MigratorTrait};
use sea_orm::{EntityTrait, IntoActiveModel};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

/// The master key of every test.
const MASTER_KEY: [u8; 32] = [7; 32];

/// A running service.
pub struct TestApp {
    /// What requests go to.
    pub router: Router,
    /// What handlers share.
    pub state: AppState,
    /// The first PSP's key, with every scope.
    pub key: String,
    /// The first PSP.
    pub psp_id: PspId,
    _folder: TempDir,
}

/// What a test may want otherwise.
pub struct TestConfig {
    pub environment: Environment,
    pub limits: Limits,
}

impl Default for TestConfig {
    fn default() -> Self {
        Self { environment: Environment::Sandbox, limits: Limits::sandbox() }
    }
}

impl TestApp {
    pub async fn start() -> Self {
        Self::start_with(TestConfig::default()).await
    }

    pub async fn start_with(config: TestConfig) -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("payferry.db").display());
        let database = Database::open(&url).await.unwrap();
        Migrator::up(database.writer(), None).await.unwrap();
        let clock = Clock::default();
        let system = System::start(SystemConfig {
            database,
            sealer: Sealer::new(&MASTER_KEY),
            clock: clock.clone(),
            chains: Vec::new(),
            screener: Arc::new(ListScreener::new("test", "1", [], clock)),
            screening: ScreeningConfig::default(),
            webhooks: WebhookConfig::default(),
            shards: 1,
        })
        .await
        .unwrap();
        let public_url = "https://pay.example/".parse().unwrap();
        let http = HttpConfig { public_url, environment: config.environment, limits: config.limits };
        let state = AppState::new(system, http);
        let router = payferry::http::router(state.clone());
        let mut app = Self { router, state, key: String::new(), psp_id: PspId::generate(), _folder: folder };
        app.psp_id = app.add_psp().await;
        app.key = app.add_key(app.psp_id, &[Scope::Full]).await;
        app
    }

    /// Another PSP.
    pub async fn add_psp(&self) -> PspId {
        let id = PspId::generate();
        let row = psps::Model {
            id: id.to_string(),
            name: "Test".to_owned(),
            settings: serde_json::to_string(&PspPolicies::default()).unwrap(),
            created_at: 0,
            updated_at: 0,
        };
        psps::Entity::insert(row.into_active_model()).exec_without_returning(self.writer()).await.unwrap();
        id
    }

    /// Another key.
    pub async fn add_key(&self, psp_id: PspId, scopes: &[Scope]) -> String {
        self.add_key_as(psp_id, scopes, |_| {}).await.1
    }

    /// Another key, its row changed.
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
        api_keys::Entity::insert(row.into_active_model()).exec_without_returning(self.writer()).await.unwrap();
        (key.id(), key.expose().to_owned())
    }

    pub fn writer(&self) -> &sea_orm::DatabaseConnection {
        self.state.database().writer()
    }

    /// A request with the first PSP's key.
    pub fn request(&self, method: Method, path: &str) -> Call {
        let mut call = Call { router: self.router.clone(), parts: Request::new(()).into_parts().0, body: Vec::new() };
        call.parts.method = method;
        call.parts.uri = path.parse().unwrap();
        call.key(&self.key)
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request(Method::GET, path).send().await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.request(Method::POST, path).json(body).send().await
    }
}

/// A key of the sandbox that no database knows.
pub fn unknown_key() -> String {
    ApiKey::generate(KeyMode::Test).expose().to_owned()
}

/// A request before it is sent.
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

    /// A body that says it is JSON, whatever it is.
    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header(CONTENT_TYPE.as_str(), "application/json")
    }

    pub async fn send(self) -> Reply {
        let request = Request::from_parts(self.parts, Body::from(self.body));
        let response = self.router.oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
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

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    /// `field: code` of every field error, in order.
    pub fn faults(&self) -> Vec<String> {
        let errors = self.json["errors"].as_array().into_iter().flatten();
        errors.map(|e| format!("{}: {}", e["field"].as_str().unwrap(), e["code"].as_str().unwrap())).collect()
    }

    /// The status and the body, with ids, times, addresses and secrets put out of sight.
    pub fn redacted(&self) -> Value {
        serde_json::json!({ "status": self.status.as_u16(), "body": redact(&self.json) })
    }

    /// Fails unless it is a problem document with this status and code.
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

fn redact(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact_text(text)),
        Value::Array(items) => items.iter().map(redact).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), redact(value))).collect(),
        other => other.clone(),
    }
}

fn redact_text(text: &str) -> String {
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
    text.to_owned()
}
