//! API keys: creates, lists and revokes them. The key itself is shown only once.

use payferry_domain::{KeyId, KeyScope, PspId, Timestamp};
use payferry_entities::{Database, api_keys};
use payferry_journal::audit::Actor;
use payferry_runtime::seal::Sealer;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, QueryTrait, Set,
};
use serde_json::json;

use super::{Name, Slice, TenantError, newer, psps};
use crate::keys::{ApiKey, KeyMode};

/// Maximum lifetime of a key with an expiry, in days.
pub const EXPIRES_DAYS_MAX: u32 = 3_650;
const DAY_SECS: i64 = 86_400;

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
    /// Time of the last change: the revocation, or the creation.
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
    sealer: &Sealer,
    mode: KeyMode,
    psp_id: PspId,
    new: NewKey,
    now: Timestamp,
) -> Result<(KeyRecord, ApiKey), TenantError> {
    let NewKey { name, mut scopes, expires_days } = new;
    psps::find(database, psp_id).await?;
    scopes.sort_unstable();
    scopes.dedup();
    let key = ApiKey::generate(mode);
    let mut row = key.row(sealer, psp_id, name.as_ref().map_or("", Name::as_str), &scopes, now);
    row.expires_at = expires_days.map(|days| now.plus_secs(i64::from(days) * DAY_SECS).as_millis());
    let record = record(row.clone())?;
    let transaction = database.begin().await?;
    api_keys::Entity::insert(row.into_active_model()).exec_without_returning(&transaction).await?;
    let detail = json!({ "scopes": record.scopes, "expires_at": record.expires_at });
    super::write_down(&transaction, "key.created", psp_id, record.id.to_string(), detail, &Actor::Operator, now)
        .await?;
    transaction.commit().await?;
    Ok((record, key))
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

/// 0 for an active key, 1 for any other, consistent with [`KeyRecord::state`].
fn is_over(now: Timestamp) -> SimpleExpr {
    let is_active = Condition::all()
        .add(api_keys::Column::RevokedAt.is_null())
        .add(api_keys::Column::ExpiresAt.is_null().or(api_keys::Column::ExpiresAt.gt(now.as_millis())));
    Expr::case(is_active, 0).finally(1).into()
}

/// Revokes a key from now on; only of this PSP, if one is given. Idempotent: the first revocation's time stays.
pub async fn revoke(
    database: &Database,
    psp_id: Option<PspId>,
    id: KeyId,
    now: Timestamp,
) -> Result<KeyRecord, TenantError> {
    let keys = api_keys::Entity::find_by_id(id.to_string())
        .apply_if(psp_id, |query, psp_id| query.filter(api_keys::Column::PspId.eq(psp_id.to_string())));
    let transaction = database.begin().await?;
    let row = keys.lock_exclusive().one(&transaction).await?.ok_or(TenantError::NoKey(id))?;
    if row.revoked_at.is_some() {
        return record(row);
    }
    let mut row = row.into_active_model();
    (row.revoked_at, row.updated_at) = (Set(Some(now.as_millis())), Set(now.as_millis()));
    let revoked = record(row.update(&transaction).await?)?;
    super::write_down(&transaction, "key.revoked", revoked.psp_id, id.to_string(), json!({}), &Actor::Operator, now)
        .await?;
    transaction.commit().await?;
    Ok(revoked)
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
