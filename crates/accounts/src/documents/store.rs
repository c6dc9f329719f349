//! Storage and encryption of documents, and removal of objects without a row, which an upload left behind when it was
//! interrupted between the object and its row.

use std::collections::HashSet;
use std::fmt;
use std::fs::DirBuilder;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use payferry_domain::{CustomerId, DocumentId};
use payferry_entities::{Database, customer_documents};
use payferry_runtime::seal::{SealOpenError, Sealer};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent requests that hold documents in memory, each at most one of every kind.
pub const AT_ONCE_MAX: usize = 8;
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
/// Objects checked with one query.
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
    turns: Arc<Semaphore>,
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
        Self { objects, sealer, turns: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    /// Waits for a permit to hold documents in memory. Hold it as long as the content.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, DocumentError> {
        let turn = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(&self.turns).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or(DocumentError::Busy)
    }

    /// Stores a document. It is durable in the folder or the bucket when this returns.
    pub async fn put(&self, place: DocumentLocation, content: Vec<u8>) -> Result<(), DocumentError> {
        let sealer = self.sealer.clone();
        let sealed =
            aside(move || sealer.seal_bytes(&[TABLE, &place.document_id.to_string(), "content"], &content)).await;
        self.objects.put(&place.object(), sealed.into()).await.map_err(DocumentError::Store)?;
        Ok(())
    }

    /// Reads a document.
    pub async fn get(&self, place: DocumentLocation) -> Result<Vec<u8>, DocumentError> {
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
    async fn opened(&self, place: DocumentLocation, sealed: Vec<u8>) -> Result<Vec<u8>, DocumentError> {
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

/// Sweeps every hour while this future is polled.
pub async fn sweep_on(documents: DocumentStore, database: Database) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match sweep(&documents, &database, ORPHAN_AGE).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed {removed} documents without a row"),
            Err(error) => tracing::warn!(%error, "documents without a row could not be removed: {error:#}"),
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
