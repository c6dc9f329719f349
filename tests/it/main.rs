//! Integration tests: the service in this process, over a database of its own.

#![allow(clippy::unwrap_used)]

mod app;
mod cli;
mod http;
