//! The HTTP toolkit of both listeners: errors, extraction, responses, idempotency, limits, server-sent events, connections.
//!
//! It is generic over a state trait, [`HttpState`]. `error` is the only place that chooses status codes. Deliberately absent:
//! routes, and the lookup of API keys.

pub mod address;
mod arriving;
pub mod browser;
pub mod caller;
pub mod connections;
pub mod edge;
pub mod error;
pub mod extract;
pub mod idempotency;
pub mod limits;
pub mod lists;
pub mod live;
pub mod metrics;
pub mod openapi;
pub mod pages;
pub mod progress;
mod record;
mod serve;

pub use address::{ClientAddress, TrustedProxies};
pub use caller::{Caller, Customers, Full, HttpState, KeyHolder, Money, Payments, Read, Requires, Webhooks};
pub use edge::X_REQUEST_ID;
pub use error::{ApiError, Away, FieldError, Problem};
pub use extract::{
    AnyQuery, Fault, Fields, JsonBody, PageQuery, Path, QueryFields, QueryNames, RequestBody, Rule, Submission,
    between, field, read, rule,
};
pub use idempotency::Answer;
pub use limits::{Limits, NodesReady, REQUEST_TIMEOUT};
pub use progress::{EdgeLimits, RequestProgress};
pub use serve::{
    CONNECTIONS_MAX, Draining, FIRST_HEAD_TIMEOUT, HEAD_BYTES_MAX, HEAD_TIMEOUT, SHUTDOWN_TIMEOUT, ServeConfig,
    WRITE_TIMEOUT, serve,
};

/// Prefix under which the routes without a prefix are served a second time.
pub const PREFIX: &str = "/api/v1";
