//! The running service: database, supervision tree and both listeners, started and stopped in order.
//!
//! Simulation is not known here: the sandbox passes its chains and routes, `serve` passes real chains and no extra
//! routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use payferry_accounts::documents::{self, DocumentStore};
use payferry_accounts::keys::KeyMode;
use payferry_actors::compliance::identity::IdentityProvider;
use payferry_actors::compliance::{KytScreener, ScreeningConfig};
use payferry_actors::{ChainSetup, System, SystemConfig};
use payferry_entities::{Database, Hold};
use payferry_journal::webhooks::retention;
use payferry_migration::{Migrator, MigratorTrait};
use payferry_operator::{Operator, OperatorConfig};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::WebhookConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::config::Config;
use crate::telemetry;

/// Time limit of the whole stop. Unfinished work is resumed at the next start.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(9);

/// Parts of a service besides its configuration.
pub struct AppParts {
    /// Open database. The start migrates it.
    pub database: Database,
    /// Seals secrets and hashes API keys.
    pub sealer: Sealer,
    /// The service's time.
    pub clock: Clock,
    /// Chains to run.
    pub chains: Vec<ChainSetup>,
    /// Screening provider (KYT).
    pub screener: Arc<dyn KytScreener>,
    /// Identity provider, if one is configured.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    /// Limits and schedule of webhooks.
    pub webhooks: WebhookConfig,
    /// Storage of customers' documents.
    pub documents: DocumentStore,
    /// Token of the operator's listener.
    pub operator_token: String,
    /// Mode of the API keys that the operator creates.
    pub key_mode: KeyMode,
    /// Cancelled when the public listener shuts down, to end long-running responses.
    pub closing: CancellationToken,
}

/// Listeners of a service, bound but not accepting requests yet, so that links can contain the bound port.
#[derive(Debug)]
pub struct Listeners {
    api: TcpListener,
    operator: TcpListener,
    public_url: Url,
}

impl Listeners {
    /// Binds both listeners.
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let server = &config.server;
        let api = bind(server.listen).await?;
        let operator = bind(server.operator_listen).await?;
        let public_url = match &server.public_url {
            Some(url) => url.clone(),
            None => Url::parse(&format!("http://{}", reachable(api.local_addr()?)))?,
        };
        Ok(Self { api, operator, public_url })
    }

    /// Base URL of links to the service.
    pub fn public_url(&self) -> &Url {
        &self.public_url
    }

    /// URL of the public listener on this machine.
    pub fn api_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}", reachable(self.api.local_addr()?)))
    }

    /// URL of the operator's listener on this machine.
    pub fn operator_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}", reachable(self.operator.local_addr()?)))
    }
}

/// Running service.
#[derive(Debug)]
pub struct App {
    system: System,
    api: Serving,
    operator: Serving,
    _hold: Hold,
    _metrics: AbortOnDropHandle<()>,
    _sweep: AbortOnDropHandle<()>,
    _prune: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl App {
    /// Migrates the database, starts the tree and accepts requests on both listeners. `routes` builds the public router
    /// over the running tree.
    pub async fn start(
        config: &Config,
        listeners: Listeners,
        parts: AppParts,
        routes: impl FnOnce(&System) -> Router,
    ) -> anyhow::Result<Self> {
        // Installed first, so that the other parts can register their metrics.
        let metrics = telemetry::keep_metrics();
        // Taken before the migration, because another service may still use the database.
        let hold = parts.database.hold().await.context("the database cannot be used")?;
        Migrator::up(parts.database.long_timeout(), None).await.context("the database could not be migrated")?;
        let screening = ScreeningConfig {
            concurrency_max: config.screening.concurrency_max.get(),
            timeout: Duration::from_millis(config.screening.timeout_ms.get()),
            ..ScreeningConfig::default()
        };
        let config_of_system = SystemConfig {
            database: parts.database,
            sealer: parts.sealer,
            clock: parts.clock,
            chains: parts.chains,
            screener: parts.screener,
            screening,
            identity: parts.identity,
            compliance: config.identity.compliance(),
            webhooks: parts.webhooks,
            ceilings: config.limits.ceilings(),
            auditors: config.auditors.auditors(),
            shards: config.payments.shards,
        };
        let system = System::start(config_of_system).await?;
        let api = Serving::start(listeners.api, routes(&system), parts.closing);
        let sweep = documents::sweep_on(parts.documents.clone(), system.database().clone());
        let sweep = AbortOnDropHandle::new(tokio::spawn(sweep));
        let (kept, database) = (config.retention.retention(), system.database().clone());
        let pace = retention::Pace::default();
        let prune = retention::prune_on(database, system.clock().clone(), kept, pace);
        let prune = AbortOnDropHandle::new(tokio::spawn(prune));
        let closing = CancellationToken::new();
        let compliance = OperatorConfig {
            token: parts.operator_token,
            key_mode: parts.key_mode,
            documents: parts.documents,
            metrics: || telemetry::metrics().render(),
            closing: closing.clone(),
        };
        let compliance = payferry_operator::router(Operator::new(system.clone(), compliance));
        let operator = Serving::start(listeners.operator, compliance, closing);
        Ok(Self { system, api, operator, _hold: hold, _metrics: metrics, _sweep: sweep, _prune: prune })
    }

    /// Supervision tree.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Stops in order: refuses new requests, answers the running ones, stops the tree with its journal flushed, closes
    /// the database. Takes at most [`STOP_TIMEOUT`].
    pub async fn stop(self) {
        let Self { system, api, operator, _hold, _metrics, _sweep, _prune } = self;
        let orderly = async {
            api.end().await;
            // The operator's listener stays open until the public requests are answered.
            operator.end().await;
            let database = system.database().clone();
            system.stop().await;
            if let Err(error) = database.close().await {
                tracing::warn!(%error, "closing the database failed");
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, orderly).await.is_err() {
            tracing::warn!("the stop exceeded its time limit; the next start resumes unfinished work");
        }
    }
}

impl Serving {
    fn start(listener: TcpListener, router: Router, stop: CancellationToken) -> Self {
        let stopped = stop.clone().cancelled_owned();
        Self { stop, task: tokio::spawn(payferry_httpkit::serve(listener, router, stopped)) }
    }

    /// Refuses new requests and waits until the running ones are answered.
    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "listener failed");
        }
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Address that a client can connect to. The unspecified address is replaced by the loopback address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
