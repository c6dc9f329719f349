//! Ledger, balances, payouts, and withdrawals; transfers to customers as payments.
//!
//! Operations can now belong to subjects other than payments, and a payment that implements a transfer to a customer has
//! no merchant.

use crate::change::{Change, Rebuild};

pub(crate) const CHANGE: Change = Change {
    sqlite: APPEND_ONLY_SQLITE,
    sqlite_rebuilds: RELAX_SQLITE,
    postgres: POSTGRES,
    ..Change::plain("m0007_money_out", UP)
};

const UP: &[&str] = &[
    "CREATE TABLE ledger_postings (
         position {identity},
         subject TEXT NOT NULL,
         version BIGINT NOT NULL,
         line BIGINT NOT NULL,
         psp_id TEXT NOT NULL,
         kind TEXT NOT NULL,
         debit TEXT NOT NULL,
         credit TEXT NOT NULL,
         chain TEXT NOT NULL,
         token_address TEXT NOT NULL,
         amount BIGINT NOT NULL,
         reference TEXT NOT NULL,
         at BIGINT NOT NULL,
         UNIQUE (subject, version, line),
         CHECK (amount > 0),
         CHECK (debit <> credit),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX ledger_postings_psp_id_position ON ledger_postings (psp_id, position)",
    "CREATE TABLE balances (
         psp_id TEXT NOT NULL,
         chain TEXT NOT NULL,
         token_address TEXT NOT NULL,
         available BIGINT NOT NULL,
         reserved BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (psp_id, chain, token_address),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE TABLE sends_per_day (
         psp_id TEXT NOT NULL,
         token TEXT NOT NULL,
         day BIGINT NOT NULL,
         amount BIGINT NOT NULL,
         PRIMARY KEY (psp_id, token, day),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE TABLE sendings (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         kind TEXT NOT NULL,
         customer_id TEXT,
         reference TEXT,
         chain TEXT NOT NULL,
         token TEXT NOT NULL,
         amount BIGINT NOT NULL,
         recipient TEXT NOT NULL,
         version BIGINT NOT NULL,
         status TEXT NOT NULL,
         live BOOLEAN NOT NULL,
         in_review BOOLEAN NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         state TEXT NOT NULL,
         PRIMARY KEY (id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX sendings_psp_id_kind_created_at_id ON sendings (psp_id, kind, created_at, id)",
    "CREATE INDEX sendings_live ON sendings (id) WHERE live",
    "CREATE TABLE sending_transitions (
         sending_id TEXT NOT NULL,
         version BIGINT NOT NULL,
         at BIGINT NOT NULL,
         events TEXT NOT NULL,
         PRIMARY KEY (sending_id, version),
         FOREIGN KEY (sending_id) REFERENCES sendings (id)
     )",
    "ALTER TABLE payments ADD COLUMN purpose TEXT NOT NULL DEFAULT 'payin'",
];

/// Makes the ledger append-only.
const APPEND_ONLY_SQLITE: &[&str] = &[
    "CREATE TRIGGER ledger_postings_no_update BEFORE UPDATE ON ledger_postings
     BEGIN SELECT RAISE(ABORT, 'ledger_postings is append-only'); END",
    "CREATE TRIGGER ledger_postings_no_delete BEFORE DELETE ON ledger_postings
     BEGIN SELECT RAISE(ABORT, 'ledger_postings is append-only'); END",
];

/// SQLite cannot change a column, so the tables are rebuilt.
const RELAX_SQLITE: &[Rebuild] = &[
    Rebuild { table: "payments", from: "merchant_id TEXT NOT NULL,", to: "merchant_id TEXT,", indexes: &[] },
    Rebuild {
        table: "operations",
        from: "UNIQUE (chain, number),\n         FOREIGN KEY (payment_id) REFERENCES payments (id)",
        to: "UNIQUE (chain, number)",
        indexes: &[],
    },
];

const POSTGRES: &[&str] = &[
    "CREATE FUNCTION ledger_postings_append_only() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN RAISE EXCEPTION 'ledger_postings is append-only'; END $$",
    "CREATE TRIGGER ledger_postings_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_postings
     FOR EACH STATEMENT EXECUTE FUNCTION ledger_postings_append_only()",
    "ALTER TABLE payments ALTER COLUMN merchant_id DROP NOT NULL",
    "ALTER TABLE operations DROP CONSTRAINT operations_payment_id_fkey",
];
