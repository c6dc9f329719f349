//! Every statement of the journal, as constant texts: with values for frequent rows, with one JSON array for the
//! others.

use payferry_entities::{
    audit_log, chain_cursors, chain_headers, chain_tx_attempts, chain_txs, customers, deliveries, delivery_attempts,
    events, idempotency_keys, ledger_postings, operations, payment_transitions, payments, sending_transitions,
    sendings, transfers,
};
use sea_orm::{DbBackend, EntityTrait, IdenStatic, Iterable};

use super::insert::{Insert, into_table};
use super::new_payments::NewPayments;
use super::table::Kind::{Int, Text};
use super::table::Shape;

/// The statements in the dialect of the database. The texts take one JSON array of objects as `$1`.
#[derive(Debug)]
pub(super) struct Statements {
    // Statements that need no intermediate answers.
    pub(super) new_payments: NewPayments,
    // Preconditions: each returns the keys of the rows that passed.
    pub(super) idempotency_take: Insert,
    pub(super) payments_advance: Insert,
    pub(super) sendings_advance: String,
    pub(super) balances_reserve: String,
    pub(super) sends_per_day_begin: String,
    pub(super) sends_per_day_add: String,
    pub(super) cursors_begin: String,
    pub(super) cursors_advance: String,
    pub(super) chain_txs_insert: String,
    pub(super) operations_submit: Insert,
    pub(super) operations_lose_number: String,
    pub(super) delivery_attempts_insert: Insert,
    // Dependent statements.
    pub(super) payments_insert: Insert,
    pub(super) payment_transitions_insert: Insert,
    pub(super) sendings_insert: Insert,
    pub(super) sending_transitions_insert: Insert,
    pub(super) ledger_postings_insert: Insert,
    pub(super) balances_add: String,
    pub(super) customers_insert: Insert,
    pub(super) audit_log_insert: String,
    pub(super) events_insert: Insert,
    pub(super) deliveries_insert: Insert,
    pub(super) deliveries_update: Insert,
    pub(super) counters_raise: String,
    pub(super) counters_take: String,
    pub(super) operations_number: String,
    pub(super) operations_existing: Insert,
    pub(super) operations_queue: Insert,
    pub(super) operations_cancel: Insert,
    pub(super) operations_succeed: Insert,
    pub(super) operations_outcome: Insert,
    pub(super) operations_refuse: Insert,
    pub(super) chain_tx_attempts_insert: String,
    pub(super) chain_txs_outcome: String,
    pub(super) transfers_orphan: String,
    pub(super) transfers_upsert: Insert,
    pub(super) transfers_apply: Insert,
    pub(super) headers_drop: String,
    pub(super) headers_upsert: String,
    pub(super) headers_forget: String,
}

impl Statements {
    pub(super) fn new(backend: DbBackend) -> Self {
        // An insert of complete rows of a table; `tail` follows the SELECT.
        fn insert<E: EntityTrait + Default>(backend: DbBackend, shape: &Shape, keys: &[&str], tail: &str) -> String {
            shape.statement(backend, keys, &into_table::<E>(tail))
        }
        // Replaces `{all}`. SQLite does not support `table.*` here, and `*` would include the columns of the source.
        fn returning<E: EntityTrait>(statement: &str) -> String {
            let table = E::default().table_name().to_owned();
            let all: Vec<_> = E::Column::iter().map(|column| format!("{table}.\"{}\"", column.as_str())).collect();
            statement.replace("{all}", &all.join(", "))
        }
        let statement = |columns: &[_], template: &str| Shape::new(columns, &[]).statement(backend, &[], template);
        // `nullable` contains the columns that may be NULL.
        let many = |columns: &[_], nullable: &[_], template: &str| {
            Insert::over(backend, &Shape::new(columns, nullable), &[], template)
        };
        let operation_id = [("id", Text), ("updated_at", Int)];

        Self {
            new_payments: NewPayments::new(backend),
            // An expired key counts as new.
            idempotency_take: Insert::into::<idempotency_keys::Entity>(
                backend,
                &["psp_id", "route", "key"],
                "ON CONFLICT (\"psp_id\", \"route\", \"key\") DO UPDATE SET {set_excluded}
                 WHERE idempotency_keys.\"expires_at\" <= excluded.\"created_at\"
                 RETURNING \"psp_id\", \"route\", \"key\"",
            ),
            // Only the columns that a transition can change, so that indexes on other columns are not touched.
            payments_advance: Insert::over(
                backend,
                &Shape::new(
                    &[
                        ("id", Text),
                        ("version", Int),
                        ("status", Text),
                        ("live", super::table::Kind::Bool),
                        ("attention", Text),
                        ("amount_received", Int),
                        ("expires_at", Int),
                        ("updated_at", Int),
                        ("state", Text),
                    ],
                    &["attention"],
                ),
                &["id"],
                "UPDATE payments SET {set} FROM {rows}
                 WHERE payments.\"id\" = x.\"id\" AND payments.\"version\" = x.\"version\" - 1
                 RETURNING payments.\"id\"",
            ),
            sendings_advance: statement(
                &[
                    ("id", Text),
                    ("version", Int),
                    ("status", Text),
                    ("live", super::table::Kind::Bool),
                    ("in_review", super::table::Kind::Bool),
                    ("updated_at", Int),
                    ("state", Text),
                ],
                "UPDATE sendings SET \"version\" = x.\"version\", \"status\" = x.\"status\", \"live\" = x.\"live\",
                     \"in_review\" = x.\"in_review\", \"updated_at\" = x.\"updated_at\", \"state\" = x.\"state\"
                 FROM {rows}
                 WHERE sendings.\"id\" = x.\"id\" AND sendings.\"version\" = x.\"version\" - 1
                 RETURNING sendings.\"id\"",
            ),
            // Funds that do not exist cannot be reserved, even by concurrent writers.
            balances_reserve: statement(
                &[("psp_id", Text), ("chain", Text), ("token_address", Text), ("amount", Int)],
                "UPDATE balances SET \"available\" = balances.\"available\" - x.\"amount\",
                     \"reserved\" = balances.\"reserved\" + x.\"amount\"
                 FROM {rows}
                 WHERE balances.\"psp_id\" = x.\"psp_id\" AND balances.\"chain\" = x.\"chain\"
                     AND balances.\"token_address\" = x.\"token_address\" AND balances.\"available\" >= x.\"amount\"
                 RETURNING balances.\"psp_id\"",
            ),
            sends_per_day_begin: statement(
                &[("psp_id", Text), ("token", Text), ("day", Int)],
                "INSERT INTO sends_per_day (\"psp_id\", \"token\", \"day\", \"amount\")
                 SELECT \"psp_id\", \"token\", \"day\", 0 FROM {rows} WHERE true {in_order}
                 ON CONFLICT (\"psp_id\", \"token\", \"day\") DO NOTHING",
            ),
            sends_per_day_add: statement(
                &[("psp_id", Text), ("token", Text), ("day", Int), ("amount", Int), ("amount_max", Int)],
                "UPDATE sends_per_day SET \"amount\" = sends_per_day.\"amount\" + x.\"amount\"
                 FROM {rows}
                 WHERE sends_per_day.\"psp_id\" = x.\"psp_id\" AND sends_per_day.\"token\" = x.\"token\"
                     AND sends_per_day.\"day\" = x.\"day\"
                     AND sends_per_day.\"amount\" <= x.\"amount_max\" - x.\"amount\"
                 RETURNING sends_per_day.\"psp_id\"",
            ),
            cursors_begin: insert::<chain_cursors::Entity>(
                backend,
                &Shape::of::<chain_cursors::Entity>(),
                &[],
                "ON CONFLICT (\"chain\") DO NOTHING RETURNING \"chain\"",
            ),
            // A reader that lost its lease has a lower epoch than the row.
            cursors_advance: statement(
                &[
                    ("chain", Text),
                    ("hash_before", Text),
                    ("block_number", Int),
                    ("block_hash", Text),
                    ("block_time", Int),
                    ("second_look_from", Int),
                    ("epoch", Int),
                    ("updated_at", Int),
                ],
                "UPDATE chain_cursors SET \"block_number\" = x.\"block_number\", \"block_hash\" = x.\"block_hash\",
                     \"block_time\" = x.\"block_time\", \"second_look_from\" = x.\"second_look_from\",
                     \"epoch\" = x.\"epoch\", \"updated_at\" = x.\"updated_at\"
                 FROM {rows}
                 WHERE chain_cursors.\"chain\" = x.\"chain\" AND chain_cursors.\"block_hash\" = x.\"hash_before\"
                     AND chain_cursors.\"epoch\" <= x.\"epoch\"
                 RETURNING chain_cursors.\"chain\"",
            ),
            chain_txs_insert: insert::<chain_txs::Entity>(
                backend,
                &Shape::of::<chain_txs::Entity>().without(&["id"]),
                &[],
                "ON CONFLICT (\"chain\", \"sender\", \"nonce\") DO NOTHING
                 RETURNING \"id\", \"chain\", \"sender\", \"nonce\"",
            ),
            operations_submit: many(
                &[("id", Text), ("revision", Int), ("chain_tx_id", Int), ("updated_at", Int)],
                &[],
                "UPDATE operations SET \"status\" = 'submitted', \"chain_tx_id\" = x.\"chain_tx_id\",
                     \"attempts\" = operations.\"attempts\" + 1, \"updated_at\" = x.\"updated_at\"
                 FROM {rows}
                 WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = 'queued'
                     AND operations.\"revision\" = x.\"revision\"
                 RETURNING operations.\"id\"",
            ),
            // A repeated write, or any other change of the row, no longer matches.
            operations_lose_number: statement(
                &[("id", Text), ("number", Int), ("revision", Int), ("failure", Text), ("updated_at", Int)],
                "UPDATE operations SET \"status\" = 'queued', \"chain_tx_id\" = NULL, \"tx_hash\" = NULL,
                     \"block_number\" = NULL, \"failure\" = x.\"failure\", \"not_before\" = 0,
                     \"revision\" = operations.\"revision\" + 1, \"updated_at\" = x.\"updated_at\"
                 FROM {rows}
                 WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = 'submitted'
                     AND operations.\"number\" = x.\"number\" AND operations.\"revision\" = x.\"revision\"
                 RETURNING operations.\"id\"",
            ),
            delivery_attempts_insert: Insert::into::<delivery_attempts::Entity>(
                backend,
                &[],
                "ON CONFLICT (\"delivery_id\", \"number\") DO NOTHING RETURNING \"delivery_id\"",
            ),
            payments_insert: Insert::into::<payments::Entity>(backend, &[], ""),
            payment_transitions_insert: Insert::into::<payment_transitions::Entity>(backend, &[], ""),
            sendings_insert: Insert::into::<sendings::Entity>(backend, &[], ""),
            sending_transitions_insert: Insert::into::<sending_transitions::Entity>(backend, &[], ""),
            ledger_postings_insert: Insert::over(
                backend,
                &Shape::of::<ledger_postings::Entity>().without(&["position"]),
                &[],
                "INSERT INTO ledger_postings ({columns}) SELECT {columns} FROM {rows} WHERE true {in_order}",
            ),
            balances_add: statement(
                &[
                    ("psp_id", Text),
                    ("chain", Text),
                    ("token_address", Text),
                    ("available", Int),
                    ("reserved", Int),
                    ("updated_at", Int),
                ],
                "INSERT INTO balances ({columns}) SELECT {columns} FROM {rows} WHERE true {in_order}
                 ON CONFLICT (\"psp_id\", \"chain\", \"token_address\") DO UPDATE SET
                     \"available\" = balances.\"available\" + excluded.\"available\",
                     \"reserved\" = balances.\"reserved\" + excluded.\"reserved\",
                     \"updated_at\" = excluded.\"updated_at\"",
            ),
            customers_insert: Insert::into::<customers::Entity>(backend, &[], ""),
            audit_log_insert: insert::<audit_log::Entity>(
                backend,
                &Shape::of::<audit_log::Entity>().without(&["number"]),
                &[],
                "",
            ),
            events_insert: Insert::over(
                backend,
                &Shape::of::<events::Entity>().without(&["position"]),
                &[],
                "INSERT INTO events ({columns}) SELECT {columns} FROM {rows} WHERE true {in_order}",
            ),
            // The events were inserted before, in the same transaction.
            deliveries_insert: Insert::over(
                backend,
                &Shape::of::<deliveries::Entity>().without(&["position"]),
                &[],
                "INSERT INTO deliveries ({columns}, \"position\")
                 SELECT {columns}, (SELECT events.\"position\" FROM events WHERE events.\"id\" = x.\"event_id\")
                 FROM {rows} WHERE true {in_order}",
            ),
            deliveries_update: many(
                &[
                    ("id", Text),
                    ("status", Text),
                    ("url", Text),
                    ("attempt_count", Int),
                    ("retries_left", Int),
                    ("next_attempt_at", Int),
                    ("response_code", Int),
                    ("response_body", Text),
                    ("duration_ms", Int),
                    ("error", Text),
                    ("updated_at", Int),
                ],
                &["next_attempt_at", "response_code", "response_body", "error"],
                "UPDATE deliveries SET \"status\" = x.\"status\", \"url\" = x.\"url\",
                     \"attempt_count\" = x.\"attempt_count\", \"retries_left\" = x.\"retries_left\",
                     \"next_attempt_at\" = x.\"next_attempt_at\", \"response_code\" = x.\"response_code\",
                     \"response_body\" = x.\"response_body\", \"duration_ms\" = x.\"duration_ms\",
                     \"error\" = x.\"error\", \"updated_at\" = x.\"updated_at\"
                 FROM {rows} WHERE deliveries.\"id\" = x.\"id\"",
            ),
            // The counter never decreases.
            counters_raise: statement(
                &[("name", Text), ("lowest", Int)],
                "INSERT INTO chain_counters (\"name\", \"next\") SELECT \"name\", \"lowest\" FROM {rows} WHERE true {in_order}
                 ON CONFLICT (\"name\") DO UPDATE SET \"next\" = excluded.\"next\"
                 WHERE chain_counters.\"next\" < excluded.\"next\"",
            ),
            counters_take: statement(
                &[("name", Text), ("count", Int)],
                "INSERT INTO chain_counters (\"name\", \"next\") SELECT \"name\", \"count\" FROM {rows} WHERE true {in_order}
                 ON CONFLICT (\"name\") DO UPDATE SET \"next\" = chain_counters.\"next\" + excluded.\"next\"
                 RETURNING \"name\", \"next\"",
            ),
            operations_number: statement(
                &[("id", Text), ("number", Int)],
                &returning::<operations::Entity>(
                    "UPDATE operations SET \"number\" = x.\"number\" FROM {rows} WHERE operations.\"id\" = x.\"id\"
                     RETURNING {all}",
                ),
            ),
            operations_existing: many(
                &operation_id,
                &[],
                "SELECT operations.\"id\" FROM {rows} JOIN operations ON operations.\"id\" = x.\"id\"",
            ),
            // An operation in progress, or a succeeded one, does not change: its number can succeed only once.
            operations_queue: Insert::into::<operations::Entity>(
                backend,
                &[],
                "ON CONFLICT (\"id\") DO UPDATE SET \"status\" = 'queued', \"amount\" = excluded.\"amount\",
                     \"psp_amount\" = excluded.\"psp_amount\", \"treasury_fee\" = excluded.\"treasury_fee\",
                     \"recipient\" = excluded.\"recipient\", \"chain_tx_id\" = NULL, \"tx_hash\" = NULL,
                     \"block_number\" = NULL, \"revision\" = operations.\"revision\" + 1,
                     \"not_before\" = excluded.\"not_before\", \"updated_at\" = excluded.\"updated_at\"
                 WHERE operations.\"status\" IN ('queued', 'failed', 'cancelled')",
            ),
            operations_cancel: many(
                &operation_id,
                &[],
                "UPDATE operations SET \"status\" = 'cancelled', \"revision\" = operations.\"revision\" + 1,
                     \"updated_at\" = x.\"updated_at\"
                 FROM {rows} WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" IN ('queued', 'failed')",
            ),
            // Only a mined operation that was not orphaned in the meantime. A success that is mined again is reported
            // again.
            operations_succeed: many(
                &[("id", Text), ("updated_at", Int), ("revision", Int)],
                &[],
                "UPDATE operations SET \"status\" = 'succeeded', \"updated_at\" = x.\"updated_at\"
                 FROM {rows} WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = 'mined'
                     AND operations.\"revision\" <= x.\"revision\"",
            ),
            // A cancelled operation stays cancelled, unless the chain executed it.
            operations_outcome: many(
                &[
                    ("id", Text),
                    ("status", Text),
                    ("chain_tx_id", Int),
                    ("tx_hash", Text),
                    ("block_number", Int),
                    ("amount", Int),
                    ("psp_amount", Int),
                    ("treasury_fee", Int),
                    ("failure", Text),
                    ("not_before", Int),
                    ("updated_at", Int),
                ],
                &["chain_tx_id", "tx_hash", "block_number", "amount", "psp_amount", "treasury_fee", "failure"],
                &returning::<operations::Entity>(
                    "UPDATE operations SET \"status\" = x.\"status\", \"chain_tx_id\" = x.\"chain_tx_id\",
                         \"tx_hash\" = x.\"tx_hash\", \"block_number\" = x.\"block_number\",
                         \"amount\" = COALESCE(x.\"amount\", operations.\"amount\"),
                         \"psp_amount\" = COALESCE(x.\"psp_amount\", operations.\"psp_amount\"),
                         \"treasury_fee\" = COALESCE(x.\"treasury_fee\", operations.\"treasury_fee\"),
                         \"failure\" = x.\"failure\", \"not_before\" = x.\"not_before\",
                         \"revision\" = operations.\"revision\" + 1, \"updated_at\" = x.\"updated_at\"
                     FROM {rows} WHERE operations.\"id\" = x.\"id\"
                         AND (operations.\"status\" <> 'cancelled' OR x.\"status\" = 'mined')
                     RETURNING {all}",
                ),
            ),
            // An operation that was queued again since it was checked does not match, because the failure no longer
            // applies.
            operations_refuse: many(
                &[("id", Text), ("revision", Int), ("failure", Text), ("updated_at", Int)],
                &[],
                &returning::<operations::Entity>(
                    "UPDATE operations SET \"status\" = 'failed', \"chain_tx_id\" = NULL, \"tx_hash\" = NULL,
                         \"block_number\" = NULL, \"failure\" = x.\"failure\", \"not_before\" = 0,
                         \"revision\" = operations.\"revision\" + 1, \"updated_at\" = x.\"updated_at\"
                     FROM {rows} WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = 'queued'
                         AND operations.\"revision\" = x.\"revision\"
                     RETURNING {all}",
                ),
            ),
            // The same hash means the same bytes.
            chain_tx_attempts_insert: insert::<chain_tx_attempts::Entity>(
                backend,
                &Shape::of::<chain_tx_attempts::Entity>(),
                &[],
                "ON CONFLICT (\"tx_hash\") DO NOTHING",
            ),
            chain_txs_outcome: statement(
                &[
                    ("id", Int),
                    ("status", Text),
                    ("tx_hash", Text),
                    ("block_number", Int),
                    ("block_hash", Text),
                    ("updated_at", Int),
                ],
                "UPDATE chain_txs SET \"status\" = x.\"status\", \"tx_hash\" = x.\"tx_hash\",
                     \"block_number\" = x.\"block_number\", \"block_hash\" = x.\"block_hash\",
                     \"updated_at\" = x.\"updated_at\"
                 FROM {rows} WHERE chain_txs.\"id\" = x.\"id\"
                 RETURNING chain_txs.\"id\"",
            ),
            transfers_orphan: returning::<transfers::Entity>(&statement(
                &[("chain", Text), ("hash", Text)],
                "UPDATE transfers SET \"presence\" = 'orphaned', \"revision\" = transfers.\"revision\" + 1
                 FROM {rows}
                 WHERE transfers.\"chain\" = x.\"chain\" AND transfers.\"block_hash\" = x.\"hash\"
                     AND transfers.\"presence\" = 'present'
                 RETURNING {all}",
            )),
            transfers_upsert: Insert::into::<transfers::Entity>(
                backend,
                &["chain", "tx_hash", "log_index", "revision", "applied_revision", "applied_version", "created_at"],
                "ON CONFLICT (\"chain\", \"tx_hash\", \"log_index\") DO UPDATE SET {set_excluded},
                     \"revision\" = transfers.\"revision\" + 1
                 WHERE transfers.\"block_hash\" <> excluded.\"block_hash\"
                     OR transfers.\"presence\" <> excluded.\"presence\"
                 RETURNING *",
            ),
            // A transfer that was set aside (version 0) can later be listed at the same revision.
            transfers_apply: many(
                &[
                    ("chain", Text),
                    ("tx_hash", Text),
                    ("log_index", Int),
                    ("applied_revision", Int),
                    ("applied_version", Int),
                ],
                &[],
                "UPDATE transfers SET \"applied_revision\" = x.\"applied_revision\",
                     \"applied_version\" = x.\"applied_version\"
                 FROM {rows}
                 WHERE transfers.\"chain\" = x.\"chain\" AND transfers.\"tx_hash\" = x.\"tx_hash\"
                     AND transfers.\"log_index\" = x.\"log_index\"
                     AND (transfers.\"applied_revision\" < x.\"applied_revision\"
                         OR transfers.\"applied_revision\" = x.\"applied_revision\"
                             AND transfers.\"applied_version\" = 0 AND x.\"applied_version\" > 0)",
            ),
            headers_drop: statement(
                &[("chain", Text), ("hash", Text)],
                "DELETE FROM chain_headers
                 WHERE (\"chain\", \"hash\") IN (SELECT x.\"chain\", x.\"hash\" FROM {rows})",
            ),
            headers_upsert: insert::<chain_headers::Entity>(
                backend,
                &Shape::of::<chain_headers::Entity>(),
                &["chain", "number"],
                "ON CONFLICT (\"chain\", \"number\") DO UPDATE SET {set_excluded}",
            ),
            headers_forget: statement(
                &[("chain", Text), ("number", Int)],
                "DELETE FROM chain_headers WHERE (\"chain\", \"number\") IN
                     (SELECT h.\"chain\", h.\"number\" FROM {rows}
                      JOIN chain_headers AS h ON h.\"chain\" = x.\"chain\" AND h.\"number\" < x.\"number\")",
            ),
        }
    }
}
