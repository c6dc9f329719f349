//! Payments at run time: one supervised actor per payment, sixteen supervisors, and a router.
//!
//! The domain makes the decisions, and the database holds the state. This module executes.

mod actor;
mod effects;
mod metrics;
mod router;
mod shard;

pub use payferry_journal::payments as store;

pub use actor::{AnswerRow, Beside, PaymentMemory};
pub(crate) use actor::{Ask, CommandFailure, Message};
pub(crate) use effects::Services;
pub(crate) use metrics::PaymentMetrics;
pub(crate) use router::Router;
pub(crate) use shard::{Reminder, Shard, ShardMessage};
