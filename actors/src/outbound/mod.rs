//! Payouts and withdrawals at run time: one actor each, under one supervisor that starts and restarts them.
//!
//! They share the payments' infrastructure: the journal, the screening, the settler's `send`, the event feed, and the
//! restart budget before a quarantine. Deliberately absent: decisions (the domain), and authorisation of orders
//! (`system`, the HTTP side).

mod actor;
mod live;
mod services;
mod supervisor;

pub use payferry_journal::outbound as store;

pub use actor::OutboundActorView;
pub(crate) use actor::{Message, QueuedCommand};
pub(crate) use live::LiveOutbound;
pub(crate) use services::OutboundServices;
pub(crate) use supervisor::{OutboundMessage, OutboundSupervisor};
