//! A pair of PostgreSQL servers for one test: `tests/with-postgres --standby` or `--patroni`. The servers are p1, the primary,
//! and p2, its synchronous standby. They end with this value, and with the process.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sea_orm::ConnectionTrait;

/// A running pair.
#[derive(Debug)]
pub struct Pair {
    script: Child,
    variables: HashMap<String, String>,
}

impl Pair {
    /// Starts a primary and its synchronous standby, which the test promotes.
    pub fn with_standby() -> Self {
        Self::start("--standby")
    }

    /// Starts a primary and its synchronous standby, which Patroni promotes.
    pub fn of_patroni() -> Self {
        Self::start("--patroni")
    }

    fn start(mode: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../with-postgres");
        let mut command = Command::new(script);
        command.arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().unwrap();
        let mut lines = BufReader::new(script.stdout.take().unwrap()).lines().map(Result::unwrap);
        let variables = lines.by_ref().take_while(|line| !line.is_empty());
        let variables: HashMap<_, _> = variables
            .filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect();
        assert!(variables.contains_key("PAYFERRY_TEST_PAIR"), "the pair did not start: {variables:?}");
        Self { script, variables }
    }

    /// URLs of a database on both servers, p1 first.
    pub fn urls(&self, database: &str) -> Vec<String> {
        self.variables["PAYFERRY_TEST_PAIR"].split(',').map(|server| format!("{server}/{database}")).collect()
    }

    /// URL of a database at the proxy that connects to Patroni's primary.
    pub fn proxy_url(&self, database: &str) -> String {
        format!("{}/{database}", self.variables["PAYFERRY_TEST_PAIR_PROXY"])
    }

    /// Creates an empty database.
    pub async fn create_database(&self, database: &str) {
        let admin = sea_orm::Database::connect(&self.urls("postgres")[0]).await.unwrap();
        admin.execute_unprepared(&format!("CREATE DATABASE {database}")).await.unwrap();
        admin.close().await.unwrap();
    }

    /// Runs a command of `tests/postgres/control`, which must succeed; returns its output.
    pub fn control(&self, arguments: &[&str]) -> String {
        let program = self.variables["PAYFERRY_TEST_PAIR_CONTROL"].as_str();
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
