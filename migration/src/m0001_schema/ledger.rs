//! The ledger and its running balances.

pub(super) const BOTH: &[&str] = &[
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
         CHECK (debit IN ('external', 'payment', 'psp', 'in_flight', 'treasury', 'suspense')),
         CHECK (credit IN ('external', 'payment', 'psp', 'in_flight', 'treasury', 'suspense')),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX ledger_postings_psp_id_position ON ledger_postings (psp_id, position)",
    // Outbound transfers that only the chain knows; the reference is the payment whose vault they left.
    "CREATE INDEX ledger_postings_unknown_sent ON ledger_postings (reference) WHERE kind = 'unknown_sent'",
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
    // Transfers from outside to vaults of PSPs. They are posted when their block is final.
    "CREATE TABLE deposits (
         chain TEXT NOT NULL,
         tx_hash TEXT NOT NULL,
         log_index BIGINT NOT NULL,
         block_hash TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         token_address TEXT NOT NULL,
         from_address TEXT NOT NULL,
         amount BIGINT NOT NULL,
         block_number BIGINT NOT NULL,
         posted BOOLEAN NOT NULL,
         created_at BIGINT NOT NULL,
         PRIMARY KEY (chain, tx_hash, log_index, block_hash),
         CHECK (amount > 0),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX deposits_chain_block_hash ON deposits (chain, block_hash)",
    "CREATE INDEX deposits_psp_id ON deposits (psp_id, chain, token_address)",
    "CREATE INDEX deposits_waiting ON deposits (chain, block_number) WHERE NOT posted",
    // Marker that everything from before the ledger is posted. The service sets it, because only the domain can create the
    // postings.
    "CREATE TABLE ledger_openings (
         id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
         opened_at BIGINT NOT NULL
     )",
];

/// Makes the ledger append-only.
pub(super) const SQLITE: &[&str] = &[
    "CREATE TRIGGER ledger_postings_no_update BEFORE UPDATE ON ledger_postings
     BEGIN SELECT RAISE(ABORT, 'ledger_postings is append-only'); END",
    "CREATE TRIGGER ledger_postings_no_delete BEFORE DELETE ON ledger_postings
     BEGIN SELECT RAISE(ABORT, 'ledger_postings is append-only'); END",
];

/// Makes the ledger append-only.
pub(super) const POSTGRES: &[&str] = &[
    "CREATE FUNCTION ledger_postings_append_only() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN RAISE EXCEPTION 'ledger_postings is append-only'; END $$",
    "CREATE TRIGGER ledger_postings_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_postings
     FOR EACH STATEMENT EXECUTE FUNCTION ledger_postings_append_only()",
];
