//! Many settled payments for the rows `reconcile` and `replay`: a real service settles one payment on its chain, and the bench
//! copies its rows with other ids and wallets.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use payferry_entities::Database;
use payferry_testkit::audit::behaviour::{Behaviour, Intent};
use payferry_testkit::service::ChildSandboxOptions;
use payferry_testkit::wire::{Chain, Token};
use sea_orm::{ConnectionTrait, Statement};

use super::env::Env;
use super::lifecycle::Fixture;

/// Copies of one transaction.
const STEP: i64 = 5_000;
pub(super) const BLOCK_TIME: Duration = Duration::from_millis(200);
pub(super) const CHAIN: Chain = Chain::Base;

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

/// A running service with one settled payment.
pub(super) struct Settled {
    pub(super) fixture: Arc<Fixture>,
    id: String,
}

/// Starts a service, and has it settle one payment.
pub(super) async fn one_settled(mut options: ChildSandboxOptions) -> anyhow::Result<Settled> {
    options.block_time = Some(BLOCK_TIME);
    let fixture = Fixture::start(options).await?;
    let intent = Intent { chain: CHAIN, token: Token::Usdc, ..Intent::nth(0, Behaviour::Exact) };
    let id = fixture.clone().pay(intent).await.map_err(|error| anyhow!("the payment was not paid: {error}"))?;
    fixture.until_settled().await;
    let wrong = fixture.audit().await?;
    ensure!(wrong.is_empty(), "{}", wrong.join(", "));
    Ok(Settled { fixture, id })
}

/// Copies the settled payment `copies` times. Returns the PSP's share of each copy.
pub(super) async fn copy(settled: &Settled, copies: i64) -> anyhow::Result<i64> {
    let database = Database::open(&Env::database_url(&settled.fixture.options)?).await?;
    let share = "SELECT CAST(amount AS TEXT) FROM ledger_postings WHERE kind = 'settled'";
    let row = database.reader().query_one_raw(Statement::from_string(database.backend(), share)).await?;
    let share: i64 = row.context("there is no settled posting")?.try_get_by_index::<String>(0)?.parse()?;
    let mut statements = Vec::new();
    for (table, sql) in COPIES {
        statements.push(sql.replace("{columns}", &columns(&database, table).await?));
    }
    for from in (0..copies).step_by(usize::try_from(STEP)?) {
        let to = (from + STEP).min(copies);
        let transaction = database.begin().await?;
        for sql in &statements {
            // SQLite accepts WITH before INSERT.
            let numbers = format!(
                "WITH RECURSIVE numbers(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {to}) "
            );
            let statement = Statement::from_sql_and_values(
                database.backend(),
                numbers + sql.as_str(),
                [settled.id.as_str().into()],
            );
            transaction.execute_raw(statement).await?;
        }
        transaction.commit().await?;
    }
    let sql = format!("UPDATE balances SET available = available + {} WHERE available > 0", share * copies);
    database.writer().execute_unprepared(&sql).await?;
    database.close().await?;
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
        // The id without its prefix is also the id of the settlement.
        (_, "state" | "events" | "command") => {
            let id = if table == "payments" { "id" } else { "payment_id" };
            format!("replace({name}, substr({id}, 5), substr({id}, 5, 18) || printf('%08d', n))")
        }
        _ => name.clone(),
    };
    Ok(names.iter().map(expression).collect::<Vec<_>>().join(", "))
}
