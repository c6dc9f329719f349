//! The service that is measured: a process of its own, so that its CPU time and memory are its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::hold::Held;
use payferry_testkit::client::Client;
use crate::load::metrics;

/// How long a process may take until it says that it is ready.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// How long a service may take until all of its payments are live.
const READY_PATIENCE: Duration = Duration::from_mins(2);
const READY_POLL: Duration = Duration::from_millis(5);
/// Clock ticks a second of `/proc`: the same on every Linux that this runs on.
const TICKS_PER_SEC: f64 = 100.0;
/// The variable that names the bound's database.
pub const BOUND_DATABASE_URL: &str = "PAYFERRY_BENCH_BOUND_DATABASE_URL";
/// How long an answer may take.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// What a process says when it is ready.
#[derive(Deserialize)]
pub(super) struct Ready {
    pub(super) api_url: String,
    #[serde(default)]
    pub(super) operator_url: String,
    #[serde(default)]
    pub(super) operator_token: String,
    #[serde(default)]
    pub(super) api_key: String,
}

/// A running process. Killed when it is dropped.
pub(super) struct Service {
    child: Child,
    pub(super) ready: Ready,
}

/// How a sandbox is started.
#[derive(Debug, Clone)]
pub(super) struct SandboxSetup {
    /// Where it keeps everything.
    pub(super) folder: PathBuf,
    /// Another database than the folder's.
    pub(super) database_url: Option<String>,
    pub(super) block_time: Duration,
    /// Whether its actors keep books.
    pub(super) bookkeeping: bool,
    /// Whether its ledger is kept.
    pub(super) ledger: bool,
}

impl Service {
    /// Starts a sandbox and waits until all of its payments are live.
    pub(super) async fn sandbox(setup: &SandboxSetup) -> anyhow::Result<Self> {
        let mut command = this_program()?;
        command.args([
            "sandbox",
            "--json",
            "--until-stdin-closes",
            "--listen",
            "127.0.0.1:0",
            "--operator-listen",
            "127.0.0.1:0",
        ]);
        command.arg("--data-dir").arg(&setup.folder);
        command.args(["--block-time-ms", &setup.block_time.as_millis().to_string()]);
        if let Some(url) = &setup.database_url {
            // Not as an argument: it may hold a password.
            command.env("PAYFERRY_SANDBOX_DATABASE_URL", url);
        }
        if !setup.ledger {
            command.arg("--without-ledger");
        }
        if !setup.bookkeeping {
            command.env("PAYFERRY_PAYMENTS__BOOKKEEPING", "false");
        }
        let service = Self::start(command, &setup.folder).await?;
        service.until_ready().await?;
        Ok(service)
    }

    /// Starts what payments are compared with: see [`super::bound`].
    pub(super) async fn bound(folder: &Path, database_url: &str) -> anyhow::Result<Self> {
        Self::start(bound_command(database_url)?, folder).await
    }

    async fn start(mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let log = std::fs::File::create(folder.join("stderr.log"))?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().context("the process has no output")?;
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let line = match tokio::time::timeout(START_PATIENCE, line).await {
            Ok(line) => line??,
            Err(_) => String::new(),
        };
        if let Ok(ready) = serde_json::from_str(&line) {
            return Ok(Self { child, ready });
        }
        let _ = child.kill();
        let _ = child.wait();
        let log = std::fs::read_to_string(folder.join("stderr.log")).unwrap_or_default();
        bail!("the service did not start: {}", log.lines().last().unwrap_or("it said nothing"))
    }

    async fn until_ready(&self) -> anyhow::Result<()> {
        let operator = self.operator()?;
        let since = Instant::now();
        while since.elapsed() < READY_PATIENCE {
            if operator.get("/readyz").await.is_ok_and(|answer| answer.status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(READY_POLL).await;
        }
        bail!("the service was not ready after {} s", READY_PATIENCE.as_secs())
    }

    /// A client with the PSP's key.
    pub(super) fn client(&self, connections_max: usize) -> anyhow::Result<Client> {
        Client::new(&self.ready.api_url, connections_max, CALL_DEADLINE)?.bearer(&self.ready.api_key)
    }

    /// A figure among the operator's metrics, summed over its labels.
    pub(super) async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        metrics::metric(&self.operator()?, name).await
    }

    /// What it says of itself that must not be, whatever it is measured at.
    pub(super) async fn unsound(&self) -> anyhow::Result<Vec<String>> {
        metrics::unsound(&self.operator()?).await
    }

    /// A client of the operator's listener.
    fn operator(&self) -> anyhow::Result<Client> {
        Client::new(&self.ready.operator_url, 1, CALL_DEADLINE)
    }

    /// CPU time that it has used, seconds.
    pub(super) fn cpu_secs(&self) -> anyhow::Result<f64> {
        cpu_secs_of(self.child.id())
    }

    /// Memory that it holds, bytes.
    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1_024)
    }

    /// Holds it until that is released or dropped: another has its turn.
    pub(super) async fn hold(&self) -> anyhow::Result<Held<'_>> {
        Held::of(&self.child).await
    }

    /// Ends it as a power cut would.
    pub(super) fn kill(self) {
        drop(self);
    }
}

/// CPU time that a process has used, user and system, seconds.
pub(super) fn cpu_secs_of(pid: u32) -> anyhow::Result<f64> {
    let stat = stat_of(pid)?;
    let mut fields = stat.split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok()).context("an unreadable stat");
    Ok((ticks()? + ticks()?) / TICKS_PER_SEC)
}

/// What a process does: R (runs), S (waits), D (waits for the disk), T (is held), Z (has ended), or another letter.
pub(super) fn state_of(pid: u32) -> anyhow::Result<char> {
    stat_of(pid)?.trim_start().chars().next().context("an unreadable stat")
}

/// What the system knows of a process, from its state on.
fn stat_of(pid: u32) -> anyhow::Result<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')').context("an unreadable stat")?;
    Ok(fields.to_owned())
}

/// This program, without whatever this process's environment configures.
fn this_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// The bound, on this database.
fn bound_command(database_url: &str) -> anyhow::Result<Command> {
    let mut command = this_program()?;
    // Not as an argument, which everybody on the machine can read: it may hold a password.
    command.args(["bench", "--bound-server"]).env(BOUND_DATABASE_URL, database_url);
    Ok(command)
}

impl Drop for Service {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_password_of_a_database_is_in_no_argument() {
        let url = "postgres://bench:secret@127.0.0.1:5432/bound";
        let command = bound_command(url).unwrap();
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["bench", "--bound-server"]);
        let named = command.get_envs().find(|(name, _)| *name == OsStr::new(BOUND_DATABASE_URL));
        assert_eq!(named.and_then(|(_, value)| value), Some(OsStr::new(url)));
    }
}
