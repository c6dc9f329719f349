//! Row `reconcile`: duration of `payferry reconcile` over many settled payments, without the time of the chain's
//! endpoint.
//!
//! A real service settles one payment on its chain. The bench then copies the rows of the payment with other ids and
//! wallets, raises the balances, and sends the sum of the copies to the PSP's vault on the chain. `reconcile` reads
//! every balance over JSON-RPC from a chain that runs the token's code, and everything matches.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use payferry_entities::Database;
use payferry_testkit::audit::behaviour::{Behaviour, Intent};
use payferry_testkit::service::program;
use payferry_testkit::wire::{Amount, Chain, Token};
use sea_orm::{ConnectionTrait, Statement};
use serde::Deserialize;
use serde_json::Value;

use super::env::Env;
use super::lifecycle::Fixture;
use super::table::{Goal, TableLine};

/// Settled payments, and in a quick run.
const PAYMENTS: i64 = 100_000;
const PAYMENTS_QUICK: i64 = 500;
/// Copies of one transaction.
const STEP: i64 = 5_000;
/// Goal of the time without the endpoint's, in seconds.
const OWN_GOAL_SECS: f64 = 10.0;
const BLOCK_TIME: Duration = Duration::from_millis(200);
const CHAIN: Chain = Chain::Base;

/// Copies the rows of one payment with other ids. `n` is the number of the copy. Ids and wallets keep their length.
const COPIES: [(&str, &str); 3] = [
    ("payments", "INSERT INTO payments SELECT {columns} FROM payments, numbers WHERE payments.id = $1"),
    (
        "payment_transitions",
        "INSERT INTO payment_transitions SELECT {columns} FROM payment_transitions, numbers WHERE payment_id = $1",
    ),
    (
        "ledger_postings",
        "INSERT INTO ledger_postings SELECT {columns} FROM ledger_postings, numbers WHERE subject = $1",
    ),
];

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
    let mut options = env.options("reconcile")?;
    options.block_time = Some(BLOCK_TIME);
    let fixture = Fixture::start(options).await?;
    let intent = Intent { chain: CHAIN, token: Token::Usdc, ..Intent::nth(0, Behaviour::Exact) };
    let id = fixture.clone().pay(intent).await.map_err(|error| anyhow!("the payment was not paid: {error}"))?;
    fixture.until_settled().await;
    let wrong = fixture.audit().await?;
    ensure!(wrong.is_empty(), "{}", wrong.join(", "));
    let database = Database::open(&Env::database_url(&fixture.options)?).await?;
    let share = copy(&database, &id, payments - 1).await?;
    database.close().await?;

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

/// Copies a settled payment `copies` times. Returns the PSP's share of each copy.
async fn copy(database: &Database, id: &str, copies: i64) -> anyhow::Result<i64> {
    let share = "SELECT CAST(amount AS TEXT) FROM ledger_postings WHERE kind = 'settled'";
    let row = database.reader().query_one_raw(Statement::from_string(database.backend(), share)).await?;
    let share: i64 = row.context("there is no settled posting")?.try_get_by_index::<String>(0)?.parse()?;
    let mut statements = Vec::new();
    for (table, sql) in COPIES {
        statements.push(sql.replace("{columns}", &columns(database, table).await?));
    }
    for from in (0..copies).step_by(usize::try_from(STEP)?) {
        let to = (from + STEP).min(copies);
        let transaction = database.begin().await?;
        for sql in &statements {
            // SQLite accepts WITH before INSERT.
            let numbers = format!(
                "WITH RECURSIVE numbers(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {to}) "
            );
            let statement = Statement::from_sql_and_values(database.backend(), numbers + sql.as_str(), [id.into()]);
            transaction.execute_raw(statement).await?;
        }
        transaction.commit().await?;
    }
    let sql = format!("UPDATE balances SET available = available + {} WHERE available > 0", share * copies);
    database.writer().execute_unprepared(&sql).await?;
    Ok(share)
}

async fn columns(database: &Database, table: &str) -> anyhow::Result<String> {
    let statement =
        Statement::from_string(database.backend(), format!("SELECT name FROM pragma_table_info('{table}')"));
    let rows = database.reader().query_all_raw(statement).await?;
    let names = rows.iter().map(|row| row.try_get_by_index::<String>(0)).collect::<Result<Vec<_>, _>>()?;
    let expression = |name: &String| match (table, name.as_str()) {
        // Ids have 26 characters after their prefix. The last eight become the number of the copy.
        ("payments", "id") | (_, "payment_id" | "subject") => {
            format!("substr({name}, 1, length({name}) - 8) || printf('%08d', n)")
        }
        ("payments", "wallet") => "'0x' || printf('%040x', n + 1000000)".to_owned(),
        ("payments", "link_token") => "link_token || n".to_owned(),
        ("ledger_postings", "position") => "NULL".to_owned(),
        _ => name.clone(),
    };
    Ok(names.iter().map(expression).collect::<Vec<_>>().join(", "))
}
