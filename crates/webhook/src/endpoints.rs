//! Rows of `webhook_endpoints`: a PSP's webhook URL, event patterns and sealed signing secrets.

use payferry_domain::payment::EventPattern;
use payferry_domain::{PspId, Timestamp};
use payferry_entities::webhook_endpoints::{self, Entity, Model};
use payferry_runtime::seal::{SealOpenError, Sealer};
use sea_orm::{ActiveModelTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, QuerySelect};
use zeroize::Zeroizing;

use super::delivery::{BadSecret, Secret};

/// Time during which the previous secret also signs after a rotation, seconds.
pub const ROTATION_OVERLAP_SECS: i64 = 24 * 3_600;

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

/// Loads the PSP's endpoint; `None` if no URL was ever set.
pub async fn load(connection: &impl ConnectionTrait, psp_id: PspId) -> Result<Option<Model>, DbErr> {
    Entity::find_by_id(psp_id.to_string()).one(connection).await
}

/// Loads the endpoint and locks it for a change in this transaction. Competing changes wait and then see this change.
/// (SQLite has a single writer anyway.)
async fn load_to_change(connection: &impl ConnectionTrait, psp_id: PspId) -> Result<Option<Model>, DbErr> {
    Entity::find_by_id(psp_id.to_string()).lock_exclusive().one(connection).await
}

/// Sets the URL and, if given, the patterns (an empty list means all events). Returns the row and, the first time, the
/// secret.
pub async fn set(
    connection: &impl ConnectionTrait,
    sealer: &Sealer,
    psp_id: PspId,
    url: &str,
    events: Option<&[EventPattern]>,
    now: Timestamp,
) -> Result<(Model, Option<Secret>), DbErr> {
    let spelled =
        |events: &[EventPattern]| serde_json::to_string(events).map_err(|error| DbErr::Json(error.to_string()));
    if let Some(mut endpoint) = load_to_change(connection, psp_id).await? {
        url.clone_into(&mut endpoint.url);
        if let Some(events) = events {
            endpoint.events = spelled(events)?;
        }
        endpoint.updated_at = now.as_millis();
        return Ok((save(connection, endpoint).await?, None));
    }
    let secret = Secret::generate();
    let endpoint = Model {
        psp_id: psp_id.to_string(),
        url: url.to_owned(),
        events: spelled(events.unwrap_or_default())?,
        secret: seal(sealer, &psp_id.to_string(), &secret),
        previous_secret: None,
        previous_secret_expires_at: None,
        created_at: now.as_millis(),
        updated_at: now.as_millis(),
    };
    Ok((endpoint.into_active_model().insert(connection).await?, Some(secret)))
}

/// Replaces the secret; the old one also signs for [`ROTATION_OVERLAP_SECS`]. `None` if no URL was ever set.
pub async fn rotate(
    connection: &impl ConnectionTrait,
    sealer: &Sealer,
    psp_id: PspId,
    now: Timestamp,
) -> Result<Option<(Model, Secret)>, DbErr> {
    let Some(mut endpoint) = load_to_change(connection, psp_id).await? else { return Ok(None) };
    let secret = Secret::generate();
    let sealed = seal(sealer, &endpoint.psp_id, &secret);
    endpoint.previous_secret = Some(std::mem::replace(&mut endpoint.secret, sealed));
    endpoint.previous_secret_expires_at = Some(now.plus_secs(ROTATION_OVERLAP_SECS).as_millis());
    endpoint.updated_at = now.as_millis();
    Ok(Some((save(connection, endpoint).await?, secret)))
}

/// Returns the patterns of an endpoint; an empty list means all events.
pub fn patterns(endpoint: &Model) -> Result<Vec<EventPattern>, DbErr> {
    serde_json::from_str(&endpoint.events).map_err(|error| DbErr::Json(error.to_string()))
}

/// Returns the current signing secrets, newest first.
pub fn secrets(sealer: &Sealer, endpoint: &Model, now: Timestamp) -> Result<Vec<Secret>, SecretError> {
    let mut secrets = vec![open(sealer, &endpoint.psp_id, &endpoint.secret)?];
    let overlaps = endpoint.previous_secret_expires_at.is_some_and(|until| now.as_millis() < until);
    if let Some(previous) = endpoint.previous_secret.as_deref().filter(|_| overlaps) {
        secrets.push(open(sealer, &endpoint.psp_id, previous)?);
    }
    Ok(secrets)
}

async fn save(connection: &impl ConnectionTrait, endpoint: Model) -> Result<Model, DbErr> {
    webhook_endpoints::ActiveModel::from(endpoint).reset_all().update(connection).await
}

/// Both columns use the same sealing context, because a rotation moves the sealed text from one to the other.
fn seal(sealer: &Sealer, psp_id: &str, secret: &Secret) -> String {
    sealer.seal(&["webhook_endpoints", psp_id, "secret"], Zeroizing::new(secret.reveal()).as_bytes())
}

fn open(sealer: &Sealer, psp_id: &str, sealed: &str) -> Result<Secret, SecretError> {
    let opened = sealer.open(&["webhook_endpoints", psp_id, "secret"], sealed)?;
    Ok(Secret::parse(std::str::from_utf8(&opened).map_err(|_| BadSecret)?)?)
}
