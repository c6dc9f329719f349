//! Search for customers by a part of their email, and the number of customers of each PSP.
//!
//! An index of all suffixes of an email finds a part of it: the part begins one of the suffixes. The entry of a suffix is the
//! PSP's id and the suffix in hexadecimal, which no parser of search terms changes. A suffix has at least three characters.
//!
//! Triggers maintain the index and the counts in the transaction of the change, so they also do so for a version of Payferry
//! that does not know them.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0004_customer_search",
    both: &[&[
        // The number of customers of a PSP is the sum of its slots, each of which can be negative. Transactions of different
        // slots do not wait for each other.
        "CREATE TABLE customer_counts (
             psp_id TEXT NOT NULL,
             slot BIGINT NOT NULL,
             customers BIGINT NOT NULL,
             PRIMARY KEY (psp_id, slot),
             FOREIGN KEY (psp_id) REFERENCES psps (id)
         )",
        "INSERT INTO customer_counts (psp_id, slot, customers) SELECT psp_id, 0, COUNT(*) FROM customers GROUP BY psp_id",
    ]],
    sqlite: &[SQLITE],
    postgres: &[POSTGRES],
};

/// SQLite has one writer at a time, which needs one slot. Its index is a full-text index without its own copy of the text:
/// a B-tree would write a page for each suffix.
const SQLITE: &[&str] = &[
    // Rows of the index have numbers. `VACUUM` can change the number of a row without such a column.
    "CREATE TABLE customer_numbers (
         number INTEGER PRIMARY KEY,
         customer_id TEXT NOT NULL UNIQUE
     )",
    "CREATE VIEW customer_search_tokens AS
     SELECT customer_numbers.number, customers.id AS customer_id, (
         WITH RECURSIVE suffix (start) AS (
             SELECT 1 WHERE length(customers.email_search) >= 3
             UNION ALL SELECT start + 1 FROM suffix WHERE start < length(customers.email_search) - 2
         )
         SELECT group_concat(customers.psp_id || '_' || hex(substr(customers.email_search, start)), ' ') FROM suffix
     ) AS tokens
     FROM customers JOIN customer_numbers ON customer_numbers.customer_id = customers.id",
    "CREATE VIRTUAL TABLE customer_search USING fts5(
         tokens, content = '', columnsize = 0, detail = none, tokenize = \"ascii tokenchars '_'\"
     )",
    // A deleted email leaves no suffix in the index.
    "INSERT INTO customer_search (customer_search, rank) VALUES ('secure-delete', 1)",
    "INSERT INTO customer_numbers (customer_id) SELECT id FROM customers ORDER BY created_at, id",
    "INSERT INTO customer_search (rowid, tokens) SELECT number, tokens FROM customer_search_tokens ORDER BY number",
    "CREATE TRIGGER customers_inserted AFTER INSERT ON customers BEGIN
         INSERT INTO customer_counts (psp_id, slot, customers) VALUES (new.psp_id, 0, 1)
             ON CONFLICT (psp_id, slot) DO UPDATE SET customers = customers + 1;
         INSERT INTO customer_numbers (customer_id) VALUES (new.id);
         INSERT INTO customer_search (rowid, tokens)
             SELECT number, tokens FROM customer_search_tokens WHERE customer_id = new.id;
     END",
    "CREATE TRIGGER customers_deleted BEFORE DELETE ON customers BEGIN
         UPDATE customer_counts SET customers = customers - 1 WHERE psp_id = old.psp_id AND slot = 0;
         INSERT INTO customer_search (customer_search, rowid, tokens)
             SELECT 'delete', number, tokens FROM customer_search_tokens WHERE customer_id = old.id;
         DELETE FROM customer_numbers WHERE customer_id = old.id;
     END",
    "CREATE TRIGGER customers_email_removed BEFORE UPDATE OF email_search ON customers
     WHEN old.email_search <> new.email_search BEGIN
         INSERT INTO customer_search (customer_search, rowid, tokens)
             SELECT 'delete', number, tokens FROM customer_search_tokens WHERE customer_id = old.id;
     END",
    "CREATE TRIGGER customers_email_added AFTER UPDATE OF email_search ON customers
     WHEN old.email_search <> new.email_search BEGIN
         INSERT INTO customer_search (rowid, tokens)
             SELECT number, tokens FROM customer_search_tokens WHERE customer_id = new.id;
     END",
    "CREATE TRIGGER customers_stay BEFORE UPDATE OF id, psp_id ON customers
     WHEN old.id <> new.id OR old.psp_id <> new.psp_id
     BEGIN SELECT RAISE(ABORT, 'a customer stays with its PSP'); END",
];

/// PostgreSQL maintains its index by itself. The index needs no extension.
const POSTGRES: &[&str] = &[
    "CREATE FUNCTION customer_search_tokens(psp_id TEXT, email TEXT) RETURNS tsvector
     LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
         SELECT array_to_tsvector(coalesce(
             array_agg(psp_id || '_' || encode(convert_to(substr(email, start), 'UTF8'), 'hex')), '{}'
         )) FROM generate_series(1, length(email) - 2) AS start
     $$",
    // Each search reads the whole list of pending entries, so it is short (in KiB).
    "CREATE INDEX customers_search ON customers USING gin (customer_search_tokens(psp_id, email_search))
     WITH (gin_pending_list_limit = 256)",
    // No statistics on suffixes: they differ, and ANALYZE would make them for each customer that it reads.
    "ALTER INDEX customers_search ALTER COLUMN 1 SET STATISTICS 0",
    "CREATE FUNCTION count_customers() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
         INSERT INTO customer_counts AS counts (psp_id, slot, customers)
             SELECT psp_id, pg_backend_pid() % 16, CASE TG_OP WHEN 'INSERT' THEN COUNT(*) ELSE -COUNT(*) END
             FROM changed GROUP BY psp_id ORDER BY psp_id
             ON CONFLICT (psp_id, slot) DO UPDATE SET customers = counts.customers + excluded.customers;
         RETURN NULL;
     END $$",
    "CREATE TRIGGER customers_inserted AFTER INSERT ON customers REFERENCING NEW TABLE AS changed
     FOR EACH STATEMENT EXECUTE FUNCTION count_customers()",
    "CREATE TRIGGER customers_deleted AFTER DELETE ON customers REFERENCING OLD TABLE AS changed
     FOR EACH STATEMENT EXECUTE FUNCTION count_customers()",
    "CREATE FUNCTION customers_stay() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN RAISE EXCEPTION 'a customer stays with its PSP'; END $$",
    "CREATE TRIGGER customers_stay BEFORE UPDATE OF id, psp_id ON customers FOR EACH ROW
     WHEN (old.id <> new.id OR old.psp_id <> new.psp_id) EXECUTE FUNCTION customers_stay()",
];
