//! What payments a second are compared with: a bare axum handler that stores two rows a payment in grouped commits.
//!
//! It has the same transport, the same database settings and the same promise (an answer means that it is on disk), and
//! nothing else: no key, no checks, no actors, no address, no event, one index.

use anyhow::Context;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use payferry_domain::PaymentId;
use payferry_entities::Database;
use sea_orm::{ConnectionTrait, DbBackend, Statement, Value as Bound};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Payments that one commit writes at most.
const GROUP_MAX: usize = 256;
/// Payments that wait to be written.
const QUEUED_MAX: usize = 4_096;

const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS bound_payments (
         id TEXT NOT NULL, merchant_id TEXT NOT NULL, amount TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (id)
     )",
    "CREATE TABLE IF NOT EXISTS bound_transitions (
         payment_id TEXT NOT NULL, version BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (payment_id, version)
     )",
];

#[derive(Deserialize)]
struct Asked {
    merchant_id: String,
    amount: String,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

struct Entry {
    id: String,
    asked: Asked,
    body: String,
    written: oneshot::Sender<()>,
}

/// Serves until the process is killed, and prints a line of JSON when it is ready.
pub async fn serve(database_url: &str) -> anyhow::Result<()> {
    let database = Database::open(database_url).await.context("the database cannot be opened")?;
    for table in TABLES {
        database.writer().execute_unprepared(table).await?;
    }
    let (queue, waiting) = mpsc::channel(QUEUED_MAX);
    let writing = tokio::spawn(write(database, waiting));
    let router = Router::new().route("/payments/initiate", post(initiate)).with_state(queue);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", json!({"api_url": format!("http://{}", listener.local_addr()?)}));
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        ended = writing => ended??,
    }
    Ok(())
}

async fn initiate(State(queue): State<mpsc::Sender<Entry>>, Json(asked): Json<Asked>) -> Response {
    let id = PaymentId::generate().to_string();
    let body = serde_json::to_string(&asked.rest).unwrap_or_default();
    let answer = json!({"payment_id": id, "status": "pending", "amount": asked.amount});
    let (written, done) = oneshot::channel();
    if queue.send(Entry { id, asked, body, written }).await.is_err() || done.await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn write(database: Database, mut waiting: mpsc::Receiver<Entry>) -> anyhow::Result<()> {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while waiting.recv_many(&mut group, GROUP_MAX).await > 0 {
        let payments = group.iter().flat_map(|entry| {
            let Entry { id, asked, body, .. } = entry;
            [id, &asked.merchant_id, &asked.amount, body].map(|text| Bound::from(text.clone()))
        });
        let payments = insert(database.backend(), "bound_payments", 4, payments.collect());
        let transitions = group.iter().flat_map(|Entry { id, body, .. }| {
            [Bound::from(id.clone()), Bound::from(1_i64), Bound::from(body.clone())]
        });
        let transitions = insert(database.backend(), "bound_transitions", 3, transitions.collect());
        let transaction = database.begin().await?;
        transaction.execute_raw(payments).await?;
        transaction.execute_raw(transitions).await?;
        transaction.commit().await?;
        for entry in group.drain(..) {
            let _ = entry.written.send(());
        }
    }
    Ok(())
}

fn insert(backend: DbBackend, table: &str, width: usize, values: Vec<Bound>) -> Statement {
    let row = |first: usize| {
        let places: Vec<String> = (first..first + width).map(|place| format!("${place}")).collect();
        format!("({})", places.join(", "))
    };
    let rows: Vec<String> = (1..=values.len()).step_by(width).map(row).collect();
    Statement::from_sql_and_values(backend, format!("INSERT INTO {table} VALUES {}", rows.join(", ")), values)
}
