//! Payments at run time: one supervised actor per payment, sixteen supervisors, and a router.
//!
//! The domain makes the decisions, and the database holds the state. This module executes.

mod actor;
mod effects;
mod metrics;
mod outages;
mod router;
mod shard;

pub use payferry_journal::payments as store;

pub use actor::{AnswerRow, PaymentMemory, ResultRows};
pub(crate) use actor::{Ask, Message};
pub(crate) use effects::PaymentServices;
pub(crate) use outages::Outages;
pub(crate) use router::Router;
pub(crate) use shard::{Reminder, Shard, ShardMessage};
