//! Tests of the HTTP interface.

mod auth;
mod bad_input;
pub mod compliance;
mod consent;
mod cursors;
pub(crate) mod customers;
mod everywhere;
mod feed;
mod filters;
mod idempotency;
mod ledger;
mod live;
pub(crate) mod logs;
mod many_payments;
mod merchants;
pub(crate) mod mismatches;
mod pages;
mod payments;
mod refunds;
mod resolve;
mod serve;
mod settings;
mod statement;
mod tenancy;
mod vocabulary;
mod webhook_endpoints;
mod webhooks;
