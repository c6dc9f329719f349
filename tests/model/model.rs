//! Model of payment × operation × transaction × attempt, which stateright checks in every order of events.
//!
//! - `chain`: blocks, reorganisations, the contract and its once-only mapping
//! - `watcher`: rows of transfers; orphaning and reading are two commits
//! - `payment`: which transfers count, and the settlement (`conformance` compares it with the domain)
//! - `settler`: operations, nonces and attempts
//! - `scenario`: what takes part and can happen, and which rules hold
//! - `state`: all of them with messages, restores, payouts and authorizations, and every step
//! - `service`: the steps that are possible, and their effect
//! - `properties`: what always holds
//! - `tests`: scenarios, and rules that are undone to show that the model finds the defects
//! - `leases`: a model of its own, of several nodes on one database
//!
//! The model checks the rules, not the code: SQL, RPC and actors have their own tests, and only the payment is compared
//! with the code. The settler signs only what a simulation accepts. One signer signs everything, a
//! batch has one item, and screening allows every transfer. Refunds, deadlines of payments and fees are left out.

mod chain;
mod conformance;
mod leases;
mod payment;
mod properties;
mod scenario;
mod service;
mod settler;
mod state;
mod tests;
mod watcher;
