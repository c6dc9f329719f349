//! End-to-end stories with real HTTP, real transfers and real settlements. Each story is a test on every stage.

pub mod crowd;
mod deadline;
mod exact;
mod finality;
mod killed;
mod measured;
mod misfits;
mod reorgs;
mod restarts;
