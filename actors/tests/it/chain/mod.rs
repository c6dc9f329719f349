//! Watchers and settlers on a real EVM in the process, with a real journal on SQLite.

mod agreement;
mod blocking_error;
mod crash;
mod done;
mod eip3009;
mod env;
mod faults;
mod fees;
mod given_up;
mod reorg;
mod send;
mod settle;
mod waiting;
mod watch;
