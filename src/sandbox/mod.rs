//! The sandbox: the whole service inside a simulated environment (`payferry_sandbox`), in one process. With several nodes,
//! that process is the first one, and starts the others as [members](member).
//!
//! All stored data is in one folder. A production build contains none of it.

mod keys;
pub mod member;
mod proxy;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::tenants::psp_row;
use payferry_actors::compliance::identity::{SandboxIdentity, VerificationLinks};
use payferry_actors::system::SignedTerms;
use payferry_actors::{ChainSetup, System};
use payferry_domain::payment::Payment;
use payferry_domain::{Address, Chain, KeyScope, PspId};
use payferry_entities::{Database, api_keys, chain_cursors, payments, psps};
use payferry_evm::ChainSpec;
use payferry_httpkit::{ApiError, HttpState as _, Limits};
use payferry_journal::psps::PspPolicies;
use payferry_operator::psps::withdrawal;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_sandbox::SandboxHost;
use sea_orm::{EntityTrait, IntoActiveModel};
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::app::{self, App, AppParts, Listeners};
use crate::config::{self, Config, Environment, database_url};
use crate::http::AppState;
use crate::http::payments::{authorize, own_row};
use crate::terms::ConsentTerms;

pub use keys::Keys;
pub use payferry_sandbox::{
    Accounts, DEFAULT_FOLDER, Folder, MemberStart, NodeReady, Orders, Payer, SandboxEnv, SharedChains, database_file,
    documents_folder, keys_file, known_spec,
};

/// Default block time in milliseconds.
pub const BLOCK_TIME_MS_DEFAULT: u64 = 500;
/// Names of the sandbox's PSP and of its API key.
const PSP_NAME: &str = "Sandbox PSP";
const KEY_NAME: &str = "sandbox";
/// Number of times that a member asks for a new block while one is mined.
const POLLS_PER_BLOCK: u32 = 4;

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
    /// This program and its global options, which start the other nodes.
    pub program: Vec<OsString>,
}

impl SandboxOptions {
    /// An ephemeral sandbox with the default block time.
    pub fn ephemeral() -> Self {
        let block_time = Duration::from_millis(BLOCK_TIME_MS_DEFAULT);
        Self { folder: None, database_url: None, block_time, nodes: 1, program: Vec::new() }
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
    /// The nodes, if there are several. The first one is this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeReady>,
}

/// A running sandbox.
#[derive(Debug)]
pub struct Sandbox {
    app: App,
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
        let database = open(&url, options.nodes > 1).await?;
        payferry_migration::migrate(&database.long_timeout()).await.context("the database could not be migrated")?;
        if options.folder.is_none() && chain_cursors::Entity::find().one(database.reader()).await?.is_some() {
            bail!("the database belongs to other chains: an ephemeral sandbox needs an empty database");
        }
        seed(&database, &keys, &env).await?;

        let (front, listeners) = match options.nodes {
            1 => (None, listeners),
            _ => listeners.behind_a_proxy().await.map(|(front, listeners)| (Some(front), listeners))?,
        };
        let (public_url, first_url) = (listeners.public_url.clone(), listeners.api_url.clone());
        payferry_sandbox::announce(&folder, &first_url)?;
        let shared = Shared { config, folder: folder.path(), keys: &keys, clock: env.clock() };
        let name = (options.nodes > 1).then(|| member::name(1));
        let routes = payferry_sandbox::routes::routes(env.clone());
        let app =
            App::start(config, listeners, shared.parts(database, name, &public_url, env.setups()?, routes)?).await?;
        let ready = SandboxReady {
            api_url: front.as_ref().map_or_else(|| Ok(first_url.clone()), app::url_of)?,
            operator_url: app.ready().operator_url.clone(),
            operator_token: keys.operator_token.clone(),
            psp_id: keys.psp_id,
            api_key: keys.api_key.clone(),
            rpc: Chain::ALL.map(|chain| (chain, format!("{first_url}/sandbox/rpc/{chain}"))).into(),
            pid: std::process::id(),
            nodes: if options.nodes > 1 { vec![member::ready(&app)] } else { Vec::new() },
        };
        let proxy = front.map(|front| proxy::forward(front, app.system().node().clone()));
        let mut sandbox = Self { app, _proxy: proxy, env, ready, folder };
        for number in 2..=options.nodes {
            let start = MemberStart {
                name: member::name(number),
                public_url: public_url.clone(),
                first_url: Url::parse(&first_url)?,
                offset_ms: sandbox.env.clock().offset_ms(),
                poll_interval: options.block_time / POLLS_PER_BLOCK,
            };
            let command = member::command(&options.program, sandbox.folder.path(), &url)?;
            sandbox.ready.nodes.push(sandbox.env.add_member(command, start).await?);
        }
        // So that the first client can pay on any chain. The wait is limited.
        if let Err(error) = sandbox.env.until_usable(sandbox.system()).await {
            tracing::warn!(%error, "payments on a chain are refused until it is read: {error}");
        }
        Ok(sandbox)
    }

    /// Addresses and keys.
    pub fn ready(&self) -> &SandboxReady {
        &self.ready
    }

    /// The simulated environment.
    pub fn env(&self) -> &Arc<SandboxEnv> {
        &self.env
    }

    /// The supervision tree of this process.
    pub fn system(&self) -> &System {
        self.app.system()
    }

    /// Path of the data folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// As [`App::writer_lost`].
    pub async fn writer_lost(&self) -> String {
        self.app.writer_lost().await
    }

    /// Stops gracefully: the service first, then the environment. Time-limited.
    pub async fn stop(self) {
        let Self { app, env, folder, .. } = self;
        tokio::join!(env.end_members(), app.stop());
        env.close().await;
        drop(folder);
    }
}

/// Settings that all nodes of a sandbox share.
struct Shared<'a> {
    config: &'a Config,
    folder: &'a Path,
    keys: &'a Keys,
    clock: &'a Clock,
}

impl Shared<'_> {
    /// Parts of a node. `name` is `None` for one that runs alone.
    fn parts(
        &self,
        database: Database,
        name: Option<String>,
        public_url: &Url,
        chains: Vec<ChainSetup>,
        routes: Router<AppState>,
    ) -> anyhow::Result<AppParts> {
        let Self { config, folder, keys, clock } = *self;
        let links = VerificationLinks::new(public_url.clone(), keys.sealer());
        Ok(AppParts {
            database,
            node: name,
            config_digest: String::new(),
            sealer: keys.sealer(),
            clock: clock.clone(),
            chains,
            screener: Arc::new(Accounts::known().screener(clock.clone())),
            identity: Some(Arc::new(SandboxIdentity::new(links, clock.clone()))),
            environment: Environment::Sandbox,
            limits: Limits { trusted_proxies: config.server.trusted_proxies(), ..Limits::sandbox() },
            terms: ConsentTerms::default(),
            documents: documents(config, folder, keys.sealer())?,
            operator_token: keys.operator_token.clone().into(),
            unsafe_settings: Vec::new(),
            routes,
        })
    }
}

/// Opens the database, for one node or for several.
async fn open(url: &str, is_shared: bool) -> anyhow::Result<Database> {
    let opened = if is_shared { Database::open_shared(&[url]).await } else { Database::open(url).await };
    opened.context("the database cannot be opened")
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
