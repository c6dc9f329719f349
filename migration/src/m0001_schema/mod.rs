//! The first schema, one file per area.
//!
//! The database enforces what the domain promises: the sets of states, positive amounts, and a settlement's shares.
//!
//! Of two indexes that suit a query equally, SQLite uses the one that was created later, so their order matters.

mod chains;
mod customers;
mod ledger;
mod operators;
mod outbound;
mod payments;
mod psps;
mod webhooks;

use crate::change::Change;

/// In the order of references.
pub(crate) const CHANGE: Change = Change {
    name: "m0001_schema",
    both: &[
        psps::BOTH,
        customers::BOTH,
        payments::BOTH,
        outbound::BOTH,
        ledger::BOTH,
        chains::BOTH,
        webhooks::BOTH,
        operators::BOTH,
    ],
    sqlite: &[payments::SQLITE, ledger::SQLITE, operators::SQLITE],
    postgres: &[payments::POSTGRES, ledger::POSTGRES, operators::POSTGRES],
};
