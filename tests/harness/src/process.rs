//! The real binary as an operator runs it: configured by a file, started, stopped and killed.
//!
//! Which binary is the caller's to say: only a crate's own integration tests know where theirs was built.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use crate::settings::{ChainSettings, Folder, Settings, Tier};

/// What SIGTERM promises.
pub const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Where the binary was built.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// `path` is the binary: in its own integration tests `env!("CARGO_BIN_EXE_payferry")`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// A command of it, without whatever the test's own environment configures.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs a command with the folder's configuration to its end; answers what it printed. Panics if it fails.
    pub fn run(&self, folder: &Folder, arguments: &[&str]) -> String {
        let output = self.output(folder, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a command with the folder's configuration to its end, whatever that is.
    pub fn output(&self, folder: &Folder, arguments: &[&str]) -> Output {
        self.command().arg("--config").arg(folder.config()).args(arguments).output().unwrap()
    }

    /// Makes the database's tables, a PSP and a key for it; answers the PSP's id and the key.
    pub fn make_psp(&self, folder: &Folder, name: &str) -> (String, String) {
        self.run(folder, &["migrate"]);
        let psp_id = self.run(folder, &["psp", "create", "--name", name]);
        let api_key = self.run(folder, &["key", "create", "--psp", &psp_id]);
        (psp_id, api_key)
    }

    /// Starts `serve` without waiting until it is ready. `env` is more of its environment.
    pub fn spawn(&self, folder: &Folder, env: &[(&str, &str)]) -> Starting {
        let mut command = self.command();
        command.args(["serve", "--json", "--config"]).arg(folder.config());
        Starting::spawn(command, folder.path(), env)
    }

    /// Starts `serve` and waits until it is ready.
    pub fn serve(&self, folder: &Folder) -> Served {
        self.spawn(folder, &[]).ready()
    }
}

/// A process that was started and may not be ready yet. Killed when it is dropped.
#[derive(Debug)]
pub struct Starting {
    child: Child,
    /// Reads the line that says that it is ready.
    first_line: Option<std::thread::JoinHandle<String>>,
    /// Where it writes its log.
    stderr: PathBuf,
    /// Where its log began: the file is that of all processes of the folder.
    stderr_from: u64,
}

impl Starting {
    /// Starts a command that says by one line of JSON when it is ready. Its log is appended to a file in `folder`.
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
        Self { child, first_line: Some(first_line), stderr, stderr_from }
    }

    /// Whether waiting for it would end at once: it is ready, or has ended.
    pub fn has_spoken(&self) -> bool {
        self.first_line.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// Waits for the ready line. Panics with the log if it ends without one.
    pub fn ready(self) -> Served {
        self.try_ready().unwrap_or_else(|log| panic!("it ended before it was ready: {log}"))
    }

    /// The same; the error is the log of a process that ended instead.
    pub fn try_ready(mut self) -> Result<Served, String> {
        let line = self.first_line.take().map(|reader| reader.join().unwrap()).unwrap_or_default();
        match serde_json::from_str(&line) {
            Ok(ready) => Ok(Served { process: self, ready }),
            Err(_) => Err(format!("{line}{}", self.log())),
        }
    }

    /// What it has written to standard error.
    pub fn log(&self) -> String {
        let all = std::fs::read(&self.stderr).unwrap_or_default();
        let from = usize::try_from(self.stderr_from).unwrap_or_default().min(all.len());
        String::from_utf8_lossy(&all[from..]).into_owned()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// SIGKILL.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // A test that failed in between leaves no process behind; one that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running service.
#[derive(Debug)]
pub struct Served {
    process: Starting,
    /// What it said when it was ready.
    pub ready: Value,
}

impl Served {
    /// Something that it said when it was ready.
    pub fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap_or_else(|| panic!("no {key} in {}", self.ready))
    }

    /// Where PSPs and payers reach it.
    pub fn api_url(&self) -> &str {
        self.text("api_url")
    }

    /// Where the operator does.
    pub fn operator_url(&self) -> &str {
        self.text("operator_url")
    }

    /// What it has written to standard error.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.ended()
    }

    /// SIGTERM; it must end by itself, well and in time. Answers how long it took.
    pub fn stop(mut self) -> Duration {
        let told = Command::new("kill").args(["-TERM", &self.process.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let since = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                assert!(status.success(), "ended with {status}: {}", self.log());
                return since.elapsed();
            }
            assert!(since.elapsed() < STOP_PATIENCE, "did not stop in time: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    pub fn kill(self) {
        drop(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_says_things_and_is_stopped_or_killed() {
        let temp = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Starting::spawn(command, temp.path(), &[("WHO", "ferry")])
        };
        let served = shell(r#"echo said $WHO >&2; echo '{"api_url":"http://x"}'; exec sleep 60"#).ready();
        assert_eq!((served.api_url(), served.log().as_str()), ("http://x", "said ferry\n"));
        served.kill();
        let stopped = shell(r"trap 'kill $!; exit 0' TERM; echo '{}'; sleep 60 & wait").ready().stop();
        assert!(stopped < STOP_PATIENCE);
        let failed = shell("echo no such thing >&2; exit 1").try_ready().unwrap_err();
        assert_eq!(failed, "no such thing\n", "the log of this process only");
    }
}
