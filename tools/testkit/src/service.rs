//! Child process of a service: a sandbox (or another subcommand) of this program or of another binary.
//!
//! Its CPU time and memory are its own. It ends with this process, however this process ends: its standard input closes
//! then.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::metrics;
use crate::usage::Usage;

/// Longest time until a process prints its ready line.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// Longest time until all payments of a service are live.
const LIVE_PATIENCE: Duration = Duration::from_mins(2);
/// Longest time of an orderly stop: a little more than the service allows itself.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
const LIVE_POLL: Duration = Duration::from_millis(5);
/// Last lines of the log that are kept.
const LOG_LINES_MAX: usize = 20;
/// Timeout of a request.
pub const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// The line of JSON that a service prints when it is ready. Values that another subcommand does not print are empty.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Ready {
    /// URL for PSPs and payers.
    pub api_url: String,
    /// URL of the operator listener.
    #[serde(default)]
    pub operator_url: String,
    /// Bearer token of the operator listener.
    #[serde(default)]
    pub operator_token: String,
    /// The PSP's key, with full scope.
    #[serde(default)]
    pub api_key: String,
    /// The nodes of a sandbox with several, in the order of their names. The first one is the process itself.
    #[serde(default)]
    pub nodes: Vec<ReadyNode>,
}

/// A node of a sandbox with several.
#[derive(Debug, Clone, Deserialize)]
pub struct ReadyNode {
    /// Name.
    pub name: String,
    /// URL of its public listener.
    pub api_url: String,
    /// URL of its operator listener.
    pub operator_url: String,
    /// Process id.
    pub pid: u32,
}

/// Options of a sandbox in a child process.
#[derive(Debug, Clone, Default)]
pub struct ChildSandboxOptions {
    /// Program; this one if absent.
    pub program: Option<PathBuf>,
    /// Data folder; an ephemeral sandbox if absent.
    pub folder: Option<PathBuf>,
    /// Empty database, instead of SQLite in the data folder.
    pub database_url: Option<String>,
    /// Time between blocks; the sandbox's default if absent.
    pub block_time: Option<Duration>,
    /// Number of nodes; one if absent. Several need a PostgreSQL database.
    pub nodes: Option<u8>,
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// URLs of an earlier process, for the public and the operator listener, whose ports it takes; free ports if absent.
    pub at: Option<[String; 2]>,
    /// Ignores the variables of this process's environment that configure the service.
    pub ignores_env: bool,
}

/// A running child process. Dropping it ends the process.
#[derive(Debug)]
pub struct Service {
    child: Child,
    /// An ephemeral sandbox must not be killed, because it removes its temporary folder at the end.
    is_ephemeral: bool,
    /// The process stops when this is closed.
    stdin: Option<ChildStdin>,
    ready: Ready,
    log: Log,
}

type Log = Arc<Mutex<VecDeque<String>>>;

impl Service {
    /// Starts a sandbox on free ports of this machine. Returns when it prints its ready line.
    pub async fn sandbox(options: &ChildSandboxOptions) -> anyhow::Result<Self> {
        let mut command = program(options.program.as_deref(), options.ignores_env)?;
        let free = || ["127.0.0.1:0", "127.0.0.1:0"].map(str::to_owned);
        let at = options.at.as_ref().map(|urls| urls.each_ref().map(|url| url.replacen("http://", "", 1)));
        let [listen, operator_listen] = at.unwrap_or_else(free);
        command.args(["sandbox", "--json", "--until-stdin-closes"]);
        command.args(["--listen", &listen, "--operator-listen", &operator_listen]);
        match &options.folder {
            Some(folder) => command.arg("--data-dir").arg(folder),
            None => command.arg("--ephemeral"),
        };
        if let Some(config) = &options.config {
            command.env("PAYFERRY_CONFIG", config);
        }
        if let Some(url) = &options.database_url {
            // Not as an argument: it may contain a password.
            command.env("PAYFERRY_SANDBOX_DATABASE_URL", url);
        }
        if let Some(block_time) = options.block_time {
            command.args(["--block-time-ms", &block_time.as_millis().to_string()]);
        }
        if let Some(nodes) = options.nodes {
            command.args(["--nodes", &nodes.to_string()]);
        }
        let mut service = Self::start(command, "sandbox").await?;
        service.is_ephemeral = options.folder.is_none();
        Ok(service)
    }

    /// Starts a sandbox. Returns when all of its payments are live.
    pub async fn live_sandbox(options: &ChildSandboxOptions) -> anyhow::Result<Self> {
        let service = Self::sandbox(options).await?;
        service.until_live().await?;
        Ok(service)
    }

    /// Starts a command that prints a line of JSON when it is ready. `name` appears in errors.
    pub async fn start(mut command: Command, name: &str) -> anyhow::Result<Self> {
        // A process group of its own: ctrl-c is for this process, which reads the service once more before it ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("the {name} cannot be started"))?;
        let stdin = child.stdin.take();
        let log = Log::default();
        if let Some(stderr) = child.stderr.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || keep_last(stderr, &log));
        }
        let (first_line, ready) = oneshot::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout);
                let mut line = String::new();
                let _ = lines.read_line(&mut line);
                let _ = first_line.send(line);
                // A full pipe would block the process.
                let _ = std::io::copy(&mut lines, &mut std::io::sink());
            });
        }
        // From here on, dropping the future kills the process.
        let mut service = Self { child, is_ephemeral: false, stdin, ready: Ready::default(), log };
        let line = tokio::time::timeout(START_PATIENCE, ready).await;
        match line.ok().and_then(Result::ok).and_then(|line| serde_json::from_str(&line).ok()) {
            Some(ready) => service.ready = ready,
            None => bail!("the {name} did not start: {}", service.last_line()),
        }
        Ok(service)
    }

    /// Returns addresses and keys.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the ids of the process and of the further nodes of a sandbox.
    pub fn pids(&self) -> Vec<u32> {
        let further = self.ready.nodes.iter().skip(1).map(|node| node.pid);
        std::iter::once(self.pid()).chain(further).collect()
    }

    /// Returns the last lines of the log.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().iter().cloned().collect()
    }

    fn last_line(&self) -> String {
        self.log.lock().back().cloned().unwrap_or_else(|| "its log is empty".to_owned())
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Makes a client of the operator listener, with its token if the service printed one.
    pub fn operator(&self) -> anyhow::Result<Client> {
        let client = Client::new(&self.ready.operator_url, 1, CALL_DEADLINE)?;
        if self.ready.operator_token.is_empty() { Ok(client) } else { client.bearer(&self.ready.operator_token) }
    }

    /// Makes a client with the PSP's key.
    pub fn client(&self, connections_max: usize) -> anyhow::Result<Client> {
        Client::new(&self.ready.api_url, connections_max, CALL_DEADLINE)?.bearer(&self.ready.api_key)
    }

    /// Reads a metric, summed over its labels.
    pub async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        metrics::metric(&self.operator()?, name).await
    }

    /// Returns the metrics that show a defect.
    pub async fn defects(&self) -> anyhow::Result<Vec<String>> {
        metrics::defects(&self.operator()?).await
    }

    /// Reads CPU time and memory of the process, and of the further nodes of a sandbox.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of_all(&self.pids()).context("the process has no readable entry in /proc")
    }

    /// Returns the CPU time so far, in seconds.
    pub fn cpu_secs(&self) -> anyhow::Result<f64> {
        Ok(self.usage()?.cpu.as_secs_f64())
    }

    /// Waits until all payments of the service are live.
    pub async fn until_live(&self) -> anyhow::Result<()> {
        let (operator, since) = (self.operator()?, Instant::now());
        while since.elapsed() < LIVE_PATIENCE {
            if operator.get("/readyz").await.is_ok_and(|response| response.status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(LIVE_POLL).await;
        }
        bail!("the service was not ready after {} s", LIVE_PATIENCE.as_secs())
    }

    /// Stops the process in order. Kills it if it does not stop in time.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        let since = Instant::now();
        while since.elapsed() < STOP_PATIENCE {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the service ended with {status}: {}", self.last_line()),
                None => tokio::time::sleep(POLL).await,
            }
        }
        self.is_ephemeral = false;
        bail!("the service did not stop within {} s and was killed", STOP_PATIENCE.as_secs())
    }

    /// Kills the process, as a power cut would.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.is_ephemeral {
            // It stops by itself.
            drop(self.stdin.take());
            return;
        }
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a command of `binary` (this program if absent), optionally without the environment variables that configure
/// the service.
pub fn program(binary: Option<&Path>, ignores_env: bool) -> anyhow::Result<Command> {
    let mut command = match binary {
        Some(binary) => Command::new(binary),
        None => Command::new(std::env::current_exe().context("the path of this program is unknown")?),
    };
    if ignores_env {
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
                command.env_remove(name);
            }
        }
    }
    Ok(command)
}

fn keep_last(stream: impl Read, log: &Log) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let mut log = log.lock();
        if log.len() == LOG_LINES_MAX {
            log.pop_front();
        }
        log.push_back(line);
    }
}
