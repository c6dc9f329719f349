//! Where the objects are, and how they are sealed.

use std::fmt;
use std::fs::DirBuilder;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use payferry_actors::seal::{OpenError, Sealer};
use payferry_domain::{CustomerId, DocumentId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests at once that hold documents in memory, each at most one of every kind.
pub const AT_ONCE_MAX: usize = 8;
/// How long a request waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one request to a bucket may take.
const BUCKET_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a request to a bucket is tried again.
const BUCKET_RETRIES_MAX: usize = 2;
/// What every object's path begins with.
const ROOT: &str = "customers";
/// The table whose rows name the objects: a part of what each is sealed for.
const TABLE: &str = "customer_documents";

/// Where documents are kept. Clones are the same place.
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
    /// Whether the endpoint may be plain HTTP.
    pub allow_http: bool,
    /// Id of the access key; `None`: as the tools of AWS find it.
    pub access_key_id: Option<String>,
    /// Secret of the access key.
    pub secret_access_key: Option<String>,
}

/// Which document of whom: its object's path, and what its content is sealed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Whose it is.
    pub customer_id: CustomerId,
    /// Which it is.
    pub document_id: DocumentId,
}

/// Why a document could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// There is no such object.
    #[error("the object {0} is not in the document store")]
    Missing(Place),
    /// It is there and does not open.
    #[error("the object {0} does not open: {1}")]
    Sealed(Place, OpenError),
    /// The store does not answer, or refuses.
    #[error("the document store failed: {0}")]
    Store(object_store::Error),
    /// Too many are at it.
    #[error("too many documents are worked on at once")]
    Busy,
}

impl DocumentStore {
    /// In a folder, which is made if it is not there, readable by its owner only.
    pub fn in_folder(folder: &FilePath, sealer: Sealer) -> anyhow::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let cannot = || format!("the folder of documents {} cannot be used", folder.display());
        builder.create(folder).with_context(cannot)?;
        let objects = LocalFileSystem::new_with_prefix(folder).with_context(cannot)?;
        Ok(Self::over(Arc::new(objects.with_fsync(true).with_automatic_cleanup(true)), sealer))
    }

    /// In a bucket that this service alone uses.
    pub fn in_bucket(bucket: &Bucket, sealer: Sealer) -> anyhow::Result<Self> {
        let Bucket { name, region, endpoint, allow_http, access_key_id, secret_access_key } = bucket;
        // The client of the bucket takes the process's TLS provider; a second install changes nothing.
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
        let objects = builder.build().with_context(|| format!("the bucket of documents {name} cannot be used"))?;
        Ok(Self::over(Arc::new(objects), sealer))
    }

    fn over(objects: Arc<dyn ObjectStore>, sealer: Sealer) -> Self {
        Self { objects, sealer, turns: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    /// Waits for room to hold documents in memory; it lasts as long as what is answered is kept.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, DocumentError> {
        let turn = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(&self.turns).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or(DocumentError::Busy)
    }

    /// Keeps a document. It is on disk, or in the bucket, when this returns.
    pub async fn put(&self, place: Place, content: Vec<u8>) -> Result<(), DocumentError> {
        let sealer = self.sealer.clone();
        let sealed =
            aside(move || sealer.seal_bytes(&[TABLE, &place.document_id.to_string(), "content"], &content)).await;
        self.objects.put(&place.object(), sealed.into()).await.map_err(DocumentError::Store)?;
        Ok(())
    }

    /// Reads a document.
    pub async fn get(&self, place: Place) -> Result<Vec<u8>, DocumentError> {
        let sealed = self.sealed(place).await?;
        self.opened(place, sealed).await
    }

    /// Removes a document; that it is not there is no error.
    pub async fn delete(&self, place: Place) -> Result<(), DocumentError> {
        match self.objects.delete(&place.object()).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(DocumentError::Store(error)),
        }
    }

    /// Seals a document anew with the current key. Whether there was anything to do.
    pub async fn reseal(&self, place: Place) -> Result<bool, DocumentError> {
        let sealed = self.sealed(place).await?;
        if self.sealer.is_current_bytes(&sealed) {
            return Ok(false);
        }
        let content = self.opened(place, sealed).await?;
        self.put(place, content).await?;
        Ok(true)
    }

    /// Every object of documents, whosever it is.
    pub(super) fn list(&self) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.objects.list(Some(&Path::from(ROOT)))
    }

    /// The content is bound to the document: put in another's place, it does not open.
    async fn opened(&self, place: Place, sealed: Vec<u8>) -> Result<Vec<u8>, DocumentError> {
        let sealer = self.sealer.clone();
        let open = move || sealer.open_bytes(&[TABLE, &place.document_id.to_string(), "content"], &sealed);
        aside(open).await.map_err(|error| DocumentError::Sealed(place, error))
    }

    async fn sealed(&self, place: Place) -> Result<Vec<u8>, DocumentError> {
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

impl Place {
    /// Of an object with this path; `None` if it is none of ours.
    pub fn of_path(path: &str) -> Option<Self> {
        let (customer_id, document_id) = path.strip_prefix(ROOT)?.strip_prefix('/')?.split_once('/')?;
        let place = Self { customer_id: customer_id.parse().ok()?, document_id: document_id.parse().ok()? };
        (place.to_string() == path).then_some(place)
    }

    fn object(self) -> Path {
        Path::from(self.to_string())
    }
}

/// The object's path.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ROOT}/{}/{}", self.customer_id, self.document_id)
    }
}

/// Work on megabytes, beside the threads that answer requests.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
