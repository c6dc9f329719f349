//! API keys: creates, lists, rotates and revokes them. The key itself is shown only once.

use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_entities::{Database, Transaction, api_keys};
use payferry_journal::audit::Actor;
use payferry_runtime::seal::Sealer;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, EntityTrait, IntoActiveModel, PaginatorTrait,
    QueryFilter, QueryOrder, QuerySelect, QueryTrait, Select, Set,
};
use serde_json::json;

use super::{Name, Slice, TenantError, newer, psps};
use crate::contains;
use crate::keys::{ApiKey, KeyMode};

/// Maximum lifetime of a key with an expiry, in days.
pub const EXPIRES_DAYS_MAX: u32 = 3_650;
const DAY_SECS: i64 = 86_400;
/// Time for which a key is still accepted after its rotation, seconds.
pub const ROTATION_OVERLAP_SECS: i64 = 24 * 3_600;

/// A key to create.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Name that describes its use.
    pub name: Option<Name>,
    /// Scopes of the key.
    pub scopes: Vec<KeyScope>,
    /// Days until it expires; `None` for no expiry. At most [`EXPIRES_DAYS_MAX`].
    pub expires_days: Option<u32>,
}

/// Context of a new key: the service's secret and mode, the actor of the audit entry, and the time.
#[derive(Debug, Clone, Copy)]
pub struct KeyMaker<'a> {
    /// Hashes the key.
    pub sealer: &'a Sealer,
    /// Environment of the key.
    pub mode: KeyMode,
    /// Actor of the change.
    pub by: &'a Actor,
    /// Time of the wall clock.
    pub now: Timestamp,
}

/// A key without its secret.
#[derive(Debug, Clone)]
pub struct KeyRecord {
    /// Id of the key.
    pub id: KeyId,
    /// The PSP that owns it.
    pub psp_id: PspId,
    /// Name that describes its use.
    pub name: String,
    /// Scopes of the key.
    pub scopes: Vec<KeyScope>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change: the revocation, the rotation, or the creation.
    pub updated_at: Timestamp,
    /// Time of expiry, if it has one.
    pub expires_at: Option<Timestamp>,
    /// Time of revocation, if it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Time of last use, with a resolution of a minute.
    pub last_used_at: Option<Timestamp>,
}

payferry_domain::named! {
    /// State of a key.
    KeyState, "a state of an API key" {
        /// It is accepted.
        Active = "active",
        /// It has expired.
        Expired = "expired",
        /// It was revoked.
        Revoked = "revoked",
    }
}

impl KeyRecord {
    /// The state at this time of the wall clock.
    pub fn state(&self, now: Timestamp) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(at)) if at <= now => KeyState::Expired,
            _ => KeyState::Active,
        }
    }
}

/// Creates a key of a PSP.
pub async fn create(
    database: &Database,
    maker: &KeyMaker<'_>,
    psp_id: PspId,
    new: NewKey,
) -> Result<(KeyRecord, ApiKey), TenantError> {
    psps::find(database, psp_id).await?;
    let transaction = database.begin().await?;
    let created = create_in(&transaction, maker, psp_id, new).await?;
    transaction.commit().await?;
    Ok(created)
}

/// Creates a key of a PSP that exists, in a transaction of the caller.
pub async fn create_in(
    transaction: &Transaction,
    maker: &KeyMaker<'_>,
    psp_id: PspId,
    new: NewKey,
) -> Result<(KeyRecord, ApiKey), TenantError> {
    let NewKey { name, mut scopes, expires_days } = new;
    scopes.sort_unstable();
    scopes.dedup();
    let &KeyMaker { sealer, mode, by, now } = maker;
    let key = ApiKey::generate(mode);
    let mut row = key.row(sealer, psp_id, name.as_ref().map_or("", Name::as_str), &scopes, now);
    row.expires_at = expires_days.map(|days| now.plus_secs(i64::from(days) * DAY_SECS).as_millis());
    let record = record(row.clone())?;
    api_keys::Entity::insert(row.into_active_model()).exec_without_returning(transaction).await?;
    let detail = json!({ "scopes": record.scopes, "expires_at": record.expires_at });
    super::write_down(transaction, "key.created", psp_id, record.id.to_string(), detail, by, now).await?;
    Ok((record, key))
}

/// Replaces an active key of a PSP, in a transaction of the caller: creates a key with the same name and scopes, and lets the
/// old one expire after [`ROTATION_OVERLAP_SECS`], unless it expires sooner. Returns the old key, and the new one.
pub async fn rotate_in(
    transaction: &Transaction,
    maker: &KeyMaker<'_>,
    psp_id: PspId,
    id: KeyId,
    expires_days: Option<u32>,
) -> Result<(KeyRecord, (KeyRecord, ApiKey)), TenantError> {
    let now = maker.now;
    let row = lock(transaction, Some(psp_id), id).await?;
    let old = record(row.clone())?;
    if old.state(now) != KeyState::Active {
        return Err(TenantError::KeyNotActive(id));
    }
    let new = NewKey { name: old.name.parse().ok(), scopes: old.scopes.clone(), expires_days };
    let created = create_in(transaction, maker, psp_id, new).await?;
    let until = now.plus_secs(ROTATION_OVERLAP_SECS).as_millis();
    let until = row.expires_at.map_or(until, |at| std::cmp::min(at, until));
    let mut row = row.into_active_model();
    (row.expires_at, row.updated_at) = (Set(Some(until)), Set(now.as_millis()));
    let old = record(row.update(transaction).await?)?;
    let detail = json!({ "replaced_by": created.0.id, "expires_at": old.expires_at });
    super::write_down(transaction, "key.rotated", psp_id, id.to_string(), detail, maker.by, now).await?;
    Ok((old, created))
}

/// Order of a list of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// Oldest first.
    OldestFirst,
    /// Active keys at this time of the wall clock first, then the others; newest first in both groups.
    ActiveFirst(Timestamp),
}

/// Lists keys of one PSP or of all, with the total.
pub async fn list(
    database: &Database,
    psp_id: Option<PspId>,
    order: KeyOrder,
    slice: Slice,
) -> Result<(u64, Vec<KeyRecord>), TenantError> {
    let mut keys = api_keys::Entity::find();
    if let Some(psp_id) = psp_id {
        psps::find(database, psp_id).await?;
        keys = keys.filter(api_keys::Column::PspId.eq(psp_id.to_string()));
    }
    let total = keys.clone().count(database.reader()).await?;
    let keys = match order {
        KeyOrder::OldestFirst => keys
            .apply_if(slice.after, |keys, after| {
                keys.filter(newer([api_keys::Column::CreatedAt, api_keys::Column::Id], after))
            })
            .order_by_asc(api_keys::Column::CreatedAt)
            .order_by_asc(api_keys::Column::Id),
        KeyOrder::ActiveFirst(now) => keys
            .order_by_asc(is_over(now))
            .order_by_desc(api_keys::Column::CreatedAt)
            .order_by_desc(api_keys::Column::Id),
    };
    let rows = keys.limit(slice.limit).offset(slice.offset).all(database.reader()).await?;
    Ok((total, rows.into_iter().map(record).collect::<Result<_, _>>()?))
}

/// 0 for an active key, 1 for any other.
fn is_over(now: Timestamp) -> SimpleExpr {
    Expr::case(is_active(now), 0).finally(1).into()
}

/// Condition for active keys, consistent with [`KeyRecord::state`].
fn is_active(now: Timestamp) -> Condition {
    Condition::all()
        .add(api_keys::Column::RevokedAt.is_null())
        .add(api_keys::Column::ExpiresAt.is_null().or(api_keys::Column::ExpiresAt.gt(now.as_millis())))
}

/// Revokes a key from now on; only of this PSP, if one is given. Idempotent: the first revocation's time stays.
pub async fn revoke(
    database: &Database,
    psp_id: Option<PspId>,
    id: KeyId,
    by: &Actor,
    now: Timestamp,
) -> Result<KeyRecord, TenantError> {
    let transaction = database.begin().await?;
    let revoked = revoke_in(&transaction, psp_id, id, by, now).await?;
    transaction.commit().await?;
    Ok(revoked)
}

/// As [`revoke`], in a transaction of the caller.
pub async fn revoke_in(
    transaction: &Transaction,
    psp_id: Option<PspId>,
    id: KeyId,
    by: &Actor,
    now: Timestamp,
) -> Result<KeyRecord, TenantError> {
    let row = lock(transaction, psp_id, id).await?;
    if row.revoked_at.is_some() {
        return record(row);
    }
    let mut row = row.into_active_model();
    (row.revoked_at, row.updated_at) = (Set(Some(now.as_millis())), Set(now.as_millis()));
    let revoked = record(row.update(transaction).await?)?;
    super::write_down(transaction, "key.revoked", revoked.psp_id, id.to_string(), json!({}), by, now).await?;
    Ok(revoked)
}

async fn lock(transaction: &Transaction, psp_id: Option<PspId>, id: KeyId) -> Result<api_keys::Model, TenantError> {
    of(psp_id, id).lock_exclusive().one(transaction).await?.ok_or(TenantError::NoKey(id))
}

fn of(psp_id: Option<PspId>, id: KeyId) -> Select<api_keys::Entity> {
    api_keys::Entity::find_by_id(id.to_string())
        .apply_if(psp_id, |query, psp_id| query.filter(api_keys::Column::PspId.eq(psp_id.to_string())))
}

/// Reads a key of a PSP.
pub async fn find(connection: &impl ConnectionTrait, psp_id: PspId, id: KeyId) -> Result<KeyRecord, TenantError> {
    record(of(Some(psp_id), id).one(connection).await?.ok_or(TenantError::NoKey(id))?)
}

/// Counts the keys of a PSP that are active at this time of the wall clock.
pub async fn count_active(connection: &impl ConnectionTrait, psp_id: PspId, at: Timestamp) -> Result<u64, TenantError> {
    let keys = api_keys::Entity::find().filter(api_keys::Column::PspId.eq(psp_id.to_string())).filter(is_active(at));
    Ok(keys.count(connection).await?)
}

/// Returns true if a PSP has another key with the scope `full` that will be active at this time of the wall clock.
pub async fn has_other_full(
    connection: &impl ConnectionTrait,
    psp_id: PspId,
    id: KeyId,
    at: Timestamp,
) -> Result<bool, TenantError> {
    let full = format!("\"{}\"", KeyScope::Full.as_str());
    let others = api_keys::Entity::find()
        .filter(api_keys::Column::PspId.eq(psp_id.to_string()))
        .filter(api_keys::Column::Id.ne(id.to_string()))
        .filter(contains(connection.get_database_backend(), api_keys::Column::Scopes, full))
        .filter(is_active(at));
    Ok(others.one(connection).await?.is_some())
}

/// Reads a row.
pub fn record(row: api_keys::Model) -> Result<KeyRecord, TenantError> {
    let unreadable = |what| TenantError::Unreadable(what, row.id.clone());
    Ok(KeyRecord {
        id: row.id.parse().map_err(|_| unreadable("the id"))?,
        psp_id: row.psp_id.parse().map_err(|_| unreadable("the owner"))?,
        scopes: serde_json::from_str(&row.scopes).map_err(|_| unreadable("the scopes"))?,
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
        expires_at: row.expires_at.map(Timestamp),
        revoked_at: row.revoked_at.map(Timestamp),
        last_used_at: row.last_used_at.map(Timestamp),
        name: row.name,
    })
}
