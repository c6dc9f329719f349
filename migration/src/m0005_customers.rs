//! Customers, their payment details, documents, and checks, and the audit log.

use crate::change::Change;

pub(crate) const CHANGE: Change =
    Change { sqlite: APPEND_ONLY_SQLITE, postgres: APPEND_ONLY_POSTGRES, ..Change::plain("m0005_customers", UP) };

const UP: &[&str] = &[
    "CREATE TABLE customers (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         kind TEXT NOT NULL,
         email TEXT NOT NULL,
         email_search TEXT NOT NULL,
         country TEXT NOT NULL,
         currency TEXT NOT NULL,
         kyc_status TEXT NOT NULL,
         before_update TEXT,
         is_active BOOLEAN NOT NULL,
         tos_accepted_at BIGINT,
         documents TEXT NOT NULL,
         check_id TEXT,
         check_purpose TEXT,
         check_revision BIGINT,
         rejection_reasons TEXT NOT NULL,
         revision BIGINT NOT NULL,
         version BIGINT NOT NULL,
         particulars TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    // Contains the filter columns of lists, so that a query reads only the rows of one page.
    "CREATE INDEX customers_list ON customers (psp_id, created_at, id, is_active, email_search)",
    "CREATE TABLE payment_details (
         customer_id TEXT NOT NULL,
         wallet_address TEXT,
         details TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (customer_id),
         FOREIGN KEY (customer_id) REFERENCES customers (id)
     )",
    "CREATE TABLE customer_documents (
         id TEXT NOT NULL,
         customer_id TEXT NOT NULL,
         kind TEXT NOT NULL,
         path TEXT NOT NULL,
         media_type TEXT NOT NULL,
         size BIGINT NOT NULL,
         uploaded_at BIGINT NOT NULL,
         replaced_at BIGINT,
         PRIMARY KEY (id),
         FOREIGN KEY (customer_id) REFERENCES customers (id)
     )",
    "CREATE UNIQUE INDEX customer_documents_current ON customer_documents (customer_id, kind) WHERE replaced_at IS NULL",
    "CREATE TABLE checks (
         id TEXT NOT NULL,
         customer_id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         purpose TEXT NOT NULL,
         revision BIGINT NOT NULL,
         status TEXT NOT NULL,
         provider TEXT,
         provider_ref TEXT,
         url TEXT,
         attempts BIGINT NOT NULL,
         next_attempt_at BIGINT,
         last_error TEXT,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         FOREIGN KEY (customer_id) REFERENCES customers (id)
     )",
    "CREATE INDEX checks_customer_id ON checks (customer_id)",
    "CREATE INDEX checks_due ON checks (next_attempt_at) WHERE status IN ('queued', 'open')",
    "CREATE UNIQUE INDEX checks_provider_ref ON checks (provider, provider_ref) WHERE provider_ref IS NOT NULL",
    "CREATE TABLE audit_log (
         number {identity},
         at BIGINT NOT NULL,
         actor_kind TEXT NOT NULL,
         actor TEXT NOT NULL,
         action TEXT NOT NULL,
         psp_id TEXT,
         subject TEXT NOT NULL,
         detail TEXT NOT NULL
     )",
    "CREATE INDEX audit_log_subject_number ON audit_log (subject, number)",
    "CREATE INDEX audit_log_psp_id_number ON audit_log (psp_id, number)",
    "CREATE INDEX payments_customer_id_id ON payments (customer_id, id) WHERE customer_id IS NOT NULL",
];

/// Makes the audit log append-only.
const APPEND_ONLY_SQLITE: &[&str] = &[
    "CREATE TRIGGER audit_log_stays BEFORE UPDATE ON audit_log
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_log_is_kept BEFORE DELETE ON audit_log
     BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
];
const APPEND_ONLY_POSTGRES: &[&str] = &[
    "CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$",
    "CREATE TRIGGER audit_log_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
     FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only()",
];
