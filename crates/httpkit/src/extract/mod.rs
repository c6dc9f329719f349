//! Extractors for bodies, fields and queries.
//!
//! Reading does not stop at the first fault: the answer names every fault at once.

pub mod field;
mod fields;
pub(crate) mod json;
pub mod parameters;
mod query;
pub mod read;
pub mod rule;

pub use crate::caller::{JSON_BODY_BYTES_MAX, JsonBody, RequestRefusal, Submission, read_body};
pub use field::{Components, Field, RequestBody, bare, closed, components, describe, schema_of};
pub use fields::{Fault, Fields};
pub use parameters::Parameter;
pub use query::{AnyQuery, PageQuery, Path, QueryFields, QueryNames, between};
pub use rule::Rule;
