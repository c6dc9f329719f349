//! What the extractors need of a listener's state.

use std::future::Future;

use axum::http::request::Parts;
use payferry_domain::{KeyId, KeyScope, PspId};
use payferry_entities::Database;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;

use crate::error::ApiError;
use crate::idempotency::RunningKeys;
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
    fn authenticate(
        &self,
        parts: &Parts,
        scope: KeyScope,
    ) -> impl Future<Output = Result<(PspId, KeyId), ApiError>> + Send;
}
