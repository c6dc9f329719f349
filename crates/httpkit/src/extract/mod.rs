//! How requests are read: bodies, fields and queries.
//!
//! Reading never stops at the first fault. Everything that is wrong is named at once.

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
