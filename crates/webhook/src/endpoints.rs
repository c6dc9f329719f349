//! Rows of `webhook_endpoints`: URL, event patterns, schedule and sealed signing secrets of each endpoint of a PSP.
//!
//! A PSP's first endpoint, the one that `set_webhook` sets, has the id [`EndpointId::first_of`]. A deleted endpoint is marked;
//! its actor cancels its deliveries and then removes the row.

use payferry_domain::payment::EventPattern;
use payferry_domain::webhook::RetrySchedule;
use payferry_domain::{EndpointId, PspId, Timestamp};
use payferry_entities::webhook_endpoints::{self, Column, Entity, Model};
use payferry_entities::{EndpointStatus, psps};
use payferry_runtime::seal::{SealOpenError, Sealer};
use sea_orm::sea_query::LockType;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect, Select,
};
use zeroize::Zeroizing;

use super::delivery::{BadSecret, Secret};

/// Time during which the previous secret also signs after a rotation, seconds.
pub const ROTATION_OVERLAP_SECS: i64 = 24 * 3_600;
/// Maximum number of endpoints of a PSP.
pub const ENDPOINTS_MAX: u64 = 16;

/// Errors of a stored secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It was sealed with another key, or for another row.
    #[error(transparent)]
    Sealed(#[from] SealOpenError),
    /// The opened value is not a secret.
    #[error(transparent)]
    Bad(#[from] BadSecret),
}

/// Values of an endpoint that a request sets; `None` keeps the value, or takes the default.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Checked URL.
    pub url: Option<String>,
    /// The PSP's own note.
    pub description: Option<String>,
    /// Patterns; an empty list means all events.
    pub events: Option<Vec<EventPattern>>,
    /// Schedule of retries.
    pub schedule: Option<RetrySchedule>,
    /// Status.
    pub status: Option<EndpointStatus>,
}

impl Change {
    fn apply(self, endpoint: &mut Model, now: Timestamp) -> Result<(), DbErr> {
        let Self { url, description, events, schedule, status } = self;
        if let Some(url) = url {
            endpoint.url = url;
        }
        if let Some(events) = events {
            endpoint.events = serde_json::to_string(&events).map_err(|error| DbErr::Json(error.to_string()))?;
        }
        if let Some(schedule) = schedule {
            schedule.as_str().clone_into(&mut endpoint.schedule);
        }
        if let Some(status) = status {
            endpoint.status = status;
        }
        endpoint.description = description.or(endpoint.description.take());
        endpoint.updated_at = now.as_millis();
        Ok(())
    }
}

fn of_psp(psp_id: PspId) -> Select<Entity> {
    Entity::find().filter(Column::PspId.eq(psp_id.to_string()))
}

/// The PSP's endpoints that are not deleted.
pub fn own(psp_id: PspId) -> Select<Entity> {
    of_psp(psp_id).filter(Column::Status.ne(EndpointStatus::Deleted))
}

/// Loads the PSP's endpoints, the oldest first, with deleted ones whose deliveries may not be cancelled yet.
pub(super) async fn load_all(connection: &impl ConnectionTrait, psp_id: PspId) -> Result<Vec<Model>, DbErr> {
    of_psp(psp_id).order_by_asc(Column::CreatedAt).order_by_asc(Column::Id).all(connection).await
}

/// Loads an endpoint of the PSP.
pub async fn load(connection: &impl ConnectionTrait, psp_id: PspId, id: EndpointId) -> Result<Option<Model>, DbErr> {
    own(psp_id).filter(Column::Id.eq(id.to_string())).one(connection).await
}

/// Loads an endpoint and locks it for a change in this transaction. Competing changes wait and then see this change.
/// (SQLite has a single writer anyway.)
async fn load_to_change(
    connection: &impl ConnectionTrait,
    psp_id: PspId,
    id: EndpointId,
) -> Result<Option<Model>, DbErr> {
    own(psp_id).filter(Column::Id.eq(id.to_string())).lock_exclusive().one(connection).await
}

/// Sets the URL and, if given, the patterns of the first endpoint. Returns the row and, the first time, the secret.
pub async fn set(
    connection: &impl ConnectionTrait,
    sealer: &Sealer,
    psp_id: PspId,
    url: &str,
    events: Option<&[EventPattern]>,
    now: Timestamp,
) -> Result<(Model, Option<Secret>), DbErr> {
    let first = EndpointId::first_of(psp_id);
    let change = Change { url: Some(url.to_owned()), events: events.map(<[_]>::to_vec), ..Change::default() };
    lock_psp(connection, psp_id).await?;
    if let Some(endpoint) = update(connection, psp_id, first, change.clone(), now).await? {
        return Ok((endpoint, None));
    }
    let (endpoint, secret) = insert(connection, sealer, psp_id, first, change, now).await?;
    Ok((endpoint, Some(secret)))
}

/// Adds an endpoint; `None` if the PSP has [`ENDPOINTS_MAX`] of them.
pub async fn create(
    connection: &impl ConnectionTrait,
    sealer: &Sealer,
    psp_id: PspId,
    change: Change,
    now: Timestamp,
) -> Result<Option<(Model, Secret)>, DbErr> {
    lock_psp(connection, psp_id).await?;
    if own(psp_id).count(connection).await? >= ENDPOINTS_MAX {
        return Ok(None);
    }
    let first = EndpointId::first_of(psp_id);
    let has_first = load(connection, psp_id, first).await?.is_some();
    let id = if has_first { EndpointId::generate() } else { first };
    insert(connection, sealer, psp_id, id, change, now).await.map(Some)
}

/// Makes concurrent changes of the PSP's endpoints wait for the end of this transaction. Payments, which refer to the PSP, do not
/// wait.
async fn lock_psp(connection: &impl ConnectionTrait, psp_id: PspId) -> Result<(), DbErr> {
    let psp = psps::Entity::find_by_id(psp_id.to_string()).lock(LockType::NoKeyUpdate).one(connection).await?;
    psp.map(drop).ok_or_else(|| DbErr::RecordNotFound(psp_id.to_string()))
}

async fn insert(
    connection: &impl ConnectionTrait,
    sealer: &Sealer,
    psp_id: PspId,
    id: EndpointId,
    change: Change,
    now: Timestamp,
) -> Result<(Model, Secret), DbErr> {
    let secret = Secret::generate();
    let mut endpoint = Model {
        id: id.to_string(),
        psp_id: psp_id.to_string(),
        events: "[]".to_owned(),
        schedule: RetrySchedule::Default.to_string(),
        created_at: now.as_millis(),
        ..Model::default()
    };
    endpoint.secret = seal(sealer, &endpoint, &secret);
    change.apply(&mut endpoint, now)?;
    // The first one may be there, deleted.
    Entity::delete_by_id(endpoint.id.clone()).exec(connection).await?;
    Ok((endpoint.into_active_model().insert(connection).await?, secret))
}

/// Changes an endpoint; `None` if the PSP has none with this id.
pub async fn update(
    connection: &impl ConnectionTrait,
    psp_id: PspId,
    id: EndpointId,
    change: Change,
    now: Timestamp,
) -> Result<Option<Model>, DbErr> {
    let Some(mut endpoint) = load_to_change(connection, psp_id, id).await? else { return Ok(None) };
    change.apply(&mut endpoint, now)?;
    save(connection, endpoint).await.map(Some)
}

/// Deletes an endpoint; `None` if the PSP has none with this id. Its actor then cancels its deliveries.
pub async fn delete(
    connection: &impl ConnectionTrait,
    psp_id: PspId,
    id: EndpointId,
    now: Timestamp,
) -> Result<Option<Model>, DbErr> {
    let Some(mut endpoint) = load_to_change(connection, psp_id, id).await? else { return Ok(None) };
    endpoint.status = EndpointStatus::Deleted;
    endpoint.updated_at = now.as_millis();
    save(connection, endpoint).await.map(Some)
}

/// Removes the row of a deleted endpoint.
pub(super) async fn remove(connection: &impl ConnectionTrait, id: EndpointId) -> Result<(), DbErr> {
    let deleted =
        Entity::delete_many().filter(Column::Id.eq(id.to_string())).filter(Column::Status.eq(EndpointStatus::Deleted));
    deleted.exec(connection).await.map(drop)
}

/// Replaces the secret; the old one also signs for [`ROTATION_OVERLAP_SECS`]. `None` if the PSP has no such endpoint.
pub async fn rotate(
    connection: &impl ConnectionTrait,
    sealer: &Sealer,
    psp_id: PspId,
    id: EndpointId,
    now: Timestamp,
) -> Result<Option<(Model, Secret)>, DbErr> {
    let Some(mut endpoint) = load_to_change(connection, psp_id, id).await? else { return Ok(None) };
    let secret = Secret::generate();
    let sealed = seal(sealer, &endpoint, &secret);
    endpoint.previous_secret = Some(std::mem::replace(&mut endpoint.secret, sealed));
    endpoint.previous_secret_expires_at = Some(now.plus_secs(ROTATION_OVERLAP_SECS).as_millis());
    endpoint.updated_at = now.as_millis();
    Ok(Some((save(connection, endpoint).await?, secret)))
}

/// Returns the current signing secrets, newest first.
pub fn secrets(sealer: &Sealer, endpoint: &Model, now: Timestamp) -> Result<Vec<Secret>, SecretError> {
    let mut secrets = vec![open(sealer, endpoint, &endpoint.secret)?];
    let overlaps = endpoint.previous_secret_expires_at.is_some_and(|until| now.as_millis() < until);
    if let Some(previous) = endpoint.previous_secret.as_deref().filter(|_| overlaps) {
        secrets.push(open(sealer, endpoint, previous)?);
    }
    Ok(secrets)
}

async fn save(connection: &impl ConnectionTrait, endpoint: Model) -> Result<Model, DbErr> {
    webhook_endpoints::ActiveModel::from(endpoint).reset_all().update(connection).await
}

/// The place that the secrets of an endpoint are sealed for. That of the first endpoint is the PSP, as in versions that had
/// one endpoint per PSP.
pub fn sealed_for<'a>(psp_id: &'a str, id: &'a str) -> [&'a str; 3] {
    let is_first = id.strip_prefix(EndpointId::PREFIX) == psp_id.strip_prefix(PspId::PREFIX);
    ["webhook_endpoints", if is_first { psp_id } else { id }, "secret"]
}

/// Both columns use the same sealing context, because a rotation moves the sealed text from one to the other.
fn seal(sealer: &Sealer, endpoint: &Model, secret: &Secret) -> String {
    sealer.seal(&sealed_for(&endpoint.psp_id, &endpoint.id), Zeroizing::new(secret.reveal()).as_bytes())
}

fn open(sealer: &Sealer, endpoint: &Model, sealed: &str) -> Result<Secret, SecretError> {
    let opened = sealer.open(&sealed_for(&endpoint.psp_id, &endpoint.id), sealed)?;
    Ok(Secret::parse(std::str::from_utf8(&opened).map_err(|_| BadSecret)?)?)
}
