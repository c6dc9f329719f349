//! Row `reconcile`: duration of `payferry reconcile` over many settled payments, without the time of the chain's
//! endpoint.
//!
//! The sum of the copies of a settled payment is sent to the PSP's vault on the chain. `reconcile` reads every balance over
//! JSON-RPC from a chain that runs the token's code, and everything matches.

use std::time::Instant;

use anyhow::Context;
use payferry_testkit::service::program;
use payferry_testkit::wire::{Amount, Token};
use serde::Deserialize;
use serde_json::Value;

use super::copies::{BLOCK_TIME, CHAIN, copy, one_settled};
use super::env::Env;
use super::table::{Goal, TableLine};

/// Settled payments, and in a quick run.
const PAYMENTS: i64 = 100_000;
const PAYMENTS_QUICK: i64 = 500;
/// Goal of the time without the endpoint's, in seconds.
const OWN_GOAL_SECS: f64 = 10.0;

#[derive(Debug, Deserialize)]
struct Report {
    is_clean: bool,
    payments: u64,
    balances: u64,
    differences_total: u64,
    unread: Value,
    chains_ms: u32,
}

pub(super) async fn measure(env: &Env, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let payments = if quick { PAYMENTS_QUICK } else { PAYMENTS };
    let settled = one_settled(env.options("reconcile")?).await?;
    let share = copy(&settled, payments - 1).await?;
    let fixture = &settled.fixture;

    // Vault and ledger differ until the transfer is mined.
    let vault = fixture.session.sandbox.chains.get(&CHAIN).context("the sandbox has no such chain")?.psp_vault;
    fixture.session.payers.pay(CHAIN, Token::Usdc, vault, Amount(share * (payments - 1))).await?;
    tokio::time::sleep(BLOCK_TIME * 5).await;
    let mut command = program(None, true)?;
    command.args(["reconcile", "--json", "--pause-secs", "1", "--data-dir"]);
    command.arg(fixture.options.folder.as_deref().context("the sandbox has no folder")?);
    let since = Instant::now();
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    let total = since.elapsed().as_secs_f64();
    let log = String::from_utf8_lossy(&output.stderr);
    let report: Report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("`reconcile` ended with {} and no report: {log}", output.status))?;
    let chains_secs = f64::from(report.chains_ms) / 1_000.0;
    let mut wrong = Vec::new();
    if !report.is_clean || report.payments != u64::try_from(payments)? {
        wrong.push(format!(
            "{} payments, {} differences, unread {}",
            report.payments, report.differences_total, report.unread
        ));
    }
    let line = TableLine::new(
        format!("reconcile over {payments} settled payments, less the endpoint's time"),
        total - chains_secs,
        "s",
        Goal::AtMost(OWN_GOAL_SECS),
    )
    .beside("the endpoint's own time in the same run", chains_secs)
    .note(format!(
        "{total:.1} s in all, {chains_secs:.1} s of them waiting for the endpoint: {} balances over JSON-RPC",
        report.balances
    ))
    .note("a process of its own, SQLite, beside the running service; the endpoint is the sandbox's devchain over HTTP")
    .wrong(wrong);
    Ok(vec![line])
}
