//! The running service: database, supervision tree and the two listeners, started and stopped in order.
//!
//! What is simulated is not known here: the sandbox hands in its chains and its routes, `serve` real chains and none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use payferry_accounts::documents::{self, DocumentStore};
use payferry_accounts::keys::KeyMode;
use payferry_actors::clock::Clock;
use payferry_actors::compliance::identity::IdentityProvider;
use payferry_actors::compliance::{KytScreener, ScreeningConfig};
use payferry_actors::seal::Sealer;
use payferry_actors::webhook::{WebhookConfig, retention};
use payferry_actors::{ChainSetup, System, SystemConfig};
use payferry_entities::{Database, Hold};
use payferry_migration::{Migrator, MigratorTrait};
use payferry_operator::{Operator, OperatorConfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::config::Config;
use crate::telemetry;

/// The whole stop is cut short after this: what is not done by then is resumed at the next start.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(9);

/// What a service is started with besides its configuration.
pub struct AppParts {
    /// Open; its tables are brought up to date.
    pub database: Database,
    /// Seals secrets and hashes keys.
    pub sealer: Sealer,
    /// The service's time.
    pub clock: Clock,
    /// The chains to run.
    pub chains: Vec<ChainSetup>,
    /// The KYT provider.
    pub screener: Arc<dyn KytScreener>,
    /// Who verifies customers, if anybody does.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    /// Limits and schedule of webhooks.
    pub webhooks: WebhookConfig,
    /// Where customers' documents are kept.
    pub documents: DocumentStore,
    /// Opens the operator's listener.
    pub operator_token: String,
    /// What sort of API keys the operator makes.
    pub key_mode: KeyMode,
    /// Cancelled when the public listener is to end, for what its handlers would otherwise keep open.
    pub closing: CancellationToken,
}

/// The listeners of a service, bound and not yet answering: so that links can carry the bound port.
#[derive(Debug)]
pub struct Listeners {
    api: TcpListener,
    operator: TcpListener,
    public_url: Url,
}

impl Listeners {
    /// Binds both.
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

    /// What links to the service begin with.
    pub fn public_url(&self) -> &Url {
        &self.public_url
    }

    /// Where the public one is reached from this machine.
    pub fn api_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}", reachable(self.api.local_addr()?)))
    }

    /// Where the operator's is reached from this machine.
    pub fn operator_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}", reachable(self.operator.local_addr()?)))
    }
}

/// A running service.
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
    /// Migrates the database, starts the tree and answers on both listeners. `routes` makes the public router over the
    /// running tree.
    pub async fn start(
        config: &Config,
        listeners: Listeners,
        parts: AppParts,
        routes: impl FnOnce(&System) -> Router,
    ) -> anyhow::Result<Self> {
        // First, so that whatever says what it measures is heard.
        let metrics = telemetry::keep_metrics();
        // Before anything is changed that a service of before may still use.
        let hold = parts.database.hold().await.context("the database cannot be used")?;
        Migrator::up(parts.database.patient(), None).await.context("the database could not be migrated")?;
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
            desk: config.identity.desk(),
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
        let desk = OperatorConfig {
            token: parts.operator_token,
            key_mode: parts.key_mode,
            documents: parts.documents,
            metrics: || telemetry::metrics().render(),
            closing: closing.clone(),
        };
        let desk = payferry_operator::router(Operator::new(system.clone(), desk));
        let operator = Serving::start(listeners.operator, desk, closing);
        Ok(Self { system, api, operator, _hold: hold, _metrics: metrics, _sweep: sweep, _prune: prune })
    }

    /// The tree.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Stops in order: no new requests, those under way are answered, the tree ends with its journal flushed, the
    /// database is closed. Takes at most [`STOP_TIMEOUT`].
    pub async fn stop(self) {
        let Self { system, api, operator, _hold, _metrics, _sweep, _prune } = self;
        let orderly = async {
            api.end().await;
            // The operator may look on until the requests are answered.
            operator.end().await;
            let database = system.database().clone();
            system.stop().await;
            if let Err(error) = database.close().await {
                tracing::warn!(%error, "the database did not close in order");
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, orderly).await.is_err() {
            tracing::warn!("stopping took too long and was cut short; the next start resumes what was left");
        }
    }
}

impl Serving {
    fn start(listener: TcpListener, router: Router, stop: CancellationToken) -> Self {
        let stopped = stop.clone().cancelled_owned();
        Self { stop, task: tokio::spawn(payferry_httpkit::serve(listener, router, stopped)) }
    }

    /// Takes nothing new, and waits until what is under way is answered.
    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a listener failed");
        }
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// An address that can be connected to: the unspecified one is reached at the loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
