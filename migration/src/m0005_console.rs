//! The past that the operator console shows: the command of each transition, alarms, acknowledgements and the supervision log.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0005_console",
    both: &[&[
        // NULL for the initiation, and for transitions that an earlier version wrote.
        "ALTER TABLE payment_transitions ADD COLUMN command TEXT",
        "ALTER TABLE payment_transitions ADD COLUMN decided_us BIGINT",
        // Alarms that no label of the payment shows.
        "CREATE TABLE alarms (
             payment_id TEXT NOT NULL,
             version BIGINT NOT NULL,
             kind TEXT NOT NULL,
             psp_id TEXT NOT NULL,
             amount BIGINT NOT NULL,
             detail TEXT NOT NULL,
             raised_at BIGINT NOT NULL,
             ended_at BIGINT,
             PRIMARY KEY (payment_id, version, kind),
             FOREIGN KEY (payment_id) REFERENCES payments (id)
         )",
        "CREATE INDEX alarms_open ON alarms (kind, raised_at, payment_id, version) WHERE ended_at IS NULL",
        // Entries of the attention feed that an operator has seen and that need no action. `item` is the position of the entry
        // among those of its kind, which contains its time.
        "CREATE TABLE acknowledgements (
             kind TEXT NOT NULL,
             item TEXT NOT NULL,
             operator TEXT NOT NULL,
             reason TEXT NOT NULL,
             at BIGINT NOT NULL,
             PRIMARY KEY (kind, item)
         )",
        "CREATE TABLE incidents (
             number {identity},
             node TEXT NOT NULL,
             at BIGINT NOT NULL,
             kind TEXT NOT NULL,
             name TEXT NOT NULL,
             cause TEXT NOT NULL,
             reason TEXT NOT NULL,
             action TEXT NOT NULL
         )",
    ]],
    sqlite: &[],
    postgres: &[],
};
