//! What every handler shares.

use std::ops::Deref;
use std::sync::Arc;

use axum::http::request::Parts;
use moka::sync::Cache;
use payferry_accounts::documents::DocumentStore;
use payferry_actors::System;
use payferry_actors::clock::Clock;
use payferry_actors::seal::Sealer;
use payferry_domain::{KeyId, KeyScope, MerchantId, PspId};
use payferry_entities::Database;
use payferry_httpkit::idempotency::RunningKeys;
use payferry_httpkit::limits::{Limiters, Limits};
use payferry_httpkit::live::Rooms;
use payferry_httpkit::{ApiError, HttpState};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::auth::KeyRing;
use super::consent::Terms;
use super::money::statement::STATEMENTS_AT_ONCE;
use super::webhooks::events::WAITS_AT_ONCE;

pub(crate) use crate::config::Environment;

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
    pub(super) door: Arc<Semaphore>,
    pub(super) keys: KeyRing,
    pub(super) limiters: Limiters,
    /// Room for streams.
    pub(super) rooms: Arc<Rooms>,
    /// Room for requests that wait.
    pub(super) waits: Arc<Rooms>,
    /// Room for statements that are being written.
    pub(super) statements: Arc<Rooms>,
    running_keys: RunningKeys,
    /// Whose merchants are whose; merchants are never taken away or given to somebody else.
    pub(super) merchants: Cache<MerchantId, PspId>,
}

impl AppState {
    /// Over a running tree.
    pub fn new(system: System, config: HttpConfig) -> Self {
        Self(Arc::new(Shared {
            database: system.database().for_visitors(),
            door: Arc::new(Semaphore::new(config.limits.requests_at_once)),
            keys: KeyRing::new(&system, config.environment.key_mode()),
            limiters: Limiters::new(&config.limits),
            rooms: Rooms::new(config.limits.streams_at_once),
            waits: Rooms::new(WAITS_AT_ONCE),
            statements: Rooms::new(STATEMENTS_AT_ONCE),
            running_keys: RunningKeys::default(),
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

impl HttpState for AppState {
    fn database(&self) -> &Database {
        &self.database
    }

    fn clock(&self) -> &Clock {
        self.system.clock()
    }

    fn sealer(&self) -> &Sealer {
        self.system.sealer()
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn running_keys(&self) -> &RunningKeys {
        &self.running_keys
    }

    async fn authenticate(&self, parts: &Parts, scope: KeyScope) -> Result<(PspId, KeyId), ApiError> {
        self.keys.authenticate(&self.limiters, parts, scope).await
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
