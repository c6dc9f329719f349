//! Named operators, and the sessions of the operator's pages.

pub(crate) const UP: &[&str] = &[
    "CREATE TABLE operators (
         name TEXT NOT NULL,
         role TEXT NOT NULL,
         token_hash TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         revoked_at BIGINT,
         PRIMARY KEY (name),
         UNIQUE (token_hash)
     )",
    "CREATE TABLE operator_sessions (
         session_hash TEXT NOT NULL,
         token_hash TEXT NOT NULL,
         ends_at BIGINT NOT NULL,
         PRIMARY KEY (session_hash)
     )",
    "CREATE INDEX operator_sessions_token_hash ON operator_sessions (token_hash)",
    "CREATE INDEX operator_sessions_ends_at ON operator_sessions (ends_at)",
];
