//! Test environment outside the service's process: databases, chains, payers, webhook receivers, faults and process
//! kills.
//!
//! Uses only the service's public interfaces and no code of `payferry` or `payferry-actors`. Failures panic with the
//! reason, as in a test.
#![allow(clippy::unwrap_used)]

pub mod anvil;
pub mod balancer;
pub mod browser;
pub mod bucket;
pub mod clock;
pub mod database;
pub mod deployment;
pub mod endpoint;
pub mod initiators;
pub mod kill;
pub mod namespace;
pub mod node;
pub mod nodes;
pub mod pair;
pub mod payers;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod psp;
pub mod receiver;
pub mod settings;
pub mod signer;
pub mod sumsub;

use std::fmt::Display;
use std::time::{Duration, Instant};

pub use payferry_testkit::stub;

/// Maximum time that a test waits for an expected state. Generous, because test machines are slow and noisy.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Interval between two looks at a state.
const POLL: Duration = Duration::from_millis(25);

/// Repeats `look` until it returns the expected state. The error is another state. After [`PATIENCE`], panics with it.
pub async fn eventually<T, S: Display>(what: impl Display, mut look: impl AsyncFnMut() -> Result<T, S>) -> T {
    let since = Instant::now();
    loop {
        match look().await {
            Ok(expected) => return expected,
            Err(state) => assert!(since.elapsed() < PATIENCE, "waited too long until {what}: {state:#}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Returns a state as the error if it is not as expected.
pub fn expect<T>(state: T, is_expected: impl FnOnce(&T) -> bool) -> Result<T, T> {
    if is_expected(&state) { Ok(state) } else { Err(state) }
}

/// Installs the TLS provider that HTTP clients use. Can be called repeatedly.
pub fn install_tls() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Ports below those that the system gives to connections and to listeners without a fixed port, so that no other process takes them
/// while a restarted service is down.
const FIXED_PORTS: std::ops::Range<u16> = 12_000..32_000;
/// Ports between the first choices of two processes.
const PORTS_PER_PROCESS: usize = 8;

/// Returns unused ports, so that a restarted service keeps its addresses.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let first = std::process::id() as usize * PORTS_PER_PROCESS;
    let ports = FIXED_PORTS.cycle().skip(first % FIXED_PORTS.len()).take(FIXED_PORTS.len());
    let mut free = ports.filter(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [(); N].map(|()| free.next().expect("no port is free"))
}

/// The variable that makes tests run in full: `./check --long` sets it to 1.
pub const LONG: &str = "PAYFERRY_CHECK_LONG";

/// Size of a test: `short` in `./check`, `long` in `./check --long`.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var(LONG).is_ok_and(|value| value == "1") { long } else { short }
}
