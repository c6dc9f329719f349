//! The operator's listener: health, metrics, and the state of the whole service.
//!
//! [`table`] lists the routes with their access; routes are added only there. Each screen is one folder with its query,
//! its JSON routes (`mod.rs`) and its page (`page.rs`). Routes without a page are single files: `audit`, `events` and
//! `health`. `page` holds the parts that all pages share. Deliberately absent: everything that PSPs and payers use.

#[macro_use(record)]
extern crate payferry_httpkit;

mod actors;
mod admit;
mod approvals;
mod attempts;
mod attention;
mod audit;
mod bulk;
mod chains;
pub mod customers;
mod decisions;
mod events;
mod health;
mod history;
mod input;
mod lists;
mod nodes;
mod openapi;
mod outbound;
mod overview;
mod page;
mod pauses;
mod payment;
pub mod psps;
mod query;
mod routes;
mod runbooks;
mod search;
mod webhooks;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::middleware;
use axum::{Extension, Router};
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::keys::{KeyMode, RevokedKeys};
use payferry_actors::System;
use payferry_httpkit::browser::harden;
use payferry_httpkit::edge::Edge;
use payferry_httpkit::error::Listener;
use payferry_httpkit::openapi::query_names;
use payferry_httpkit::{AnyQuery, ApiError, Draining, EdgeLimits, QueryNames, REQUEST_TIMEOUT};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use attention::feed::AttentionFeed;
use bulk::jobs::BulkJobs;
use events::EventTicker;
use history::History;

pub use approvals::{APPROVAL_SECS, keep_resuming as keep_resuming_approvals, resume as resume_approvals};
pub use attempts::{
    FAILED_ATTEMPTS_AUDITED_PER_HOUR_MAX, FAILED_ATTEMPTS_PER_MINUTE_MAX, FAILED_ATTEMPTS_PER_MINUTE_TOTAL_MAX,
};
pub use events::EVENT_LISTENERS_MAX;
pub use health::readiness;
pub use input::{NAME, tenant_failure};
pub use openapi::document;
pub use overview::UnsafeSetting;
pub use routes::{Access, Route, RouteQuery, table};

/// Maximum number of concurrent requests. Event streams are counted separately.
pub const REQUESTS_AT_ONCE: usize = 256;
/// Paths that are answered even when all permits of concurrent requests are in use: health, metrics, and pauses with the
/// login that their pages need.
const ALWAYS_ANSWERED: [&str; 8] = [
    "/healthz",
    "/readyz",
    "/metrics",
    "/ops/pauses",
    "/ops/pauses/{scope}/lift",
    "/ops/view/pauses",
    "/ops/view/pauses/{scope}/lift",
    "/ops/login",
];
/// Maximum size of a request body.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Configuration of the operator's listener.
pub struct OperatorConfig {
    /// Token of the first admin.
    pub token: Zeroizing<String>,
    /// Mode of the API keys that are created here.
    pub key_mode: KeyMode,
    /// The API keys that were revoked on this node, shared with the listener for PSPs.
    pub revoked_keys: RevokedKeys,
    /// True if a second operator approves what moves money elsewhere: `[operators] four_eyes`.
    pub four_eyes: bool,
    /// Storage of the customers' documents.
    pub documents: DocumentStore,
    /// Unsafe settings that the configuration uses.
    pub unsafe_settings: Vec<UnsafeSetting>,
    /// Limits of connections and request bodies.
    pub limits: EdgeLimits,
    /// Renders the metrics of the process in Prometheus' text format.
    pub metrics: fn() -> String,
    /// The drain of this node, shared with the listener for PSPs.
    pub draining: Draining,
    /// Cancelled when the listener shuts down, to end long-running responses.
    pub closing: CancellationToken,
}

/// State shared by the operator's handlers. Clones share it.
#[derive(Clone, derive_more::Deref)]
pub struct Operator(#[deref(forward)] Arc<OperatorShared>);

/// State behind all clones of an [`Operator`].
pub struct OperatorShared {
    system: System,
    config: OperatorConfig,
    admission: admit::Admission,
    /// Limits concurrent requests.
    door: Arc<Semaphore>,
    ticker: EventTicker,
    attention: AttentionFeed,
    history: Arc<History>,
    bulk: BulkJobs,
}

impl Operator {
    /// State over a running tree. Samples the figures until the listener closes, in the runtime of the caller.
    pub fn new(system: System, config: OperatorConfig) -> Self {
        let operator = Self::over(system, config);
        tokio::spawn(operator.clone().keep_sampling());
        operator
    }

    fn over(system: System, mut config: OperatorConfig) -> Self {
        // Only a hash of the token is kept.
        let admission = admit::Admission::new(&std::mem::take(&mut config.token), system.sealer());
        let door = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        let ticker = EventTicker::new(system.clock().real_now());
        attention::feed::describe();
        let (attention, history, bulk) = (AttentionFeed::default(), Arc::default(), BulkJobs::default());
        Self(Arc::new(OperatorShared { system, config, admission, door, ticker, attention, history, bulk }))
    }
}

/// Handlers take the operator itself. Query parameters that the route does not have are refused.
impl FromRequestParts<Self> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, operator: &Self) -> Result<Self, ApiError> {
        QueryNames::check(parts)?;
        Ok(operator.clone())
    }
}

/// Router of all operator routes.
pub fn router(operator: Operator) -> Router {
    let mut open = Router::new();
    let mut closed = Router::new();
    for Route { access, path, query, serve, .. } in table() {
        let serve = if query == RouteQuery::Any { serve.route_layer(Extension(AnyQuery)) } else { serve };
        match access {
            Access::Open => open = open.route(&path, serve),
            Access::Role(role) => {
                let allowed = middleware::from_fn_with_state(role, admit::require);
                closed = closed.route(&path, serve.route_layer(allowed));
            }
        }
    }
    let edge = Edge::new(Listener::Operator, operator.door.clone(), REQUEST_TIMEOUT, operator.config.limits);
    let edge = edge.reserve_for(&ALWAYS_ANSWERED);
    let router = closed
        // Unknown paths also need an operator, so that an unauthenticated client does not learn which routes exist.
        .fallback(async || ApiError::NoRoute("docs/src/operate/listener.md"))
        .layer(middleware::from_fn_with_state(operator.clone(), page::with_context))
        .layer(middleware::from_fn_with_state(operator.clone(), admit::admit))
        .merge(open)
        .layer(Extension(query_names(&openapi::document())))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    edge.surround(router).layer(middleware::from_fn(harden)).with_state(operator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_always_answered_exist() {
        let routes = table();
        for path in ALWAYS_ANSWERED {
            assert!(routes.iter().any(|route| route.path == path), "{path}");
        }
    }
}
