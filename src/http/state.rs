//! State shared by all handlers.

use std::ops::Deref;
use std::sync::Arc;

use moka::sync::Cache;
use payferry_actors::System;
use payferry_actors::clock::Clock;
use payferry_actors::seal::Sealer;
use payferry_actors::webhook::UrlPolicy;
use payferry_domain::{MerchantId, PspId};
use payferry_entities::Database;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::auth::KeyRing;
use super::consent::Terms;
use super::idempotency::Running;
use super::limits::{Limiters, Limits};
use super::live::Rooms;
use super::money::statement::STATEMENTS_AT_ONCE;
use super::webhooks::events::WAITS_AT_ONCE;
use crate::documents::DocumentStore;
use crate::keys::KeyMode;

/// Cached owners of merchants.
const MERCHANTS_KNOWN_MAX: u64 = 100_000;

/// Settings of the interface.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Public base URL, without a trailing slash in the path. Magic links begin with it.
    pub public_url: Url,
    /// Decides which keys are accepted, and whether webhooks may use plain HTTP and loopback addresses.
    pub environment: Environment,
    /// Rate and concurrency limits.
    pub limits: Limits,
    /// Storage of customers' documents.
    pub documents: DocumentStore,
    /// The terms that customers accept.
    pub terms: Terms,
    /// Cancelled when the listener ends, which ends the streams.
    pub closing: CancellationToken,
}

/// The environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Simulated chains and play money.
    Sandbox,
    /// Real money.
    Production,
}

impl Environment {
    /// The mode of the keys that this environment accepts.
    pub const fn key_mode(self) -> KeyMode {
        match self {
            Self::Sandbox => KeyMode::Test,
            Self::Production => KeyMode::Live,
        }
    }

    /// The webhook URLs that this environment allows.
    pub const fn url_policy(self) -> UrlPolicy {
        match self {
            Self::Sandbox => UrlPolicy::Sandbox,
            Self::Production => UrlPolicy::Production,
        }
    }
}

/// State shared by all handlers. Clones share one instance.
#[derive(Clone)]
pub struct AppState(Arc<Shared>);

/// The one instance behind all clones of an [`AppState`].
pub struct Shared {
    /// The supervision tree.
    pub system: System,
    /// Settings.
    pub config: HttpConfig,
    /// The callers' connection pool. It is separate from the pool of payments, so callers cannot starve them.
    database: Database,
    /// Permits of requests.
    pub(super) door: Semaphore,
    pub(super) keys: KeyRing,
    pub(super) limiters: Limiters,
    /// Permits of streams.
    pub(super) rooms: Arc<Rooms>,
    /// Permits of requests that wait for events.
    pub(super) waits: Arc<Rooms>,
    /// Permits of statements that are being generated.
    pub(super) statements: Arc<Rooms>,
    pub(super) running: Running,
    /// The PSP of each merchant. Merchants are never deleted or moved to another PSP.
    pub(super) merchants: Cache<MerchantId, PspId>,
}

impl AppState {
    /// Creates the state on top of a running supervision tree.
    pub fn new(system: System, config: HttpConfig) -> Self {
        Self(Arc::new(Shared {
            database: system.database().for_visitors(),
            door: Semaphore::new(config.limits.requests_at_once),
            keys: KeyRing::new(&system, config.environment.key_mode()),
            limiters: Limiters::new(&config.limits),
            rooms: Rooms::new(config.limits.streams_at_once),
            waits: Rooms::new(WAITS_AT_ONCE),
            statements: Rooms::new(STATEMENTS_AT_ONCE),
            running: Running::default(),
            merchants: Cache::new(MERCHANTS_KNOWN_MAX),
            system,
            config,
        }))
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Shared {
    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The service's clock.
    pub fn clock(&self) -> &Clock {
        self.system.clock()
    }

    /// Encrypts secrets.
    pub fn sealer(&self) -> &Sealer {
        self.system.sealer()
    }

    /// The URL of a payment's page for the payer.
    pub fn magic_link(&self, link_token: &str) -> String {
        format!("{}/pay/{link_token}", self.config.public_url.as_str().trim_end_matches('/'))
    }
}
