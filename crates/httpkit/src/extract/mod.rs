//! Extractors for bodies, fields and queries.
//!
//! Reading does not stop at the first fault: the answer names every fault at once.

mod fields;
pub(crate) mod json;
mod query;
pub mod read;
pub mod rule;

pub use crate::caller::{JSON_BODY_BYTES_MAX, JsonBody, RequestRefusal, Submission, read_body};
pub use fields::{Fault, Fields};
pub use query::{AnyQuery, PageQuery, Path, QueryFields, QueryNames, between};
pub use rule::{Components, Field, RequestBody, Rule, bare, closed, components, describe, schema_of};
