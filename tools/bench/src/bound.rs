//! Bound of the throughput: bare axum handlers that store two rows for each payment or customer in grouped commits, and
//! one that responds from memory.
//!
//! They have the transport, the database settings and the guarantee of the service (a response means that the rows are
//! on disk). They have no keys, checks, actors, addresses, events or encryption, and one index.

use std::process::Command;

use anyhow::Context;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use payferry_entities::Database;
use payferry_testkit::service::{Service, program};
use payferry_testkit::wire::{CustomerId, PaymentId};
use sea_orm::{ConnectionTrait, DbBackend, Statement, Value as Bound};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::env::Env;

/// Environment variable with the database URL of the bound.
pub const BOUND_DATABASE_URL: &str = "PAYFERRY_BENCH_BOUND_DATABASE_URL";
/// Largest number of payments or customers in one commit.
const GROUP_MAX: usize = 256;
/// Length of the write queue.
const QUEUED_MAX: usize = 4_096;
/// Largest response from memory, in bytes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS bound_things (
         id TEXT NOT NULL, of_whom TEXT NOT NULL, what TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (id)
     )",
    "CREATE TABLE IF NOT EXISTS bound_transitions (
         thing_id TEXT NOT NULL, version BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (thing_id, version)
     )",
];

#[derive(Deserialize)]
struct PaymentRequest {
    merchant_id: String,
    amount: String,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct CustomerRequest {
    email: String,
    country: String,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

struct Entry {
    id: String,
    /// Texts with a column of their own.
    keys: [String; 2],
    body: String,
    written: oneshot::Sender<()>,
}

/// Starts the bound with this database, or else with a new SQLite file.
pub(super) async fn start_bound(env: &Env, database_url: Option<String>) -> anyhow::Result<Service> {
    let file = env.folder("bound")?.join("bound.db");
    let database_url = database_url.unwrap_or_else(|| format!("sqlite://{}?mode=rwc", file.display()));
    Service::start(bound_command(&database_url)?, "bound").await
}

fn bound_command(database_url: &str) -> anyhow::Result<Command> {
    let mut command = program(None, true)?;
    // Not as an argument, which every user of the machine can read: it may contain a password.
    command.args(["bench", "--bound-server"]).env(BOUND_DATABASE_URL, database_url);
    Ok(command)
}

/// Serves until the process ends. Prints a line of JSON when it is ready.
pub async fn serve(database_url: &str) -> anyhow::Result<()> {
    let database = Database::open(database_url).await.context("the database cannot be opened")?;
    for table in TABLES {
        database.writer().execute_unprepared(table).await?;
    }
    let (queue, waiting) = mpsc::channel(QUEUED_MAX);
    let writing = tokio::spawn(write(database, waiting));
    let router = Router::new()
        .route("/payments/initiate", post(initiate))
        .route("/api/v1/customers", post(customer))
        .route("/bytes/{count}", get(bytes))
        .with_state(queue);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", json!({"api_url": format!("http://{}", listener.local_addr()?)}));
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        ended = writing => ended??,
    }
    Ok(())
}

async fn initiate(State(queue): State<mpsc::Sender<Entry>>, Json(asked): Json<PaymentRequest>) -> Response {
    let id = PaymentId::generate().to_string();
    let body = serde_json::to_string(&asked.rest).unwrap_or_default();
    let answer = json!({"payment_id": id, "status": "pending", "amount": asked.amount});
    store(&queue, id, [asked.merchant_id, asked.amount], body, answer).await
}

async fn customer(State(queue): State<mpsc::Sender<Entry>>, Json(asked): Json<CustomerRequest>) -> Response {
    let id = CustomerId::generate().to_string();
    let body = serde_json::to_string(&asked.rest).unwrap_or_default();
    let answer = json!({"customers": [{"id": id, "email": asked.email}]});
    store(&queue, id, [asked.email, asked.country], body, answer).await
}

/// Responds once the rows are on disk.
async fn store(queue: &mpsc::Sender<Entry>, id: String, keys: [String; 2], body: String, answer: Value) -> Response {
    let (written, done) = oneshot::channel();
    if queue.send(Entry { id, keys, body, written }).await.is_err() || done.await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn bytes(Path(count): Path<usize>) -> String {
    "x".repeat(count.min(ANSWER_BYTES_MAX))
}

async fn write(database: Database, mut waiting: mpsc::Receiver<Entry>) -> anyhow::Result<()> {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while waiting.recv_many(&mut group, GROUP_MAX).await > 0 {
        let things = group.iter().flat_map(|entry| {
            let Entry { id, keys: [of_whom, what], body, .. } = entry;
            [id, of_whom, what, body].map(|text| Bound::from(text.clone()))
        });
        let things = insert(database.backend(), "bound_things", 4, things.collect());
        let transitions = group.iter().flat_map(|Entry { id, body, .. }| {
            [Bound::from(id.clone()), Bound::from(1_i64), Bound::from(body.clone())]
        });
        let transitions = insert(database.backend(), "bound_transitions", 3, transitions.collect());
        let transaction = database.begin().await?;
        transaction.execute_raw(things).await?;
        transaction.execute_raw(transitions).await?;
        transaction.commit().await?;
        for entry in group.drain(..) {
            let _ = entry.written.send(());
        }
    }
    Ok(())
}

/// Returns a statement that inserts rows with `width` values each.
pub(super) fn insert(backend: DbBackend, table: &str, width: usize, values: Vec<Bound>) -> Statement {
    // Anonymous placeholders: SQLite searches the list for each numbered one.
    let place = |n: usize| if backend == DbBackend::Sqlite { "?".to_owned() } else { format!("${n}") };
    let row = |first: usize| {
        let places: Vec<String> = (first..first + width).map(place).collect();
        format!("({})", places.join(", "))
    };
    let rows: Vec<String> = (1..=values.len()).step_by(width).map(row).collect();
    Statement::from_sql_and_values(backend, format!("INSERT INTO {table} VALUES {}", rows.join(", ")), values)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_password_of_a_database_is_in_no_argument() {
        let url = "postgres://bench:secret@127.0.0.1:5432/bound";
        let command = bound_command(url).unwrap();
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["bench", "--bound-server"]);
        let named = command.get_envs().find(|(name, _)| *name == OsStr::new(BOUND_DATABASE_URL));
        assert_eq!(named.and_then(|(_, value)| value), Some(OsStr::new(url)));
    }
}
