//! `/ops/pauses`: pauses set by the operator.

pub(crate) mod page;

use payferry_accounts::{Moment, tenants};
use payferry_actors::pauses::{self, Held, Pause, Scope};
use payferry_httpkit::{Answer, ApiError, Fault, Fields, JsonBody, Path, read};
use payferry_journal::audit::Actor;
use sea_orm::DbErr;
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::{only, tenant_failure};
use crate::page::form::{Sort, names};

/// Fields of a pause, in the API and in the form.
const FIELDS: [(&str, Sort); 2] = [("scope", Sort::Text), ("reason", Sort::Text)];

/// A pause in a response.
fn shown(scope: Scope, pause: Pause) -> impl Serialize {
    record! { scope: scope.to_string(), reason: pause.reason, set_by: pause.set_by, since: Moment(pause.since) }
}

pub(crate) async fn list(operator: Operator) -> Result<Answer, ApiError> {
    let held = load(&operator).await?;
    Answer::ok(&record! { pauses: held.into_iter().map(|(scope, pause)| shown(scope, pause)).collect::<Vec<_>>() })
}

/// Sets a pause: `{"scope": "chain:base", "reason": "..."}`. If the scope is already paused, returns the existing
/// pause.
pub(crate) async fn set(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let (scope, reason) = body.read(read_new)?;
    Answer::ok(&shown(scope, hold(&operator, scope, &reason).await?))
}

/// Lifts a pause. Idempotent.
pub(crate) async fn lift(operator: Operator, Path(scope): Path<String>) -> Result<Answer, ApiError> {
    let parsed = scope.parse::<Scope>();
    let parsed = parsed.map_err(|error| ApiError::parameter("scope", "unknown_value", error.to_string()))?;
    let was_paused = lift_pause(&operator, parsed).await?;
    Answer::ok(&record! { scope: scope, was_paused: was_paused })
}

pub(crate) fn read_new(fields: &Fields<'_>) -> Option<(Scope, String)> {
    only(fields, &names(&FIELDS));
    let scope = |value: &Value| {
        let unknown = |error: pauses::UnknownScope| Fault::new("unknown_value", error.to_string());
        read::string(value)?.parse::<Scope>().map_err(unknown)
    };
    let (scope, reason) = (fields.required("scope", scope), fields.required("reason", read::text));
    Some((scope?, reason?))
}

pub(crate) async fn load(operator: &Operator) -> Result<Held, DbErr> {
    pauses::load(operator.system.database()).await
}

/// Sets a pause for the operator. Used by the API and the page.
pub(crate) async fn hold(operator: &Operator, scope: Scope, reason: &str) -> Result<Pause, ApiError> {
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
pub(crate) async fn lift_pause(operator: &Operator, scope: Scope) -> Result<bool, DbErr> {
    let system = &operator.system;
    let transaction = system.database().begin().await?;
    let lifted = pauses::lift(&transaction, scope, &Actor::Operator, system.clock().real_now()).await?;
    transaction.commit().await?;
    tracing::warn!(%scope, "operator lifted the pause of {scope}");
    system.refresh_pauses().await?;
    Ok(lifted.is_some())
}
