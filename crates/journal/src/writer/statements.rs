//! Every statement of the journal.

use payferry_entities::{
    Batch, DeliveryStatus, OperationStatus, alarms, audit_log, authorizations, balances, chain_cursors, chain_headers,
    chain_outages, chain_tx_attempts, chain_txs, customers, delivery_attempts, deposits, events, idempotency_keys,
    ledger_postings, operations, payment_transitions, payments, refund_requests, refunds, sending_transitions,
    sendings, transfers,
};
use sea_orm::{DbBackend, DbErr, EntityTrait, IdenStatic, Iterable, ModelTrait, Value};

use super::bind::{LIST_ROWS, Row, RowStatement, insert_template, text, values_of};
use super::rows::{
    AppliedRow, BlockRow, ChainTxRow, CursorAdvance, CustomerEventRow, DayRow, DeliveryRow, EndedAlarm, HeightRow,
    LeaseRow, MinedRow, NewDelivery, OperationOutcomeRow, OperationRow, OutagesToForget, PaymentAdvance, RefusedRow,
    ReserveRow, SubmittedOperation, SuccessRow, VersionRow,
};
use super::{DELIVERY_RETRIES_MAX, GROUP_UNITS_MAX, Initiation};

/// The statements in the dialect of the database.
#[derive(Debug)]
pub(super) struct Statements {
    // Statements that need no intermediate answers.
    pub(super) new_payments: NewPayments,
    // Preconditions: each returns the keys of the rows that passed.
    pub(super) idempotency_take: RowStatement<idempotency_keys::Model>,
    pub(super) fence: RowStatement<LeaseRow<'static>>,
    pub(super) payments_unchanged: RowStatement<VersionRow<'static>>,
    pub(super) payments_advance: RowStatement<PaymentAdvance<'static>>,
    pub(super) sendings_advance: RowStatement<sendings::Model>,
    pub(super) balances_reserve: RowStatement<ReserveRow<'static>>,
    pub(super) sends_per_day_begin: RowStatement<DayRow<'static>>,
    pub(super) sends_per_day_add: RowStatement<DayRow<'static>>,
    pub(super) cursors_begin: RowStatement<chain_cursors::Model>,
    pub(super) cursors_advance: RowStatement<CursorAdvance<'static>>,
    pub(super) chain_txs_insert: RowStatement<chain_txs::Model>,
    pub(super) operations_submit: RowStatement<SubmittedOperation<'static>>,
    pub(super) chain_txs_outcome: RowStatement<ChainTxRow<'static>>,
    pub(super) delivery_attempts_insert: RowStatement<delivery_attempts::Model>,
    // Dependent statements.
    pub(super) payments_insert: RowStatement<payments::Model>,
    pub(super) payment_transitions_insert: RowStatement<payment_transitions::Model>,
    pub(super) refunds_upsert: RowStatement<refunds::Model>,
    pub(super) refund_requests_upsert: RowStatement<refund_requests::Model>,
    pub(super) alarms_insert: RowStatement<alarms::Model>,
    pub(super) alarms_end: RowStatement<EndedAlarm<'static>>,
    pub(super) sendings_insert: RowStatement<sendings::Model>,
    pub(super) sending_transitions_insert: RowStatement<sending_transitions::Model>,
    pub(super) ledger_postings_insert: RowStatement<ledger_postings::Model>,
    pub(super) balances_add: RowStatement<balances::Model>,
    pub(super) customers_insert: RowStatement<customers::Model>,
    pub(super) audit_log_insert: RowStatement<audit_log::Model>,
    pub(super) authorizations_insert: RowStatement<authorizations::Model>,
    pub(super) customer_events_take: RowStatement<CustomerEventRow<'static>>,
    pub(super) events_insert: RowStatement<events::Model>,
    pub(super) deliveries_insert: RowStatement<NewDelivery<'static>>,
    pub(super) deliveries_update: RowStatement<DeliveryRow<'static>>,
    pub(super) operations_queue: RowStatement<operations::Model>,
    pub(super) operations_cancel: RowStatement<OperationRow<'static>>,
    pub(super) operations_succeed: RowStatement<SuccessRow<'static>>,
    pub(super) operations_outcome: RowStatement<OperationOutcomeRow<'static>>,
    pub(super) operations_refuse: RowStatement<RefusedRow<'static>>,
    pub(super) chain_tx_attempts_insert: RowStatement<chain_tx_attempts::Model>,
    pub(super) transfers_elsewhere: RowStatement<MinedRow<'static>>,
    pub(super) deposits_elsewhere: RowStatement<MinedRow<'static>>,
    pub(super) transfers_orphan: RowStatement<BlockRow<'static>>,
    pub(super) transfers_upsert: RowStatement<transfers::Model>,
    pub(super) deposits_orphan: RowStatement<BlockRow<'static>>,
    pub(super) deposits_insert: RowStatement<deposits::Model>,
    pub(super) deposits_post: RowStatement<HeightRow<'static>>,
    pub(super) deposits_to_post: RowStatement<HeightRow<'static>>,
    pub(super) deposits_posted: RowStatement<BlockRow<'static>>,
    pub(super) transfers_apply: RowStatement<AppliedRow<'static>>,
    pub(super) headers_drop: RowStatement<BlockRow<'static>>,
    pub(super) headers_upsert: RowStatement<chain_headers::Model>,
    pub(super) headers_forget: RowStatement<HeightRow<'static>>,
    pub(super) outages_upsert: RowStatement<chain_outages::Model>,
    pub(super) outages_forget: RowStatement<OutagesToForget<'static>>,
}

impl Statements {
    pub(super) fn new(backend: DbBackend) -> Self {
        use OperationStatus::{Cancelled, Failed, Mined, Queued, Submitted, Succeeded};

        // Replaces `{all}`. SQLite does not support `table.*` here, and `*` would include the columns of the source.
        fn returning<E: EntityTrait>(template: &str) -> String {
            let table = E::default().table_name().to_owned();
            let all: Vec<_> = E::Column::iter().map(|column| format!("{table}.\"{}\"", column.as_str())).collect();
            template.replace("{all}", &all.join(", "))
        }

        // SQLite has one writer at a time.
        let share_lock = |table| {
            if backend == DbBackend::Postgres { format!("FOR SHARE OF {table}") } else { String::new() }
        };

        Self {
            new_payments: NewPayments::new(backend),
            // An expired key counts as new.
            idempotency_take: RowStatement::insert(
                backend,
                "ON CONFLICT (\"psp_id\", \"route\", \"key\") DO UPDATE SET {set_excluded except psp_id, route, key}
                 WHERE idempotency_keys.\"expires_at\" <= excluded.\"created_at\"
                 RETURNING \"psp_id\", \"route\", \"key\"",
            ),
            // The lock lasts until the commit, and another node cannot claim a locked lease.
            fence: RowStatement::new(
                backend,
                &format!(
                    "SELECT leases.\"name\", leases.\"owner\", leases.\"epoch\", leases.\"changed_at\" FROM {{rows}} JOIN leases
                     ON leases.\"name\" = x.\"name\" AND leases.\"owner\" = x.\"owner\"
                     AND leases.\"epoch\" = x.\"epoch\" AND leases.\"changed_at\" = x.\"changed_at\" {}",
                    share_lock("leases")
                ),
            ),
            payments_unchanged: RowStatement::new(
                backend,
                &format!(
                    "SELECT payments.\"id\" FROM {{rows}} JOIN payments
                     ON payments.\"id\" = x.\"id\" AND payments.\"version\" = x.\"version\" {}",
                    share_lock("payments")
                ),
            ),
            // Only the columns that a transition can change, so that indexes on other columns are not touched.
            payments_advance: RowStatement::new(
                backend,
                "UPDATE payments SET {set except id} FROM {rows}
                 WHERE payments.\"id\" = x.\"id\" AND payments.\"version\" = x.\"version\" - 1
                 RETURNING payments.\"id\"",
            ),
            sendings_advance: RowStatement::new(
                backend,
                "UPDATE sendings SET \"version\" = x.\"version\", \"status\" = x.\"status\", \"live\" = x.\"live\",
                     \"in_review\" = x.\"in_review\", \"updated_at\" = x.\"updated_at\", \"state\" = x.\"state\"
                 FROM {rows}
                 WHERE sendings.\"id\" = x.\"id\" AND sendings.\"version\" = x.\"version\" - 1
                 RETURNING sendings.\"id\"",
            ),
            // Funds that do not exist cannot be reserved, even by concurrent writers.
            balances_reserve: RowStatement::new(
                backend,
                "UPDATE balances SET \"available\" = balances.\"available\" - x.\"amount\",
                     \"reserved\" = balances.\"reserved\" + x.\"amount\"
                 FROM {rows}
                 WHERE balances.\"psp_id\" = x.\"psp_id\" AND balances.\"chain\" = x.\"chain\"
                     AND balances.\"token_address\" = x.\"token_address\" AND balances.\"available\" >= x.\"amount\"
                 RETURNING balances.\"psp_id\"",
            ),
            sends_per_day_begin: RowStatement::new(
                backend,
                "INSERT INTO sends_per_day (\"psp_id\", \"token\", \"day\", \"amount\")
                 SELECT \"psp_id\", \"token\", \"day\", 0 FROM {rows} WHERE true {in_order}
                 ON CONFLICT (\"psp_id\", \"token\", \"day\") DO NOTHING",
            ),
            sends_per_day_add: RowStatement::new(
                backend,
                "UPDATE sends_per_day SET \"amount\" = sends_per_day.\"amount\" + x.\"amount\"
                 FROM {rows}
                 WHERE sends_per_day.\"psp_id\" = x.\"psp_id\" AND sends_per_day.\"token\" = x.\"token\"
                     AND sends_per_day.\"day\" = x.\"day\"
                     AND sends_per_day.\"amount\" <= x.\"amount_max\" - x.\"amount\"
                 RETURNING sends_per_day.\"psp_id\"",
            ),
            cursors_begin: RowStatement::insert(backend, "ON CONFLICT (\"chain\") DO NOTHING RETURNING \"chain\""),
            // A reader that lost its lease has a lower epoch than the row.
            cursors_advance: RowStatement::new(
                backend,
                "UPDATE chain_cursors SET {set except chain, hash_before}
                 FROM {rows}
                 WHERE chain_cursors.\"chain\" = x.\"chain\" AND chain_cursors.\"block_hash\" = x.\"hash_before\"
                     AND chain_cursors.\"epoch\" <= x.\"epoch\"
                 RETURNING chain_cursors.\"chain\"",
            ),
            chain_txs_insert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"chain\", \"sender\", \"nonce\") DO NOTHING
                 RETURNING \"id\", \"chain\", \"sender\", \"nonce\"",
            ),
            operations_submit: RowStatement::new(
                backend,
                &format!(
                    "UPDATE operations SET \"status\" = '{Submitted}', \"chain_tx_id\" = x.\"chain_tx_id\",
                         \"attempts\" = operations.\"attempts\" + 1, \"updated_at\" = x.\"updated_at\"
                     FROM {{rows}}
                     WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = '{Queued}'
                         AND operations.\"revision\" = x.\"revision\"
                     RETURNING operations.\"id\""
                ),
            ),
            chain_txs_outcome: RowStatement::new(
                backend,
                "UPDATE chain_txs SET {set except id} FROM {rows} WHERE chain_txs.\"id\" = x.\"id\"
                 RETURNING chain_txs.\"id\"",
            ),
            delivery_attempts_insert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"delivery_id\", \"number\") DO NOTHING RETURNING \"delivery_id\"",
            ),
            payments_insert: RowStatement::insert(backend, ""),
            payment_transitions_insert: RowStatement::insert(backend, ""),
            refunds_upsert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"id\") DO UPDATE SET \"status\" = excluded.\"status\"",
            ),
            refund_requests_upsert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"id\") DO UPDATE SET \"status\" = excluded.\"status\"",
            ),
            alarms_insert: RowStatement::insert(backend, ""),
            alarms_end: RowStatement::new(
                backend,
                "UPDATE alarms SET \"ended_at\" = x.\"ended_at\" FROM {rows} WHERE alarms.\"payment_id\" = x.\"payment_id\"
                     AND alarms.\"kind\" = x.\"kind\" AND alarms.\"ended_at\" IS NULL",
            ),
            sendings_insert: RowStatement::insert(backend, ""),
            sending_transitions_insert: RowStatement::insert(backend, ""),
            ledger_postings_insert: RowStatement::insert(backend, ""),
            balances_add: RowStatement::insert(
                backend,
                "ON CONFLICT (\"psp_id\", \"chain\", \"token_address\") DO UPDATE SET
                     \"available\" = balances.\"available\" + excluded.\"available\",
                     \"reserved\" = balances.\"reserved\" + excluded.\"reserved\",
                     \"updated_at\" = excluded.\"updated_at\"",
            ),
            customers_insert: RowStatement::insert(backend, ""),
            audit_log_insert: RowStatement::insert(backend, ""),
            authorizations_insert: RowStatement::insert(backend, ""),
            customer_events_take: RowStatement::new(
                backend,
                "DELETE FROM customer_events
                 WHERE (\"customer_id\", \"sequence\") IN (SELECT x.\"customer_id\", x.\"sequence\" FROM {rows})
                 RETURNING \"customer_id\", \"sequence\"",
            ),
            events_insert: RowStatement::insert(backend, ""),
            // The events were inserted before, in the same transaction.
            deliveries_insert: RowStatement::new(
                backend,
                &format!(
                    "INSERT INTO deliveries (\"id\", \"event_id\", \"psp_id\", \"payment_id\", \"sequence\",
                         \"position\", \"endpoint_id\", \"status\", \"attempt_count\", \"retries_left\",
                         \"next_attempt_at\", \"created_at\", \"updated_at\")
                     SELECT x.\"id\", e.\"id\", e.\"psp_id\", e.\"payment_id\", e.\"sequence\", e.\"position\",
                         x.\"endpoint_id\", '{}', 0, {DELIVERY_RETRIES_MAX}, e.\"created_at\", e.\"created_at\", e.\"created_at\"
                     FROM {{rows}} JOIN events AS e ON e.\"id\" = x.\"event_id\" WHERE true {{in_order}}",
                    DeliveryStatus::Queued
                ),
            ),
            deliveries_update: RowStatement::new(
                backend,
                "UPDATE deliveries SET {set except id} FROM {rows} WHERE deliveries.\"id\" = x.\"id\"",
            ),
            // An operation in progress, or a succeeded one, does not change: it can succeed only once.
            operations_queue: RowStatement::insert(
                backend,
                &format!(
                    "ON CONFLICT (\"id\") DO UPDATE SET \"status\" = '{Queued}', \"amount\" = excluded.\"amount\",
                         \"psp_amount\" = excluded.\"psp_amount\", \"treasury_fee\" = excluded.\"treasury_fee\",
                         \"recipient\" = excluded.\"recipient\", \"chain_tx_id\" = NULL, \"tx_hash\" = NULL,
                         \"block_number\" = NULL, \"revision\" = operations.\"revision\" + 1,
                         \"not_before\" = excluded.\"not_before\", \"updated_at\" = excluded.\"updated_at\"
                     WHERE operations.\"status\" IN ('{Queued}', '{Failed}', '{Cancelled}')"
                ),
            ),
            operations_cancel: RowStatement::new(
                backend,
                &format!(
                    "UPDATE operations SET \"status\" = '{Cancelled}', \"revision\" = operations.\"revision\" + 1,
                         \"updated_at\" = x.\"updated_at\"
                     FROM {{rows}} WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" IN ('{Queued}', '{Failed}')"
                ),
            ),
            // Only a mined operation that was not orphaned in the meantime. A success that is mined again is reported
            // again.
            operations_succeed: RowStatement::new(
                backend,
                &format!(
                    "UPDATE operations SET \"status\" = '{Succeeded}', \"updated_at\" = x.\"updated_at\"
                     FROM {{rows}} WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = '{Mined}'
                         AND operations.\"revision\" <= x.\"revision\""
                ),
            ),
            // A cancelled operation stays cancelled, unless the chain executed it.
            operations_outcome: RowStatement::new(
                backend,
                &returning::<operations::Entity>(
                    &format!(
                        "UPDATE operations SET {{set except id, amount, psp_amount, treasury_fee}},
                             \"amount\" = COALESCE(x.\"amount\", operations.\"amount\"),
                             \"psp_amount\" = COALESCE(x.\"psp_amount\", operations.\"psp_amount\"),
                             \"treasury_fee\" = COALESCE(x.\"treasury_fee\", operations.\"treasury_fee\"),
                             \"revision\" = operations.\"revision\" + 1
                         FROM {{rows}} WHERE operations.\"id\" = x.\"id\"
                             AND (operations.\"status\" <> '{Cancelled}' OR x.\"status\" = '{Mined}')
                         RETURNING {{all}}"
                    ),
                ),
            ),
            // An operation that was queued again since it was checked does not match, because the failure no longer
            // applies.
            operations_refuse: RowStatement::new(
                backend,
                &returning::<operations::Entity>(
                    &format!(
                        "UPDATE operations SET \"status\" = '{Failed}', \"chain_tx_id\" = NULL, \"tx_hash\" = NULL,
                             \"block_number\" = NULL, \"failure\" = x.\"failure\", \"not_before\" = 0,
                             \"revision\" = operations.\"revision\" + 1, \"updated_at\" = x.\"updated_at\"
                         FROM {{rows}} WHERE operations.\"id\" = x.\"id\" AND operations.\"status\" = '{Queued}'
                             AND operations.\"revision\" = x.\"revision\"
                         RETURNING {{all}}"
                    ),
                ),
            ),
            // The same hash means the same bytes.
            chain_tx_attempts_insert: RowStatement::insert(backend, "ON CONFLICT (\"tx_hash\") DO NOTHING"),
            // Other blocks with the same transactions. They are orphaned, even if they are too old to be remembered.
            transfers_elsewhere: RowStatement::new(
                backend,
                "SELECT DISTINCT transfers.\"chain\", transfers.\"block_hash\" FROM {rows} JOIN transfers
                     ON transfers.\"chain\" = x.\"chain\" AND transfers.\"tx_hash\" = x.\"tx_hash\"
                 WHERE transfers.\"block_hash\" <> x.\"block_hash\" AND transfers.\"presence\" = 'present'",
            ),
            deposits_elsewhere: RowStatement::new(
                backend,
                "SELECT DISTINCT deposits.\"chain\", deposits.\"block_hash\" FROM {rows} JOIN deposits
                     ON deposits.\"chain\" = x.\"chain\" AND deposits.\"tx_hash\" = x.\"tx_hash\"
                 WHERE deposits.\"block_hash\" <> x.\"block_hash\"",
            ),
            transfers_orphan: RowStatement::new(
                backend,
                &returning::<transfers::Entity>(
                    "UPDATE transfers SET \"presence\" = 'orphaned', \"revision\" = transfers.\"revision\" + 1
                     FROM {rows}
                     WHERE transfers.\"chain\" = x.\"chain\" AND transfers.\"block_hash\" = x.\"hash\"
                         AND transfers.\"presence\" = 'present'
                     RETURNING {all}",
                ),
            ),
            transfers_upsert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"chain\", \"tx_hash\", \"log_index\", \"block_hash\") DO UPDATE SET
                     \"presence\" = excluded.\"presence\", \"revision\" = transfers.\"revision\" + 1
                 WHERE transfers.\"presence\" <> excluded.\"presence\"
                 RETURNING *",
            ),
            // A transfer that was set aside (version 0) can later be listed at the same revision.
            transfers_apply: RowStatement::new(
                backend,
                "UPDATE transfers SET \"applied_revision\" = x.\"applied_revision\",
                     \"applied_version\" = x.\"applied_version\"
                 FROM {rows}
                 WHERE transfers.\"chain\" = x.\"chain\" AND transfers.\"tx_hash\" = x.\"tx_hash\"
                     AND transfers.\"log_index\" = x.\"log_index\" AND transfers.\"block_hash\" = x.\"block_hash\"
                     AND (transfers.\"applied_revision\" < x.\"applied_revision\"
                         OR transfers.\"applied_revision\" = x.\"applied_revision\"
                             AND transfers.\"applied_version\" = 0 AND x.\"applied_version\" > 0)",
            ),
            deposits_orphan: RowStatement::new(
                backend,
                &returning::<deposits::Entity>(
                    "DELETE FROM deposits
                     WHERE (\"chain\", \"block_hash\") IN (SELECT x.\"chain\", x.\"hash\" FROM {rows})
                     RETURNING {all}",
                ),
            ),
            deposits_insert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"chain\", \"tx_hash\", \"log_index\", \"block_hash\") DO NOTHING",
            ),
            deposits_post: RowStatement::new(
                backend,
                &returning::<deposits::Entity>(
                    "UPDATE deposits SET \"posted\" = TRUE FROM {rows}
                     WHERE deposits.\"chain\" = x.\"chain\" AND deposits.\"block_number\" < x.\"number\"
                         AND NOT deposits.\"posted\"
                     RETURNING {all}",
                ),
            ),
            // PSPs of the deposits that `deposits_post` changes, and of those that `deposits_orphan` deletes.
            deposits_to_post: RowStatement::new(
                backend,
                "SELECT DISTINCT deposits.\"psp_id\" FROM {rows} JOIN deposits
                     ON deposits.\"chain\" = x.\"chain\" AND deposits.\"block_number\" < x.\"number\"
                 WHERE NOT deposits.\"posted\"",
            ),
            deposits_posted: RowStatement::new(
                backend,
                "SELECT DISTINCT deposits.\"psp_id\" FROM {rows} JOIN deposits
                     ON deposits.\"chain\" = x.\"chain\" AND deposits.\"block_hash\" = x.\"hash\"
                 WHERE deposits.\"posted\"",
            ),
            headers_drop: RowStatement::new(
                backend,
                "DELETE FROM chain_headers
                 WHERE (\"chain\", \"hash\") IN (SELECT x.\"chain\", x.\"hash\" FROM {rows})",
            ),
            headers_upsert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"chain\", \"number\") DO UPDATE SET {set_excluded except chain, number}",
            ),
            outages_upsert: RowStatement::insert(
                backend,
                "ON CONFLICT (\"chain\", \"block_number\") DO UPDATE SET {set_excluded except chain, block_number}",
            ),
            // Those whose last block was orphaned, and old ones.
            outages_forget: RowStatement::new(
                backend,
                "DELETE FROM chain_outages WHERE (\"chain\", \"block_number\") IN
                     (SELECT o.\"chain\", o.\"block_number\" FROM {rows}
                      JOIN chain_outages AS o ON o.\"chain\" = x.\"chain\"
                          AND (o.\"block_number\" > x.\"above\" OR o.\"ended_at\" < x.\"ended_before\"))",
            ),
            headers_forget: RowStatement::new(
                backend,
                "DELETE FROM chain_headers WHERE (\"chain\", \"number\") IN
                     (SELECT h.\"chain\", h.\"number\" FROM {rows}
                      JOIN chain_headers AS h ON h.\"chain\" = x.\"chain\" AND h.\"number\" < x.\"number\")",
            ),
        }
    }
}

const _: () = assert!(GROUP_UNITS_MAX <= LIST_ROWS[LIST_ROWS.len() - 1], "a group fits the longest list");

/// The inserts of new payments, as one batch: without and with keys, by the number of payments that have room.
#[derive(Debug)]
pub(super) struct NewPayments(Box<[(usize, [Batch; 2])]>);

impl NewPayments {
    pub(super) fn new(backend: DbBackend) -> Self {
        fn part<M: ModelTrait>(backend: DbBackend, rows_max: usize, first: &mut usize) -> String {
            let part = text::<M>(backend, rows_max, *first, &insert_template::<M>(""));
            *first += M::columns().len();
            part
        }
        let batch = |rows_max: usize, has_keys: bool| {
            let mut first = 1;
            // The keys come first, so that little was written if one already exists.
            let keys = has_keys.then(|| part::<idempotency_keys::Model>(backend, rows_max, &mut first));
            let payments = part::<payments::Model>(backend, rows_max, &mut first);
            let transitions = part::<payment_transitions::Model>(backend, rows_max, &mut first);
            Batch::new(backend, &keys.into_iter().chain([payments, transitions]).collect::<Vec<_>>())
        };
        let lengths = if backend == DbBackend::Sqlite { &LIST_ROWS[..] } else { &[GROUP_UNITS_MAX] };
        Self(lengths.iter().map(|rows_max| (*rows_max, [batch(*rows_max, false), batch(*rows_max, true)])).collect())
    }

    /// Returns the batch for these payments, and its values.
    pub(super) fn bind(&self, backend: DbBackend, new: &[&Initiation]) -> Result<(&Batch, Vec<Value>), DbErr> {
        let (rows_max, [plain, keyed]) =
            self.0.iter().find(|(rows_max, _)| new.len() <= *rows_max).expect("a group fits the longest list");
        let mut values = Vec::new();
        let keys: Vec<_> = new.iter().filter_map(|initiation| initiation.idempotency.as_ref()).collect();
        let payments: Vec<_> = new.iter().map(|initiation| &initiation.payment).collect();
        let transitions: Vec<_> = new.iter().map(|initiation| &initiation.transition).collect();
        if !keys.is_empty() {
            fill::<idempotency_keys::Model>(&mut values, backend, *rows_max, &keys)?;
        }
        fill::<payments::Model>(&mut values, backend, *rows_max, &payments)?;
        fill::<payment_transitions::Model>(&mut values, backend, *rows_max, &transitions)?;
        Ok((if keys.is_empty() { plain } else { keyed }, values))
    }
}

/// Appends the values of the rows, and NULL for the unused rows of a list of SQLite.
fn fill<R: Row>(values: &mut Vec<Value>, backend: DbBackend, rows_max: usize, rows: &[&R]) -> Result<(), DbErr> {
    let end = values.len() + rows_max * R::columns().len();
    values.extend(values_of::<R>(backend, rows)?);
    if backend == DbBackend::Sqlite {
        values.resize(end, Value::BigInt(None));
    }
    Ok(())
}
