//! The providers of compliance from the configuration: screening (KYT), and verification of customers (identity).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use payferry_actors::compliance::identity::{IdentityProvider, Sumsub, SumsubSettings};
use payferry_actors::compliance::{AllowAll, ChainalysisApi, ChainalysisOracle, KytScreener, SanctionsFile, Strictest};
use payferry_runtime::clock::Clock;

use super::chains::Configured;
use super::secrets;
use crate::config::{Config, IdentityProviderName, IdentitySection};

/// Time limit of one oracle endpoint. It is shorter than the limit of the whole screening, so that the next endpoint
/// can be tried.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Returns a screener that applies the strictest verdict of all configured providers, or an error if none is
/// configured.
pub fn screener(config: &Config, chains: &[Configured], clock: &Clock) -> anyhow::Result<Arc<dyn KytScreener>> {
    let mut asked: Vec<Arc<dyn KytScreener>> = Vec::new();
    if let Some(file) = &config.kyt.sanctions_file {
        asked.push(Arc::new(SanctionsFile::open(file, clock.clone()).context("`kyt.sanctions_file`")?));
    }
    if config.kyt.oracle {
        asked.push(Arc::new(oracle(config, chains, clock)?));
    }
    let allow_everything = config.kyt.allow_everything;
    if let Some(url) = &config.kyt.api_url {
        let file = config.kyt.api_token_file.as_ref();
        let file = file.context("`kyt.api_token_file` is not set: set it to a file with the token of `kyt.api_url`")?;
        asked.push(Arc::new(ChainalysisApi::new(url.as_str(), secrets::read(file)?.trim(), clock.clone())?));
    }
    let mut asked = asked.into_iter();
    let Some(first) = asked.next() else {
        ensure!(
            allow_everything,
            "no KYT provider: set `kyt.sanctions_file`, `kyt.oracle`, `kyt.api_url`, or on a test network \
             `kyt.allow_everything`"
        );
        return Ok(Arc::new(AllowAll::new(clock.clone())));
    };
    ensure!(
        !allow_everything,
        "`kyt.allow_everything` conflicts with another configured KYT provider: remove one of them"
    );
    let others: Vec<_> = asked.collect();
    Ok(if others.is_empty() { first } else { Arc::new(Strictest::new(first, others)) })
}

/// Chainalysis oracle on every running chain.
pub(super) fn oracle(config: &Config, chains: &[Configured], clock: &Clock) -> anyhow::Result<ChainalysisOracle> {
    let mut oracle = ChainalysisOracle::new(clock.clone());
    for chain in chains {
        let name = chain.spec.chain;
        let Some(contract) = config.chains.get(&name).and_then(|section| section.sanctions_oracle) else {
            bail!("`kyt.oracle` is enabled but `chains.{name}.sanctions_oracle` is not set");
        };
        oracle = oracle.on(name, chain.client.clone().with_timeout(ANSWER_TIMEOUT), contract);
    }
    Ok(oracle)
}

/// Returns the configured identity provider, or `None` if none is configured.
pub fn identity(config: &Config, clock: &Clock) -> anyhow::Result<Option<Arc<dyn IdentityProvider>>> {
    let IdentitySection { provider, base_url, level, rescreen_level, timeout_ms, .. } = &config.identity;
    let Some(IdentityProviderName::Sumsub) = provider else { return Ok(None) };
    let IdentitySection { app_token_file, secret_key_file, callback_secret_file, .. } = &config.identity;
    ensure!(!level.trim().is_empty(), "`identity.level` is not set: the provider's level that verifies a person");
    ensure!(
        !rescreen_level.trim().is_empty(),
        "`identity.rescreen_level` is not set: the provider's level that screens submitted data without documents"
    );
    let settings = SumsubSettings {
        base_url: base_url.to_string(),
        app_token: secret(app_token_file.as_ref(), "app_token_file", "the app token")?,
        secret_key: secret(secret_key_file.as_ref(), "secret_key_file", "the secret key of the app token")?,
        callback_secret: secret(
            callback_secret_file.as_ref(),
            "callback_secret_file",
            "the secret that signs callbacks",
        )?,
        level: level.clone(),
        rescreen_level: rescreen_level.clone(),
        timeout: Duration::from_millis(timeout_ms.get()),
    };
    Ok(Some(Arc::new(Sumsub::new(settings, clock.clone()).context("`identity`")?)))
}

fn secret(file: Option<&PathBuf>, key: &str, what: &str) -> anyhow::Result<String> {
    let file = file.with_context(|| format!("`identity.{key}` is not set: a file with {what}"))?;
    secrets::read(file).map(|text| text.to_string())
}
