//! State that several nodes, or a node and its next start, share: quarantines, outages of chains, and the oldest version
//! of Payferry that may open the database.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0002_nodes",
    both: &[&[
        // The oldest migration that a version must know to open the database. A later migration with which this version
        // cannot work updates it.
        "CREATE TABLE schema_floor (
             id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
             migration TEXT NOT NULL
         )",
        "INSERT INTO schema_floor (id, migration) VALUES (1, 'm0002_nodes')",
        "CREATE TABLE quarantines (
             subject TEXT NOT NULL,
             since BIGINT NOT NULL,
             reason TEXT NOT NULL,
             PRIMARY KEY (subject)
         )",
        "CREATE TABLE chain_outages (
             chain TEXT NOT NULL,
             block_number BIGINT NOT NULL,
             began_at BIGINT NOT NULL,
             ended_at BIGINT NOT NULL,
             PRIMARY KEY (chain, block_number)
         )",
        // Every database has had a ledger from its first payment on.
        "DROP TABLE ledger_openings",
    ]],
    sqlite: &[],
    postgres: &[],
};
