//! `anvil`, an independent Ethereum node in a process of its own: the second implementation, besides the devchain, that
//! the chain code is tested with.
//!
//! `tests/tools` installs it. It starts without accounts: a test funds its keys with `anvil_setBalance`, which the
//! devchain supports too. The canonical CREATE2 deployer exists from the start, as on the devchain.

use std::path::{Path, PathBuf};
use std::process::Command;

use payferry_devchain::{ChainConfig, Mining};
use tempfile::TempDir;

use crate::process::KilledOnDrop;

/// Path where `tests/tools` installs it, relative to the workspace root.
const INSTALLED: &str = ".tools/anvil/anvil";

/// Hard fork; the same as the devchain's.
const HARDFORK: &str = "prague";

/// A running node, killed on drop.
#[derive(Debug)]
pub struct Anvil {
    _process: KilledOnDrop,
    port: u16,
    /// Folder for states that the node does not keep in memory.
    _cache: TempDir,
}

impl Anvil {
    /// Starts a node on a free port with the chain id, mining, start, `safe` depth, first base fee and gas limit of a
    /// devchain, and waits until it listens. On an idle chain its base fee falls without a lower bound, unlike the
    /// devchain's. Panics with instructions when it is not installed.
    pub fn start(options: &ChainConfig) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command.args(["--accounts", "0", "--port", "0", "--hardfork", HARDFORK]);
        command.arg("--cache-path").arg(cache.path());
        for (name, value) in [
            ("--chain-id", options.chain_id),
            ("--slots-in-an-epoch", options.tags.safe_depth),
            ("--block-base-fee-per-gas", options.base_fee_initial_wei),
            ("--gas-limit", options.block_gas_limit),
        ] {
            command.args([name, &value.to_string()]);
        }
        if let Some(timestamp) = options.genesis_timestamp_secs {
            command.args(["--timestamp", &timestamp.to_string()]);
        }
        match options.mining {
            Mining::Interval(interval) => {
                command.args(["--block-time", &interval.as_secs_f64().to_string()]);
            }
            Mining::OnDemand => {
                command.arg("--no-mining");
            }
            Mining::PerTransaction => {}
        }
        // The reason of a failure is on standard error, which the test inherits.
        let started = KilledOnDrop::spawn_until(&mut command, port_of).unwrap();
        let (process, port) = started.expect("anvil did not start");
        Self { _process: process, port, _cache: cache }
    }

    /// JSON-RPC URL, for HTTP and WebSocket.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The port of a line with the listen address.
fn port_of(line: &str) -> Option<u16> {
    let (_, address) = line.split_once("Listening on ")?;
    address.rsplit(':').next()?.trim().parse().ok()
}

fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("ANVIL").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join(INSTALLED);
    assert!(installed.exists(), "anvil is not installed: run `tests/tools` once, or set ANVIL to its path");
    installed
}
