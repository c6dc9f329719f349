//! Operators and their sessions, approvals, pauses, and the audit log.

pub(super) const BOTH: &[&str] = &[
    "CREATE TABLE operators (
         name TEXT NOT NULL,
         role TEXT NOT NULL,
         token_hash TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         revoked_at BIGINT,
         PRIMARY KEY (name),
         UNIQUE (token_hash),
         CHECK (role IN ('viewer', 'operator', 'admin'))
     )",
    "CREATE TABLE operator_sessions (
         session_hash TEXT NOT NULL,
         token_hash TEXT NOT NULL,
         ends_at BIGINT NOT NULL,
         PRIMARY KEY (session_hash)
     )",
    "CREATE INDEX operator_sessions_token_hash ON operator_sessions (token_hash)",
    "CREATE INDEX operator_sessions_ends_at ON operator_sessions (ends_at)",
    // `open_key` names the subject of an approval that is not closed: there is at most one. The last check stops a write
    // that lets operators approve their own proposal.
    "CREATE TABLE approvals (
         id TEXT NOT NULL,
         kind TEXT NOT NULL,
         status TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         action TEXT NOT NULL,
         subject_state TEXT NOT NULL,
         reason TEXT,
         open_key TEXT,
         proposed_by TEXT NOT NULL,
         decided_by TEXT,
         decided_at BIGINT,
         decision_reason TEXT,
         failure_reason TEXT,
         failure TEXT,
         expires_at BIGINT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         UNIQUE (open_key),
         CHECK (status NOT IN ('approved', 'carried_out', 'failed') OR (decided_by IS NOT NULL AND decided_by <> proposed_by))
     )",
    "CREATE INDEX approvals_list ON approvals (created_at, id)",
    "CREATE INDEX approvals_status ON approvals (status, created_at, id)",
    "CREATE INDEX approvals_open ON approvals (created_at, id) WHERE open_key IS NOT NULL",
    "CREATE TABLE pauses (
         scope TEXT NOT NULL,
         reason TEXT NOT NULL,
         set_by TEXT NOT NULL,
         since BIGINT NOT NULL,
         PRIMARY KEY (scope)
     )",
    "CREATE TABLE audit_log (
         number {identity},
         at BIGINT NOT NULL,
         actor_kind TEXT NOT NULL,
         actor TEXT NOT NULL,
         action TEXT NOT NULL,
         psp_id TEXT,
         subject TEXT NOT NULL,
         detail TEXT NOT NULL,
         address TEXT,
         request_id TEXT
     )",
    "CREATE INDEX audit_log_subject_number ON audit_log (subject, number)",
    "CREATE INDEX audit_log_psp_id_number ON audit_log (psp_id, number)",
    "CREATE TABLE audit_chain (
         position BIGINT NOT NULL,
         number BIGINT NOT NULL,
         hash TEXT NOT NULL,
         PRIMARY KEY (position)
     )",
    "CREATE UNIQUE INDEX audit_chain_number ON audit_chain (number)",
    "CREATE INDEX audit_chain_hash ON audit_chain (hash)",
];

/// Makes the audit log append-only.
pub(super) const SQLITE: &[&str] = &[
    "CREATE TRIGGER audit_log_stays BEFORE UPDATE ON audit_log
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_log_is_kept BEFORE DELETE ON audit_log
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_chain_stays BEFORE UPDATE ON audit_chain
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_chain_is_kept BEFORE DELETE ON audit_chain
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
];

/// Makes the audit log append-only.
pub(super) const POSTGRES: &[&str] = &[
    "CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$",
    "CREATE TRIGGER audit_log_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
     FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only()",
    "CREATE TRIGGER audit_chain_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_chain
     FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only()",
];
