//! The production service: chains and secrets from the configuration, nothing simulated.

pub mod chains;
pub mod check;
pub mod compliance;
pub mod documents;
pub mod secrets;

use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use payferry_actors::chain::Checkpoint;
use payferry_domain::Address;
use payferry_entities::Database;
use payferry_httpkit::Limits;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use sha2::{Digest, Sha256};

use crate::app::{App, AppParts, Listeners};
use crate::config::{Config, Environment, UnsafeFinding};
use crate::terms::ConsentTerms;
use chains::Configured;
use secrets::Signers;

/// Reads every secret, opens the database and starts the service. It answers requests when this returns. A chain that
/// cannot be used is logged and retried, and the other chains run.
pub async fn start(config: &Config) -> anyhow::Result<App> {
    let mut unsafe_settings = config.allowed_unsafe_settings()?;
    let listeners = Listeners::bind(config).await?;
    let clock = Clock::default();
    let signers = secrets::signers(config)?;
    let chains = chains::configured(config, contract(config)?)?;
    let screener = compliance::screener(config, &chains, &clock)?;
    let identity = compliance::identity(config, &clock)?;
    if identity.is_none() {
        tracing::warn!("no identity provider is configured: customers cannot be verified, and their changes wait");
    }
    let checkpoint = checkpoint()?;
    let (sealer, operator_token) = (secrets::sealer(config)?, secrets::operator_token(config)?);
    let servers = config.database.servers();
    let node = node_name(config)?;
    let opened =
        if node.is_some() { Database::open_shared(servers).await } else { Database::open_primary(servers).await };
    let database = opened.context("the database cannot be opened")?;
    let commits = database.commit_settings().await.context("the database cannot be read")?;
    unsafe_settings.extend(config.allowed(config.unsafe_findings_of_server(commits.as_ref()))?);
    for UnsafeFinding { setting, detail } in &unsafe_settings {
        tracing::warn!("the unsafe setting {setting} is allowed: {detail}");
    }
    let config_digest = config_digest(config, &sealer, &signers, &chains);
    let parts = AppParts {
        database,
        node,
        config_digest,
        clock,
        chains: chains.into_iter().map(|chain| chain.setup(&signers, checkpoint.clone())).collect(),
        screener,
        identity,
        environment: config.server.environment,
        limits: limits(config),
        documents: documents::store(&config.documents, sealer.clone())?,
        terms: terms(config)?,
        sealer,
        operator_token,
        unsafe_settings,
        routes: Router::new(),
    };
    App::start(config, listeners, parts).await
}

/// Name of this node, if it shares the database.
fn node_name(config: &Config) -> anyhow::Result<Option<String>> {
    let name = config.node.name.trim();
    if name.is_empty() {
        return Ok(None);
    }
    if config.database.servers().iter().any(|url| url.starts_with("sqlite:")) {
        bail!(
            "`node.name` is set, but only PostgreSQL can be shared by several nodes: remove it, or set `database.urls`"
        );
    }
    Ok(Some(name.to_owned()))
}

/// Digest of the settings that must be the same on all nodes: environment, contracts, signers, chains and keys.
fn config_digest(config: &Config, sealer: &Sealer, signers: &Signers, chains: &[Configured]) -> String {
    let Signers { settler, sender } = signers;
    let mut settings = vec![
        format!("{:?} {:?}", config.server.environment, config.contracts),
        sealer.keyed_hash(&[b"configuration of nodes"]),
        format!("{} {}", settler.address(), sender.address()),
    ];
    settings.extend(chains.iter().map(|Configured { spec, .. }| {
        format!("{} {} {} {:?}", spec.chain, spec.chain_id, spec.contract, spec.tokens)
    }));
    hex::encode(Sha256::digest(settings.join("\n")))
}

/// Checkpoint at which a test blocks this process.
#[cfg(feature = "faults")]
pub(crate) fn checkpoint() -> anyhow::Result<Arc<dyn Checkpoint>> {
    Ok(payferry_actors::chain::HoldAfter::from_env()?)
}

/// Checkpoint of a production build: it never blocks.
#[cfg(not(feature = "faults"))]
#[allow(clippy::unnecessary_wraps, reason = "the other build reads a variable that may be wrong")]
pub(crate) fn checkpoint() -> anyhow::Result<Arc<dyn Checkpoint>> {
    Ok(Arc::new(payferry_actors::chain::NoCheckpoint))
}

/// Returns the address of the settlement contract.
pub fn contract(config: &Config) -> anyhow::Result<Address> {
    match (config.contracts.address, config.contracts.treasury) {
        (Some(address), Some(_)) => Ok(address),
        (None, _) => {
            bail!("`contracts.address` is not set: deploy the contract with `payferry deploy`, which prints it")
        }
        (_, None) => bail!("`contracts.treasury` is not set: set it to the address that receives fees"),
    }
}

/// Reads the terms that customers accept.
pub fn terms(config: &Config) -> anyhow::Result<ConsentTerms> {
    let Some(file) = &config.server.terms_file else { return Ok(ConsentTerms::default()) };
    ConsentTerms::read(file).with_context(|| format!("cannot read the terms of service {}", file.display()))
}

fn limits(config: &Config) -> Limits {
    let limits = match config.server.environment {
        Environment::Sandbox => Limits::sandbox(),
        Environment::Production => Limits::production(),
    };
    Limits { trusted_proxies: config.server.trusted_proxies(), ..limits }
}
