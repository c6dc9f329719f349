//! The operator's listener: health, metrics, and a view of the actors.
//!
//! Deliberately absent for now: the live page, administration of PSPs and keys.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use payferry_actors::System;
use sea_orm::ConnectionTrait;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::telemetry;

/// The operator's routes. Everything but health and metrics wants `Authorization: Bearer <operator token>`.
pub fn router(system: System, token: &str) -> Router {
    let token = Token(Sha256::digest(token).into());
    let closed = Router::new().route("/ops/actors", get(actors)).layer(middleware::from_fn_with_state(token, admit));
    let open =
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).route("/metrics", get(metrics));
    open.merge(closed).with_state(system)
}

/// Digest of the operator's token: comparing digests tells nothing of the length.
#[derive(Clone)]
struct Token([u8; 32]);

async fn admit(State(Token(wanted)): State<Token>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given: Option<[u8; 32]> =
        given.and_then(|value| value.strip_prefix("Bearer ")).map(|token| Sha256::digest(token).into());
    if given.is_some_and(|given| bool::from(given.ct_eq(&wanted))) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"payferry operator\"")];
    (StatusCode::UNAUTHORIZED, challenge, Json(json!({"detail": "Send the operator token as a bearer token."})))
        .into_response()
}

/// The process runs.
async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// It can take payments: every shard has read its live ones, and the database answers and takes what is written.
async fn readyz(State(system): State<System>) -> (StatusCode, Json<Value>) {
    let payments = system.is_ready();
    let answers = system.database().reader().execute_unprepared("SELECT 1").await.is_ok();
    let database = answers && system.is_writing();
    let status = if payments && database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": payments && database, "payments": payments, "database": database})))
}

/// The supervision tree as it shows itself: live payments, restarts, incidents, quarantined payments.
async fn actors(State(system): State<System>) -> Response {
    Json(system.observe()).into_response()
}

/// All metrics of the process, in Prometheus' text format.
async fn metrics() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::metrics().render())
}
