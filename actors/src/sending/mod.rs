//! Payouts and withdrawals at work: an actor each, under one desk that wakes them and starts them again.
//!
//! They share the payments' machinery: the journal, the screening, the settler's `send`, the event feed. Deliberately
//! absent: decisions (the domain), and who may order one (`system`, the HTTP side).

mod actor;
mod desk;
pub mod store;

pub(crate) use actor::{CommandFailure, Told};
pub(crate) use desk::{DeskMessage, SendingDesk};
