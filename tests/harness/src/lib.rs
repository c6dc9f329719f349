//! What the tests put around the service, outside its process as the world is: databases, chains, payers, receivers
//! of webhooks, faults and sudden death.
//!
//! Knows the service by its wire only: nothing of `payferry` or `payferry-actors` is used here. What fails panics with
//! the reason, as a test does.
#![allow(clippy::unwrap_used)]

pub mod anvil;
pub mod browser;
pub mod bucket;
pub mod database;
pub mod deployment;
pub mod endpoint;
pub mod kill;
pub mod node;
pub mod payers;
pub mod process;
pub mod proxy;
pub mod psp;
pub mod receiver;
pub mod settings;
pub mod sumsub;

use std::time::Duration;

/// How long a story waits for what it expects. Generous: the machines are slow and noisy, the stories are not.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Gives HTTP clients their TLS provider: they bring none of their own. Repeatable.
pub fn install_tls() {
    // An error says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Ports that nobody uses now: a service that is started again keeps its addresses.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let bound = [(); N].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|listener| listener.local_addr().unwrap().port())
}

/// The variable that makes tests run in full: `./check --long` sets it to 1.
pub const LONG: &str = "PAYFERRY_CHECK_LONG";

/// How much of something a test does: `short` in `./check`, `long` in `./check --long`.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var(LONG).is_ok_and(|value| value == "1") { long } else { short }
}
