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
mod customers;
mod faults;
mod injected;
mod knee;
mod modes;
mod outbound;
mod progress;
mod psps;
mod refusals;
mod shortfall;
mod signals;
mod stall;
mod thresholds;
mod through_proxy;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::process::{Running, complaint, payferry};

/// Every behaviour of the mixture, often enough for a short run.
const MIX: &str = "exact=60,under=10,over=10,late=10,never=10";

/// Makes the service deliver a refused webhook again soon.
const RETRY_SOON: (&str, &str) = ("PAYFERRY_WEBHOOKS__RETRY_DELAYS_MS", "[500, 1000, 2000]");

/// Runs the command with these words to its end.
async fn run(args: &str) -> Output {
    finish(load(args)).await
}

/// Makes the command with these words. Single quotes keep spaces within a word.
fn load(args: &str) -> Command {
    let parts = args.split('\'').enumerate();
    let parts = parts.map(|(part, text)| if part % 2 == 1 { text.replace(' ', "\u{a0}") } else { text.to_owned() });
    let (args, mut load): (String, _) = (parts.collect(), payferry());
    let words = args.split(|letter: char| letter.is_ascii_whitespace()).filter(|word| !word.is_empty());
    load.arg("load").args(words.map(|word| word.replace('\u{a0}', " ")));
    load
}

/// Runs a command on another thread: the sandbox of a test has its pipes on this one.
async fn finish(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output().unwrap()).await.unwrap()
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
