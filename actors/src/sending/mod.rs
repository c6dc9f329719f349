//! Payouts and withdrawals at work: an actor each, under one desk that wakes them and starts them again.
//!
//! They share the payments' machinery: the journal, the screening, the settler's `send`, the event feed, and the budget of
//! restarts after which one is given up. Deliberately absent: decisions (the domain), and who may order one (`system`, the
//! HTTP side).

mod actor;
mod desk;
mod live;
mod services;

pub use payferry_journal::outbound as store;

pub use actor::SendingMemory;
pub(crate) use actor::{Message, Told};
pub(crate) use desk::{DeskMessage, SendingDesk};
pub(crate) use live::LiveSendings;
pub(crate) use services::SendingServices;
