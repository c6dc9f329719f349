//! Bound of complete payments: a pipeline in one task. It repeats the work that a service did for its payments: it makes
//! the same rows durable, signs the same transactions, and posts the same webhooks, signed, to the same receiver over
//! HTTP.
//!
//! Deliberately absent: actors, initiations over HTTP, and the chains. Each row is written once, in its last state.

use std::ops::Range;
use std::time::Duration;

use alloy::consensus::{TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::Bytes;
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt};
use payferry_devchain::DevWallet;
use payferry_entities::{Database, query_all};
use payferry_testkit::client::Client;
use payferry_testkit::receiver::Receiver;
use payferry_testkit::service::CALL_DEADLINE;
use payferry_testkit::signature::signed_request;
use sea_orm::{ConnectionTrait, QueryResult, Value};
use tokio::time::Instant;
use url::Url;

use super::bound::insert;
use super::drive::number;
use super::env::Env;
use super::webhooks::CONNECTIONS_BOUND;

/// Largest number of payments whose work is repeated.
const PAYMENTS_MAX: usize = 5_000;
/// Largest number of payments in one commit.
const GROUP_MAX: usize = 256;
/// Largest number of values in one statement: a little less than the limit of SQLite.
const VALUES_MAX: usize = 32_000;

/// Tables and their indexes, in the order in which they were made. Full-text indexes contain no payments.
const SCHEMA: &str = "SELECT made.type, made.name, made.sql FROM sqlite_master AS made
    JOIN pragma_table_list AS listed ON listed.name = made.tbl_name AND listed.schema = 'main' AND listed.type = 'table'
    WHERE made.type IN ('table', 'index') AND made.sql IS NOT NULL AND made.name NOT LIKE 'sqlite_%'
    ORDER BY made.rowid";
/// Webhooks, in the order of their events.
const WEBHOOKS: &str = "SELECT events.id, events.payload FROM deliveries JOIN events ON events.id = deliveries.event_id
    ORDER BY deliveries.position";

/// Rows of one table.
struct Table {
    name: String,
    columns: usize,
    rows: Vec<Vec<Value>>,
}

/// Work of the pipeline.
pub(super) struct Pipeline {
    payments: usize,
    schema: Vec<String>,
    tables: Vec<Table>,
    transactions: Vec<TxEip1559>,
    /// Ids and bodies.
    webhooks: Vec<(String, String)>,
}

/// Work that was done, and its time.
pub(super) struct Done {
    payments: usize,
    rows: usize,
    signed: usize,
    webhooks: usize,
    took: Duration,
}

impl Done {
    /// Returns the payments per second.
    pub(super) fn per_sec(&self) -> f64 {
        number(self.payments) / self.took.as_secs_f64()
    }

    pub(super) fn note(&self) -> String {
        let Self { payments, rows, signed, webhooks, took } = self;
        format!(
            "the bare pipeline: {payments} payments in {:.2} s, up to {GROUP_MAX} in a commit; {rows} rows, {signed} signed \
             transactions, {webhooks} webhooks",
            took.as_secs_f64(),
        )
    }
}

impl Pipeline {
    /// Reads the work from the database of a service that has ended.
    pub(super) async fn read(url: &str) -> anyhow::Result<Self> {
        let database = Database::open(url).await?;
        let read = Self::read_all(&database).await;
        database.close().await?;
        read
    }

    async fn read_all(database: &Database) -> anyhow::Result<Self> {
        let all: i64 = query_all(database.reader(), "SELECT count(*) FROM payments", [])
            .await?
            .first()
            .context("the payments were not counted")?
            .try_get_by_index(0)?;
        let all = usize::try_from(all)?;
        let payments = all.min(PAYMENTS_MAX);
        ensure!(payments > 0, "the service has no payments");
        // The same share of each table.
        let first = async |select: &str, table: &str| {
            let count = format!("SELECT (count(*) * {payments} + {all} - 1) / {all} FROM {table}");
            query_all(database.reader(), &format!("{select} LIMIT ({count})"), []).await
        };
        let (mut schema, mut tables) = (Vec::new(), Vec::new());
        for row in query_all(database.reader(), SCHEMA, []).await? {
            schema.push(row.try_get_by_index(2)?);
            if row.try_get_by_index::<String>(0)? == "table" {
                let name: String = row.try_get_by_index(1)?;
                let rows = first(&format!("SELECT * FROM {name} ORDER BY rowid"), &name).await?;
                tables.push(Table::of(database, name, &rows).await?);
            }
        }
        let rows = first("SELECT raw FROM chain_tx_attempts ORDER BY rowid", "chain_tx_attempts").await?;
        let transactions = rows.iter().map(transaction).collect::<anyhow::Result<_>>()?;
        let webhook = |row: &QueryResult| anyhow::Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
        let rows = first(WEBHOOKS, "deliveries").await?;
        let webhooks = rows.iter().map(webhook).collect::<anyhow::Result<_>>()?;
        Ok(Self { payments, schema, tables, transactions, webhooks })
    }

    /// Repeats the work, one group of payments after the other.
    pub(super) async fn run(&self, env: &Env, receiver: &Receiver) -> anyhow::Result<Done> {
        let url = format!("sqlite://{}?mode=rwc", env.folder("bare")?.join("bare.db").display());
        let database = Database::open(&url).await?;
        // Groups contain an equal share of each table, not the rows of the same payments.
        database.writer().execute_unprepared("PRAGMA foreign_keys = OFF").await?;
        for statement in &self.schema {
            database.writer().execute_unprepared(statement).await?;
        }
        let (secret, path) = (receiver.secret().context("the receiver has no secret")?, Url::parse(receiver.url())?);
        let client = Client::new(receiver.url(), CONNECTIONS_BOUND, CALL_DEADLINE)?;
        let signer = DevWallet::from_seed("bare pipeline");
        let post = async |(id, body): &(String, String)| {
            let request = signed_request(&secret, path.path(), id, chrono::Utc::now().timestamp(), body)?;
            let response = client.call(request).await?;
            ensure!(response.status.is_success(), "the receiver answered {}", response.status);
            Ok(())
        };

        let (since, mut rows, mut signed) = (Instant::now(), 0, 0);
        let groups = self.payments.div_ceil(GROUP_MAX);
        for group in 0..groups {
            for transaction in &self.transactions[part(self.transactions.len(), group, groups)] {
                let (raw, _) = signer.sign(transaction.clone());
                signed += usize::from(!raw.is_empty());
            }
            let transaction = database.begin().await?;
            for table in &self.tables {
                let some = &table.rows[part(table.rows.len(), group, groups)];
                for some in some.chunks(VALUES_MAX / table.columns) {
                    let values = some.iter().flatten().cloned().collect();
                    let statement = insert(database.backend(), &table.name, table.columns, values);
                    rows += usize::try_from(transaction.execute_raw(statement).await?.rows_affected())?;
                }
            }
            transaction.commit().await?;
            let webhooks = &self.webhooks[part(self.webhooks.len(), group, groups)];
            futures::stream::iter(webhooks).map(&post).buffer_unordered(CONNECTIONS_BOUND).try_collect::<()>().await?;
        }
        let took = since.elapsed();
        database.close().await?;
        Ok(Done { payments: self.payments, rows, signed, webhooks: self.webhooks.len(), took })
    }
}

impl Table {
    async fn of(database: &Database, name: String, rows: &[QueryResult]) -> anyhow::Result<Self> {
        let columns = format!("SELECT type FROM pragma_table_info('{name}') ORDER BY cid");
        let columns = query_all(database.reader(), &columns, []).await?;
        let types = columns.iter().map(|row| row.try_get_by_index::<String>(0)).collect::<Result<Vec<_>, _>>()?;
        let values = |row: &QueryResult| types.iter().enumerate().map(|(place, of)| value(row, place, of)).collect();
        let rows = rows.iter().map(values).collect::<anyhow::Result<_>>()?;
        Ok(Self { name, columns: types.len(), rows })
    }
}

/// Returns the value of a column with this declared type.
fn value(row: &QueryResult, place: usize, declared: &str) -> anyhow::Result<Value> {
    Ok(match declared {
        "BIGINT" | "INTEGER" => row.try_get_by_index::<Option<i64>>(place)?.into(),
        "BOOLEAN" => row.try_get_by_index::<Option<bool>>(place)?.into(),
        "BLOB" => row.try_get_by_index::<Option<Vec<u8>>>(place)?.into(),
        _ => row.try_get_by_index::<Option<String>>(place)?.into(),
    })
}

/// Decodes a signed transaction. Returns it without its signature.
fn transaction(row: &QueryResult) -> anyhow::Result<TxEip1559> {
    let raw: Bytes = row.try_get_by_index::<String>(0)?.parse()?;
    let envelope = TxEnvelope::decode_2718(&mut raw.as_ref())?;
    Ok(envelope.as_eip1559().context("a transaction is not of type 2")?.tx().clone())
}

/// Returns the part of `len` items that belongs to a group.
fn part(len: usize, group: usize, groups: usize) -> Range<usize> {
    len * group / groups..len * (group + 1) / groups
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Statements that make the tables of a service with 300 payments, reduced to a few columns.
    const SERVICE: &str = "
        CREATE TABLE payments (id TEXT NOT NULL PRIMARY KEY, live BOOLEAN NOT NULL, amount BIGINT, note TEXT);
        CREATE INDEX payments_live ON payments (id) WHERE live;
        CREATE TABLE events (position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, payload TEXT NOT NULL);
        CREATE TABLE deliveries (event_id TEXT NOT NULL, position BIGINT NOT NULL);
        CREATE TABLE chain_tx_attempts (raw TEXT NOT NULL);
        CREATE VIRTUAL TABLE customer_search USING fts5 (email);
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 300)
            INSERT INTO payments SELECT 'pay_' || n, n % 2, iif(n > 9, n, NULL), NULL FROM n;
        INSERT INTO events (id, payload) SELECT 'evt_' || id, '{}' FROM payments;
        INSERT INTO deliveries SELECT id, position FROM events";

    #[tokio::test]
    async fn repeats_rows_signatures_and_webhooks() {
        let env = Env::make(None).unwrap();
        let url = format!("sqlite://{}?mode=rwc", env.folder("service").unwrap().join("payferry.db").display());
        let service = Database::open(&url).await.unwrap();
        service.writer().execute_unprepared(SERVICE).await.unwrap();
        let (raw, _) = DevWallet::from_seed("settler").sign(TxEip1559 { gas_limit: 21_000, ..TxEip1559::default() });
        let raw = format!("INSERT INTO chain_tx_attempts VALUES ('{raw}')");
        service.writer().execute_unprepared(&raw).await.unwrap();
        service.close().await.unwrap();

        let genuine = Arc::new(AtomicUsize::new(0));
        let receiver = Receiver::accepting({
            let genuine = Arc::clone(&genuine);
            move |webhook| {
                genuine.fetch_add(usize::from(webhook.verified.is_ok()), Ordering::Relaxed);
            }
        });
        let receiver = receiver.await.unwrap();
        receiver.verify_with("whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWo=");
        let done = Pipeline::read(&url).await.unwrap().run(&env, &receiver).await.unwrap();
        assert_eq!((done.payments, done.rows, done.signed, done.webhooks), (300, 901, 1, 300));
        assert_eq!(genuine.load(Ordering::Relaxed), 300);
        assert!(done.note().contains("300 payments in ") && done.per_sec() > 0.0, "{}", done.note());
    }

    #[test]
    fn groups_have_equal_parts_of_all_items() {
        for (len, groups) in [(1_000, 4), (7, 3), (2, 5), (0, 2)] {
            let parts: Vec<_> = (0..groups).map(|group| part(len, group, groups)).collect();
            let items: Vec<usize> = parts.iter().cloned().flatten().collect();
            assert_eq!(items, (0..len).collect::<Vec<_>>());
            assert!(parts.iter().all(|part| (len / groups..=len / groups + 1).contains(&part.len())), "{parts:?}");
        }
    }
}
