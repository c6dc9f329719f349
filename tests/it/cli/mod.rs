//! The real binary, run as a user runs it.

mod admin;
mod config;
mod demo;
mod sandbox;
mod world;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// What SIGTERM promises.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long something expected may take; generous, since machines are slow and noisy.
const PATIENCE: Duration = Duration::from_mins(1);

/// The binary, without whatever the test's own environment configures.
fn payferry() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payferry"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command
}

/// Runs it to its end with these arguments.
fn run(args: &[&str]) -> Output {
    payferry().args(args).output().unwrap()
}

/// What it printed, after success.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

/// What it complained of.
fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap().trim().to_owned()
}

/// A sandbox in a process of its own.
struct Running {
    child: Child,
    ready: Value,
}

impl Running {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// With these variables in its environment.
    fn start_with(folder: &Path, env: &[(&str, &str)]) -> Self {
        let mut child = payferry()
            .envs(env.iter().copied())
            .args(["sandbox", "--json", "--block-time-ms", "100"])
            .args(["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, ready }
    }

    fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    /// A request with the PSP's key.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.text("api_url")));
        let request = request.bearer_auth(self.text("api_key"));
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let response = request.send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    /// A request that must succeed.
    async fn ok(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer:#}");
        answer
    }

    /// A merchant of the PSP.
    async fn merchant(&self) -> String {
        let merchant = json!({"external_id": "m", "name": "M", "email": "m@example.com", "business_id": "B"});
        let synced = self.ok(Method::POST, "/merchants/sync", Some(json!({"merchants": [merchant]}))).await;
        synced["merchants"][0]["merchant_id"].as_str().unwrap().to_owned()
    }

    /// A payment of 10 USDC on Base.
    async fn payment(&self, merchant_id: &str) -> String {
        let body = json!({"merchant_id": merchant_id, "amount": "10", "currency": "USDC", "chain": "base"});
        let made = self.ok(Method::POST, "/payments/initiate", Some(body)).await;
        made["payment_id"].as_str().unwrap().to_owned()
    }

    /// Asks until the answer is as wanted.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let answer = self.ok(Method::GET, path, None).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(since.elapsed() < PATIENCE, "never as wanted: {answer:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// SIGTERM; it must end by itself, well and in time.
    fn stop(mut self) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "ended with {status}");
                return;
            }
            assert!(since.elapsed() < STOP_PATIENCE, "did not stop in time");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed in between leaves no process behind; one that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
