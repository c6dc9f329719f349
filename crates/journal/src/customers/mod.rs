//! Customer rows: reading, changes, and audit entries.
//!
//! This module owns the content of the columns of `customers`, and ensures that a change, its checks, and its audit
//! entries are one commit. Decisions are made in the domain; personal data (names, ids, addresses) passes through
//! encrypted. Customers have no actor: a change locks the row, and the caller commits.

mod change;
mod store;
#[cfg(test)]
mod tests;

pub use change::{ChangeError, OPEN, Opened, QUEUED};
pub use payferry_entities::StoreError;
pub use store::{NewCustomer, create, creation, customer_of};
