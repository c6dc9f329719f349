//! Tests of the real binary from the command line.

mod admin;
mod bench;
mod config;
pub(crate) mod customers;
mod demo;
mod env;
mod operator;
mod readiness;
mod reconcile;
mod sandbox;
mod serve;
mod statement;

use std::process::Output;
use std::time::{Duration, Instant};

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::process::{Home, Running, payferry};

/// Timeout of an expected result; generous, because machines may be slow.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs the binary to its end with these arguments.
fn run(args: &[&str]) -> Output {
    payferry().args(args).output().unwrap()
}

/// Output of a successful run.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

/// Error output.
fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap().trim().to_owned()
}

impl Running {
    /// Sends a request with the PSP's key.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Response {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.text("api_url")));
        let request = request.bearer_auth(self.text("api_key"));
        let request = if let Some(body) = body { request.json(&body) } else { request };
        request.send().await.unwrap()
    }

    /// Sends a request; returns status and body.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let response = self.send(method, path, body).await;
        (response.status(), response.json().await.unwrap())
    }

    /// Sends a request that must succeed.
    pub(crate) async fn ok(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer:#}");
        answer
    }

    /// Creates a merchant of the PSP.
    pub(crate) async fn merchant(&self) -> String {
        let merchant = json!({"external_id": "m", "name": "M", "email": "m@example.com", "business_id": "B"});
        let synced = self.ok(Method::POST, "/merchants/sync", Some(json!({"merchants": [merchant]}))).await;
        synced["merchants"][0]["merchant_id"].as_str().unwrap().to_owned()
    }

    /// Creates a payment of 10 USDC on Base.
    pub(crate) async fn payment(&self, merchant_id: &str) -> String {
        let body = json!({"merchant_id": merchant_id, "amount": "10", "currency": "USDC", "chain": "base"});
        let made = self.ok(Method::POST, "/payments/initiate", Some(body)).await;
        made["payment_id"].as_str().unwrap().to_owned()
    }

    /// Repeats the request until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let answer = self.ok(Method::GET, path, None).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(since.elapsed() < PATIENCE, "not as wanted in time: {answer:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
