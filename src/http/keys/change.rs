//! `POST /api/v1/keys`, `POST /api/v1/keys/{key_id}/rotate` and `POST /api/v1/keys/{key_id}/revoke`.
//!
//! Each locks the row of the account, so that two requests at once neither exceed the limit nor revoke the last two keys
//! with full scope.

use axum::extract::State;
use axum::response::Response;
use payferry_accounts::keys::ApiKey;
use payferry_accounts::tenants::{self, KeyMaker, KeyRecord, KeyState, Name, NewKey, ROTATION_OVERLAP_SECS};
use payferry_domain::{KeyScope, PspId, Timestamp};
use payferry_entities::Transaction;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{self, optional, required};
use payferry_httpkit::{Answer, ApiError, Full, Path, Problem, Submission, request};
use payferry_journal::audit::Actor;
use payferry_operator::psps::keys::EXPIRY;
use payferry_operator::{NAME, tenant_failure};
use serde::Serialize;
use utoipa::ToSchema;

use super::{ApiKeyRecord, KEYS_MAX, id_of};
use crate::http::state::{AppState, ChangeOf};

request! {
    /// An API key to create.
    pub struct CreateApiKeyRequest {
        /// The purpose of the key.
        name: Option<Name> = optional(NAME).example("checkout"),
        /// Scopes of the key.
        scopes: Vec<KeyScope> = field::names(),
        /// Days until it expires, or `never`.
        expires_days: Option<u32> = required(EXPIRY).example(90),
    }
}

request! {
    /// The expiry of the new key.
    pub struct RotateApiKeyRequest {
        /// Days until the new key expires, or `never`.
        expires_days: Option<u32> = required(EXPIRY).example(90),
    }
}

/// A created key.
#[derive(Serialize, ToSchema)]
pub struct CreatedApiKey {
    message: &'static str,
    /// The key; shown only once.
    #[schema(example = "sk_test_...")]
    api_key: String,
    #[serde(flatten)]
    key: ApiKeyRecord,
}

/// The key that replaces another one.
#[derive(Serialize, ToSchema)]
pub struct RotatedApiKey {
    #[serde(flatten)]
    created: CreatedApiKey,
    /// The replaced key, which expires soon.
    replaced: ApiKeyRecord,
}

impl CreatedApiKey {
    fn of(request: &Submission<Full>, (key, secret): (KeyRecord, ApiKey), now: Timestamp) -> Self {
        let message = "The key is shown only once. Only its keyed hash is stored.";
        Self { message, api_key: secret.expose().to_owned(), key: ApiKeyRecord::of(key, request.key_id, now) }
    }
}

/// Refuses another key of an account that has enough of them.
async fn check_count(transaction: &Transaction, psp_id: PspId, now: Timestamp) -> Result<(), ApiError> {
    tenants::lock_psp(transaction, psp_id).await.map_err(tenant_failure)?;
    if tenants::count_active_keys(transaction, psp_id, now).await.map_err(tenant_failure)? >= KEYS_MAX {
        let detail = format!("An account creates at most {KEYS_MAX} active keys; revoke one.");
        return Err(ApiError::conflict("too_many_keys", detail));
    }
    Ok(())
}

/// Create an API key
///
/// Its scopes and its expiry have no default. Requires a key with full scope.
#[utoipa::path(
    post, path = "/api/v1/keys", tag = "API keys", operation_id = "createApiKey", request_body = CreateApiKeyRequest,
    responses(
        (status = 201, description = "The key with its secret.", body = CreatedApiKey),
        (status = 409, description = "`too_many_keys`.", body = Problem),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn create(State(app): State<AppState>, request: Submission<Full>) -> Result<Response, ApiError> {
    let CreateApiKeyRequest { name, scopes, expires_days } = request.parse()?;
    let transaction = app.database().begin().await?;
    let (by, now) = (Actor::ApiKey(request.key_id), app.clock().real_now());
    check_count(&transaction, request.psp_id, now).await?;
    let maker = KeyMaker { sealer: app.sealer(), mode: app.config.environment.key_mode(), by: &by, now };
    let new = NewKey { name, scopes, expires_days };
    let created = tenants::create_key_in(&transaction, &maker, request.psp_id, new).await.map_err(tenant_failure)?;
    let answer = Answer::created(&CreatedApiKey::of(&request, created, now))?;
    request.idempotency.commit(transaction, answer).await
}

/// Replace an API key
///
/// Creates a key with the same name and scopes. For 24 hours, the old key is accepted too; revoke it to end this sooner.
/// Requires a key with full scope.
#[utoipa::path(
    post, path = "/api/v1/keys/{key_id}/rotate", tag = "API keys", operation_id = "rotateApiKey",
    request_body = RotateApiKeyRequest, params(("key_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 201, description = "The new key with its secret.", body = RotatedApiKey),
        (status = 409, description = "`key_not_active` or `too_many_keys`.", body = Problem),
        (status = 422, description = "Every invalid field is named.", body = Problem),
    ),
)]
pub async fn rotate(parts: ChangeOf<Full>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    let id = id_of(&id)?;
    tenants::find_key(app.database().reader(), request.psp_id, id).await.map_err(tenant_failure)?;
    let RotateApiKeyRequest { expires_days } = request.parse()?;
    let transaction = app.database().begin().await?;
    let (by, now) = (Actor::ApiKey(request.key_id), app.clock().real_now());
    check_count(&transaction, request.psp_id, now).await?;
    let maker = KeyMaker { sealer: app.sealer(), mode: app.config.environment.key_mode(), by: &by, now };
    let rotated = tenants::rotate_key_in(&transaction, &maker, request.psp_id, id, expires_days).await;
    let (old, created) = rotated.map_err(tenant_failure)?;
    let replaced = ApiKeyRecord::of(old, request.key_id, now);
    let answer = Answer::created(&RotatedApiKey { created: CreatedApiKey::of(&request, created, now), replaced })?;
    request.idempotency.commit(transaction, answer).await
}

/// Revoke an API key
///
/// Refused from now on, everywhere within a second. Can be repeated. The last key with full scope cannot be revoked; a key
/// that expires within 24 hours does not count. Requires a key with full scope, which may be the key itself.
#[utoipa::path(
    post, path = "/api/v1/keys/{key_id}/revoke", tag = "API keys", operation_id = "revokeApiKey",
    params(("key_id" = String, Path, description = "The id from its creation.")),
    responses(
        (status = 200, description = "The key.", body = ApiKeyRecord),
        (status = 409, description = "`last_full_key`.", body = Problem),
    ),
)]
pub async fn revoke(parts: ChangeOf<Full>) -> Result<Response, ApiError> {
    let (State(app), Path(id), request) = parts;
    let (id, psp_id) = (id_of(&id)?, request.psp_id);
    let transaction = app.database().begin().await?;
    let (by, now): (_, Timestamp) = (Actor::ApiKey(request.key_id), app.clock().real_now());
    tenants::lock_psp(&transaction, psp_id).await.map_err(tenant_failure)?;
    let key = tenants::find_key(&transaction, psp_id, id).await.map_err(tenant_failure)?;
    let until = now.plus_secs(ROTATION_OVERLAP_SECS);
    if key.state(now) == KeyState::Active
        && key.scopes.contains(&KeyScope::Full)
        && !tenants::has_other_full_key(&transaction, psp_id, id, until).await.map_err(tenant_failure)?
    {
        let detail =
            "This is the last key with the scope `full` that stays valid for 24 hours; create another one first.";
        return Err(ApiError::conflict("last_full_key", detail));
    }
    let key = tenants::revoke_key_in(&transaction, Some(psp_id), id, &by, now).await.map_err(tenant_failure)?;
    let answer = Answer::ok(&ApiKeyRecord::of(key, request.key_id, now))?;
    let answered = request.idempotency.commit(transaction, answer).await?;
    app.config.revoked_keys.add(id);
    Ok(answered)
}
