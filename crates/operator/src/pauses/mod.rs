//! `/ops/pauses`: pauses set by the operator.

pub(crate) mod page;

use axum::extract::State;
use payferry_accounts::{Moment, tenants};
use payferry_actors::pauses::{self, Held, Pause, Scope};
use payferry_httpkit::Answer;
use payferry_httpkit::error::{ApiError, FieldError};
use payferry_httpkit::extract::{Fault, Fields, JsonBody, Path, read};
use payferry_journal::audit::Actor;
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::only;
use crate::input::tenant_failure;

/// Fields of a pause.
const FIELDS: [&str; 2] = ["scope", "reason"];

/// A pause in a response.
#[derive(Debug, Serialize)]
struct PauseLine {
    scope: String,
    reason: String,
    set_by: String,
    since: Moment,
}

#[derive(Serialize)]
struct PauseList {
    pauses: Vec<PauseLine>,
}

#[derive(Serialize)]
struct Lifted {
    scope: String,
    /// True if it was paused.
    was_paused: bool,
}

impl PauseLine {
    fn of(scope: Scope, pause: Pause) -> Self {
        let Pause { reason, set_by, since } = pause;
        Self { scope: scope.to_string(), reason, set_by, since: since.into() }
    }
}

/// Returns every pause.
pub(super) async fn list(State(operator): State<Operator>) -> Result<Answer, ApiError> {
    let held = load(&operator).await?;
    Answer::ok(&PauseList { pauses: held.into_iter().map(|(scope, pause)| PauseLine::of(scope, pause)).collect() })
}

/// Sets a pause: `{"scope": "chain:base", "reason": "..."}`. If the scope is already paused, returns the existing
/// pause.
pub(super) async fn set(State(operator): State<Operator>, body: JsonBody) -> Result<Answer, ApiError> {
    let (scope, reason) = body.read(read_new)?;
    let pause = hold(&operator, scope, &reason).await?;
    Answer::ok(&PauseLine::of(scope, pause))
}

/// Lifts a pause. Idempotent.
pub(super) async fn lift(State(operator): State<Operator>, Path(scope): Path<String>) -> Result<Answer, ApiError> {
    let parsed = scope.parse::<Scope>().map_err(|error| {
        let message = error.to_string();
        ApiError::BadParameters(vec![FieldError { field: "scope".to_owned(), code: "unknown_value".into(), message }])
    })?;
    let was_paused = let_go(&operator, parsed).await?;
    Answer::ok(&Lifted { scope, was_paused })
}

/// Reads the fields of a pause.
pub(super) fn read_new(fields: &Fields<'_>) -> Option<(Scope, String)> {
    only(fields, &FIELDS);
    let scope = |value: &Value| {
        let unknown = |error: pauses::UnknownScope| Fault::new("unknown_value", error.to_string());
        read::string(value)?.parse::<Scope>().map_err(unknown)
    };
    let (scope, reason) = (fields.required("scope", scope), fields.required("reason", read::text));
    Some((scope?, reason?))
}

/// Reads every pause from the database.
pub(super) async fn load(operator: &Operator) -> Result<Held, ApiError> {
    Ok(pauses::load(operator.system.database()).await?)
}

/// Sets a pause for the operator. Used by the API and the page.
pub(super) async fn hold(operator: &Operator, scope: Scope, reason: &str) -> Result<Pause, ApiError> {
    let system = &operator.system;
    if let Scope::Psp(psp_id) = scope {
        tenants::find_psp(system.database(), psp_id).await.map_err(tenant_failure)?;
    }
    let transaction = system.database().begin().await?;
    let pause = pauses::set(&transaction, scope, reason, &Actor::Operator, system.clock().real_now()).await?;
    transaction.commit().await?;
    tracing::warn!(%scope, "operator paused {scope}");
    system.refresh_pauses().await?;
    Ok(pause)
}

/// Lifts a pause for the operator. Used by the API and the page. Returns whether it existed.
pub(super) async fn let_go(operator: &Operator, scope: Scope) -> Result<bool, ApiError> {
    let system = &operator.system;
    let transaction = system.database().begin().await?;
    let lifted = pauses::lift(&transaction, scope, &Actor::Operator, system.clock().real_now()).await?;
    transaction.commit().await?;
    tracing::warn!(%scope, "operator lifted the pause of {scope}");
    system.refresh_pauses().await?;
    Ok(lifted.is_some())
}
