//! The operator's listener: health, metrics, and the state of the whole service.
//!
//! `table` lists the routes with their access; routes are added only there. `read` holds the data for programs and for
//! pages. Deliberately absent: everything that PSPs and payers use.

mod actors;
mod admin;
mod admit;
mod audit;
mod customers;
mod decisions;
mod documents;
mod events;
pub mod health;
mod login;
mod page;
mod pauses;
pub mod read;
mod record;
mod release;
mod routes;
mod secure;
mod sendings;
mod stuck;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use payferry_actors::System;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

pub use admit::{Admission, FAILED_ATTEMPTS_PER_MINUTE_MAX, SESSION_SECS};
use events::Pulse;

pub use events::{EVENT_LISTENERS_MAX, Tick};
pub use routes::{Access, Route, table};

use crate::documents::DocumentStore;
use crate::http::error::ApiError;
use crate::keys::KeyMode;

/// Maximum number of concurrent requests. Event streams are counted separately.
pub const REQUESTS_AT_ONCE: usize = 256;
/// Maximum size of a request body.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Configuration of the operator's listener.
pub struct OperatorConfig {
    /// Operator token.
    pub token: String,
    /// Mode of the API keys that are created here.
    pub key_mode: KeyMode,
    /// Storage of the customers' documents.
    pub documents: DocumentStore,
    /// Cancelled when the listener shuts down, to end long-running responses.
    pub closing: CancellationToken,
}

/// State shared by the operator's handlers. Clones share it.
#[derive(Clone)]
pub struct Operator(Arc<Shared>);

/// State behind all clones of an [`Operator`].
pub struct Shared {
    /// Supervision tree.
    pub system: System,
    /// Mode of the API keys that are created here.
    pub key_mode: KeyMode,
    /// Storage of the customers' documents.
    pub documents: DocumentStore,
    /// Cancelled when the listener shuts down.
    pub closing: CancellationToken,
    admission: Admission,
    /// Limits concurrent requests.
    door: Semaphore,
    /// Serialises releases from quarantine.
    releasing: Mutex<()>,
    pulse: Pulse,
}

impl Operator {
    /// State over a running tree.
    pub fn new(system: System, config: OperatorConfig) -> Self {
        let OperatorConfig { token, key_mode, documents, closing } = config;
        let admission = Admission::new(&token, system.clock().clone());
        let door = Semaphore::new(REQUESTS_AT_ONCE);
        let (releasing, pulse) = (Mutex::default(), Pulse::new(system.clock().real_now()));
        Self(Arc::new(Shared { system, key_mode, documents, closing, admission, door, releasing, pulse }))
    }
}

impl Deref for Operator {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Router of all operator routes.
pub fn router(operator: Operator) -> Router {
    let mut open = Router::new();
    let mut closed = Router::new();
    for route in table() {
        match route.access {
            Access::Open => open = open.route(route.path, route.serve),
            Access::Token => closed = closed.route(route.path, route.serve),
        }
    }
    closed
        // Unknown paths also need the token, so that an unauthenticated client does not learn which routes exist.
        .fallback(async || ApiError::NoRoute("docs/src/operate/listener.md"))
        .layer(middleware::from_fn_with_state(operator.clone(), admit::admit))
        .merge(open)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(operator.clone(), secure::surround))
        .layer(middleware::from_fn(secure::harden))
        .with_state(operator)
}
