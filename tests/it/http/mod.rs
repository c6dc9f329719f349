//! Tests of the HTTP interface.

mod auth;
mod bad_input;
pub mod compliance;
mod consent;
mod crowd;
pub(crate) mod customers;
mod everywhere;
mod feed;
mod idempotency;
mod ledger;
mod live;
pub(crate) mod logs;
mod merchants;
mod misfits;
mod pages;
mod payments;
mod refunds;
mod resolve;
mod serve;
mod settings;
mod statement;
mod tenancy;
mod webhooks;
