//! An S3-compatible bucket for tests: the part of the protocol that a document store uses. Rejects requests without a
//! valid signature (AWS Signature Version 4) of the access key.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, ETAG, LAST_MODIFIED};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use payferry_testkit::stub::serve_until_dropped;
use sha2::{Digest, Sha256};
use tokio_util::task::AbortOnDropHandle;

/// Name of the bucket.
pub const BUCKET: &str = "documents";
/// Region of the bucket.
pub const REGION: &str = "test-region-1";
/// Maximum size of an object in bytes.
const OBJECT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A running bucket.
pub struct Bucket {
    url: String,
    shelf: Arc<Shelf>,
    _serving: AbortOnDropHandle<()>,
}

struct Shelf {
    access_key_id: String,
    secret: String,
    objects: Mutex<BTreeMap<String, Object>>,
    refused: Mutex<Vec<String>>,
    broken: Mutex<bool>,
}

#[derive(Clone)]
struct Object {
    content: Bytes,
    at: DateTime<Utc>,
}

impl Bucket {
    /// Starts a bucket that accepts this access key.
    pub async fn start(access_key_id: &str, secret: &str) -> Self {
        let shelf = Arc::new(Shelf {
            access_key_id: access_key_id.to_owned(),
            secret: secret.to_owned(),
            objects: Mutex::default(),
            refused: Mutex::default(),
            broken: Mutex::default(),
        });
        let router = Router::new().fallback(serve).layer(DefaultBodyLimit::max(OBJECT_BYTES_MAX));
        let (url, serving) = serve_until_dropped(router.with_state(Arc::clone(&shelf))).await;
        Self { url, shelf, _serving: serving }
    }

    /// URL of the bucket's API.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All objects by path.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let objects = self.shelf.objects.lock();
        objects.iter().map(|(path, object)| (path.clone(), object.content.to_vec())).collect()
    }

    /// Sets the age of every object.
    pub fn age(&self, age: chrono::Duration) {
        self.shelf.objects.lock().values_mut().for_each(|object| object.at = Utc::now() - age);
    }

    /// Rejected requests with the reason.
    pub fn refused(&self) -> Vec<String> {
        self.shelf.refused.lock().clone()
    }

    /// Makes every request fail with status 500, or ends that.
    pub fn set_broken(&self, broken: bool) {
        *self.shelf.broken.lock() = broken;
    }
}

async fn serve(State(shelf): State<Arc<Shelf>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if *shelf.broken.lock() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    if let Err(why) = shelf.verify(&method, &uri, &headers, &body) {
        shelf.refused.lock().push(format!("{method} {uri}: {why}"));
        return failure(StatusCode::FORBIDDEN, "SignatureDoesNotMatch");
    }
    let Some(path) = uri.path().strip_prefix(&format!("/{BUCKET}")) else {
        return failure(StatusCode::NOT_FOUND, "NoSuchBucket");
    };
    let key = path.trim_start_matches('/').to_owned();
    let mut objects = shelf.objects.lock();
    match method {
        Method::PUT => {
            let tag = tag_of(&body);
            objects.insert(key, Object { content: body, at: Utc::now() });
            [(ETAG, tag)].into_response()
        }
        Method::GET if key.is_empty() => listing(&objects, &uri).into_response(),
        Method::GET | Method::HEAD => match objects.get(&key) {
            None => failure(StatusCode::NOT_FOUND, "NoSuchKey"),
            Some(object) => {
                let modified = object.at.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
                ([(ETAG, tag_of(&object.content)), (LAST_MODIFIED, modified)], object.content.clone()).into_response()
            }
        },
        Method::DELETE => {
            objects.remove(&key);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    }
}

fn listing(objects: &BTreeMap<String, Object>, uri: &Uri) -> String {
    let prefix = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        .find_map(|(name, value)| (name == "prefix").then(|| value.into_owned()))
        .unwrap_or_default();
    let mut xml =
        format!("<?xml version=\"1.0\"?><ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>");
    for (key, object) in objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let at = object.at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let (tag, size) = (tag_of(&object.content), object.content.len());
        let _ = write!(
            xml,
            "<Contents><Key>{key}</Key><LastModified>{at}</LastModified><ETag>{tag}</ETag><Size>{size}</Size></Contents>"
        );
    }
    xml + "</ListBucketResult>"
}

fn failure(status: StatusCode, code: &str) -> Response {
    (status, format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>")).into_response()
}

fn tag_of(content: &[u8]) -> String {
    format!("\"{}\"", &hex::encode(Sha256::digest(content))[..32])
}

impl Shelf {
    /// Verifies a signature:
    /// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.
    fn verify(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Result<(), &'static str> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let given = header(AUTHORIZATION.as_str()).ok_or("no authorization")?;
        let given = given.strip_prefix("AWS4-HMAC-SHA256 ").ok_or("another scheme")?;
        let part = |name: &str| {
            given
                .split(',')
                .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
                .ok_or("a part is missing")
        };
        let (credential, signed, signature) = (part("Credential")?, part("SignedHeaders")?, part("Signature")?);
        let (key_id, scope) = credential.split_once('/').ok_or("no scope")?;
        let at = header("x-amz-date").ok_or("no date")?;
        let date = at.get(..8).ok_or("no date")?;
        if key_id != self.access_key_id || scope != format!("{date}/{REGION}/s3/aws4_request") {
            return Err("another key or scope");
        }
        if !signed.split(';').any(|name| name == "host")
            || !signed.split(';').any(|name| name == "x-amz-content-sha256")
        {
            return Err("host or content is not signed");
        }
        let digest = header("x-amz-content-sha256").ok_or("no digest")?;
        if digest != hex::encode(Sha256::digest(body)) {
            return Err("the content does not match the signed digest");
        }
        let mut query: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).collect();
        query.sort_unstable();
        let mut request = format!("{method}\n{}\n{}\n", uri.path(), query.join("&"));
        for name in signed.split(';') {
            let _ = writeln!(request, "{name}:{}", header(name).ok_or("a signed header is missing")?.trim());
        }
        let _ = write!(request, "\n{signed}\n{digest}");
        let message = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hex::encode(Sha256::digest(request)));
        let mut key = hmac_sha256(format!("AWS4{}", self.secret).as_bytes(), date);
        for step in [REGION, "s3", "aws4_request"] {
            key = hmac_sha256(&key, step);
        }
        if hex::encode(hmac_sha256(&key, &message)) == signature { Ok(()) } else { Err("another signature") }
    }
}

pub(crate) fn hmac_sha256(key: &[u8], message: impl AsRef<[u8]>) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message.as_ref());
    mac.finalize().into_bytes().to_vec()
}
