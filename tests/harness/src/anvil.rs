//! `anvil`, an independent Ethereum node in a process of its own: the second implementation, besides the devchain, that
//! the chain code is tested with.
//!
//! `tests/tools` installs it. It starts without accounts: a test funds its keys with `anvil_setBalance`, which the
//! devchain supports too. The canonical CREATE2 deployer exists from the start, as on the devchain.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use payferry_devchain::Mining;
use tempfile::TempDir;

/// Path where `tests/tools` installs it, relative to the workspace root.
const INSTALLED: &str = ".tools/anvil/anvil";

/// Options of a node. The defaults equal the devchain's.
#[derive(Clone, Copy, Debug)]
pub struct AnvilOptions {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// When blocks are mined; intervals below one second are supported.
    pub mining: Mining,
    /// Timestamp of block 0; `None`: the wall clock.
    pub genesis_timestamp_secs: Option<u64>,
    /// Hard fork; the same as the devchain's.
    pub hardfork: &'static str,
    /// Distance of `safe` behind `latest`, in blocks; `finalized` is twice as far behind.
    pub safe_depth: u64,
    /// Base fee of the first block, in wei. On an idle chain it falls without a lower bound, unlike the devchain's.
    pub base_fee_initial_wei: u64,
    /// Gas limit of a block.
    pub block_gas_limit: u64,
    /// Local port; 0 selects a free one.
    pub port: u16,
}

impl Default for AnvilOptions {
    fn default() -> Self {
        let devchain = payferry_devchain::ChainConfig::default();
        Self {
            chain_id: devchain.chain_id,
            mining: devchain.mining,
            genesis_timestamp_secs: devchain.genesis_timestamp_secs,
            hardfork: "prague",
            safe_depth: devchain.safe_depth,
            base_fee_initial_wei: devchain.base_fee_initial_wei,
            block_gas_limit: devchain.block_gas_limit,
            port: 0,
        }
    }
}

/// A running node, killed on drop.
#[derive(Debug)]
pub struct Anvil {
    process: Child,
    port: u16,
    /// Folder for states that the node does not keep in memory.
    _cache: TempDir,
}

impl Anvil {
    /// Starts the node and waits until it listens. Panics with instructions when it is not installed.
    pub fn start(options: AnvilOptions) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command.args(["--accounts", "0", "--hardfork", options.hardfork]);
        command.arg("--cache-path").arg(cache.path());
        for (name, value) in [
            ("--chain-id", options.chain_id),
            ("--port", options.port.into()),
            ("--slots-in-an-epoch", options.safe_depth),
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
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let Some(port) = port_of(&mut output) else {
            let mut reason = String::new();
            let _ = process.stderr.take().unwrap().read_to_string(&mut reason);
            let _ = process.wait();
            panic!("anvil did not start: {reason}");
        };
        // The node logs every request and would block if its output were not read.
        let errors = process.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        std::thread::spawn(move || std::io::copy(&mut BufReader::new(errors), &mut std::io::sink()));
        Self { process, port, _cache: cache }
    }

    /// Starts a node that mines blocks at this interval.
    pub fn by_interval(chain_id: u64, interval: Duration) -> Self {
        Self::start(AnvilOptions { chain_id, mining: Mining::Interval(interval), ..AnvilOptions::default() })
    }

    /// JSON-RPC URL, for HTTP and WebSocket.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Anvil {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads output up to the line with the listen address; `None` if the process ended before.
fn port_of(output: &mut impl BufRead) -> Option<u16> {
    output.lines().map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("Listening on ")?;
        address.rsplit(':').next()?.trim().parse().ok()
    })
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
