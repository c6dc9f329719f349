//! Customers' documents over HTTP: uploaded by the customer's PSP, and read by that PSP or the operator.
//!
//! Each read is written to the audit log before the content is sent. `payferry_accounts::documents` stores and encrypts the
//! contents.

pub mod download;
mod form;
pub mod upload;
