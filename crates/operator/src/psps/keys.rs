//! `/ops/psps/{psp_id}/keys`: API keys of a PSP.

use axum::extract::State;
use axum::http::Uri;
use payferry_accounts::Moment;
use payferry_accounts::keys::ApiKey;
use payferry_accounts::tenants::{self, EXPIRES_DAYS_MAX, KeyOrder, KeyRecord, KeyState, NewKey, Slice};
use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fault, Fields, JsonBody, Path, QueryFields, read};
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::tenant_failure;
use crate::input::{id_of, name, only, psp_id_of};

/// Fields of a key that can be set.
const FIELDS: [&str; 3] = ["name", "scopes", "expires_days"];

/// A key without its secret.
#[derive(Debug, Serialize)]
struct KeyLine {
    key_id: KeyId,
    psp_id: PspId,
    name: String,
    scopes: Vec<KeyScope>,
    state: KeyState,
    created_at: Moment,
    expires_at: Option<Moment>,
    revoked_at: Option<Moment>,
    last_used_at: Option<Moment>,
}

impl KeyLine {
    fn of(key: KeyRecord, now: Timestamp) -> Self {
        Self {
            state: key.state(now),
            key_id: key.id,
            psp_id: key.psp_id,
            name: key.name,
            scopes: key.scopes,
            created_at: key.created_at.into(),
            expires_at: key.expires_at.map(Moment),
            revoked_at: key.revoked_at.map(Moment),
            last_used_at: key.last_used_at.map(Moment),
        }
    }
}

#[derive(Serialize)]
struct KeyList {
    total: u64,
    keys: Vec<KeyLine>,
}

#[derive(Serialize)]
struct NewKeyLine {
    message: &'static str,
    api_key: String,
    #[serde(flatten)]
    key: KeyLine,
}

/// Returns the keys of a PSP, oldest first.
pub(crate) async fn list(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
    uri: Uri,
) -> Result<Answer, ApiError> {
    let psp_id = psp_id_of(&psp_id)?;
    let mut query = QueryFields::of(&uri);
    let page = query.page();
    query.finish()?;
    let (system, slice) = (&operator.system, Slice { limit: page.limit, offset: page.offset });
    let (total, keys) = tenants::list_keys(system.database(), Some(psp_id), KeyOrder::OldestFirst, slice)
        .await
        .map_err(tenant_failure)?;
    let now = system.clock().real_now();
    Answer::ok(&KeyList { total, keys: keys.into_iter().map(|key| KeyLine::of(key, now)).collect() })
}

/// Creates a key and shows it once.
pub(crate) async fn create(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let psp_id = psp_id_of(&psp_id)?;
    let (record, key) = make(&operator, psp_id, body.read(|fields| Some(read_new(fields)))?).await?;
    let now = operator.system.clock().real_now();
    Answer::created(&NewKeyLine {
        message: "The key is shown only once and stored as a keyed hash",
        api_key: key.expose().to_owned(),
        key: KeyLine::of(record, now),
    })
}

/// Reads the fields of a new key.
pub(crate) fn read_new(fields: &Fields<'_>) -> NewKey {
    only(fields, &FIELDS);
    let days = |value: &Value| {
        read::whole(value, 1, i64::from(EXPIRES_DAYS_MAX)).map(|days| u32::try_from(days).unwrap_or(u32::MAX))
    };
    let scopes = fields.optional("scopes", scopes);
    NewKey {
        name: fields.optional("name", name),
        scopes: scopes.unwrap_or_else(|| vec![KeyScope::Full]),
        expires_days: fields.optional("expires_days", days),
    }
}

/// Creates a key for the operator. Used by the API and the page.
pub(crate) async fn make(operator: &Operator, psp_id: PspId, new: NewKey) -> Result<(KeyRecord, ApiKey), ApiError> {
    let system = &operator.system;
    let now = system.clock().real_now();
    let (record, key) = tenants::create_key(system.database(), system.sealer(), operator.key_mode, psp_id, new, now)
        .await
        .map_err(tenant_failure)?;
    tracing::info!(psp.id = %psp_id, key.id = %record.id, "operator created key {} of {psp_id}", record.id);
    Ok((record, key))
}

/// Revokes a key. Idempotent.
pub(crate) async fn revoke(
    State(operator): State<Operator>,
    Path((psp_id, key_id)): Path<(String, String)>,
) -> Result<Answer, ApiError> {
    let (psp_id, key_id): (PspId, KeyId) = (psp_id_of(&psp_id)?, id_of("key_id", &key_id)?);
    let key = refuse(&operator, psp_id, key_id).await?;
    Answer::ok(&KeyLine::of(key, operator.system.clock().real_now()))
}

/// Revokes a key for the operator. Used by the API and the page.
pub(crate) async fn refuse(operator: &Operator, psp_id: PspId, key_id: KeyId) -> Result<KeyRecord, ApiError> {
    let system = &operator.system;
    let key = tenants::revoke_key(system.database(), Some(psp_id), key_id, system.clock().real_now())
        .await
        .map_err(tenant_failure)?;
    tracing::info!(psp.id = %psp_id, key.id = %key_id, "operator revoked key {key_id} of {psp_id}");
    Ok(key)
}

fn scopes(value: &Value) -> Result<Vec<KeyScope>, Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of strings"))?;
    if list.is_empty() {
        return Err(Fault::new("empty", "must not be empty"));
    }
    let unknown = |_| Fault::new("unknown_value", "must be some of read, payments, customers, money, webhooks, full");
    serde_json::from_value(value.clone()).map_err(unknown)
}
