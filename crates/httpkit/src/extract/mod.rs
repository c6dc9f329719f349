//! Extractors for bodies, fields and queries.
//!
//! Reading does not stop at the first fault: the answer names every fault at once.

mod fields;
mod json;
mod path;
mod query;
pub mod read;
mod submission;

pub use fields::{Fault, Fields};
pub use path::Path;
pub use query::{PageQuery, QueryFields, between};
pub use submission::{JSON_BODY_BYTES_MAX, JsonBody, Refusal, Submission, read_body};
