//! The real binary as a running sandbox: starts, stops and kills.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use payferry_harness::database::{TestDatabase, chosen_postgres};
use serde_json::Value;
use tempfile::TempDir;

/// Promised time limit of a stop after SIGTERM.
pub const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Median of an odd number of times: a bound for it holds for most of them, regardless of other load on the machine.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// The binary, without configuration from the test's own environment.
pub fn payferry() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payferry"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command
}

/// Persistent state of a sandbox: a folder, and a database in the folder or on a server.
pub struct Home {
    folder: TempDir,
    database: Option<TestDatabase>,
}

impl Home {
    /// Creates a home with the database selected for the tests.
    pub async fn new() -> Self {
        let database = if chosen_postgres() { Some(TestDatabase::postgres().await) } else { None };
        Self { database, ..Self::embedded() }
    }

    /// Creates a home with the database in its folder, for tests of the folder itself.
    pub fn embedded() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: None }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// URL of its database, for direct access.
    pub fn database_url(&self) -> String {
        let embedded = || format!("sqlite://{}?mode=rwc", self.path().join("payferry.db").display());
        self.database.as_ref().map_or_else(embedded, |database| database.url().to_owned())
    }

    /// Command-line arguments that select it.
    pub fn args(&self) -> Vec<&str> {
        let folder = ["--data-dir", self.path().to_str().unwrap()];
        let database = self.database.iter().flat_map(|database| ["--database-url", database.url()]);
        folder.into_iter().chain(database).collect()
    }
}

/// A sandbox in its own process.
pub struct Running {
    pub child: Child,
    pub ready: Value,
}

impl Running {
    /// Starts on free ports.
    pub fn start(home: &Home) -> Self {
        Self::start_with(home, [0, 0], &[])
    }

    /// Starts on these ports (API, operator), with these environment variables.
    pub fn start_with(home: &Home, ports: [u16; 2], env: &[(&str, &str)]) -> Self {
        let [api, operator] = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut child = payferry()
            .envs(env.iter().copied())
            .args(["sandbox", "--json", "--block-time-ms", "100"])
            .args(["--listen", &api, "--operator-listen", &operator])
            .args(home.args())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, ready }
    }

    /// A field of its ready line.
    pub fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    /// Sends SIGTERM and asserts that it ends successfully and in time.
    pub fn stop(mut self) {
        let notified = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(notified.success());
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "ended with {status}");
                println!("stopped within {:?}", since.elapsed());
                return;
            }
            assert!(since.elapsed() < STOP_PATIENCE, "did not stop in time");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends SIGKILL.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failing test leaves no process behind; if the process has ended, this has no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
