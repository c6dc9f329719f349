//! The sandbox: the whole service in one process, inside a simulated environment (`payferry_sandbox`).
//!
//! All stored data is in one folder. A production build contains none of it.

mod keys;
mod proxy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::tenants::psp_row;
use payferry_actors::System;
use payferry_actors::compliance::identity::{SandboxIdentity, VerificationLinks};
use payferry_actors::system::SignedTerms;
use payferry_domain::payment::Payment;
use payferry_domain::{Address, Chain, KeyScope, PspId};
use payferry_entities::{Database, api_keys, chain_cursors, payments, psps};
use payferry_evm::ChainSpec;
use payferry_httpkit::{ApiError, HttpState as _, Limits};
use payferry_journal::psps::PspPolicies;
use payferry_operator::psps::withdrawal;
use payferry_runtime::seal::Sealer;
use payferry_sandbox::SandboxHost;
use sea_orm::{EntityTrait, IntoActiveModel};
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::app::{App, AppParts, Listeners};
use crate::config::{self, Config, Environment, database_url};
use crate::http::AppState;
use crate::http::payments::{authorize, own_row};
use crate::terms::ConsentTerms;

pub use keys::Keys;
pub use payferry_sandbox::{
    Accounts, DEFAULT_FOLDER, Folder, Payer, SandboxEnv, SharedChains, database_file, documents_folder, keys_file,
    known_spec,
};

/// Default block time in milliseconds.
pub const BLOCK_TIME_MS_DEFAULT: u64 = 500;
/// Names of the sandbox's PSP and of its API key.
const PSP_NAME: &str = "Sandbox PSP";
const KEY_NAME: &str = "sandbox";

/// Options of a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// Folder that keeps the data across restarts; `None`: a folder that is removed at exit.
    pub folder: Option<PathBuf>,
    /// Overrides the folder's database.
    pub database_url: Option<String>,
    /// Time between blocks.
    pub block_time: Duration,
    /// Number of nodes, which share a PostgreSQL database behind a proxy.
    pub nodes: usize,
}

impl SandboxOptions {
    /// An ephemeral sandbox with the default block time.
    pub fn ephemeral() -> Self {
        Self { folder: None, database_url: None, block_time: Duration::from_millis(BLOCK_TIME_MS_DEFAULT), nodes: 1 }
    }
}

/// Addresses and keys of a ready sandbox: the line that `--json` prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxReady {
    /// URL of the API for PSPs and payers.
    pub api_url: String,
    /// URL of the operator listener.
    pub operator_url: String,
    /// Bearer token of the operator listener.
    pub operator_token: String,
    /// The PSP of the sandbox.
    pub psp_id: PspId,
    /// The PSP's API key, with full scope.
    pub api_key: String,
    /// JSON-RPC of each chain.
    pub rpc: BTreeMap<Chain, String>,
    /// Process id.
    pub pid: u32,
}

/// A running sandbox.
#[derive(Debug)]
pub struct Sandbox {
    /// The nodes; one, unless the options name another number.
    apps: Vec<App>,
    /// The proxy in front of several nodes.
    _proxy: Option<AbortOnDropHandle<()>>,
    env: Arc<SandboxEnv>,
    ready: SandboxReady,
    folder: Folder,
}

impl Sandbox {
    /// Opens or creates the sandbox. It answers requests when this returns.
    pub async fn start(options: SandboxOptions, config: &Config) -> anyhow::Result<Self> {
        let folder = options.folder.as_deref().map_or_else(Folder::ephemeral, Folder::open)?;
        // Bound first: a port in use is the most likely failure and the cheapest to detect.
        let listeners = Listeners::bind(config).await?;
        let keys = Keys::read_or_make(&folder)?;
        let env = Arc::new(SandboxEnv::open(&folder, options.block_time).await?);
        let url = match &options.database_url {
            Some(given) => database_url(given).context("--database-url: expected a path, sqlite: or postgres: URL")?,
            None => format!("sqlite://{}?mode=rwc", database_file(folder.path()).display()),
        };
        if options.nodes > 1 && url.starts_with("sqlite:") {
            bail!("--nodes: only PostgreSQL can be shared by several nodes; name it with --database-url");
        }
        let open = async || {
            let opened =
                if options.nodes > 1 { Database::open_shared(&[&url]).await } else { Database::open(&url).await };
            opened.context("the database cannot be opened")
        };
        let database = open().await?;
        payferry_migration::migrate(&database.long_timeout()).await.context("the database could not be migrated")?;
        if options.folder.is_none() && chain_cursors::Entity::find().one(database.reader()).await?.is_some() {
            bail!("the database belongs to other chains: an ephemeral sandbox needs an empty database");
        }
        seed(&database, &keys, &env).await?;

        let documents = documents(config, folder.path(), keys.sealer())?;
        let (api_url, operator_url) = (listeners.api_url.clone(), listeners.operator_url.clone());
        payferry_sandbox::announce(&folder, &api_url)?;
        let rpc = Chain::ALL.map(|chain| (chain, format!("{api_url}/sandbox/rpc/{chain}"))).into();
        let ready = SandboxReady {
            api_url,
            operator_url,
            operator_token: keys.operator_token.clone(),
            psp_id: keys.psp_id,
            api_key: keys.api_key.clone(),
            rpc,
            pid: std::process::id(),
        };
        let clock = env.clock().clone();
        let (listeners, proxy) = if options.nodes > 1 {
            let (front, each) = listeners.split(options.nodes).await?;
            let addresses = each.iter().map(Listeners::api_address).collect::<Result<_, _>>()?;
            (each, Some(proxy::forward(front, addresses)))
        } else {
            (vec![listeners], None)
        };
        let mut apps = Vec::new();
        let mut databases = vec![database];
        for (index, listeners) in listeners.into_iter().enumerate() {
            let database = match databases.pop() {
                Some(database) => database,
                None => open().await?,
            };
            let links = VerificationLinks::new(listeners.public_url.clone(), keys.sealer());
            let parts = AppParts {
                database,
                node: (options.nodes > 1).then(|| format!("n{}", index + 1)),
                config_digest: String::new(),
                sealer: keys.sealer(),
                clock: clock.clone(),
                chains: env.setups()?,
                screener: Arc::new(env.screener()),
                identity: Some(Arc::new(SandboxIdentity::new(links, clock.clone()))),
                environment: Environment::Sandbox,
                limits: Limits { trusted_proxies: config.server.trusted_proxies(), ..Limits::sandbox() },
                terms: ConsentTerms::default(),
                documents: documents.clone(),
                operator_token: keys.operator_token.clone().into(),
                unsafe_settings: Vec::new(),
                routes: payferry_sandbox::routes::routes(env.clone()),
            };
            let app = App::start(config, listeners, parts).await?;
            // So that the first client can pay on any chain. The wait is limited.
            if let Err(error) = env.until_usable(app.system()).await {
                tracing::warn!(%error, "payments on a chain are refused until it is read: {error}");
            }
            apps.push(app);
        }
        Ok(Self { apps, _proxy: proxy, env, ready, folder })
    }

    /// Addresses and keys.
    pub fn ready(&self) -> &SandboxReady {
        &self.ready
    }

    /// The simulated environment.
    pub fn env(&self) -> &Arc<SandboxEnv> {
        &self.env
    }

    /// The supervision trees of all nodes.
    pub fn systems(&self) -> impl Iterator<Item = &System> {
        self.apps.iter().map(App::system)
    }

    /// The supervision tree of the first node.
    pub fn system(&self) -> &System {
        self.apps[0].system()
    }

    /// Path of the data folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// As [`App::writer_lost`], of any node.
    pub async fn writer_lost(&self) -> String {
        futures::future::select_all(self.apps.iter().map(|app| Box::pin(app.writer_lost()))).await.0
    }

    /// Stops gracefully: the service first, then the environment. Time-limited.
    pub async fn stop(self) {
        let Self { apps, env, folder, .. } = self;
        futures::future::join_all(apps.into_iter().map(App::stop)).await;
        env.close().await;
        drop(folder);
    }
}

impl SandboxHost for AppState {
    fn system(&self) -> &System {
        &self.system
    }

    fn public_url(&self) -> &Url {
        &self.config.public_url
    }

    async fn own_payment(&self, psp_id: PspId, id: &str) -> Result<payments::Model, ApiError> {
        own_row(self, psp_id, id).await
    }

    async fn authorize(&self, payment: &Payment, terms: &SignedTerms) -> Result<Option<&'static str>, ApiError> {
        let payment = authorize::accept(self, payment, terms).await?;
        Ok(payment.authorization.map(|authorization| authorization.state.as_str()))
    }

    async fn set_withdrawal_wallet(
        &self,
        psp_id: PspId,
        chain: Option<Chain>,
        wallet: Address,
    ) -> Result<(), ApiError> {
        let specs: Vec<&ChainSpec> = self.system.chains().running().collect();
        let (mode, now) = (self.config.environment.key_mode(), self.clock().real_now());
        withdrawal::set(self.database(), &specs, mode, psp_id, (chain, Some(wallet)), now).await?;
        Ok(())
    }
}

/// Document store of a sandbox: in its data folder, unless a bucket is configured.
pub fn documents(config: &Config, data_folder: &Path, sealer: Sealer) -> anyhow::Result<DocumentStore> {
    let folder = documents_folder(data_folder);
    crate::service::documents::store(&config::DocumentsSection { folder, ..config.documents.clone() }, sealer)
}

/// Creates the PSP and its API key if they are missing. A revoked key stays revoked.
async fn seed(database: &Database, keys: &Keys, env: &SandboxEnv) -> anyhow::Result<()> {
    let now = env.clock().real_now();
    if psps::Entity::find_by_id(keys.psp_id.to_string()).one(database.reader()).await?.is_none() {
        let row = psp_row(keys.psp_id, PSP_NAME, &PspPolicies::default(), now);
        psps::Entity::insert(row.into_active_model()).exec_without_returning(database.writer()).await?;
    }
    let key = keys.key().context("the sandbox's API key is damaged")?;
    if api_keys::Entity::find_by_id(key.id().to_string()).one(database.reader()).await?.is_none() {
        let row = key.row(&keys.sealer(), keys.psp_id, KEY_NAME, &[KeyScope::Full], now);
        api_keys::Entity::insert(row.into_active_model()).exec_without_returning(database.writer()).await?;
    }
    Ok(())
}
