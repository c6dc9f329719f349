//! State shared by all handlers.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use moka::sync::Cache;
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::keys::RevokedKeys;
use payferry_accounts::logos::Logo;
use payferry_actors::System;
use payferry_domain::{KeyScope, MerchantId, PspId};
use payferry_entities::Database;
use payferry_httpkit::idempotency::RunningKeys;
use payferry_httpkit::limits::Limiters;
use payferry_httpkit::live::StreamLimits;
use payferry_httpkit::{
    ApiError, Caller, Draining, HttpState, KeyHolder, Limits, Path, QueryFields, Read, RequestProgress, Submission,
};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::auth::KeyRing;
use super::readiness::LastReadiness;
use crate::terms::ConsentTerms;

pub(crate) use crate::config::Environment;

/// Concurrent statements of all callers together.
pub const STATEMENTS_AT_ONCE: usize = 16;
/// Concurrent requests of all PSPs together that wait for events. Each occupies a permit for requests.
pub const WAITS_AT_ONCE: usize = 256;
/// Cached owners of merchants.
const MERCHANTS_KNOWN_MAX: u64 = 100_000;
/// Bytes of cached logos.
const LOGOS_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Time for which a logo is cached. A deleted logo is served until then.
const LOGO_CACHED_MAX: Duration = Duration::from_mins(5);

/// Time after which a reader that waits for a change reads again, because a nudge of another node can be lost.
const MISSED_MAX: Duration = Duration::from_secs(5);

/// Settings of the interface.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Public base URL, without a trailing slash in the path. Magic links begin with it.
    pub public_url: Url,
    /// Decides which keys are accepted, and whether webhooks may use plain HTTP and loopback addresses.
    pub environment: Environment,
    /// Rate and concurrency limits.
    pub limits: Limits,
    /// The API keys that were revoked on this node, shared with the operator's listener.
    pub revoked_keys: RevokedKeys,
    /// Storage of customers' documents.
    pub documents: DocumentStore,
    /// The terms that customers accept.
    pub terms: ConsentTerms,
    /// The drain of this node, shared with the operator's listener.
    pub draining: Draining,
    /// Cancelled when the listener ends, which ends the streams.
    pub closing: CancellationToken,
}

/// State shared by all handlers. Clones share one instance.
#[derive(Clone)]
pub struct AppState(Arc<AppShared>);

/// The one instance behind all clones of an [`AppState`].
pub struct AppShared {
    /// The supervision tree.
    pub system: System,
    /// Settings.
    pub config: HttpConfig,
    /// The callers' connection pool. It is separate from the pool of payments, so callers cannot starve them.
    database: Database,
    /// Permits of requests.
    pub(super) door: Arc<Semaphore>,
    pub(super) keys: KeyRing,
    pub(super) limiters: Limiters,
    /// Permits of streams.
    pub(super) stream_limits: Arc<StreamLimits>,
    /// Permits of requests that wait for events.
    pub(super) waits: Arc<StreamLimits>,
    /// Permits of statements that are being generated.
    pub(super) statements: Arc<StreamLimits>,
    running_keys: RunningKeys,
    pub(super) readiness: LastReadiness,
    /// The PSP of each merchant. Merchants are never deleted or moved to another PSP.
    pub(super) merchants: Cache<MerchantId, PspId>,
    /// Logos by their hash.
    pub(super) logos: Cache<String, Logo>,
}

impl AppState {
    /// Creates the state on top of a running supervision tree.
    pub fn new(system: System, config: HttpConfig) -> Self {
        Self(Arc::new(AppShared {
            database: system.database().api_pool(),
            door: Arc::new(Semaphore::new(config.limits.requests_at_once)),
            keys: KeyRing::new(&system, config.environment.key_mode(), config.revoked_keys.clone()),
            limiters: Limiters::new(&config.limits),
            stream_limits: StreamLimits::new(config.limits.streams_at_once),
            waits: StreamLimits::new(WAITS_AT_ONCE),
            statements: StreamLimits::new(STATEMENTS_AT_ONCE),
            running_keys: RunningKeys::default(),
            readiness: LastReadiness::default(),
            merchants: Cache::new(MERCHANTS_KNOWN_MAX),
            logos: Cache::builder()
                .max_capacity(LOGOS_BYTES_MAX)
                .weigher(|_, logo: &Logo| u32::try_from(logo.content.len()).unwrap_or(u32::MAX))
                .time_to_live(LOGO_CACHED_MAX)
                .build(),
            system,
            config,
        }))
    }
}

/// Parts of a request about one object: the state, the caller, and the id in the path.
pub(super) type OneOf<S, I = String> = (State<AppState>, Caller<S>, Path<I>);
/// Parts of a request for a list: the state, the caller, and the parameters.
pub(super) type ListOf = (State<AppState>, Caller<Read>, QueryFields);
/// Parts of a request that changes one object: the state, the id in the path, and the body with its sender.
pub(super) type ChangeOf<S, I = String> = (State<AppState>, Path<I>, Submission<S>);

impl Deref for AppState {
    type Target = AppShared;

    fn deref(&self) -> &AppShared {
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

    async fn authenticate(&self, parts: &Parts, scope: KeyScope) -> Result<KeyHolder, ApiError> {
        let holder = self.keys.authenticate(&self.limiters, parts, scope).await?;
        if let Some(progress) = parts.extensions.get::<RequestProgress>() {
            progress.identify(holder.key_id)?;
        }
        Ok(holder)
    }
}

impl AppShared {
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

    /// Waits until a change by another node since `read_at` may have been missed. Without other nodes, none is.
    pub(super) async fn may_have_missed(&self, read_at: Instant) {
        if !self.system.node().courier().has_receivers() {
            return std::future::pending().await;
        }
        tokio::time::sleep_until(read_at + MISSED_MAX).await;
    }

    /// The URL of a payment's page for the payer.
    pub fn magic_link(&self, link_token: &str) -> String {
        self.url(&format!("/pay/{link_token}"))
    }

    /// The URL of a page; `path` begins with a slash.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.config.public_url.as_str().trim_end_matches('/'))
    }
}
