//! `GET /api/v1/keys`, `GET /api/v1/keys/{key_id}` and `GET /api/v1/keys/current`.

use axum::extract::State;
use payferry_accounts::tenants::{self, key_record};
use payferry_entities::api_keys::{self, Column, Entity};
use payferry_httpkit::lists::{Found, Page, PageParams, read_page};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, Caller, Full, Path, QueryFields, Read};
use payferry_operator::tenant_failure;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::{ApiKeyRecord, id_of};
use crate::http::state::{AppState, OneOf};

/// A page of API keys.
#[derive(Serialize, ToSchema)]
pub struct ApiKeyList {
    message: &'static str,
    total: u64,
    limit: u64,
    offset: u64,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// Newest first.
    keys: Vec<ApiKeyRecord>,
}

/// List the API keys
///
/// Newest first, with expired and revoked ones. Requires a key with full scope.
#[utoipa::path(
    get, path = "/api/v1/keys", tag = "API keys", operation_id = "listApiKeys", params(PageParams),
    responses((status = 200, description = "A page of keys.", body = ApiKeyList), UnreadableQuery),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Full>, query: QueryFields) -> Result<Answer, ApiError> {
    let page = Page::read("keys", query)?;
    let own = Entity::find().filter(Column::PspId.eq(caller.psp_id.to_string()));
    let key = |row: &api_keys::Model| (row.created_at, row.id.clone());
    let order = [Column::CreatedAt, Column::Id];
    let Found { total, rows, next_cursor } = read_page(app.database(), own, order, &page, key).await?;
    let now = app.clock().real_now();
    let record = |row| Ok(ApiKeyRecord::of(key_record(row).map_err(tenant_failure)?, caller.key_id, now));
    let keys = rows.into_iter().map(record).collect::<Result<_, ApiError>>()?;
    let (limit, offset) = (page.limit, page.offset);
    Answer::ok(&ApiKeyList { message: "API keys", total, limit, offset, next_cursor, keys })
}

/// Read an API key
///
/// Returns the record itself. Requires a key with full scope.
#[utoipa::path(
    get, path = "/api/v1/keys/{key_id}", tag = "API keys", operation_id = "getApiKey",
    params(("key_id" = String, Path, description = "The id from its creation.")),
    responses((status = 200, description = "The key.", body = ApiKeyRecord)),
)]
pub async fn get(parts: OneOf<Full>) -> Result<Answer, ApiError> {
    let (State(app), caller, Path(id)) = parts;
    let key = tenants::find_key(app.database().reader(), caller.psp_id, id_of(&id)?).await.map_err(tenant_failure)?;
    Answer::ok(&ApiKeyRecord::of(key, caller.key_id, app.clock().real_now()))
}

/// The key that sent the request, and its account.
#[derive(Serialize, ToSchema)]
pub struct CurrentKey {
    #[serde(flatten)]
    key: ApiKeyRecord,
    /// The account.
    #[schema(example = "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    psp_id: String,
    /// The name of the account.
    #[schema(example = "Northern Pay")]
    psp_name: String,
}

/// Read the API key of this request
///
/// Returns the record itself, with the account.
#[utoipa::path(
    get, path = "/api/v1/keys/current", tag = "API keys", operation_id = "getCurrentApiKey",
    responses((status = 200, description = "The key.", body = CurrentKey)),
)]
pub async fn current(State(app): State<AppState>, caller: Caller<Read>) -> Result<Answer, ApiError> {
    let reader = app.database().reader();
    let key = tenants::find_key(reader, caller.psp_id, caller.key_id).await.map_err(tenant_failure)?;
    let psp = tenants::find_psp(app.database(), caller.psp_id).await.map_err(tenant_failure)?;
    let key = ApiKeyRecord::of(key, caller.key_id, app.clock().real_now());
    Answer::ok(&CurrentKey { key, psp_id: psp.id.to_string(), psp_name: psp.name })
}
