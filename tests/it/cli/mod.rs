//! Tests of the real binary from the command line.

mod admin;
mod audit;
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

use crate::process::{Home, PATIENCE, Running, payferry};

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
