//! Customers' documents: encrypted objects in a folder or in an S3-compatible bucket.
//!
//! Owned here: the accepted media types (`media`), the storage and encryption of objects (`store`), and the removal of
//! objects without a row (`sweep`). Deliberately absent: the rows, which `payferry_journal::customers` writes, and the
//! routes.
//!
//! An object is written before its row, so that no row names a missing object. The service chooses the object's name;
//! the sender's file name is not stored.

mod media;
mod store;
mod sweep;

pub use media::{DOCUMENT_BYTES_MAX, MediaType, UnknownMediaType};
pub use store::{AT_ONCE_MAX, Bucket, DocumentError, DocumentLocation, DocumentStore};
pub use sweep::{ORPHAN_AGE, sweep, sweep_on};
