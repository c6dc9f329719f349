//! Logs. Deliberately absent for now: metrics exporters and OpenTelemetry.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Sends logs to standard error: what `RUST_LOG` says, else the configuration, else `usual`. Does nothing the second
/// time.
pub fn init(log: &Log, usual: &str) {
    let configured = if log.filter.is_empty() { usual } else { &log.filter };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(configured));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let _ = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
