//! A sandbox in a process of its own, for a load tester that has none: its processor time and memory are its own, and it
//! ends with whoever started it, however that one ends.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::sandbox::Ready;

/// How long it may take to be ready.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// How long it may take to stop in order; a little more than it takes itself.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// Lines of its log that are kept: the last ones.
const LOG_LINES_MAX: usize = 20;

/// How it is started.
#[derive(Debug, Clone, Default)]
pub struct OwnSandboxOptions {
    /// An empty database in place of a temporary SQLite.
    pub database_url: Option<String>,
    /// Milliseconds between blocks.
    pub block_time_ms: Option<u64>,
    /// Further variables of its environment.
    pub env: Vec<(String, String)>,
}

/// A running sandbox. Dropped, it is told to stop and not waited for.
#[derive(Debug)]
pub struct OwnSandbox {
    child: Child,
    /// Closed, it stops.
    stdin: Option<ChildStdin>,
    ready: Ready,
    log: Log,
}

type Log = Arc<Mutex<VecDeque<String>>>;

impl OwnSandbox {
    /// Starts this same program as an ephemeral sandbox on free ports of this machine.
    pub async fn start(options: &OwnSandboxOptions) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command
            .args(["sandbox", "--ephemeral", "--json", "--until-stdin-closes"])
            .args(["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"])
            .envs(options.env.iter().map(|(name, value)| (name, value)));
        if let Some(url) = &options.database_url {
            // Not as an argument: it may hold a password.
            command.env("PAYFERRY_SANDBOX_DATABASE_URL", url);
        }
        if let Some(block_time_ms) = options.block_time_ms {
            command.args(["--block-time-ms", &block_time_ms.to_string()]);
        }
        // In a group of its own: ctrl-c is for the load tester, which reads it a last time before it ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("the sandbox cannot be started")?;
        let stdin = child.stdin.take();
        let log = Log::default();
        if let Some(stderr) = child.stderr.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || keep_last(stderr, &log));
        }
        let (said, ready) = oneshot::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout);
                let mut line = String::new();
                let _ = lines.read_line(&mut line);
                let _ = said.send(line);
                // A pipe that nobody reads would hold it up.
                let _ = std::io::copy(&mut lines, &mut std::io::sink());
            });
        }
        let line = tokio::time::timeout(START_PATIENCE, ready).await;
        let ready = line.ok().and_then(Result::ok).and_then(|line| serde_json::from_str(&line).ok());
        let Some(ready) = ready else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the sandbox did not start: {}", last_words(&log));
        };
        Ok(Self { child, stdin, ready, log })
    }

    /// Addresses and keys.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The last lines of its log.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().iter().cloned().collect()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Stops it in order; it is killed if it does not stop in time.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        let since = Instant::now();
        while since.elapsed() < STOP_PATIENCE {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the sandbox ended with {status}: {}", last_words(&self.log)),
                None => tokio::time::sleep(POLL).await,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        bail!("the sandbox did not stop within {} s and was killed", STOP_PATIENCE.as_secs())
    }
}

fn last_words(log: &Log) -> String {
    log.lock().back().cloned().unwrap_or_else(|| "it said nothing".to_owned())
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
