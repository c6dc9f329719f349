//! Stories on the real thing: actors, journal, database, EVM chains, screening and a receiver of webhooks over HTTP.
//!
//! [`table`]: each row is a story and exactly what comes of it, in `rows/*.story` (how to read and run them: `rows/README.md`).
//! [`random`]: stories that nobody wrote, from a seed. Both end with the same truths ([`truths`]): chain and ledger agree,
//! every event was delivered, nothing was done twice, nothing is stuck without a reason.

#![allow(clippy::unwrap_used)]

mod chains;
mod coverage;
mod given;
mod happenings;
mod judge;
mod outcome;
mod people;
mod plan;
mod player;
mod random;
mod said;
mod script;
mod table;
mod truths;
mod verbs;
mod waits;
mod world;
