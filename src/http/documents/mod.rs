//! Customers' documents over HTTP: taken from the PSP that owns the customer, and read back by it or by the operator.
//!
//! Deliberately absent: where contents are kept and how they are sealed (`crate::documents`). Nobody else reads them, and
//! each reading is written to the audit log before the content goes out.

pub mod download;
mod form;
pub mod upload;
