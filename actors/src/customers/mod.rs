//! Customers as rows: read, changed and written down with who did it.
//!
//! Owned here: what the columns of `customers` hold, and that a change, its checks and its audit entries are one commit.
//! What is decided is in the domain; who a customer is (names, ids, addresses) passes through sealed. Customers have no
//! actor: a change locks the row, and whoever asks for it commits.

pub mod audit;
mod change;
mod store;
#[cfg(test)]
mod tests;

pub use change::{ChangeError, OPEN, Opened, QUEUED};
pub use store::{NewCustomer, create, creation, customer_of};
