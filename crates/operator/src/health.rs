//! `/healthz`, `/readyz` and `/metrics`: for machines, without the token.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use payferry_actors::System;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Operator;
use crate::chains::{self, ChainHealth, ChainState};
use crate::query::answers;

/// Whether payments can be taken, and every part that this depends on.
#[derive(Debug, Clone, Serialize)]
pub struct Readiness {
    /// All of what follows is well.
    pub ready: bool,
    /// The database.
    pub database: DatabaseReadiness,
    /// The payments.
    pub payments: PaymentsReadiness,
    /// The chains.
    pub chains: ChainsReadiness,
}

/// Whether the database does its work.
#[derive(Debug, Clone, Serialize)]
pub struct DatabaseReadiness {
    /// Both of these.
    pub ok: bool,
    /// It answers.
    pub reads: bool,
    /// It takes what is written, as far as is known.
    pub writes: bool,
}

/// Whether live payments were taken up.
#[derive(Debug, Clone, Serialize)]
pub struct PaymentsReadiness {
    /// Every shard runs and has read its live payments.
    pub ok: bool,
}

/// Whether there is a chain to be paid on.
#[derive(Debug, Clone, Serialize)]
pub struct ChainsReadiness {
    /// At least one is usable: `best` finds it, and the others are refused by name until they are back.
    pub ok: bool,
    /// Chains that are read and not stale.
    pub usable: usize,
    /// Each.
    pub each: Vec<ChainHealth>,
}

/// The process runs.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// It can take payments; if not, what is in the way.
pub(super) async fn readyz(State(operator): State<Operator>) -> (StatusCode, Json<Readiness>) {
    let readiness = readiness(&operator.system).await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Whether payments can be taken.
pub async fn readiness(system: &System) -> Readiness {
    let reads = answers(system).await.is_ok();
    let writes = system.is_writing();
    let database = DatabaseReadiness { ok: reads && writes, reads, writes };
    let payments = PaymentsReadiness { ok: system.is_ready() };
    let each = chains::health(system);
    let usable = each.iter().filter(|chain| chain.state == ChainState::Ok).count();
    let chains = ChainsReadiness { ok: usable > 0, usable, each };
    Readiness { ready: database.ok && payments.ok && chains.ok, database, payments, chains }
}

/// All metrics of the process, in Prometheus' text format.
pub(super) async fn metrics(State(operator): State<Operator>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (operator.metrics)())
}
