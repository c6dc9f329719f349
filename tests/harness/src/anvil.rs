//! `anvil`, an Ethereum node of other people's making, as a process of its own: what the chain side is held against
//! besides the devchain.
//!
//! `tests/tools` installs it. It starts with no accounts of its own: a test funds its keys with `anvil_setBalance`,
//! which the devchain knows too. The canonical CREATE2 deployer is there from the start, as on the devchain.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use payferry_devchain::Mining;
use tempfile::TempDir;

/// Where `tests/tools` puts it, from the workspace's root.
const INSTALLED: &str = ".tools/anvil/anvil";

/// How a node is started. The defaults are the devchain's.
#[derive(Clone, Copy, Debug)]
pub struct AnvilOptions {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// When blocks are made; intervals below a second work.
    pub mining: Mining,
    /// Timestamp of block 0; none takes the wall clock.
    pub genesis_timestamp_secs: Option<u64>,
    /// The rules it runs by: the devchain's.
    pub hardfork: &'static str,
    /// `safe` is this many blocks behind `latest`, and `finalized` twice as many.
    pub safe_depth: u64,
    /// Base fee of the first block, in wei. It falls without end on an idle chain, other than the devchain's.
    pub base_fee_initial_wei: u64,
    /// Gas a block can hold.
    pub block_gas_limit: u64,
    /// The port on this machine; 0 takes a free one.
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

/// A running node, killed when this is dropped.
#[derive(Debug)]
pub struct Anvil {
    process: Child,
    port: u16,
    /// Where it puts the states that it does not keep in memory.
    _cache: TempDir,
}

impl Anvil {
    /// Starts it and waits until it listens. Panics, saying what to do, when it is not installed.
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
        // It reports every request, and would stand still when nobody reads.
        let errors = process.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        std::thread::spawn(move || std::io::copy(&mut BufReader::new(errors), &mut std::io::sink()));
        Self { process, port, _cache: cache }
    }

    /// A node that makes blocks at this interval.
    pub fn by_interval(chain_id: u64, interval: Duration) -> Self {
        Self::start(AnvilOptions { chain_id, mining: Mining::Interval(interval), ..AnvilOptions::default() })
    }

    /// Where it answers JSON-RPC, over HTTP and over WebSocket.
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

/// Reads up to the line that says where it listens; none when it ended before.
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
    assert!(installed.exists(), "there is no anvil: run `tests/tools` once, or name one in ANVIL");
    installed
}
