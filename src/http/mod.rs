//! The interface for PSPs and payers.
//!
//! `router` is the table of routes; each endpoint is one file: its description, then who, what and answer. `edge`
//! surrounds every request, `error` is the only home of status codes. Deliberately absent: what payments do (one call
//! to the actors), and the operator's listener.

pub mod auth;
pub mod compliance;
pub mod consent;
pub mod customers;
pub mod documents;
pub(crate) mod live;
pub mod merchants;
pub mod money;
pub mod openapi;
pub mod pages;
pub mod payments;
pub mod router;
pub mod settings;
mod state;
pub mod webhooks;

pub use router::{router, router_with};
pub use state::{AppState, HttpConfig, Shared};
