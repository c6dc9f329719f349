//! `/ops/pauses`: pauses set by the operator.

pub(crate) mod page;

use payferry_accounts::tenants;
use payferry_actors::pauses::{self, Held, Pause, Scope};
use payferry_domain::PspId;
use payferry_entities::pauses::{Column, Entity, Model};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::lists::{DateTime, Found, Page, PageParams, read_page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Fault, JsonBody, Path, Problem, QueryFields, Rule, read, request, rule};
use payferry_journal::audit::Actor;
use sea_orm::{DbErr, EntityTrait};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::input::{tenant_failure, unknown};
use crate::page::form::Sort;

/// Fields of the form of a pause.
const FIELDS: [(&str, Sort); 2] = [("scope", Sort::Text), ("reason", Sort::Text)];

/// Scope of a pause.
const SCOPE: Rule<Scope> = Rule {
    read: |value| {
        let unknown = |error: pauses::UnknownScope| Fault::new("unknown_value", error.to_string());
        read::string(value)?.parse().map_err(unknown)
    },
    schema: || {
        let psp = format!("psp:{}[0-7][0-9A-HJKMNP-TV-Z]{{25}}", PspId::PREFIX);
        let chains = "(base|polygon|arbitrum)";
        rule::string().pattern(Some(format!("^(chain:{chains}|{psp}|(settlement|sending)(:{chains})?)$")))
    },
};

request! {
    /// A pause to set.
    pub struct PauseRequest refusing(unknown::<PauseRequest>) {
        /// `chain:<chain>`, `psp:<psp_id>`, `settlement`, `settlement:<chain>`, `sending` or `sending:<chain>`.
        scope: Scope = required(SCOPE).example("chain:base"),
        /// Reason, for colleagues.
        reason: String = required(rule::text()).example("The endpoint forges logs."),
    }
}

record! {
    fn of(scope: String, pause: Pause) {}

    /// A pause.
    pub struct PauseRecord {
        /// The same as `scope`.
        id: String = scope.clone(),
        #[schema(example = "chain:base")]
        scope: String = scope,
        reason: String = pause.reason,
        /// Kind of the actor that set it.
        set_by: String = pause.set_by,
        since: DateTime = pause.since.into(),
        created_at: DateTime = pause.since.into(),
        updated_at: DateTime = pause.since.into(),
    }
}

/// A page of pauses.
#[derive(Serialize, ToSchema)]
pub struct PauseList {
    total: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    pauses: Vec<PauseRecord>,
}

/// List the pauses
///
/// Newest first.
#[utoipa::path(
    get, path = "/ops/pauses", tag = "Service", operation_id = "listPauses", params(PageParams),
    responses((status = 200, description = "A page of pauses.", body = PauseList), UnreadableQuery),
)]
pub(crate) async fn list(operator: Operator, query: QueryFields) -> Result<Answer, ApiError> {
    let page = Page::read("pauses", query)?;
    let key = |row: &Model| (row.since, row.scope.clone());
    let (database, order) = (operator.system.database(), [Column::Since, Column::Scope]);
    let Found { total, rows, next_cursor } = read_page(database, Entity::find(), order, &page, key).await?;
    let pauses = rows.into_iter().map(|row| PauseRecord::of(row.scope.clone(), row.into())).collect();
    Answer::ok(&PauseList { total, next_cursor, pauses })
}

/// Set a pause
///
/// If the scope is already paused, returns the existing pause.
#[utoipa::path(
    post, path = "/ops/pauses", tag = "Service", operation_id = "setPause", request_body = PauseRequest,
    responses(
        (status = 200, description = "The pause.", body = PauseRecord),
        (status = 404, description = "`psp_not_found`.", body = Problem),
    ),
)]
pub(crate) async fn set(operator: Operator, body: JsonBody) -> Result<Answer, ApiError> {
    let PauseRequest { scope, reason } = body.parse()?;
    Answer::ok(&PauseRecord::of(scope.to_string(), hold(&operator, scope, &reason).await?))
}

/// A lifted pause.
#[derive(Serialize, ToSchema)]
pub struct LiftedPause {
    scope: String,
    /// False if it was not paused.
    was_paused: bool,
}

/// Lift a pause
///
/// Can be repeated.
#[utoipa::path(
    post, path = "/ops/pauses/{scope}/lift", tag = "Service", operation_id = "liftPause",
    params(("scope" = String, Path, description = "The scope of the pause.")),
    responses((status = 200, description = "It is not paused now.", body = LiftedPause)),
)]
pub(crate) async fn lift(operator: Operator, Path(scope): Path<String>) -> Result<Answer, ApiError> {
    let parsed = scope.parse::<Scope>();
    let parsed = parsed.map_err(|error| ApiError::parameter("scope", "unknown_value", error.to_string()))?;
    let was_paused = lift_pause(&operator, parsed).await?;
    Answer::ok(&LiftedPause { scope, was_paused })
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
