//! The production service: chains and secrets from the configuration, nothing simulated.

pub mod chains;
pub mod check;
pub mod documents;
pub mod identity;
pub mod kyt;
pub mod secrets;

use std::sync::Arc;

use anyhow::{Context, bail};
use payferry_actors::System;
use payferry_actors::chain::Checkpoint;
use payferry_domain::Address;
use payferry_entities::Database;
use payferry_httpkit::Limits;
use payferry_runtime::clock::Clock;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::app::{App, AppParts, Listeners};
use crate::config::{Config, Environment};
use crate::http::consent::Terms;
use crate::http::{AppState, HttpConfig, router};

/// Addresses of a running service. `--json` prints them in one line.
#[derive(Debug, Clone, Serialize)]
pub struct Ready {
    /// URL of the public listener, for PSPs and payers.
    pub api_url: String,
    /// URL of the operator's listener.
    pub operator_url: String,
    /// Process id.
    pub pid: u32,
}

/// Running service.
#[derive(Debug)]
pub struct Service {
    app: App,
    ready: Ready,
}

impl Service {
    /// Reads every secret, opens the database and starts the service. It answers requests when this returns. A chain
    /// that cannot be used is logged and retried, and the other chains run.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        let listeners = Listeners::bind(config).await?;
        let clock = Clock::default();
        let signer = secrets::signer(&config.signer)?;
        let chains = chains::configured(config, contract(config)?)?;
        let screener = kyt::screener(config, &chains, &clock)?;
        let identity = identity::provider(config, &clock)?;
        if identity.is_none() {
            tracing::warn!("no identity provider is configured: customers cannot be verified, and their changes wait");
        }
        let checkpoint = checkpoint()?;
        let (sealer, operator_token) = (secrets::sealer(config)?, secrets::operator_token(config)?);
        let database = Database::open(&config.database.url).await.context("the database cannot be opened")?;

        let environment = config.server.environment;
        let ready =
            Ready { api_url: listeners.api_url()?, operator_url: listeners.operator_url()?, pid: std::process::id() };
        let documents = documents::store(&config.documents, sealer.clone())?;
        let closing = CancellationToken::new();
        let http = HttpConfig {
            public_url: listeners.public_url().clone(),
            environment,
            limits: limits(config),
            documents: documents.clone(),
            terms: terms(config)?,
            closing: closing.clone(),
        };
        let parts = AppParts {
            database,
            sealer,
            clock,
            chains: chains.into_iter().map(|chain| chain.setup(signer.clone(), checkpoint.clone())).collect(),
            screener,
            identity,
            webhooks: config.webhooks.sender(environment.url_policy()),
            documents,
            operator_token,
            key_mode: environment.key_mode(),
            closing,
        };
        let routes = |system: &System| router(AppState::new(system.clone(), http));
        let app = App::start(config, listeners, parts, routes).await?;
        Ok(Self { app, ready })
    }

    /// Returns the addresses of the service.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Returns the URL of the public listener.
    pub fn api_url(&self) -> &str {
        &self.ready.api_url
    }

    /// Returns the URL of the operator's listener.
    pub fn operator_url(&self) -> &str {
        &self.ready.operator_url
    }

    /// Returns the supervision tree.
    pub fn system(&self) -> &System {
        self.app.system()
    }

    /// Stops in order, within a time limit.
    pub async fn stop(self) {
        self.app.stop().await;
    }
}

/// Checkpoint at which a test blocks the settlers of this process.
#[cfg(feature = "faults")]
fn checkpoint() -> anyhow::Result<Arc<dyn Checkpoint>> {
    Ok(payferry_actors::chain::HoldAfter::from_env()?)
}

/// Checkpoint of a production build: it never blocks.
#[cfg(not(feature = "faults"))]
#[allow(clippy::unnecessary_wraps, reason = "the other build reads a variable that may be wrong")]
fn checkpoint() -> anyhow::Result<Arc<dyn Checkpoint>> {
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
pub fn terms(config: &Config) -> anyhow::Result<Terms> {
    let Some(file) = &config.server.terms_file else { return Ok(Terms::default()) };
    Terms::read(file).with_context(|| format!("cannot read the terms of service {}", file.display()))
}

fn limits(config: &Config) -> Limits {
    let limits = match config.server.environment {
        Environment::Sandbox => Limits::sandbox(),
        Environment::Production => Limits::production(),
    };
    Limits { behind_proxy: config.server.behind_proxy, ..limits }
}
