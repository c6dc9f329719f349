//! What every handler shares.

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

/// Merchants whose owner is remembered.
const MERCHANTS_KNOWN_MAX: u64 = 100_000;

/// The interface's own settings.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where payers and PSPs reach the service, without a trailing slash in the path: magic links begin with it.
    pub public_url: Url,
    /// Which keys are taken, and whether webhooks may go to plain HTTP and to this machine.
    pub environment: Environment,
    /// How much a key and an address may ask for.
    pub limits: Limits,
    /// Where customers' documents are kept.
    pub documents: DocumentStore,
    /// What customers accept.
    pub terms: Terms,
    /// Cancelled when the listener is to end: streams end then.
    pub closing: CancellationToken,
}

/// Which world this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Simulated chains and play money.
    Sandbox,
    /// Real money.
    Production,
}

impl Environment {
    /// The keys that are taken here.
    pub const fn key_mode(self) -> KeyMode {
        match self {
            Self::Sandbox => KeyMode::Test,
            Self::Production => KeyMode::Live,
        }
    }

    /// Where webhooks may go here.
    pub const fn url_policy(self) -> UrlPolicy {
        match self {
            Self::Sandbox => UrlPolicy::Sandbox,
            Self::Production => UrlPolicy::Production,
        }
    }
}

/// What every handler shares. Clones are the same state.
#[derive(Clone)]
pub struct AppState(Arc<Shared>);

/// The one instance behind all clones of an [`AppState`].
pub struct Shared {
    /// The supervision tree.
    pub system: System,
    /// Settings.
    pub config: HttpConfig,
    /// As callers use it: however many there are, the payments find their way to it.
    database: Database,
    /// Room for requests.
    pub(super) door: Semaphore,
    pub(super) keys: KeyRing,
    pub(super) limiters: Limiters,
    /// Room for streams.
    pub(super) rooms: Arc<Rooms>,
    /// Room for requests that wait.
    pub(super) waits: Arc<Rooms>,
    /// Room for statements that are being written.
    pub(super) statements: Arc<Rooms>,
    pub(super) running: Running,
    /// Whose merchants are whose; merchants are never taken away or given to somebody else.
    pub(super) merchants: Cache<MerchantId, PspId>,
}

impl AppState {
    /// Over a running tree.
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

    /// The service's time.
    pub fn clock(&self) -> &Clock {
        self.system.clock()
    }

    /// Seals secrets.
    pub fn sealer(&self) -> &Sealer {
        self.system.sealer()
    }

    /// The page that a payer is sent to.
    pub fn magic_link(&self, link_token: &str) -> String {
        format!("{}/pay/{link_token}", self.config.public_url.as_str().trim_end_matches('/'))
    }
}
