//! How long `reconcile` takes over many settled payments, beside what the chain's endpoint takes of it.
//!
//! One payment is settled by a real service, over its real chains. Its rows are then copied with other ids and wallets, balances
//! and all, and the PSP's vault is given on the chain what the copies say it holds: every balance is read over JSON-RPC from
//! a chain that runs the token's code, and everything fits.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use payferry_actors::chain::{ChainClient, ChainSpec};
use payferry_actors::clock::Clock;
use payferry_actors::reconcile::{Options, reconcile};
use payferry_actors::wallet::{Vaults, alloy_address};
use payferry_testkit::wire::{Amount, Chain, PspId, Token};
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, Statement};
use url::Url;

use super::life::Stage;
use super::table::{Goal, Line};
use super::world::World;
use payferry_testkit::psp::PaymentTerms;
use crate::sandbox::{database_file, known_spec};

/// Settled payments, and in a quick run.
const PAYMENTS: i64 = 100_000;
const PAYMENTS_QUICK: i64 = 500;
/// Copies that one transaction makes.
const STEP: i64 = 5_000;
/// What may come on top of the time that the endpoint takes, seconds.
const OWN_GOAL_SECS: f64 = 10.0;
const BLOCK_TIME: Duration = Duration::from_millis(200);
const CHAIN: Chain = Chain::Base;

/// The rows of one payment under other ids: `n` is the copy's number. Ids and wallets stay as long as they are.
const COPIES: [&str; 3] = [
    "INSERT INTO payments SELECT {columns} FROM payments, numbers WHERE payments.id = $1",
    "INSERT INTO payment_transitions SELECT {columns} FROM payment_transitions, numbers WHERE payment_id = $1",
    "INSERT INTO ledger_postings SELECT {columns} FROM ledger_postings, numbers WHERE subject = $1",
];

pub(super) async fn measure(world: &World, quick: bool) -> anyhow::Result<Vec<Line>> {
    let payments = if quick { PAYMENTS_QUICK } else { PAYMENTS };
    let stage = Stage::set(world, "reconcile", BLOCK_TIME, |_| {}).await?;
    let intent = Intent { chain: CHAIN, token: Token::Usdc, ..Intent::nth(0, Behaviour::Exact) };
    let id = stage.clone().pay(intent, 0).await.map_err(|error| anyhow::anyhow!("it was not paid: {error}"))?;
    stage.until_settled(1).await;
    let wrong = stage.audit(std::slice::from_ref(&id)).await?;
    ensure!(wrong.is_empty(), "{}", wrong.join(", "));
    let url = format!("sqlite://{}?mode=rw", database_file(&stage.setup.folder).display());
    let database = Database::open(&url).await?;
    let share = copy(&database, &id, payments - 1).await?;

    // What the copies say was settled.
    let psp_id: PspId = one(&database, "SELECT psp_id FROM payments LIMIT 1").await?.parse()?;
    let vault = Vaults::new(known_spec(CHAIN).contract).of_psp(psp_id);
    let owed = Amount(share * (payments - 1));
    stage.payers.pay(CHAIN, Token::Usdc, alloy_address(vault), owed).await?;
    let chains: Vec<(ChainSpec, ChainClient)> = Chain::ALL
        .into_iter()
        .map(|chain| {
            let rpc = Url::parse(&format!("{}/sandbox/rpc/{chain}", stage.api_url()))?;
            anyhow::Ok((known_spec(chain), ChainClient::http(rpc)?))
        })
        .collect::<anyhow::Result<_>>()?;
    // Until that is mined, vault and ledger differ.
    tokio::time::sleep(BLOCK_TIME * 5).await;
    let since = Instant::now();
    let options = Options { pause: Duration::from_millis(500), ..Options::default() };
    let report = reconcile(&database, &chains, &Clock::default(), options, |_| {}).await?;
    let total = since.elapsed().as_secs_f64();
    database.close().await?;
    #[allow(clippy::cast_precision_loss, reason = "milliseconds are far below 2^52")]
    let chains_secs = report.chains_ms as f64 / 1_000.0;
    let mut wrong = Vec::new();
    if !report.is_clean() || report.payments != u64::try_from(payments)? {
        wrong.push(format!(
            "{} payments, {} differences, unread {:?}",
            report.payments, report.differences_total, report.unread
        ));
    }
    let line = Line::new(
        format!("reconcile over {payments} settled payments, less the endpoint's time"),
        total - chains_secs,
        "s",
        Goal::AtMost(OWN_GOAL_SECS),
    )
    .beside("the endpoint's own time in the same run, which nothing here can shorten", chains_secs)
    .note(format!(
        "{total:.1} s in all, {chains_secs:.1} s of them waiting for the endpoint: {} balances over JSON-RPC",
        report.balances
    ))
    .note("SQLite, beside the running service; the endpoint is the sandbox's devchain over HTTP")
    .wrong(wrong);
    Ok(vec![line])
}

/// Copies a settled payment so many times; answers the PSP's share of each.
async fn copy(database: &Database, id: &str, copies: i64) -> anyhow::Result<i64> {
    let share = "SELECT CAST(amount AS TEXT) FROM ledger_postings WHERE kind = 'settled'";
    let share: i64 = one(database, share).await?.parse()?;
    let mut statements = Vec::new();
    for (sql, table) in COPIES.into_iter().zip(["payments", "payment_transitions", "ledger_postings"]) {
        statements.push(sql.replace("{columns}", &columns(database, table).await?));
    }
    for from in (0..copies).step_by(usize::try_from(STEP)?) {
        let to = (from + STEP).min(copies);
        let transaction = database.begin().await?;
        for sql in &statements {
            let numbers = format!(
                "WITH RECURSIVE numbers(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {to}) "
            );
            // SQLite takes it before the INSERT.
            let statement = Statement::from_sql_and_values(database.backend(), numbers + sql.as_str(), [id.into()]);
            transaction.execute_raw(statement).await?;
        }
        transaction.commit().await?;
    }
    let sql = format!("UPDATE balances SET available = available + {} WHERE available > 0", share * copies);
    database.writer().execute_unprepared(&sql).await?;
    Ok(share)
}

/// A table's columns as the copies have them.
async fn columns(database: &Database, table: &str) -> anyhow::Result<String> {
    let statement =
        Statement::from_string(database.backend(), format!("SELECT name FROM pragma_table_info('{table}')"));
    let rows = database.reader().query_all_raw(statement).await?;
    let names = rows.iter().map(|row| row.try_get_by_index::<String>(0)).collect::<Result<Vec<_>, _>>()?;
    let expression = |name: &String| match (table, name.as_str()) {
        // Ids are 26 letters after their prefix: the last eight become the copy's number.
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

async fn one(database: &Database, sql: &str) -> anyhow::Result<String> {
    let row = database.reader().query_one_raw(Statement::from_string(database.backend(), sql)).await?;
    Ok(row.context("there is no row")?.try_get_by_index(0)?)
}
