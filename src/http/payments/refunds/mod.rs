//! Refunds: part of their payment, so that asking for one is one call to the payment's actor, and reading them is reading
//! the payment.

pub mod get;
pub mod list;
pub mod request;
mod view;

pub use view::RefundRecord;
