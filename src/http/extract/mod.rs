//! Extractors for bodies, fields and queries.
//!
//! Reading does not stop at the first fault: the answer names every fault at once.

mod fields;
mod json;
mod multipart;
mod path;
mod query;
pub mod read;
mod submission;

pub use fields::{Fault, Fields};
pub use multipart::{FORM_BYTES_MAX, Form, FormPart, PARTS_MAX};
pub use path::Path;
pub use query::{PageQuery, QueryFields, between};
pub(super) use submission::read_body;
pub use submission::{JSON_BODY_BYTES_MAX, JsonBody, Submission};
