//! Story tests with the real parts: actors, journal, database, EVM chains, screening and an HTTP receiver of webhooks.
//!
//! [`table`]: each row is a story with its exact outcome, in `rows/*.story` (syntax and usage: `rows/README.md`).
//! [`random`]: stories generated from a seed. Both end with the same invariants ([`truths`]): chain and ledger agree,
//! every event was delivered, nothing was done twice, and every stopped payment has a reason.

mod coverage;
mod env;
mod given;
mod outcome;
mod people;
mod plan;
mod player;
mod random;
mod said;
mod script;
mod steps;
mod table;
mod truths;
mod verbs;
mod waits;
