//! `POST /sandbox/clock/advance`.

use std::sync::Arc;

use axum::Extension;
use payferry_domain::Timestamp;
use payferry_httpkit::Answer;
use payferry_httpkit::caller::{Caller, Payments};
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::read;
use serde_json::json;

use super::{Body, away, fields};
use crate::env::SandboxEnv;
use crate::time::ADVANCE_SECS_MAX;

/// Advances the service and the chains. Webhook timestamps keep real time.
pub(super) async fn advance(
    Extension(env): Extension<Arc<SandboxEnv>>,
    _: Caller<Payments>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let secs_max = i64::try_from(ADVANCE_SECS_MAX).unwrap_or(i64::MAX);
    let secs = fields(&body, |fields| fields.required("seconds", |value| read::whole(value, 1, secs_max)))?;
    // Completed even if the client disconnects: the time of the chains and of the service must agree.
    let (moving, secs) = (env.clone(), secs.unsigned_abs());
    let moved = tokio::spawn(async move { moving.advance(secs).await }).await;
    moved.map_err(away)?.map_err(away)?;
    let clock = env.clock().clock();
    let offset_secs = clock.offset_ms() / 1_000;
    let now = clock.now::<Timestamp>().to_string();
    Answer::ok(&json!({"message": "Clock advanced", "now": now, "offset_seconds": offset_secs}))
}
