//! `Idempotency-Key`: a repeated request gets the first answer again, even if that answer was lost.
//!
//! A key belongs to a PSP and a route. The answer (encrypted) and a keyed hash of the request are stored in the commit
//! of the change itself, so that neither exists without the other. Only successes are stored: a failed request may be
//! repeated with the same key. Bodies are the same if they are the same JSON value, however it is written.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::MatchedPath;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use dashmap::DashMap;
use parking_lot::Mutex;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::{Database, Transaction, idempotency_keys};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, QueryFilter, Statement, TryInsertResult};
use serde::Serialize;
use serde_json::Value;

use crate::caller::HttpState;
use crate::error::ApiError;
use crate::extract::json;

/// The request's header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of an answer that repeats the first one.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Time that an answer is stored, seconds.
pub const KEPT_SECS: i64 = 24 * 3_600;
/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 255;
/// Time between two deletions of expired answers, milliseconds.
const PRUNE_EVERY_MS: i64 = 60_000;
/// Maximum number of answers that one statement deletes.
const PRUNE_STEP: u64 = 500;

/// Route whose keys are almost always new. They are looked up by the insert of the commit, and only then by a query. Until
/// its commit, the handler changes nothing.
const LOOKED_UP_BY_COMMIT: &str = "POST /payments/initiate";
/// Keys that this process has recently stored, at most. A repeated request with one of them is looked up at once, because
/// an insert that fails costs the commit of other requests a second attempt.
const STORED_RECENTLY_MAX: usize = 16_384;

type RequestKey = (PspId, String, String);
/// Hashes of keys. A collision only costs a query.
type RecentKeys = Arc<Mutex<HashSet<u64>>>;

/// Returns true if a text is a valid idempotency key.
pub fn is_key(text: &str) -> bool {
    (1..=KEY_CHARS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Builds the stored response from the aggregate that an actor has committed.
pub type ResponseRow<T> = Box<dyn Fn(&T) -> idempotency_keys::Model + Send + Sync>;

/// Requests with a key that run in this process.
#[derive(Default)]
pub struct RunningKeys {
    places: Arc<DashMap<RequestKey, ()>>,
    stored_recently: RecentKeys,
    pruned_at_ms: AtomicI64,
}

/// The idempotency of one request; `None` if it came without a key. Clones belong to the same request.
#[derive(Clone)]
pub struct Idempotency(Option<Arc<RunningRequest>>);

/// Key and hash of a running request. While it lives, a second request with the key gets "still runs".
struct RunningRequest {
    psp_id: PspId,
    route: String,
    key: String,
    request_hash: String,
    /// Hash of the bytes of the body, which earlier versions stored. The last such row expires 24 h after the upgrade.
    former_hash: String,
    database: Database,
    sealer: Sealer,
    clock: Clock,
    places: Arc<DashMap<RequestKey, ()>>,
    stored_recently: RecentKeys,
    key_hash: u64,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.places.remove(&(self.psp_id, self.route.clone(), self.key.clone()));
    }
}

impl Idempotency {
    /// Registers a request with its body, and with the JSON value of the body if it has one. The `Err` of the inner result
    /// is the stored answer, if there is one.
    pub async fn begin(
        app: &impl HttpState,
        psp_id: PspId,
        parts: &Parts,
        body: &[u8],
        value: Option<&Value>,
    ) -> Result<Result<Self, Response>, ApiError> {
        let mut headers = parts.headers.get_all(&IDEMPOTENCY_KEY).iter();
        let Some(header) = headers.next() else { return Ok(Ok(Self(None))) };
        let invalid = || ApiError::BadHeader("Idempotency-Key", "one text of 1 to 255 visible ASCII characters");
        let key = header.to_str().map_err(|_| invalid())?;
        if !is_key(key) || headers.next().is_some() {
            return Err(invalid());
        }
        let route = route_of(parts)?;
        let place = (psp_id, route.clone(), key.to_owned());
        let RunningKeys { places, stored_recently, .. } = app.running_keys();
        let key_hash = hashed(&place);
        if places.insert(place, ()).is_some() {
            return Err(ApiError::IdempotencyRunning);
        }
        let path = bare(parts.uri.path()).as_bytes();
        let former_hash = app.sealer().keyed_hash(&[b"idempotency", path, body]);
        let hash_of = |value| app.sealer().keyed_hash(&[b"idempotency json", path, &json::canonical(value)]);
        let running = RunningRequest {
            psp_id,
            request_hash: value.map_or_else(|| former_hash.clone(), hash_of),
            former_hash,
            route,
            key: key.to_owned(),
            database: app.database().clone(),
            sealer: app.sealer().clone(),
            clock: app.clock().clone(),
            places: Arc::clone(places),
            stored_recently: Arc::clone(stored_recently),
            key_hash,
        };
        let is_looked_up_now = running.route != LOOKED_UP_BY_COMMIT || stored_recently.lock().contains(&key_hash);
        app.running_keys().prune(app);
        let this = Self(Some(Arc::new(running)));
        if is_looked_up_now && let Some(answer) = this.find().await? {
            return Ok(Err(answer));
        }
        if let Some(slot) = parts.extensions.get::<IdempotencySlot>() {
            slot.0.get_or_init(|| this.clone());
        }
        Ok(Ok(this))
    }

    /// The row that stores `answer`, if the request came with a key.
    pub fn row(&self, answer: &Answer) -> Option<idempotency_keys::Model> {
        let running = self.0.as_deref()?;
        remember(&running.stored_recently, running.key_hash);
        let now: Timestamp = running.clock.now();
        let psp_id = running.psp_id.to_string();
        Some(idempotency_keys::Model {
            response_body: running.sealer.seal(&running.seal_place(&psp_id), answer.body()),
            psp_id,
            route: running.route.clone(),
            key: running.key.clone(),
            request_hash: running.request_hash.clone(),
            response_status: i64::from(answer.status().as_u16()),
            created_at: now.as_millis(),
            expires_at: now.plus_secs(KEPT_SECS).as_millis(),
        })
    }

    /// Makes the row from the payment, payout or withdrawal as the commit will leave it: the answer to a change that an actor
    /// commits.
    pub fn row_of<T>(
        &self,
        answer: impl Fn(&T) -> Result<Answer, ApiError> + Send + Sync + 'static,
    ) -> Option<ResponseRow<T>> {
        self.0.as_ref()?;
        let this = self.clone();
        Some(Box::new(move |committed| {
            let answer = answer(committed).expect("a committed aggregate serialises as JSON");
            this.row(&answer).expect("the request has an idempotency key")
        }))
    }

    /// Commits the change and its answer together. If another process has committed first with the same key, nothing of
    /// this change is written and the answer is that of the other process.
    pub async fn commit(&self, transaction: Transaction, answer: Answer) -> Result<Response, ApiError> {
        if let Some(row) = self.row(&answer) {
            let insert = idempotency_keys::Entity::insert(row.into_active_model()).on_conflict_do_nothing();
            let inserted = insert.exec_without_returning(&transaction).await?;
            if !matches!(inserted, TryInsertResult::Inserted(1)) {
                transaction.rollback().await?;
                return self.first_answer().await;
            }
        }
        transaction.commit().await?;
        Ok(answer.into_response())
    }

    /// The answer that another process has stored for this key.
    pub async fn first_answer(&self) -> Result<Response, ApiError> {
        self.find().await?.ok_or(ApiError::IdempotencyRunning)
    }

    /// The stored answer, if there is one, instead of an error of the service: the request may have been executed before.
    pub async fn first_answer_or(&self, error: impl Into<ApiError>) -> Result<Response, ApiError> {
        match self.find().await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => Err(error.into()),
        }
    }

    async fn find(&self) -> Result<Option<Response>, ApiError> {
        let Some(running) = self.0.as_deref() else { return Ok(None) };
        let id = (running.psp_id.to_string(), running.route.clone(), running.key.clone());
        let row = idempotency_keys::Entity::find_by_id(id).one(running.database.reader()).await?;
        let Some(row) = row else { return Ok(None) };
        let now = running.clock.now::<Timestamp>().as_millis();
        if row.expires_at <= now {
            // The new answer needs the key's row.
            idempotency_keys::Entity::delete_many()
                .filter(idempotency_keys::Column::PspId.eq(row.psp_id))
                .filter(idempotency_keys::Column::Route.eq(row.route))
                .filter(idempotency_keys::Column::Key.eq(row.key))
                .filter(idempotency_keys::Column::ExpiresAt.lte(now))
                .exec(running.database.writer())
                .await?;
            return Ok(None);
        }
        if row.request_hash != running.request_hash && row.request_hash != running.former_hash {
            return Err(ApiError::IdempotencyKeyReused);
        }
        let place = running.seal_place(&row.psp_id);
        let [table, _, route, key] = place;
        // Earlier versions sealed without the PSP. The last such answer expires 24 h after the upgrade.
        let body = running.sealer.open(&place, &row.response_body);
        let body = body.or_else(|_| running.sealer.open(&[table, route, key], &row.response_body));
        let body = std::mem::take(&mut *body.map_err(ApiError::internal)?);
        let status = u16::try_from(row.response_status).ok().and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.ok_or_else(|| ApiError::internal("a stored answer has no valid HTTP status"))?;
        let mut response = Answer { status, body }.into_response();
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        Ok(Some(response))
    }
}

/// The idempotency of a request that a handler has taken, for the layer around the handler.
#[derive(Clone, Default)]
pub(crate) struct IdempotencySlot(Arc<OnceLock<Idempotency>>);

impl IdempotencySlot {
    /// Replaces a refusal with the stored answer, if there is one by now: the client may have sent the request before, and
    /// another node may have executed it meanwhile. Then this node saw the change and refused to repeat it.
    pub(crate) async fn first_answer_or(self, response: Response) -> Response {
        let Some(idempotency) = self.0.get().filter(|_| response.status().is_client_error()) else { return response };
        match idempotency.find().await {
            Ok(Some(answer)) => answer,
            Ok(None) => response,
            Err(error) => error.into_response(),
        }
    }
}

impl RunningRequest {
    fn seal_place<'a>(&'a self, psp_id: &'a str) -> [&'a str; 4] {
        ["idempotency_keys", psp_id, &self.route, &self.key]
    }
}

impl RunningKeys {
    /// Deletes expired answers, at most once a minute, in a task of its own.
    fn prune(&self, app: &impl HttpState) {
        let now: Timestamp = app.clock().now();
        let last = self.pruned_at_ms.load(Ordering::Relaxed);
        let due = now.millis_since(Timestamp(last)) >= PRUNE_EVERY_MS;
        let swap = |last| self.pruned_at_ms.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed);
        if !due || swap(last).is_err() {
            return;
        }
        let database = app.database().clone();
        tokio::spawn(async move {
            match prune(&database, now).await {
                Ok(0) => {}
                Ok(rows) => tracing::debug!(rows, "deleted {rows} expired idempotent answers"),
                Err(error) => tracing::warn!(%error, "expired idempotent answers could not be deleted"),
            }
        });
    }
}

/// Deletes expired answers and returns how many.
pub async fn prune(database: &Database, now: Timestamp) -> Result<u64, sea_orm::DbErr> {
    let sql = "DELETE FROM idempotency_keys WHERE (psp_id, route, key) IN \
               (SELECT psp_id, route, key FROM idempotency_keys WHERE expires_at <= $1 LIMIT $2)";
    let step = [now.as_millis().into(), PRUNE_STEP.into()];
    let mut deleted = 0;
    loop {
        let statement = Statement::from_sql_and_values(database.backend(), sql, step.clone());
        // Deletes in small statements, so that writes of payments are not delayed.
        let rows = database.long_timeout().execute_raw(statement).await?.rows_affected();
        deleted += rows;
        if rows < PRUNE_STEP {
            return Ok(deleted);
        }
    }
}

fn hashed(key: &RequestKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn remember(recent: &RecentKeys, hash: u64) {
    let mut recent = recent.lock();
    if recent.len() >= STORED_RECENTLY_MAX {
        recent.clear();
    }
    recent.insert(hash);
}

/// The method and the path's template, the same with and without the prefix.
fn route_of(parts: &Parts) -> Result<String, ApiError> {
    let template = parts.extensions.get::<MatchedPath>();
    let template = template.ok_or_else(|| ApiError::internal("a handler has no route"))?;
    Ok(format!("{} {}", parts.method, bare(template.as_str())))
}

/// Returns `path` without the prefix `/api/v1`.
pub(crate) fn bare(path: &str) -> &str {
    path.strip_prefix(crate::PREFIX).filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

/// Initial capacity of a body buffer.
const BODY_USUAL_BYTES: usize = 1_024;

/// A successful answer, as a status and a JSON body in bytes, so that it can be stored before it is sent.
#[derive(Clone)]
pub struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Answer {
    /// Answers 200.
    pub fn ok(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::OK, body)
    }

    /// Answers 201: an object was created.
    pub fn created(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::CREATED, body)
    }

    /// Answers 202: the request was accepted and will be executed later.
    pub fn accepted(body: &impl Serialize) -> Result<Self, ApiError> {
        Self::new(StatusCode::ACCEPTED, body)
    }

    fn new(status: StatusCode, body: &impl Serialize) -> Result<Self, ApiError> {
        let mut bytes = Vec::with_capacity(BODY_USUAL_BYTES);
        serde_json::to_writer(&mut bytes, body)?;
        Ok(Self { status, body: bytes })
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The JSON body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], self.body).into_response()
    }
}
