//! Tests of the actors with real parts: EVM chains in the process, a database and a journal. Some start a watcher and a
//! settler ([`chain`]), most of them the whole tree ([`tree`]), with endpoints over HTTP ([`endpoints`]), or as a table of
//! stories and random ones ([`stories`]).
#![allow(clippy::unwrap_used, missing_docs)]

/// Defines a test for each case of a table: its name, and the call that plays it.
macro_rules! cases {
    (#[$test:meta] $($name:ident => $play:expr;)+) => {$(
        #[$test]
        async fn $name() {
            $play.await;
        }
    )+};
}

mod chain;
mod endpoints;
mod env;
mod stories;
mod tree;
