//! The interface.

mod auth;
mod bad_input;
mod everywhere;
mod idempotency;
mod merchants;
