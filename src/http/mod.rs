//! HTTP interface for PSPs and payers.
//!
//! `router` is the table of routes. Each endpoint is one file: its description, authentication, handler and answer.
//! `edge` wraps every request. Only `error` defines status codes. Payment logic (one call to the actors) and the
//! operator's listener are elsewhere.

pub mod answer;
pub mod auth;
pub mod compliance;
pub mod consent;
pub mod customers;
pub mod documents;
pub(crate) mod edge;
pub mod error;
pub mod extract;
pub mod idempotency;
pub mod limits;
pub(crate) mod live;
pub mod merchants;
mod metrics;
pub mod money;
pub mod openapi;
pub mod pages;
pub mod payments;
pub mod router;
mod serve;
pub mod settings;
mod state;
pub mod webhooks;

pub use edge::{RequestId, X_REQUEST_ID};
pub use error::ApiError;
pub use limits::{Limits, REQUEST_TIMEOUT};
pub use router::{router, router_with};
pub use serve::{CONNECTIONS_MAX, DRAIN_MAX, serve};
pub use state::{AppState, Environment, HttpConfig, Shared};
