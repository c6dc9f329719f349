//! The devchain compared with anvil: the same calls over HTTP to both, with the same accounts, transactions, and
//! contracts, must have the same results.
//!
//! `pair.rs` runs the two nodes and compares the results. `normal.rs` documents the parts of a result that are removed
//! before the comparison, and why. Every other difference is a named test, or an assertion with both results: `refused`
//! if both reject with different messages, `differs` if only one rejects. Where the devchain differs, it follows geth,
//! whose messages most endpoints of real chains use. Anvil must be installed: `tests/tools`.

mod controls;
mod env;
mod envelope;
mod logs;
mod normal;
mod pair;
mod reading;
mod running;
mod transactions;
