//! The real binary as an operator runs it: configured by a file, started, stopped and killed.
//!
//! The caller passes the path of the binary, because only the integration tests of its crate know it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use payferry_testkit::service::program;
use serde_json::Value;

use crate::namespace::Namespace;
pub use crate::settings::Folder;

/// Maximum duration of a graceful stop after the drain, as documented.
pub const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time that another program may take to start.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Unit of the times in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// Path of the binary.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// `path` is the binary; in integration tests of its crate: `env!("CARGO_BIN_EXE_payferry")`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// A command of the binary, without configuration variables of the test's own environment.
    pub fn command(&self) -> Command {
        program(Some(&self.path), true).unwrap()
    }

    /// Runs a command with the folder's configuration and returns its output. Panics if it fails.
    pub fn run(&self, folder: &Folder, arguments: &[&str]) -> String {
        let output = self.output(folder, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a command with the folder's configuration and returns its result.
    pub fn output(&self, folder: &Folder, arguments: &[&str]) -> Output {
        self.command().arg("--config").arg(folder.config()).args(arguments).output().unwrap()
    }

    /// Migrates the database and creates a PSP with an API key. Returns the PSP's id and the key.
    pub fn make_psp(&self, folder: &Folder, name: &str) -> (String, String) {
        self.run(folder, &["migrate"]);
        let psp_id = self.run(folder, &["psp", "create", "--name", name]);
        let api_key = self.run(folder, &["key", "create", "--psp", &psp_id, "--scope", "full", "--expires", "never"]);
        (psp_id, api_key)
    }

    /// Starts `serve` with additional environment variables, without waiting until it is ready.
    pub fn spawn(&self, folder: &Folder, env: &[(&str, &str)]) -> Starting {
        self.spawn_in(None, folder, env)
    }

    /// The same, in a network namespace.
    pub fn spawn_in(&self, namespace: Option<&Namespace>, folder: &Folder, env: &[(&str, &str)]) -> Starting {
        let mut command = self.command();
        command.args(["serve", "--json", "--config"]).arg(folder.config());
        let entered = namespace.map(|namespace| namespace.enter(&command));
        Starting::spawn(entered.unwrap_or(command), folder.path(), env)
    }

    /// Starts `serve` and waits until it is ready.
    pub fn serve(&self, folder: &Folder) -> Served {
        self.spawn(folder, &[]).ready()
    }
}

/// A process that is killed on drop: a failed test leaves no process behind.
#[derive(Debug)]
pub(crate) struct KilledOnDrop(pub(crate) Child);

impl KilledOnDrop {
    /// Starts a command and reads its output up to the line in which `find` finds a value. `None` if it ends before, or
    /// after [`START_PATIENCE`].
    pub(crate) fn spawn_until<T: Send + 'static>(
        command: &mut Command,
        find: impl Fn(&str) -> Option<T> + Send + 'static,
    ) -> std::io::Result<Option<(Self, T)>> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().unwrap());
        let process = Self(child);
        let (found, value) = mpsc::channel();
        // Reads to the end: the process would block if its output were not read.
        std::thread::spawn(move || {
            for value in output.lines().map_while(Result::ok).filter_map(|line| find(&line)) {
                let _ = found.send(value);
            }
        });
        Ok(value.recv_timeout(START_PATIENCE).ok().map(|value| (process, value)))
    }

    fn kill(&mut self) {
        // Both calls fail harmlessly for a process that has exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A started process that may not be ready yet. Killed on drop.
#[derive(Debug)]
pub struct Starting {
    child: KilledOnDrop,
    first_line: Option<std::thread::JoinHandle<String>>,
    stderr: PathBuf,
    /// Offset of this process's log in the file, which all processes of the folder share.
    stderr_from: u64,
}

impl Starting {
    /// Starts a command that prints one line of JSON when it is ready. Its log is appended to a file in `folder`.
    pub fn spawn(mut command: Command, folder: &Path, env: &[(&str, &str)]) -> Self {
        let stderr = folder.join("stderr.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&stderr).unwrap();
        let stderr_from = log.metadata().unwrap().len();
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let first_line = std::thread::spawn(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line
        });
        Self { child: KilledOnDrop(child), first_line: Some(first_line), stderr, stderr_from }
    }

    /// Returns true if the process is ready or has exited, so that waiting would return at once.
    pub fn has_spoken(&self) -> bool {
        self.first_line.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// Waits for the ready line. Panics with the log if the process exits without one.
    pub fn ready(self) -> Served {
        self.try_ready().unwrap_or_else(|log| panic!("the process exited before it was ready: {log}"))
    }

    /// Waits for the ready line. The error is the log of a process that exited without one.
    pub fn try_ready(mut self) -> Result<Served, String> {
        let line = self.first_line.take().map(|reader| reader.join().unwrap()).unwrap_or_default();
        match serde_json::from_str(&line) {
            Ok(ready) => Ok(Served { process: self, ready }),
            Err(_) => Err(format!("{line}{}", self.log())),
        }
    }

    /// Log of this process (standard error).
    pub fn log(&self) -> String {
        let all = std::fs::read(&self.stderr).unwrap_or_default();
        let from = usize::try_from(self.stderr_from).unwrap_or_default().min(all.len());
        String::from_utf8_lossy(&all[from..]).into_owned()
    }

    /// Exit status, if the process has exited.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.0.try_wait().unwrap()
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Processor time that the process has used, in steps of 10 ms.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // The name of the process may contain spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u32 = fields[11..13].iter().map(|ticks| ticks.parse::<u32>().unwrap()).sum();
        TICK.saturating_mul(ticks)
    }

    /// Sends SIGTERM. The process must exit successfully and in time. Returns the duration.
    pub fn stop(&mut self) -> Duration {
        self.signal("TERM");
        let since = Instant::now();
        let status = self.until_ended(STOP_PATIENCE);
        assert!(status.success(), "ended with {status}: {}", self.log());
        since.elapsed()
    }

    /// Sends the signal with this name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the process exits, which must happen in time.
    pub fn until_ended(&mut self, patience: Duration) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(since.elapsed() < patience, "did not stop in time: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill();
    }
}

/// A running service.
#[derive(Debug)]
pub struct Served {
    /// Its process.
    pub process: Starting,
    /// The parsed ready line.
    pub ready: Value,
}

impl Served {
    /// Text value of the ready line.
    pub fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap_or_else(|| panic!("no {key} in {}", self.ready))
    }

    /// API URL for PSPs and payers.
    pub fn api_url(&self) -> &str {
        self.text("api_url")
    }

    /// URL of the operator listener.
    pub fn operator_url(&self) -> &str {
        self.text("operator_url")
    }

    /// Sends SIGTERM. The process must exit successfully and in time. Returns the duration.
    pub fn stop(mut self) -> Duration {
        self.process.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_start_log_and_are_stopped_or_killed() {
        let temp = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Starting::spawn(command, temp.path(), &[("WHO", "ferry")])
        };
        let served = shell(r#"echo said $WHO >&2; echo '{"api_url":"http://x"}'; exec sleep 60"#).ready();
        assert_eq!((served.api_url(), served.process.log().as_str()), ("http://x", "said ferry\n"));
        drop(served);
        let stopped = shell(r"trap 'kill $!; exit 0' TERM; echo '{}'; sleep 60 & wait").ready().stop();
        assert!(stopped < STOP_PATIENCE);
        let failed = shell("echo no such thing >&2; exit 1").try_ready().unwrap_err();
        assert_eq!(failed, "no such thing\n", "the log of this process only");
    }
}
