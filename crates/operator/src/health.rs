//! `/healthz`, `/readyz` and `/metrics`: for machines, without a token.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use payferry_actors::System;
use payferry_httpkit::Draining;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::chains::{self, ChainHealth, ChainState};
use crate::query::answers;

/// Readiness for payments, with every component that it depends on.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Readiness {
    /// All components below are ok.
    pub ready: bool,
    pub node: NodeReadiness,
    pub database: DatabaseReadiness,
    pub payments: PaymentsReadiness,
    pub chains: ChainsReadiness,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NodeReadiness {
    /// The node is not draining, and its clock is right.
    pub ok: bool,
    /// The node stops soon. Until then it answers requests, but new ones should go to another node.
    pub draining: bool,
    /// Milliseconds by which the clock of this machine differs from the clocks of the database server and of another node, if
    /// it is too far off to take requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DatabaseReadiness {
    /// Reads and writes work.
    pub ok: bool,
    /// The database answers.
    pub reads: bool,
    /// The last known writes succeeded.
    pub writes: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PaymentsReadiness {
    /// Every shard runs and has read its live payments.
    pub ok: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChainsReadiness {
    /// At least one chain is usable: `best` selects it, and requests that name another chain are refused until it
    /// recovers.
    pub ok: bool,
    /// Number of chains that are read and not stale.
    pub usable: usize,
    /// State of each chain.
    pub each: Vec<ChainHealth>,
}

/// Liveness of the process.
#[derive(Serialize, ToSchema)]
pub struct Liveness {
    /// Always `ok`.
    status: &'static str,
}

/// Check that the process runs
#[utoipa::path(
    get, path = "/healthz", tag = "Service", operation_id = "getHealth", security(()),
    responses((status = 200, description = "The process runs.", body = Liveness)),
)]
pub(super) async fn healthz() -> Json<Liveness> {
    Json(Liveness { status: "ok" })
}

/// Check that the service can take payments
#[utoipa::path(
    get, path = "/readyz", tag = "Service", operation_id = "getReadiness", security(()),
    responses(
        (status = 200, description = "The service is ready.", body = Readiness),
        (status = 503, description = "It is not ready, and why.", body = Readiness),
    ),
)]
pub(super) async fn readyz(operator: Operator) -> (StatusCode, Json<Readiness>) {
    let readiness = readiness(&operator.system, &operator.config.draining).await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

/// Reads the state of every component.
pub async fn readiness(system: &System, draining: &Draining) -> Readiness {
    let reads = answers(system).await.is_ok();
    let writes = system.journal().is_writing();
    let database = DatabaseReadiness { ok: reads && writes, reads, writes };
    let payments = PaymentsReadiness { ok: system.is_ready() };
    let each = chains::health(system);
    let usable = each.iter().filter(|chain| chain.state == ChainState::Ok).count();
    let chains = ChainsReadiness { ok: usable > 0, usable, each };
    let draining = draining.has_begun();
    let clock_offset_ms = system.node().clock_fault_ms();
    let node = NodeReadiness { ok: !draining && clock_offset_ms.is_none(), draining, clock_offset_ms };
    Readiness { ready: node.ok && database.ok && payments.ok && chains.ok, node, database, payments, chains }
}

/// Read the metrics
#[utoipa::path(
    get, path = "/metrics", tag = "Service", operation_id = "getMetrics", security(()),
    responses((status = 200, description = "Metrics.", body = String, content_type = "text/plain")),
)]
pub(super) async fn metrics(operator: Operator) -> impl IntoResponse {
    // Read on demand, so that an idle service reads nothing.
    operator.entries().await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (operator.config.metrics)())
}
