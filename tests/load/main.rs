//! `payferry load` as a user runs it: it passes right runs, and finds faults.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../it/shared.rs"]
#[macro_use]
mod shared;

#[allow(dead_code, reason = "it is for all tests, and these need a part of it")]
#[path = "../it/call.rs"]
mod call;
#[allow(dead_code, reason = "it is for all tests, and these need a part of it")]
#[path = "../it/conformance.rs"]
mod conformance;
#[allow(dead_code, reason = "it is for all tests, and these need a part of it")]
#[path = "../it/process.rs"]
mod process;

mod answers;
mod between;
mod clean;
mod faults;
mod knee;
mod progress;
mod refusals;
mod shortfall;
mod signals;
mod stall;
mod thresholds;
mod through_proxy;

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::process::{Running, complaint, payferry};

/// Every behaviour of the mixture, often enough for a short run.
const MIX: &str = "exact=60,under=10,over=10,late=10,never=10";

/// Runs the command with these words to its end on another thread: the sandbox of a test has its pipes on this one.
async fn run(args: &str) -> Output {
    let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    let ran =
        tokio::task::spawn_blocking(move || payferry().arg("load").args(args).stdin(Stdio::null()).output().unwrap());
    ran.await.unwrap()
}

/// Returns the arguments for a running sandbox.
fn against(sandbox: &Running, further: &str) -> String {
    format!("--url {} --key {} {further}", sandbox.text("api_url"), sandbox.text("api_key"))
}

/// Parses the printed report of a run with this exit code.
#[track_caller]
fn report(output: &Output, code: i32) -> Value {
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{}\n{printed}", complaint(output));
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}\n{}", complaint(output)))
}

/// Returns the figures of a stage.
fn stage<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == name).unwrap()
}

/// Returns the only finding.
#[track_caller]
fn only_finding(report: &Value) -> &Value {
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    &findings[0]
}
