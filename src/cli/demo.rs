//! `payferry demo`.

pub(super) use payferry_demo::command::{Args, run};
