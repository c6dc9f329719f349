//! The real binary as a running sandbox: starts, stops and kills.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use payferry_domain::{Chain, Token};
use payferry_harness::database::{TestDatabase, chosen_postgres};
use payferry_harness::process::{Binary, Served, Starting};
use payferry_harness::psp::Psp;
use payferry_harness::{eventually, expect, install_tls};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

/// Median of an odd number of times: a bound for it holds for most of them, regardless of other load on the machine.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// The binary, without configuration from the test's own environment.
pub fn payferry() -> Command {
    Binary::at(env!("CARGO_BIN_EXE_payferry")).command()
}

/// Output of a successful run.
#[track_caller]
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

/// Error output.
pub fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap().trim().to_owned()
}

/// Persistent state of a sandbox: a folder, and a database in the folder or on a server.
pub struct Home {
    folder: TempDir,
    database: Option<TestDatabase>,
}

impl Home {
    /// Creates a home with the database selected for the tests.
    pub async fn new() -> Arc<Self> {
        let database = if chosen_postgres() { Some(TestDatabase::postgres().await) } else { None };
        Arc::new(Self { folder: tempfile::tempdir().unwrap(), database })
    }

    /// Creates a home with the database in its folder, for tests of the folder itself.
    pub fn embedded() -> Arc<Self> {
        Arc::new(Self { folder: tempfile::tempdir().unwrap(), database: None })
    }

    /// Creates a home with this database.
    pub fn with(database: TestDatabase) -> Arc<Self> {
        Arc::new(Self { folder: tempfile::tempdir().unwrap(), database: Some(database) })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its database, if it is not in the folder.
    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// URL of its database, for direct access.
    pub fn database_url(&self) -> String {
        let embedded = || format!("sqlite://{}?mode=rwc", self.path().join("payferry.db").display());
        self.database.as_ref().map_or_else(embedded, |database| database.url().to_owned())
    }

    /// Copies its database while the sandbox is stopped.
    pub async fn copy_database(&self) -> TestDatabase {
        match &self.database {
            Some(database) => database.copy().await,
            None => TestDatabase::sqlite_in(self.path()).copy().await,
        }
    }

    /// Restores a copy of its database while the sandbox is stopped.
    pub async fn restore_database(&self, copy: TestDatabase) {
        match &self.database {
            Some(database) => database.restore(copy).await,
            None => TestDatabase::sqlite_in(self.path()).restore(copy).await,
        }
    }

    /// Command-line arguments that select it.
    pub fn args(&self) -> Vec<&str> {
        let folder = ["--data-dir", self.path().to_str().unwrap()];
        let database = self.database.iter().flat_map(|database| ["--database-url", database.url()]);
        folder.into_iter().chain(database).collect()
    }
}

/// A sandbox in its own process. At the end of a test it must stop like after [`Running::stop`].
pub struct Running {
    pub process: Starting,
    pub ready: Value,
    pub home: Arc<Home>,
}

impl Running {
    /// Starts with a new home.
    pub async fn new() -> Self {
        Self::start(&Home::new().await)
    }

    /// Starts on free ports.
    pub fn start(home: &Arc<Home>) -> Self {
        Self::start_with(home, [0, 0], &[])
    }

    /// Starts on these ports (API, operator), with these environment variables.
    pub fn start_with(home: &Arc<Home>, ports: [u16; 2], env: &[(&str, &str)]) -> Self {
        install_tls();
        let [api, operator] = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut command = payferry();
        command.args(["sandbox", "--json", "--block-time-ms", "100"]);
        command.args(["--listen", &api, "--operator-listen", &operator]).args(home.args());
        let Served { process, ready } = Starting::spawn(command, home.path(), env).ready();
        Self { process, ready, home: Arc::clone(home) }
    }

    /// A field of its ready line.
    pub fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    /// Runs the command line on its home; returns the output of a successful run.
    pub fn beside(&self, args: &[&str]) -> String {
        printed(&payferry().args(args).args(self.home.args()).output().unwrap())
    }

    /// Sends a request with the PSP's key; returns status and body.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        self.psp().call(method, path, body.unwrap_or_default()).await
    }

    /// Sends a request that must succeed.
    pub async fn ok(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        self.psp().ok(method, path, body.unwrap_or_default()).await
    }

    /// Client with the PSP's key.
    pub fn psp(&self) -> Psp {
        Psp::new(self.text("api_url"), self.text("api_key"))
    }

    /// Sends a request to the operator's listener, with the token; returns status and body.
    pub async fn operator(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let operator = Psp::new(self.text("operator_url"), self.text("operator_token"));
        operator.call(method, path, body.unwrap_or_default()).await
    }

    /// Creates a merchant of the PSP.
    pub async fn merchant(&self) -> String {
        self.psp().merchant("m").await
    }

    /// Creates a payment of 10 USDC on Base.
    pub async fn payment(&self) -> String {
        let mut psp = self.psp();
        psp.merchant_id = psp.merchant("m").await;
        psp.payment("10", Token::Usdc, Chain::Base).await
    }

    /// Pays the due amount.
    pub async fn pay(&self, payment_id: &str) {
        self.ok(Method::POST, &format!("/sandbox/payments/{payment_id}/pay"), None).await;
    }

    /// Waits until the payment is settled; returns it.
    pub async fn until_settled(&self, payment_id: &str) -> Value {
        self.until(&format!("/payments/{payment_id}"), |payment| payment["status"] == "settled").await
    }

    /// Creates and pays a payment of 10 USDC on Base; returns it when it is settled.
    pub async fn settled_payment(&self) -> Value {
        let id = self.payment().await;
        self.pay(&id).await;
        self.until_settled(&id).await
    }

    /// Repeats the request until the answer is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let look = async || expect(self.ok(Method::GET, path, None).await, &wanted);
        eventually(format!("{path} is as wanted"), look).await
    }

    /// Sends SIGTERM and asserts that it ends successfully and in time.
    pub fn stop(self) {
        drop(self);
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The test itself may have ended it. The process of a failing test is killed.
        if self.process.ended().is_none() && !std::thread::panicking() {
            println!("stopped within {:?}", self.process.stop());
        }
    }
}
