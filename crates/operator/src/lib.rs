//! The operator's listener: health, metrics, and a view of everything that runs.
//!
//! `table` is the table of routes; each says whether it wants the operator token, and there is no other way to add one.
//! `read` holds what is shown, for programs and for people alike. Deliberately absent: everything that PSPs and payers
//! reach.

mod actors;
mod admit;
pub mod attention;
mod audit;
mod chains;
pub mod customers;
mod decisions;
mod events;
pub mod health;
mod input;
mod login;
mod outbound;
mod overview;
mod page;
mod pauses;
mod payment;
pub mod psps;
mod query;
mod routes;
mod secure;
mod webhooks;

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use payferry_accounts::documents::DocumentStore;
use payferry_accounts::keys::KeyMode;
use payferry_actors::System;
use payferry_httpkit::REQUEST_TIMEOUT;
use payferry_httpkit::edge::Edge;
use payferry_httpkit::error::{ApiError, Listener};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use events::Pulse;

pub use admit::{Admission, FAILED_ATTEMPTS_PER_MINUTE_MAX, SESSION_SECS};
pub use events::{EVENT_LISTENERS_MAX, Tick};
pub use input::tenant_failure;
pub use routes::{Access, Route, table};

/// Requests under way at once; streams of events are counted by themselves.
pub const REQUESTS_AT_ONCE: usize = 256;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the operator's listener is started with.
pub struct OperatorConfig {
    /// Opens it.
    pub token: String,
    /// What sort of API keys are made here.
    pub key_mode: KeyMode,
    /// Where customers' documents are kept.
    pub documents: DocumentStore,
    /// Renders the metrics of the process in Prometheus' text format.
    pub metrics: fn() -> String,
    /// Cancelled when the listener is to end: what would otherwise run on ends then.
    pub closing: CancellationToken,
}

/// What the operator's handlers share. Clones are the same.
#[derive(Clone)]
pub struct Operator(Arc<Shared>);

/// The one instance behind all clones of an [`Operator`].
pub struct Shared {
    /// The supervision tree.
    pub system: System,
    /// What sort of API keys are made here.
    pub key_mode: KeyMode,
    /// Where customers' documents are kept.
    pub documents: DocumentStore,
    /// Cancelled when the listener is to end.
    pub closing: CancellationToken,
    metrics: fn() -> String,
    admission: Admission,
    /// Room for requests.
    door: Arc<Semaphore>,
    /// Held by whoever releases something from quarantine.
    releasing: Mutex<()>,
    pulse: Pulse,
}

impl Operator {
    /// Over a running tree.
    pub fn new(system: System, config: OperatorConfig) -> Self {
        let OperatorConfig { token, key_mode, documents, metrics, closing } = config;
        let admission = Admission::new(&token, system.clock().clone());
        let door = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        let (releasing, pulse) = (Mutex::default(), Pulse::new(system.clock().real_now()));
        Self(Arc::new(Shared { system, key_mode, documents, closing, metrics, admission, door, releasing, pulse }))
    }
}

impl Deref for Operator {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Everything that the operator reaches.
pub fn router(operator: Operator) -> Router {
    let mut open = Router::new();
    let mut closed = Router::new();
    for route in table() {
        match route.access {
            Access::Open => open = open.route(route.path, route.serve),
            Access::Token => closed = closed.route(route.path, route.serve),
        }
    }
    let edge = Edge { listener: Listener::Operator, door: operator.door.clone(), request_timeout: REQUEST_TIMEOUT };
    let router = closed
        // Who may not come in is not told either what there is.
        .fallback(async || ApiError::NoRoute("docs/operation.md"))
        .layer(middleware::from_fn_with_state(operator.clone(), admit::admit))
        .merge(open)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    edge.surround(router).layer(middleware::from_fn(secure::harden)).with_state(operator)
}
