//! End-to-end stories with real HTTP, real transfers and real settlements. Each story is a test on every stage.

mod deadline;
mod exact;
mod finality;
mod killed;
pub mod many_payments;
mod measured;
mod mismatches;
mod reorgs;
mod restarts;
mod signed;
