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
use payferry_accounts::keys::RevokedKeys;
use payferry_actors::compliance::identity::IdentityProvider;
use payferry_actors::compliance::{KytScreener, ScreeningConfig};
use payferry_actors::{ChainSetup, System, SystemConfig};
use payferry_entities::{Database, Hold};
use payferry_httpkit::{Draining, Limits, NodesReady, ServeConfig};
use payferry_journal::audit;
use payferry_journal::webhooks::retention::{self, Retention};
use payferry_nodes::{Job, Leases, NodeConfig};
use payferry_operator::{Operator, OperatorConfig, UnsafeSetting};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::Url;
use zeroize::Zeroizing;

use crate::config::{Config, Environment, UnsafeFinding};
use crate::http::{AppState, HttpConfig, router_with};
use crate::telemetry;
use crate::terms::ConsentTerms;

/// Time limit of the stop, after the drain. Unfinished work is resumed at the next start.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(9);

/// Time limit for handing the leases of a node over.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts of a service besides its configuration.
pub struct AppParts {
    /// Open database. The start migrates it.
    pub database: Database,
    /// Name of this node, if others may share the database.
    pub node: Option<String>,
    /// Digest of the settings that must be the same on all nodes.
    pub config_digest: String,
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
    /// Determines the mode of API keys and the policy for webhook URLs.
    pub environment: Environment,
    /// Rate and concurrency limits of the public listener. Those of connections and bodies also hold for the operator's.
    pub limits: Limits,
    /// The terms that customers accept.
    pub terms: ConsentTerms,
    /// Storage of customers' documents.
    pub documents: DocumentStore,
    /// Token of the operator's listener.
    pub operator_token: Zeroizing<String>,
    /// Unsafe settings in use, for the operator.
    pub unsafe_settings: Vec<UnsafeFinding>,
    /// Public routes that only this environment has.
    pub routes: Router<AppState>,
}

/// Listeners of a service, bound but not accepting requests yet, so that links can contain the bound port.
#[derive(Debug)]
pub struct Listeners {
    api: TcpListener,
    operator: TcpListener,
    /// Base URL of links to the service.
    pub public_url: Url,
    /// URL of the public listener on this machine.
    pub api_url: String,
    /// URL of the operator's listener on this machine.
    pub operator_url: String,
}

impl Listeners {
    /// Binds both listeners.
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let server = &config.server;
        let listeners = Self::of(bind(server.listen).await?, bind(server.operator_listen).await?)?;
        let public_url = server.public_url.clone().unwrap_or(listeners.public_url);
        Ok(Self { public_url, ..listeners })
    }

    fn of(api: TcpListener, operator: TcpListener) -> anyhow::Result<Self> {
        let (api_url, operator_url) = (url_of(&api)?, url_of(&operator)?);
        Ok(Self { api, operator, public_url: Url::parse(&api_url)?, api_url, operator_url })
    }

    /// Gives the public listener to a proxy, and listens on a free port of this machine behind it.
    #[cfg(feature = "sandbox")]
    pub async fn behind_a_proxy(self) -> anyhow::Result<(TcpListener, Self)> {
        let Self { api: front, operator, public_url, .. } = self;
        Ok((front, Self { public_url, ..Self::of(bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?, operator)? }))
    }
}

/// Addresses of a running service. `--json` prints them in one line.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceReady {
    /// URL of the public listener, for PSPs and payers.
    pub api_url: String,
    /// URL of the operator's listener.
    pub operator_url: String,
    /// Process id.
    pub pid: u32,
}

/// Running service.
#[derive(Debug)]
pub struct App {
    system: System,
    ready: ServiceReady,
    api: Serving,
    operator: Serving,
    draining: Draining,
    _hold: Hold,
    _tasks: [AbortOnDropHandle<()>; 6],
}

#[derive(Debug)]
struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl App {
    /// Migrates the database, starts the tree and accepts requests on both listeners.
    pub async fn start(config: &Config, listeners: Listeners, parts: AppParts) -> anyhow::Result<Self> {
        // Installed first, so that the other parts can register their metrics.
        let metrics = telemetry::keep_metrics();
        // Taken before the migration, because another service may still use the database.
        let hold = parts.database.hold().await.context("the database cannot be used")?;
        payferry_migration::migrate(&parts.database.long_timeout())
            .await
            .context("the database could not be migrated")?;
        let screening = ScreeningConfig {
            concurrency_max: config.screening.concurrency_max.get(),
            timeout: Duration::from_millis(config.screening.timeout_ms.get()),
            ..ScreeningConfig::default()
        };
        let operator_url_of_node = config.node.operator_url.as_ref().map(ToString::to_string);
        let node = NodeConfig {
            name: parts.node.clone().unwrap_or_else(|| "alone".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_digest: parts.config_digest,
            api_url: listeners.api_url.clone(),
            operator_url: operator_url_of_node.unwrap_or_else(|| listeners.operator_url.clone()),
            chains: Vec::new(),
            is_shared: parts.node.is_some(),
        };
        let config_of_system = SystemConfig {
            database: parts.database,
            node,
            sealer: parts.sealer,
            clock: parts.clock,
            chains: parts.chains,
            screener: parts.screener,
            screening,
            identity: parts.identity,
            compliance: config.identity.compliance(),
            webhooks: config.webhooks.sender(parts.environment.url_policy()),
            ceilings: config.limits.ceilings(),
            auditors: config.auditors.auditors(),
            shards: config.payments.shards,
        };
        let system = System::start(config_of_system).await?;
        let (limits, serve_config) = (parts.limits.edge, parts.limits.serve_config());
        let shared_limits = Limits { nodes_ready: NodesReady::of(system.node().ready_len()), ..parts.limits };
        let Listeners { api, operator, public_url, api_url, operator_url } = listeners;
        let (closing, draining) = (CancellationToken::new(), Draining::default());
        let revoked_keys = RevokedKeys::default();
        let http = HttpConfig {
            public_url,
            environment: parts.environment,
            revoked_keys: revoked_keys.clone(),
            limits: shared_limits,
            documents: parts.documents.clone(),
            terms: parts.terms,
            draining: draining.clone(),
            closing: closing.clone(),
        };
        let router = router_with(AppState::new(system.clone(), http), parts.routes);
        let api_config = ServeConfig { draining: draining.clone(), ..serve_config.clone() };
        let api = Serving::start(api, router, api_config, closing);
        let replaced_days = config.retention.replaced_documents_days;
        let leases = system.node().leases().clone();
        let sweep = {
            let (documents, database) = (parts.documents.clone(), system.database().clone());
            on_one_node(&leases, Job::Documents, move || {
                documents::sweep_on(documents.clone(), database.clone(), replaced_days)
            })
        };
        let (kept, database) = (Retention { events_days: config.retention.events_days }, system.database().clone());
        let clock = system.clock().clone();
        let prune = on_one_node(&leases, Job::Retention, move || {
            retention::prune_on(database.clone(), clock.clone(), kept, retention::Pace::default())
        });
        let database = system.database().clone();
        let chain = on_one_node(&leases, Job::AuditLog, move || audit::chain::chain_on(database.clone()));
        let closing = CancellationToken::new();
        let compliance = OperatorConfig {
            token: parts.operator_token,
            key_mode: parts.environment.key_mode(),
            four_eyes: config.operators.four_eyes,
            revoked_keys,
            documents: parts.documents,
            unsafe_settings: unsafe_settings(parts.unsafe_settings),
            limits,
            metrics: || telemetry::metrics().render(),
            draining: draining.clone(),
            closing: closing.clone(),
        };
        let compliance = Operator::new(system.clone(), compliance);
        let resumed = compliance.clone();
        let approvals =
            on_one_node(&leases, Job::Approvals, move || payferry_operator::keep_resuming_approvals(resumed.clone()));
        let operator = Serving::start(operator, payferry_operator::router(compliance), serve_config, closing);
        let ready = ServiceReady { api_url, operator_url, pid: std::process::id() };
        system.node().ready();
        let (node, drained) = (system.node().clone(), draining.clone());
        let drains = AbortOnDropHandle::new(tokio::spawn(async move {
            node.draining().await;
            drained.begin();
        }));
        let tasks = [metrics, sweep, prune, chain, approvals, drains];
        Ok(Self { system, ready, api, operator, draining, _hold: hold, _tasks: tasks })
    }

    /// Supervision tree.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Addresses.
    pub fn ready(&self) -> &ServiceReady {
        &self.ready
    }

    /// Waits until this service must not write any more, because another one has the lock of the database, or has declared
    /// this node gone; returns why. Never ends on SQLite. The service has to end at once, without [`Self::stop`]: the other
    /// one does its work.
    pub async fn writer_lost(&self) -> String {
        tokio::select! {
            why = self.system.database().writer_lost() => why,
            why = self.system.node().ended() => why,
        }
    }

    /// Drains for this time and hands all leases over to other nodes, before [`Self::stop`]: `/readyz` answers 503 at once,
    /// and every response closes its connection, so that load balancers and clients move to other nodes. Requests are
    /// still answered.
    pub async fn drain(&self, duration: Duration) {
        tracing::info!("draining for {} s: /readyz answers 503", duration.as_secs());
        self.draining.begin();
        let node = self.system.node();
        tokio::join!(tokio::time::sleep(duration), node.drain(duration.max(HAND_OVER_TIMEOUT)));
    }

    /// Stops in order: refuses new requests, answers the running ones, stops the tree with its journal flushed, closes
    /// the database. Takes at most [`STOP_TIMEOUT`].
    pub async fn stop(self) {
        let Self { system, ready: _, api, operator, draining: _, _hold, _tasks } = self;
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
    fn start(listener: TcpListener, router: Router, config: ServeConfig, stop: CancellationToken) -> Self {
        let stopped = stop.clone().cancelled_owned();
        Self { stop, task: tokio::spawn(payferry_httpkit::serve(listener, router, config, stopped)) }
    }

    /// Refuses new requests and waits until the running ones are answered.
    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "listener failed");
        }
    }
}

/// Sets the metric of each setting and returns the settings for the operator's pages.
fn unsafe_settings(findings: Vec<UnsafeFinding>) -> Vec<UnsafeSetting> {
    let shown = |UnsafeFinding { setting, detail }| {
        telemetry::UNSAFE_SETTING.set(&[("setting", setting.as_str())], 1.0);
        UnsafeSetting { setting: setting.as_str(), detail }
    };
    findings.into_iter().map(shown).collect()
}

/// Runs `work` while this node does the job.
fn on_one_node<F: Future<Output = ()> + Send>(
    leases: &Leases,
    job: Job,
    work: impl Fn() -> F + Send + 'static,
) -> AbortOnDropHandle<()> {
    let leases = leases.clone();
    AbortOnDropHandle::new(tokio::spawn(async move { leases.work_on(job, work).await }))
}

/// URL of a listener on this machine.
pub fn url_of(listener: &TcpListener) -> anyhow::Result<String> {
    Ok(format!("http://{}", reachable(listener.local_addr()?)))
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Address that a client can connect to. The unspecified address is replaced by the loopback address.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
