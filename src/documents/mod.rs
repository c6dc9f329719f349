//! Customers' documents: encrypted objects in a folder or in an S3-compatible bucket.
//!
//! This module owns the accepted media types (`media`), the location and encryption of objects (`store`), and the
//! removal of objects without a row (`sweep`). `payferry_actors::customers` writes the rows. The routes are in
//! `crate::http::customers` and `crate::operator`.
//!
//! An object is written before its row, so that no row names a missing object. The service chooses the object's name;
//! the sender's file name is not stored.

mod media;
mod store;
mod sweep;

pub use media::{DOCUMENT_BYTES_MAX, MediaType, UnknownMediaType};
pub use store::{AT_ONCE_MAX, DocumentError, DocumentStore, Place};
pub use sweep::{ORPHAN_AGE, sweep, sweep_on};
