//! HTTP interface for PSPs and payers.
//!
//! `router` is the table of routes. Each endpoint is one file: its description, authentication, handler and answer.
//! Errors, extraction and the layers around every request are in `payferry_httpkit`. Deliberately absent: payment logic (one
//! call to the actors), and the operator's listener.

pub mod auth;
pub mod checkout;
pub mod compliance;
pub mod consent;
pub mod customers;
pub mod documents;
pub mod keys;
pub(crate) mod live;
pub mod merchants;
pub mod money;
pub mod openapi;
pub mod pages;
pub mod payments;
mod readiness;
pub mod router;
pub mod settings;
mod state;
pub mod webhooks;

pub use router::router_with;
pub use state::{AppShared, AppState, HttpConfig};
