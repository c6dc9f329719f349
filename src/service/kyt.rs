//! Who is asked where money comes from.

use std::sync::Arc;

use anyhow::{Context, bail};
use payferry_actors::clock::Clock;
use payferry_actors::compliance::{KytScreener, ListScreener};

use super::chains::Configured;
use crate::config::Config;

/// The strictest of all providers that are configured; an error if there is none.
pub fn screener(config: &Config, _chains: &[Configured], clock: &Clock) -> anyhow::Result<Arc<dyn KytScreener>> {
    let Some(file) = &config.kyt.sanctions_file else {
        bail!("no KYT provider: set `kyt.sanctions_file`");
    };
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let addresses = lines.map(str::parse).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(ListScreener::new("sanctions file", "1", addresses, clock.clone())))
}
