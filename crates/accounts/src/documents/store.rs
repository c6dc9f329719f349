//! Storage and encryption of documents, and removal of objects without a row, which an upload left behind when it was
//! interrupted between the object and its row. Here are also the limits of a PSP: concurrent requests and stored bytes.

use std::collections::HashSet;
use std::fmt;
use std::fs::DirBuilder;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use dashmap::DashMap;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use payferry_domain::{CustomerId, DocumentId, PspId, Timestamp};
use payferry_entities::{Database, customer_documents, customers};
use payferry_runtime::seal::{SealOpenError, Sealer};
use sea_orm::sea_query::ExprTrait;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect, QueryTrait};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

/// Concurrent requests of PSPs that process documents, each at most one of every kind.
pub const AT_ONCE_MAX: usize = 8;
/// Concurrent requests of one PSP that process documents.
pub const AT_ONCE_PER_PSP: usize = 2;
/// Concurrent requests of the operator that process documents.
const AT_ONCE_OPERATOR: usize = 2;
/// Default of the bytes that the documents of one PSP may have, replaced ones included.
pub const PSP_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// Maximum wait of a request for its permit.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of one request to a bucket.
const BUCKET_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum retries of a request to a bucket.
const BUCKET_RETRIES_MAX: usize = 2;
/// Minimum age of an object to delete. It is far longer than an upload can take.
pub const ORPHAN_AGE: Duration = Duration::from_hours(24);
/// Interval of sweeps.
const SWEEP_EVERY: Duration = Duration::from_hours(1);
const DAY_MS: i64 = 24 * 3_600_000;
/// Documents read with one query.
const STEP: usize = 200;
/// First segment of every object's path.
const ROOT: &str = "customers";
/// Table of the rows that name the objects; part of the associated data of their encryption.
const TABLE: &str = "customer_documents";

/// A document store. Clones share the same storage.
#[derive(Clone)]
pub struct DocumentStore {
    objects: Arc<dyn ObjectStore>,
    sealer: Sealer,
    turns: Arc<Turns>,
    psp_bytes_max: u64,
}

/// Permits of requests that process documents.
struct Turns {
    all_psps: Arc<Semaphore>,
    of_psp: DashMap<PspId, Arc<Semaphore>>,
    operator: Arc<Semaphore>,
}

/// Permit to process documents in one request.
#[derive(Debug)]
pub struct DocumentTurn {
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// An S3-compatible bucket. No `Debug`: it holds a secret.
pub struct Bucket {
    /// Name.
    pub name: String,
    /// Region.
    pub region: String,
    /// URL of the API; `None`: that of AWS.
    pub endpoint: Option<url::Url>,
    /// True if the endpoint may be plain HTTP.
    pub allow_http: bool,
    /// Id of the access key; `None`: as the tools of AWS find it.
    pub access_key_id: Option<String>,
    /// Secret of the access key.
    pub secret_access_key: Option<String>,
}

/// Identifies a document: gives its object's path, which it formats as, and binds the encryption to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{ROOT}/{customer_id}/{document_id}")]
pub struct DocumentLocation {
    /// The customer.
    pub customer_id: CustomerId,
    /// The document.
    pub document_id: DocumentId,
}

/// Error of storing or reading a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// There is no such object.
    #[error("the object {0} is not in the document store")]
    Missing(DocumentLocation),
    /// The object cannot be decrypted.
    #[error("the object {0} cannot be decrypted: {1}")]
    Sealed(DocumentLocation, SealOpenError),
    /// The store does not answer, or refuses.
    #[error("the document store failed: {0}")]
    Store(object_store::Error),
    /// Too many documents are in memory.
    #[error("too many documents are processed at once")]
    Busy,
}

/// Error of a check of a PSP's quota.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The PSP would store too many bytes.
    #[error("your documents have {stored} bytes, these would add {more}, and at most {max} are allowed")]
    Exceeded {
        /// Bytes of the stored documents, replaced ones included.
        stored: u64,
        /// Bytes to add.
        more: u64,
        /// The limit.
        max: u64,
    },
    /// The database does not answer.
    #[error(transparent)]
    Database(#[from] DbErr),
}

impl DocumentStore {
    /// Opens a folder, which is created if necessary and readable by its owner only.
    pub fn in_folder(folder: &FilePath, sealer: Sealer) -> anyhow::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let cannot = || format!("the document folder {} cannot be used", folder.display());
        builder.create(folder).with_context(cannot)?;
        let objects = LocalFileSystem::new_with_prefix(folder).with_context(cannot)?;
        Ok(Self::over(Arc::new(objects.with_fsync(true).with_automatic_cleanup(true)), sealer))
    }

    /// Opens a bucket that only this service uses.
    pub fn in_bucket(bucket: &Bucket, sealer: Sealer) -> anyhow::Result<Self> {
        let Bucket { name, region, endpoint, allow_http, access_key_id, secret_access_key } = bucket;
        // The bucket's client uses the process's TLS provider. A second install has no effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = ClientOptions::new().with_timeout(BUCKET_TIMEOUT).with_connect_timeout(BUCKET_TIMEOUT);
        let retry =
            RetryConfig { max_retries: BUCKET_RETRIES_MAX, retry_timeout: BUCKET_TIMEOUT, ..Default::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_client_options(client)
            .with_retry(retry)
            .with_disable_bulk_delete(true)
            .with_bucket_name(name)
            .with_region(region)
            .with_allow_http(*allow_http);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/'));
        }
        if let Some(id) = access_key_id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(secret) = secret_access_key {
            builder = builder.with_secret_access_key(secret);
        }
        let objects = builder.build().with_context(|| format!("the document bucket {name} cannot be used"))?;
        Ok(Self::over(Arc::new(objects), sealer))
    }

    fn over(objects: Arc<dyn ObjectStore>, sealer: Sealer) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        let turns =
            Turns { all_psps: permits(AT_ONCE_MAX), of_psp: DashMap::new(), operator: permits(AT_ONCE_OPERATOR) };
        Self { objects, sealer, turns: Arc::new(turns), psp_bytes_max: PSP_BYTES_MAX }
    }

    /// The store with another limit on the bytes of one PSP.
    #[must_use]
    pub fn with_psp_bytes_max(self, psp_bytes_max: u64) -> Self {
        Self { psp_bytes_max, ..self }
    }

    /// Waits for a permit to process documents for this PSP; `None`: for the operator, whose permits no PSP can take.
    /// Take it once the request has arrived, and hold it until the request ends.
    pub async fn turn(&self, psp_id: Option<PspId>) -> Result<DocumentTurn, DocumentError> {
        let Turns { all_psps, of_psp, operator } = &*self.turns;
        let permits = async {
            let Some(psp_id) = psp_id else { return Ok((Arc::clone(operator).acquire_owned().await?, None)) };
            let own = of_psp.entry(psp_id).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_PER_PSP))).clone();
            let own = own.acquire_owned().await?;
            Ok::<_, AcquireError>((own, Some(Arc::clone(all_psps).acquire_owned().await?)))
        };
        let permits = tokio::time::timeout(TURN_TIMEOUT, permits).await.ok().and_then(Result::ok);
        Ok(DocumentTurn { _permits: permits.ok_or(DocumentError::Busy)? })
    }

    /// Checks that the PSP may store this many more bytes. Requests that run at the same time do not see each other, so
    /// that the sum may exceed the limit by what [`AT_ONCE_PER_PSP`] requests store.
    pub async fn check_quota(&self, database: &Database, psp_id: PspId, more: u64) -> Result<(), QuotaError> {
        let stored: Option<i64> = customer_documents::Entity::find()
            .select_only()
            .expr(customer_documents::Column::Size.sum().cast_as("BIGINT"))
            .filter(
                customer_documents::Column::CustomerId.in_subquery(
                    customers::Entity::find()
                        .select_only()
                        .column(customers::Column::Id)
                        .filter(customers::Column::PspId.eq(psp_id.to_string()))
                        .into_query(),
                ),
            )
            .into_tuple::<Option<i64>>()
            .one(database.reader())
            .await?
            .flatten();
        let stored = stored.unwrap_or_default().unsigned_abs();
        if stored.saturating_add(more) > self.psp_bytes_max {
            return Err(QuotaError::Exceeded { stored, more, max: self.psp_bytes_max });
        }
        Ok(())
    }

    /// Stores a document. It is durable in the folder or the bucket when this returns.
    pub async fn put(
        &self,
        place: DocumentLocation,
        content: impl Into<Zeroizing<Vec<u8>>>,
    ) -> Result<(), DocumentError> {
        let (sealer, content) = (self.sealer.clone(), content.into());
        let sealed =
            aside(move || sealer.seal_bytes(&[TABLE, &place.document_id.to_string(), "content"], &content)).await;
        self.objects.put(&place.object(), sealed.into()).await.map_err(DocumentError::Store)?;
        Ok(())
    }

    /// Reads a document.
    pub async fn get(&self, place: DocumentLocation) -> Result<Zeroizing<Vec<u8>>, DocumentError> {
        let sealed = self.sealed(place).await?;
        self.opened(place, sealed).await
    }

    /// Deletes a document; a missing one is not an error.
    pub async fn delete(&self, place: DocumentLocation) -> Result<(), DocumentError> {
        match self.objects.delete(&place.object()).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(DocumentError::Store(error)),
        }
    }

    /// Re-encrypts a document with the current key. Returns false if it was up to date.
    pub async fn reseal(&self, place: DocumentLocation) -> Result<bool, DocumentError> {
        let sealed = self.sealed(place).await?;
        if self.sealer.is_current_bytes(&sealed) {
            return Ok(false);
        }
        let content = self.opened(place, sealed).await?;
        self.put(place, content).await?;
        Ok(true)
    }

    /// Lists the objects of all documents.
    fn list(&self) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.objects.list(Some(&Path::from(ROOT)))
    }

    /// Decrypts a content. The encryption is bound to the document, so a swapped object does not decrypt.
    async fn opened(&self, place: DocumentLocation, sealed: Vec<u8>) -> Result<Zeroizing<Vec<u8>>, DocumentError> {
        let sealer = self.sealer.clone();
        let open = move || sealer.open_bytes(&[TABLE, &place.document_id.to_string(), "content"], &sealed);
        aside(open).await.map_err(|error| DocumentError::Sealed(place, error))
    }

    async fn sealed(&self, place: DocumentLocation) -> Result<Vec<u8>, DocumentError> {
        let read = async { self.objects.get(&place.object()).await?.bytes().await };
        read.await.map(Into::into).map_err(|error| match error {
            object_store::Error::NotFound { .. } => DocumentError::Missing(place),
            error => DocumentError::Store(error),
        })
    }
}

impl fmt::Debug for DocumentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DocumentStore").field(&self.objects.to_string()).finish()
    }
}

impl DocumentLocation {
    /// Parses an object's path; `None` if it has another format.
    pub fn of_path(path: &str) -> Option<Self> {
        let (customer_id, document_id) = path.strip_prefix(ROOT)?.strip_prefix('/')?.split_once('/')?;
        let place = Self { customer_id: customer_id.parse().ok()?, document_id: document_id.parse().ok()? };
        (place.to_string() == path).then_some(place)
    }

    fn object(self) -> Path {
        Path::from(self.to_string())
    }
}

/// Runs CPU work on megabytes outside of the threads that serve requests.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Every hour while this future is polled, deletes documents that were replaced more than `replaced_days` days ago
/// (`None`: none), and objects without a row.
pub async fn sweep_on(documents: DocumentStore, database: Database, replaced_days: Option<i64>) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(days) = replaced_days {
            let before = Utc::now().timestamp_millis() - days.saturating_mul(DAY_MS);
            match delete_replaced(&documents, &database, Timestamp(before)).await {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, "deleted {deleted} replaced documents"),
                Err(error) => tracing::warn!(%error, "replaced documents could not be deleted: {error:#}"),
            }
        }
        match sweep(&documents, &database, ORPHAN_AGE).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed {removed} documents without a row"),
            Err(error) => tracing::warn!(%error, "documents without a row could not be removed: {error:#}"),
        }
    }
}

/// Deletes the documents that were replaced before this time, and returns how many. The row goes first: if the object
/// cannot be deleted, [`sweep`] deletes it later.
pub async fn delete_replaced(documents: &DocumentStore, database: &Database, before: Timestamp) -> anyhow::Result<u64> {
    use customer_documents::{Column, Entity};
    // Limits the number of these statements at the writer; payments go first.
    let database = database.api_pool();
    let mut deleted = 0;
    loop {
        let old = Entity::find().filter(Column::ReplacedAt.lt(before.as_millis())).limit(STEP as u64);
        let old = old.all(database.reader()).await?;
        if old.is_empty() {
            return Ok(deleted);
        }
        let ids = old.iter().map(|row| row.id.clone());
        Entity::delete_many().filter(Column::Id.is_in(ids)).exec(database.writer()).await?;
        for place in old.iter().filter_map(|row| DocumentLocation::of_path(&row.path)) {
            documents.delete(place).await?;
            deleted += 1;
        }
    }
}

/// Deletes objects older than `age` without a row, and returns how many. It keeps objects that the service's keys
/// cannot decrypt, since a bucket may be shared by mistake.
pub async fn sweep(documents: &DocumentStore, database: &Database, age: Duration) -> anyhow::Result<u64> {
    let created_before = Utc::now() - chrono::Duration::from_std(age)?;
    let mut removed = 0;
    let mut objects = documents.list().try_ready_chunks(STEP);
    loop {
        let chunk = match objects.try_next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(removed),
            Err(error) => return Err(error.1.into()),
        };
        let old = chunk.iter().filter(|object| object.last_modified <= created_before);
        let places: Vec<_> = old.filter_map(|object| DocumentLocation::of_path(object.location.as_ref())).collect();
        for orphan in unnamed(database, places).await? {
            match documents.get(orphan).await {
                Ok(_) => {
                    documents.delete(orphan).await?;
                    removed += 1;
                }
                Err(DocumentError::Missing(_)) => {}
                Err(error) => tracing::warn!(%error, "an object without a row was kept: {error}"),
            }
        }
    }
}

/// Returns the objects without a row.
async fn unnamed(database: &Database, places: Vec<DocumentLocation>) -> Result<Vec<DocumentLocation>, sea_orm::DbErr> {
    if places.is_empty() {
        return Ok(places);
    }
    let named: HashSet<String> = customer_documents::Entity::find()
        .select_only()
        .column(customer_documents::Column::Path)
        .filter(customer_documents::Column::Id.is_in(places.iter().map(|place| place.document_id.to_string())))
        .into_tuple()
        .all(database.reader())
        .await?
        .into_iter()
        .collect();
    Ok(places.into_iter().filter(|place| !named.contains(&place.to_string())).collect())
}
