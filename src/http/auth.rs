//! Authentication of PSPs: the key in the `Authorization` header, its PSP and its scopes.
//!
//! This module owns the lookup and the cache of keys. `payferry_accounts::keys` owns their format and how they are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use moka::future::Cache;
use payferry_accounts::keys::{ApiKey, KeyMode, RevokedKeys};
use payferry_accounts::tenants::{KeyRecord, KeyState, key_record};
use payferry_actors::System;
use payferry_domain::{KeyId, KeyScope, Timestamp};
use payferry_entities::{Database, api_keys};
use payferry_httpkit::error::KeyProblem;
use payferry_httpkit::limits::Limiters;
use payferry_httpkit::{ApiError, KeyHolder};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter};

/// Longest time for which a node may still accept a key that was revoked elsewhere, which is the lifetime of a cached key.
pub const REVOCATION_LAG_MAX: Duration = Duration::from_secs(1);
/// Cached keys.
const KEYS_MAX: u64 = 10_000;
/// Resolution of `last_used_at`.
const LAST_USED_GRAIN: Duration = Duration::from_mins(1);

/// A cached key.
struct KnownKey {
    record: KeyRecord,
    secret_hash: String,
    /// Set once a request has taken over the write of `last_used_at`.
    noted: AtomicBool,
}

/// Finds keys.
pub(super) struct KeyRing {
    database: Database,
    sealer: Sealer,
    clock: Clock,
    mode: KeyMode,
    known: Cache<KeyId, Option<Arc<KnownKey>>>,
    /// Keys that exist. They are looked up even if their address has failed too often.
    seen: Cache<KeyId, ()>,
    /// Keys that were revoked on this node.
    revoked: RevokedKeys,
}

impl KeyRing {
    pub(super) fn new(system: &System, mode: KeyMode, revoked: RevokedKeys) -> Self {
        Self {
            database: system.database().api_pool(),
            sealer: system.sealer().clone(),
            clock: system.clock().clone(),
            mode,
            known: Cache::builder().max_capacity(KEYS_MAX).time_to_live(REVOCATION_LAG_MAX).build(),
            seen: Cache::new(KEYS_MAX),
            revoked,
        }
    }

    async fn find(&self, presented: &str, limiters: &Limiters, parts: &Parts) -> Result<Arc<KnownKey>, ApiError> {
        let refuse = |problem| Err(ApiError::Unauthorized(problem));
        // A failed attempt counts for its address, so that a client cannot try keys without a limit.
        let fail = |problem| {
            limiters.stranger(parts)?;
            limiters.failed_key(parts);
            refuse(problem)
        };
        let Ok(key) = presented.parse::<ApiKey>() else { return fail(KeyProblem::Malformed) };
        if !presented.starts_with(self.mode.prefix()) {
            return fail(KeyProblem::WrongEnvironment);
        }
        if !self.seen.contains_key(&key.id()) {
            limiters.stranger(parts)?;
        }
        let known = self.known.try_get_with(key.id(), Box::pin(self.read(key.id())));
        let known = known.await.map_err(|error: Arc<DbErr>| ApiError::from((*error).clone()))?;
        let Some(known) = known.filter(|known| key.matches(&self.sealer, &known.secret_hash)) else {
            return fail(KeyProblem::Unknown);
        };
        // The cache may still hold the key as it was before.
        if self.revoked.contains(key.id()) {
            return refuse(KeyProblem::Revoked);
        }
        // The wall clock: advancing the sandbox's clock does not expire its key.
        let now = self.clock.real_now();
        match known.record.state(now) {
            KeyState::Active => {}
            KeyState::Revoked => return refuse(KeyProblem::Revoked),
            KeyState::Expired => return refuse(KeyProblem::Expired),
        }
        self.note_use(&known, now);
        Ok(known)
    }

    async fn read(&self, id: KeyId) -> Result<Option<Arc<KnownKey>>, DbErr> {
        let row = api_keys::Entity::find_by_id(id.to_string()).one(self.database.reader()).await?;
        let Some(row) = row else { return Ok(None) };
        self.seen.insert(id, ()).await;
        let secret_hash = row.secret_hash.clone();
        let record = key_record(row).map_err(|error| DbErr::Custom(error.to_string()))?;
        Ok(Some(Arc::new(KnownKey { record, secret_hash, noted: AtomicBool::new(false) })))
    }

    /// Writes `last_used_at` at most once a minute, in a task of its own that the request does not wait for.
    fn note_use(&self, key: &KnownKey, now: Timestamp) {
        let stale_from = now.plus_millis(-i64::try_from(LAST_USED_GRAIN.as_millis()).unwrap_or(i64::MAX));
        let fresh = key.record.last_used_at.is_some_and(|used| used > stale_from);
        if fresh || key.noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let (database, id) = (self.database.clone(), key.record.id);
        tokio::spawn(async move {
            let column = api_keys::Column::LastUsedAt;
            let older = Condition::any().add(column.is_null()).add(column.lt(now.as_millis()));
            let written = api_keys::Entity::update_many()
                .col_expr(column, Expr::value(now.as_millis()))
                .filter(api_keys::Column::Id.eq(id.to_string()))
                .filter(older)
                .exec(database.writer())
                .await;
            if let Err(error) = written {
                tracing::debug!(key.id = %id, %error, "the last use of key {id} could not be stored");
            }
        });
    }

    /// Finds the key of a request, counts the request against the limit of the key, and checks that the key has `scope`.
    pub(super) async fn authenticate(
        &self,
        limiters: &Limiters,
        parts: &Parts,
        scope: KeyScope,
    ) -> Result<KeyHolder, ApiError> {
        let header = parts.headers.get(AUTHORIZATION).ok_or(ApiError::Unauthorized(KeyProblem::Missing))?;
        let text = header.to_str().map_err(|_| ApiError::Unauthorized(KeyProblem::Malformed))?;
        let (scheme, presented) = text.split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(ApiError::Unauthorized(KeyProblem::Missing));
        }
        let key = self.find(presented.trim(), limiters, parts).await?;
        let KeyRecord { id, psp_id, scopes, .. } = &key.record;
        limiters.key(parts, *id)?;
        tracing::Span::current().record("psp.id", tracing::field::display(psp_id));
        tracing::Span::current().record("key.id", tracing::field::display(id));
        let has = |scope| scopes.iter().any(|held| *held == scope || *held == KeyScope::Full);
        if !has(scope) {
            return Err(ApiError::MissingScope(scope.as_str()));
        }
        Ok(KeyHolder { psp_id: *psp_id, key_id: *id, sees_identities: has(KeyScope::Customers) })
    }
}
