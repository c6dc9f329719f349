//! Row `replay`: transitions that `payferry replay --all` decides and applies again per second of CPU time, in a database with
//! copies of a settled payment.

use anyhow::Context;
use payferry_testkit::service::program;
use procfs::process::Process;
use serde::Deserialize;

use super::copies::{copy, one_settled};
use super::env::Env;
use super::table::{Goal, TableLine};

/// Stored histories, and in a quick run.
const HISTORIES: i64 = 1_000_000;
const HISTORIES_QUICK: i64 = 500;
const GOAL_PER_SECOND: f64 = 50_000.0;

/// The last line of the command.
#[derive(Debug, Deserialize)]
struct End {
    payments: i64,
    transitions: u32,
    decided: u32,
    differences: u64,
}

pub(super) async fn measure(env: &Env, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let histories = if quick { HISTORIES_QUICK } else { HISTORIES };
    let settled = one_settled(env.options("replay")?).await?;
    copy(&settled, histories - 1).await?;
    let mut command = program(None, true)?;
    command.args(["replay", "--all", "--json", "--data-dir"]);
    command.arg(settled.fixture.options.folder.as_deref().context("the sandbox has no folder")?);
    let before = children_secs()?;
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    let cpu_secs = children_secs()? - before;
    let log = String::from_utf8_lossy(&output.stderr);
    let last = output.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let end: End = serde_json::from_slice(last)
        .with_context(|| format!("`replay` ended with {} and no count: {log}", output.status))?;
    let End { payments, transitions, decided, differences } = end;
    let mut wrong = Vec::new();
    if payments != histories || differences > 0 {
        wrong.push(format!("{payments} payments, {differences} differences"));
    }
    let rate = f64::from(transitions) / cpu_secs.max(f64::EPSILON);
    let line = TableLine::new(
        format!("transitions replayed per CPU second, {histories} histories"),
        rate,
        "/s",
        Goal::AtLeast(GOAL_PER_SECOND),
    )
    .note(format!("{transitions} transitions in {cpu_secs:.1} CPU s, {decided} of them decided again"))
    .note("a process of its own, SQLite, beside the running service")
    .wrong(wrong);
    Ok(vec![line])
}

/// CPU time of the children that have ended.
fn children_secs() -> anyhow::Result<f64> {
    let stat = Process::myself()?.stat()?;
    let ticks = u32::try_from(stat.cutime + stat.cstime)?;
    let per_second = u32::try_from(procfs::ticks_per_second())?;
    Ok(f64::from(ticks) / f64::from(per_second))
}
