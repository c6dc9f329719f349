//! Webhook configuration, the delivery log, and the feed of all events.
//!
//! The webhook sender owns the rows and the secrets, and sends the requests. This module only presents them.

pub mod catalogue;
pub mod deliveries;
pub mod endpoint;
pub mod endpoints;
pub mod events;
