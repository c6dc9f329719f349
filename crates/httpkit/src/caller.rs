//! The PSP that calls, as an extractor that names the scope its route needs, and the state that extractors read.

use std::future::Future;
use std::marker::PhantomData;

use axum::extract::FromRequestParts;
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
    scope: PhantomData<S>,
}

impl<A: HttpState, S: Requires> FromRequestParts<A> for Caller<S> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &A) -> Result<Self, ApiError> {
        let (psp_id, key_id) = app.authenticate(parts, S::SCOPE).await?;
        Ok(Self { psp_id, key_id, scope: PhantomData })
    }
}
