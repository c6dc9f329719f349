//! Integration tests: the service in this process, over a database of its own.

mod app;
mod http;
