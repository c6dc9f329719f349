//! The source of audited requests, and the hash chain of the audit log.

use crate::change::Change;

pub(crate) const CHANGE: Change =
    Change { sqlite: APPEND_ONLY_SQLITE, postgres: APPEND_ONLY_POSTGRES, ..Change::plain("m0017_audit_chain", UP) };

const UP: &[&str] = &[
    "ALTER TABLE audit_log ADD COLUMN address TEXT",
    "ALTER TABLE audit_log ADD COLUMN request_id TEXT",
    "CREATE TABLE audit_chain (
         position BIGINT NOT NULL,
         number BIGINT NOT NULL,
         hash TEXT NOT NULL,
         PRIMARY KEY (position)
     )",
    "CREATE UNIQUE INDEX audit_chain_number ON audit_chain (number)",
    "CREATE INDEX audit_chain_hash ON audit_chain (hash)",
];

const APPEND_ONLY_SQLITE: &[&str] = &[
    "CREATE TRIGGER audit_chain_stays BEFORE UPDATE ON audit_chain
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_chain_is_kept BEFORE DELETE ON audit_chain
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
];
const APPEND_ONLY_POSTGRES: &[&str] =
    &["CREATE TRIGGER audit_chain_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_chain
     FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only()"];
