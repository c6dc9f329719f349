//! Payments at run time: one supervised actor each, sixteen supervisors, and the way to reach them.
//!
//! What a payment does is decided in the domain; what it remembers is in the database. Here is only the carrying out.

mod actor;
mod effects;
mod metrics;
mod outages;
mod router;
mod shard;

pub use payferry_journal::payments as store;

pub use actor::{AnswerRow, Beside, PaymentMemory};
pub(crate) use actor::{Ask, Message};
pub(crate) use effects::PaymentServices;
pub(crate) use outages::Outages;
pub(crate) use router::Router;
pub(crate) use shard::{Reminder, Shard, ShardMessage};
