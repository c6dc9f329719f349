//! Tests of the real binary from the command line.

mod admin;
mod audit;
mod backup;
mod bench;
mod chains;
mod config;
pub(crate) mod controls;
pub(crate) mod customers;
mod demo;
mod drain;
mod env;
mod failover;
mod health;
mod load_payers;
mod manual;
mod nodes;
mod operator;
mod readiness;
mod reconcile;
mod remote_signer;
mod replay;
mod sandbox;
mod serve;
mod statement;
mod top;
mod two_services;

use std::process::Output;

use crate::process::{Home, Running, complaint, payferry, printed};

/// Runs the binary to its end with these arguments.
fn run(args: &[&str]) -> Output {
    payferry().args(args).output().unwrap()
}
