//! `payferry load` as a user runs it: it passes right runs, and finds faults.

mod answers;
mod between;
mod clean;
mod faults;
mod progress;
mod reads;
mod refusals;
mod shortfall;
mod signals;
mod stall;
mod unanswered;
mod webhooks;

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::process::{Running, payferry};

/// Every behaviour of the mixture, often enough for a short run.
const MIX: &str = "exact=60,under=10,over=10,late=10,never=10";

/// Runs the command to its end on another thread: the sandbox of a test has its pipes on this one.
async fn run(args: Vec<String>) -> Output {
    let ran =
        tokio::task::spawn_blocking(move || payferry().arg("load").args(args).stdin(Stdio::null()).output().unwrap());
    ran.await.unwrap()
}

/// Returns the arguments for a running sandbox.
fn against(sandbox: &Running, further: &[&str]) -> Vec<String> {
    let named = ["--url", sandbox.text("api_url"), "--key", sandbox.text("api_key")];
    named.iter().chain(further).map(|argument| (*argument).to_owned()).collect()
}

/// Parses the printed report.
fn report(output: &Output) -> Value {
    let printed = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&printed)
        .unwrap_or_else(|error| panic!("{error}: {printed}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns the text on standard error.
fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
