//! Refunds are part of their payment: creating one is one call to the payment's actor, and reading them reads the
//! payment.

pub mod get;
pub mod list;
pub mod request;
mod view;

pub use view::RefundRecord;
