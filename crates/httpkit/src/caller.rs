//! Extractors of the caller and of a request that changes data: they check the API key, the scope of the route, the size of
//! the body and the idempotency key. This module also defines the state that extractors read.

use std::future::Future;
use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use payferry_domain::{KeyId, KeyScope, PspId};
use payferry_entities::Database;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use serde_json::Value;

use crate::error::ApiError;
use crate::extract::{Fields, QueryNames, RequestBody, json};
use crate::idempotency::{Idempotency, RunningKeys};
use crate::limits::Limiters;

/// State of a listener that PSPs call.
pub trait HttpState: Clone + Send + Sync + 'static {
    /// Database pool of API requests.
    fn database(&self) -> &Database;

    /// Clock of the service.
    fn clock(&self) -> &Clock;

    /// Seals secrets and hashes keys.
    fn sealer(&self) -> &Sealer;

    /// Counters of the rate limits.
    fn limiters(&self) -> &Limiters;

    /// Idempotency keys of the requests that run in this process.
    fn running_keys(&self) -> &RunningKeys;

    /// Finds the API key of a request, counts the request against the limit of the key, and checks that the key has `scope`.
    fn authenticate(&self, parts: &Parts, scope: KeyScope) -> impl Future<Output = Result<KeyHolder, ApiError>> + Send;
}

/// The owner of an authenticated key.
#[derive(Debug, Clone, Copy)]
pub struct KeyHolder {
    /// The tenant.
    pub psp_id: PspId,
    /// The key.
    pub key_id: KeyId,
    /// True if the key has the scope `customers`, which the identity data of customers needs.
    pub sees_identities: bool,
}

/// A scope that a route requires.
pub trait Requires: Send + Sync + 'static {
    /// The scope.
    const SCOPE: KeyScope;
}

macro_rules! requires {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Requires for $name {
            const SCOPE: KeyScope = KeyScope::$name;
        }
    )*};
}

requires! {
    /// The route only reads.
    Read;
    /// The route creates or changes merchants or payments.
    Payments;
    /// The route decides about received money, or sends money.
    Money;
    /// The route creates or changes customers.
    Customers;
    /// The route changes webhook endpoints, or repeats deliveries.
    Webhooks;
    /// The route changes the settings of the account.
    Full;
}

/// The PSP that calls, with a key that holds the scope `S`. A handler that takes it cannot forget the check.
pub struct Caller<S: Requires> {
    /// The tenant; every query is narrowed to it.
    pub psp_id: PspId,
    /// Its key.
    pub key_id: KeyId,
    /// True if the key has the scope `customers`.
    pub sees_identities: bool,
    scope: PhantomData<S>,
}

impl<A: HttpState, S: Requires> FromRequestParts<A> for Caller<S> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &A) -> Result<Self, ApiError> {
        let KeyHolder { psp_id, key_id, sees_identities } = app.authenticate(parts, S::SCOPE).await?;
        QueryNames::check(parts)?;
        Ok(Self { psp_id, key_id, sees_identities, scope: PhantomData })
    }
}

/// Default limit of a JSON body, in bytes.
pub const JSON_BODY_BYTES_MAX: usize = 256 * 1024;
/// Bytes beyond the limit that are read and discarded, so that the caller can receive the refusal.
const DISCARDED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A request that changes something, sent with a key that has the scope `S`.
pub struct Submission<S: Requires, const BYTES_MAX: usize = JSON_BODY_BYTES_MAX> {
    /// The tenant.
    pub psp_id: PspId,
    /// The key.
    pub key_id: KeyId,
    /// The request's idempotency key.
    pub idempotency: Idempotency,
    body: Result<Value, ApiError>,
    scope: PhantomData<S>,
}

/// The reason why the handler does not run: the response to an invalid request, or the stored answer if the request was
/// answered before.
pub struct RequestRefusal(pub Response);

impl From<ApiError> for RequestRefusal {
    fn from(error: ApiError) -> Self {
        Self(error.into_response())
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<S: Requires, const BYTES_MAX: usize> Submission<S, BYTES_MAX> {
    /// The body as JSON.
    pub fn json(&self) -> Result<&Value, ApiError> {
        self.body.as_ref().map_err(ApiError::clone)
    }

    /// The body as a declared object, or an error with every fault.
    pub fn parse<T: RequestBody>(&self) -> Result<T, ApiError> {
        self.read(T::read)
    }

    /// Reads the fields of the body with `read`, which can refuse more than a declared object does. Returns its value if
    /// there was no fault, else an error with every fault.
    pub fn read<T>(&self, read: impl FnOnce(&Fields<'_>) -> Option<T>) -> Result<T, ApiError> {
        read_fields(self.json()?, read)
    }

    /// Like [`Self::read`], for a body that is one object or a list of 1 to `items_max` objects.
    pub fn read_each<T>(
        &self,
        items_max: usize,
        read: impl FnMut(&Fields<'_>) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        Fields::read_each(self.json()?, items_max, read)
    }
}

impl<A: HttpState, S: Requires, const BYTES_MAX: usize> FromRequest<A> for Submission<S, BYTES_MAX> {
    type Rejection = RequestRefusal;

    async fn from_request(request: Request, app: &A) -> Result<Self, RequestRefusal> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::<S>::from_request_parts(&mut parts, app).await?;
        let bytes = read_body(body, BYTES_MAX).await?;
        let body = parse_json(&bytes, is_json(&parts));
        let idempotency = Idempotency::begin(app, caller.psp_id, &parts, &bytes, body.as_ref().ok()).await?;
        let idempotency = idempotency.map_err(RequestRefusal)?;
        let Caller { psp_id, key_id, scope, .. } = caller;
        Ok(Self { psp_id, key_id, idempotency, body, scope })
    }
}

/// A JSON body alone, for routes that authenticate otherwise and need no idempotency key.
pub struct JsonBody(Value);

impl JsonBody {
    /// The body as received.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The body as a declared object, or an error with every fault.
    pub fn parse<T: RequestBody>(&self) -> Result<T, ApiError> {
        self.read(T::read)
    }

    /// Reads the fields with `read`. Returns its value if there was no fault, else an error with every fault.
    pub fn read<T>(&self, read: impl FnOnce(&Fields<'_>) -> Option<T>) -> Result<T, ApiError> {
        read_fields(&self.0, read)
    }
}

fn read_fields<T>(body: &Value, read: impl FnOnce(&Fields<'_>) -> Option<T>) -> Result<T, ApiError> {
    let fields = Fields::of_body(body)?;
    let read = read(&fields);
    fields.finish(read)
}

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = read_body(body, JSON_BODY_BYTES_MAX).await?;
        parse_json(&body, is_json(&parts)).map(Self)
    }
}

/// Reads a body of at most `bytes_max` bytes.
pub async fn read_body(body: Body, bytes_max: usize) -> Result<Vec<u8>, ApiError> {
    let mut chunks = body.into_data_stream();
    let (mut kept, mut read) = (Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        // The client disconnected while sending, so it will not read this answer.
        let chunk = chunk.map_err(|_| ApiError::MalformedJson("it ended early".to_owned()))?;
        read = read.saturating_add(chunk.len());
        if read <= bytes_max {
            kept.extend_from_slice(&chunk);
        } else if read > DISCARDED_BYTES_MAX {
            break;
        }
    }
    if read > bytes_max { Err(ApiError::TooLarge(bytes_max)) } else { Ok(kept) }
}

fn parse_json(body: &[u8], is_declared: bool) -> Result<Value, ApiError> {
    if is_declared { json::parse(body).map_err(ApiError::MalformedJson) } else { Err(ApiError::UnsupportedMediaType) }
}

/// Accepts `application/json` and `application/...+json`, with any parameters.
fn is_json(parts: &Parts) -> bool {
    let Some(kind) = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let subtype = essence.strip_prefix("application/");
    subtype.is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}
