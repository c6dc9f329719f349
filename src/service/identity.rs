//! Identity provider from the configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use payferry_actors::compliance::identity::{IdentityProvider, Sumsub, SumsubSettings};
use payferry_runtime::clock::Clock;

use super::secrets;
use crate::config::{Config, Identity, IdentityProviderName};

/// Returns the configured provider, or `None` if none is configured.
pub fn provider(config: &Config, clock: &Clock) -> anyhow::Result<Option<Arc<dyn IdentityProvider>>> {
    let Identity { provider, base_url, level, rescreen_level, timeout_ms, .. } = &config.identity;
    let Some(IdentityProviderName::Sumsub) = provider else { return Ok(None) };
    let Identity { app_token_file, secret_key_file, callback_secret_file, .. } = &config.identity;
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
    secrets::read(file)
}
