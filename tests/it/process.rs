//! The real binary as a running sandbox: started, stopped and killed as the world does it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use payferry_harness::database::{TestDatabase, chosen_postgres};
use serde_json::Value;
use tempfile::TempDir;

/// What SIGTERM promises.
pub const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The middle one of an odd number of times: what holds of it holds of most of them, whatever else runs on the machine.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// The binary, without whatever the test's own environment configures.
pub fn payferry() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payferry"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command
}

/// Where a sandbox keeps everything over its restarts: a folder, and with it a database in the folder or on a server.
pub struct Home {
    folder: TempDir,
    database: Option<TestDatabase>,
}

impl Home {
    /// With the database that is chosen for the tests.
    pub async fn new() -> Self {
        let database = if chosen_postgres() { Some(TestDatabase::postgres().await) } else { None };
        Self { database, ..Self::embedded() }
    }

    /// With the database in the folder, whatever is chosen: for tests of the folder itself.
    pub fn embedded() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: None }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its database, for whoever looks at it beside the service.
    pub fn database_url(&self) -> String {
        let embedded = || format!("sqlite://{}?mode=rwc", self.path().join("payferry.db").display());
        self.database.as_ref().map_or_else(embedded, |database| database.url().to_owned())
    }

    /// Arguments that name it to any command.
    pub fn args(&self) -> Vec<&str> {
        let folder = ["--data-dir", self.path().to_str().unwrap()];
        let database = self.database.iter().flat_map(|database| ["--database-url", database.url()]);
        folder.into_iter().chain(database).collect()
    }
}

/// A sandbox in a process of its own.
pub struct Running {
    pub child: Child,
    pub ready: Value,
}

impl Running {
    /// On ports of its own.
    pub fn start(home: &Home) -> Self {
        Self::start_with(home, [0, 0], &[])
    }

    /// On these ports (API, operator), with these variables in its environment.
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

    /// Something that it said when it was ready.
    pub fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    /// SIGTERM; it must end by itself, well and in time.
    pub fn stop(mut self) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
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

    /// SIGKILL.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed in between leaves no process behind; one that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
