//! A pair of PostgreSQL servers for one test: `tests/with-postgres --standby` or `--patroni`. The servers are p1, the primary,
//! and p2, its synchronous standby. They end with this value, and with the process.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use sea_orm::ConnectionTrait;

use crate::database::number;

/// A running pair.
#[derive(Debug)]
pub struct Pair {
    script: Child,
    variables: HashMap<String, String>,
}

impl Pair {
    /// Starts a primary and its synchronous standby, which the test promotes.
    pub async fn with_standby() -> Arc<Self> {
        Self::start("--standby").await
    }

    /// Starts a primary and its synchronous standby, which Patroni promotes.
    pub async fn of_patroni() -> Arc<Self> {
        Self::start("--patroni").await
    }

    async fn start(mode: &'static str) -> Arc<Self> {
        tokio::task::spawn_blocking(move || Arc::new(Self::started(mode))).await.unwrap()
    }

    fn started(mode: &str) -> Self {
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

    /// Runs a command of `tests/postgres/control.sh`, which must succeed; returns its output.
    pub async fn control(&self, arguments: &[&str]) -> String {
        let mut command = tokio::process::Command::new(&self.variables["PAYFERRY_TEST_PAIR_CONTROL"]);
        let output = command.args(arguments).output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A number that a server's database returns. Servers are counted from 0.
    pub async fn number(&self, server: usize, database: &str, sql: &str) -> i64 {
        let connection = sea_orm::Database::connect(&self.urls(database)[server]).await.unwrap();
        let found = number(&connection, sql).await;
        connection.close().await.unwrap();
        found
    }

    /// The server that Patroni has made the primary, counted from 0.
    pub async fn primary(&self) -> usize {
        usize::from(self.control(&["primary"]).await.trim() == "p2")
    }

    /// Kills Patroni's primary and waits until the other server accepts writes, `times` times. Between the end of a failover and
    /// the return of the killed server, calls `continues` with the number of the round.
    pub async fn fail_over(&self, times: usize, continues: impl AsyncFn(usize)) {
        for round in 0..times {
            self.control(&["synced"]).await;
            let [killed, other] = if self.primary().await == 0 { ["p1", "p2"] } else { ["p2", "p1"] };
            self.control(&["kill", killed]).await;
            self.control(&["writable", other]).await;
            continues(round).await;
            self.control(&["rejoin", killed]).await;
        }
        self.control(&["synced"]).await;
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
