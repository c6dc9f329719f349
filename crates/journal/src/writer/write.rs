//! One attempt at a group: one transaction with the preconditions of all writes first, then the dependent statements.
//!
//! Groups of only new payments need no intermediate answers (`new_payments`); they come here only if that attempt
//! failed. Not here: the preconditions (`preconditions`), the handling of failed groups (`task`), the selection of a
//! group (`queue`).

use std::collections::{BTreeMap, HashMap, HashSet};

use payferry_entities::{Database, Failure, Transaction, chain_headers, deliveries, operations, transfers};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, FromQueryResult, QueryResult, Statement};
use serde::Serialize;

use super::insert::Unplaced;
use super::preconditions::Preconditions;
use super::rows::{
    AppliedRow, BlockRow, CounterLowestRow, CounterRow, DeliveryRow, EventRow, HeightRow, NumberRow,
    OperationOutcomeRow, OperationRow, RefusedRow, SuccessRow,
};
use super::statements::Statements;
use super::{
    DELIVERY_RETRIES_MAX, JournalError, JournalWrite, OperationChange, OperationOutcome, Receipt, Renumbering,
};

/// Outcome of an attempt.
pub(super) enum Attempt {
    /// Committed; one receipt per write.
    Committed(Vec<Receipt>),
    /// Rolled back because some writes failed a precondition. The other writes are valid.
    Lost(FailedPreconditions),
    /// Rolled back, or never started.
    Failed(Failure, DbErr),
    /// The commit was sent and failed.
    Unknown(DbErr),
}

/// Writes that failed a precondition, by their position.
pub(super) struct FailedPreconditions {
    pub(super) lost: BTreeMap<usize, JournalError>,
    /// Failed writes that fail only if the other writes are committed.
    pub(super) outdone: HashSet<usize>,
}

/// Commits `writes` in one transaction.
pub(super) async fn attempt(database: &Database, statements: &Statements, writes: &[&JournalWrite]) -> Attempt {
    if let Some(attempt) = statements.new_payments.attempt(database, writes).await {
        return attempt;
    }
    let transaction = match database.begin().await {
        Ok(transaction) => transaction,
        Err(error) => return Attempt::Failed(Failure::of(&error), error),
    };
    let writer = Writer { backend: database.backend(), transaction: &transaction, statements };
    let written = match writer.pass_gates(writes).await {
        Ok(Preconditions { lost, outdone, .. }) if !lost.is_empty() => Ok(Err(FailedPreconditions { lost, outdone })),
        Ok(preconditions) => writer.write(writes, preconditions).await.map(Ok),
        Err(error) => Err(error),
    };
    match written {
        Ok(Ok(receipts)) => match transaction.commit().await {
            Ok(()) => Attempt::Committed(receipts),
            // With this error the server reports a rollback. With any other error the outcome is unknown.
            Err(error) if Failure::of(&error) == Failure::Contention => Attempt::Failed(Failure::Contention, error),
            Err(error) => Attempt::Unknown(error),
        },
        Ok(Err(losers)) => {
            roll_back(transaction).await;
            Attempt::Lost(losers)
        }
        Err(error) => {
            roll_back(transaction).await;
            Attempt::Failed(Failure::of(&error), error)
        }
    }
}

/// Waits until no transaction remains that has written to this table. A transaction whose connection was lost may still
/// commit. SQLite has a single writer, so there is nothing to wait for.
pub(super) async fn outwait(database: &Database, table: &'static str) -> Result<(), DbErr> {
    if database.backend() == DbBackend::Postgres {
        let transaction = database.begin().await?;
        transaction.execute_unprepared(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await?;
        transaction.rollback().await?;
    }
    Ok(())
}

/// Rolls back. A failure means that the connection is broken, and the database rolls back on its own.
async fn roll_back(transaction: Transaction) {
    if let Err(error) = transaction.rollback().await {
        tracing::warn!(%error, "the journal could not roll back");
    }
}

/// Runs the statements of one transaction.
pub(super) struct Writer<'a> {
    pub(super) backend: DbBackend,
    pub(super) transaction: &'a Transaction,
    pub(super) statements: &'a Statements,
}

impl Writer<'_> {
    pub(super) async fn run<R: Serialize>(&self, sql: &str, rows: &[R]) -> Result<(), DbErr> {
        if rows.is_empty() {
            return Ok(());
        }
        self.transaction.execute_raw(self.statement(sql, rows)?).await.map(|_| ())
    }

    pub(super) async fn query<R: Serialize>(&self, sql: &str, rows: &[R]) -> Result<Vec<QueryResult>, DbErr> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.query_statement(self.statement(sql, rows)?).await
    }

    pub(super) async fn query_statement(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        self.transaction.query_all_raw(statement).await
    }

    /// Returns the first column of each row that passed.
    pub(super) async fn passed<R: Serialize>(&self, sql: &str, rows: &[R]) -> Result<HashSet<String>, DbErr> {
        keys_of(&self.query(sql, rows).await?)
    }

    fn statement<R: Serialize>(&self, sql: &str, rows: &[R]) -> Result<Statement, DbErr> {
        let json = serde_json::to_string(rows).map_err(|error| DbErr::Json(error.to_string()))?;
        Ok(Statement::from_sql_and_values(self.backend, sql, [json.into()]))
    }

    async fn write(&self, writes: &[&JournalWrite], preconditions: Preconditions) -> Result<Vec<Receipt>, DbErr> {
        let mut receipts: Vec<Receipt> = writes.iter().map(|_| Receipt::default()).collect();
        for (place, id) in preconditions.chain_tx_ids {
            receipts[place].chain_tx_id = Some(id);
        }
        self.write_payments(writes).await?;
        self.write_outbound(writes).await?;
        self.post(writes).await?;
        self.write_customers(writes).await?;
        self.announce(writes).await?;
        // Before new operations get their numbers.
        self.renumber(writes, &mut receipts).await?;
        self.change_operations(writes).await?;
        self.write_outcomes(writes, &mut receipts).await?;
        self.write_chain(writes, &mut receipts).await?;
        self.mark_applied(writes).await?;
        Ok(receipts)
    }

    async fn write_payments(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let mut payments = Vec::new();
        let mut transitions = Vec::new();
        for write in writes {
            match write {
                JournalWrite::Initiation(initiation) => {
                    payments.push(&initiation.payment);
                    transitions.push(&initiation.transition);
                }
                JournalWrite::Transition(transition) => transitions.push(&transition.transition),
                _ => {}
            }
        }
        self.insert(&self.statements.payments_insert, &payments).await?;
        self.insert(&self.statements.payment_transitions_insert, &transitions).await.map(|_| ())
    }

    async fn write_outbound(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let changes = || {
            writes.iter().filter_map(|write| {
                if let JournalWrite::OutboundTransfer(change) = write { Some(change) } else { None }
            })
        };
        let new: Vec<_> = changes().map(|change| &change.outbound).filter(|outbound| outbound.version == 1).collect();
        let transitions: Vec<_> = changes().map(|change| &change.transition).collect();
        self.insert(&self.statements.sendings_insert, &new).await?;
        self.insert(&self.statements.sending_transitions_insert, &transitions).await.map(|_| ())
    }

    /// Writes new customers and audit entries.
    async fn write_customers(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let mut customers = Vec::new();
        let mut entries = Vec::new();
        for write in writes {
            match write {
                JournalWrite::Customer(creation) => {
                    customers.push(&creation.customer);
                    entries.push(&creation.audit);
                }
                JournalWrite::Transition(transition) => entries.extend(&transition.audit),
                JournalWrite::OutboundTransfer(outbound) => entries.extend(&outbound.audit),
                _ => {}
            }
        }
        self.insert(&self.statements.customers_insert, &customers).await?;
        self.run(&self.statements.audit_log_insert, &entries).await
    }

    async fn announce(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let announced = || writes.iter().flat_map(|write| write.announcements());
        let rows: Vec<_> = announced()
            .map(|event| EventRow {
                id: &event.id,
                psp_id: &event.psp_id,
                payment_id: &event.payment_id,
                sequence: event.sequence,
                name: &event.name,
                payload: &event.payload,
                created_at: event.created_at,
            })
            .collect();
        self.insert(&self.statements.events_insert, &rows.iter().collect::<Vec<_>>()).await?;
        let mut queued = Vec::new();
        for event in announced() {
            let Some(delivery_id) = &event.delivery_id else { continue };
            queued.push(deliveries::Model {
                id: delivery_id.clone(),
                event_id: event.id.clone(),
                psp_id: event.psp_id.clone(),
                payment_id: event.payment_id.clone(),
                sequence: event.sequence,
                // Looked up by the statement from its event.
                position: 0,
                status: "queued".to_owned(),
                url: None,
                attempt_count: 0,
                retries_left: DELIVERY_RETRIES_MAX,
                next_attempt_at: Some(event.created_at),
                response_code: None,
                response_body: None,
                duration_ms: None,
                error: None,
                created_at: event.created_at,
                updated_at: event.created_at,
            });
        }
        let rows: Vec<_> = queued.iter().map(Unplaced).collect();
        self.insert(&self.statements.deliveries_insert, &rows.iter().collect::<Vec<_>>()).await.map(|_| ())
    }

    async fn change_operations(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        // The last change of an operation counts.
        let mut changes: Vec<(&OperationChange, i64)> = Vec::new();
        for write in writes {
            let (operations, at) = write.operations();
            for change in operations {
                changes.retain(|(earlier, _)| earlier.id() != change.id());
                changes.push((change, at));
            }
        }
        let mut queued: Vec<operations::Model> = Vec::new();
        let mut cancelled = Vec::new();
        let mut succeeded = Vec::new();
        for (change, updated_at) in changes {
            match change {
                OperationChange::Queue(row) => queued.push((**row).clone()),
                OperationChange::Cancel { id } => cancelled.push(OperationRow { id, updated_at }),
                OperationChange::Succeeded { id, revision } => {
                    succeeded.push(SuccessRow { id, updated_at, revision: *revision });
                }
            }
        }
        self.number(&mut queued).await?;
        self.insert(&self.statements.operations_queue, &queued.iter().collect::<Vec<_>>()).await?;
        self.insert(&self.statements.operations_cancel, &cancelled.iter().collect::<Vec<_>>()).await?;
        self.insert(&self.statements.operations_succeed, &succeeded.iter().collect::<Vec<_>>()).await.map(|_| ())
    }

    /// Assigns the next number of the chain to each operation without a row. A rollback releases the numbers.
    async fn number(&self, queued: &mut [operations::Model]) -> Result<(), DbErr> {
        let ids: Vec<_> = queued.iter().map(|row| OperationRow { id: &row.id, updated_at: row.updated_at }).collect();
        let existing = self.insert(&self.statements.operations_existing, &ids.iter().collect::<Vec<_>>()).await?;
        let existing = keys_of(&existing)?;
        let mut fresh: BTreeMap<String, Vec<&mut operations::Model>> = BTreeMap::new();
        for row in queued {
            "queued".clone_into(&mut row.status);
            row.revision = 1;
            if !existing.contains(&row.id) {
                fresh.entry(counter_of_operations(&row.chain)).or_default().push(row);
            }
        }
        let counts: Vec<_> = fresh.iter().map(|(name, rows)| CounterRow { name, count: rows.len() }).collect();
        let next = self.take_numbers(&counts).await?;
        for (name, rows) in fresh {
            for (number, row) in (0..after(&next, &name)?).rev().zip(rows.into_iter().rev()) {
                row.number = number;
            }
        }
        Ok(())
    }

    /// Assigns new numbers to operations whose numbers are already used, above all numbers known to be used.
    async fn renumber(&self, writes: &[&JournalWrite], receipts: &mut [Receipt]) -> Result<(), DbErr> {
        let mut lost: BTreeMap<String, Vec<(usize, &Renumbering)>> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            let JournalWrite::Renumbering(renumbering) = write else { continue };
            let name = counter_of_operations(renumbering.chain.as_str());
            lost.entry(name).or_default().push((place, renumbering.as_ref()));
        }
        let lowest = |lost: &[(usize, &Renumbering)]| lost.iter().map(|(_, one)| one.lowest).max().unwrap_or_default();
        let raised: Vec<_> = lost.iter().map(|(name, lost)| CounterLowestRow { name, lowest: lowest(lost) }).collect();
        self.run(&self.statements.counters_raise, &raised).await?;
        let counts: Vec<_> = lost.iter().map(|(name, lost)| CounterRow { name, count: lost.len() }).collect();
        let next = self.take_numbers(&counts).await?;
        let mut rows = Vec::new();
        let mut owners: HashMap<&str, usize> = HashMap::new();
        for (name, lost) in &lost {
            for (number, (place, one)) in (0..after(&next, name)?).rev().zip(lost.iter().rev()) {
                rows.push(NumberRow { id: &one.id, number });
                owners.insert(&one.id, *place);
            }
        }
        for row in self.query(&self.statements.operations_number, &rows).await? {
            let row = operations::Model::from_query_result(&row, "")?;
            if let Some(&place) = owners.get(row.id.as_str()) {
                receipts[place].operations.push(row);
            }
        }
        Ok(())
    }

    /// Takes this many numbers from each counter; returns the next value of each counter by name.
    async fn take_numbers(&self, counts: &[CounterRow<'_>]) -> Result<HashMap<String, i64>, DbErr> {
        let mut next = HashMap::new();
        for row in self.query(&self.statements.counters_take, counts).await? {
            next.insert(row.try_get_by_index(0)?, row.try_get_by_index(1)?);
        }
        Ok(next)
    }

    async fn write_outcomes(&self, writes: &[&JournalWrite], receipts: &mut [Receipt]) -> Result<(), DbErr> {
        let mut attempts = Vec::new();
        let mut outcomes = Vec::new();
        let mut refused = Vec::new();
        let mut owners: HashMap<&str, usize> = HashMap::new();
        let mut delivered = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            match write {
                JournalWrite::Submission(submission) => attempts.push(&submission.attempt),
                JournalWrite::Attempt(attempt) => attempts.push(attempt),
                JournalWrite::ChainTxOutcome(outcome) => {
                    owners.extend(outcome.operations.iter().map(|operation| (operation.id.as_str(), place)));
                    let tx = outcome.chain_tx_id;
                    outcomes.extend(outcome.operations.iter().map(|operation| outcome_row(operation, tx, outcome.at)));
                }
                JournalWrite::Refusal(refusal) => {
                    owners.extend(refusal.operations.iter().map(|operation| (operation.id.as_str(), place)));
                    refused.extend(refusal.operations.iter().map(|operation| RefusedRow {
                        id: &operation.id,
                        revision: operation.revision,
                        failure: &operation.failure,
                        updated_at: refusal.at,
                    }));
                }
                JournalWrite::Delivery(outcome) => delivered.push(DeliveryRow {
                    id: &outcome.attempt.delivery_id,
                    status: outcome.status,
                    url: &outcome.attempt.url,
                    attempt_count: outcome.attempt.number,
                    retries_left: outcome.retries_left,
                    next_attempt_at: outcome.next_attempt_at,
                    response_code: outcome.attempt.response_code,
                    response_body: outcome.attempt.response_body.as_deref(),
                    duration_ms: outcome.attempt.duration_ms,
                    error: outcome.attempt.error.as_deref(),
                    updated_at: outcome.attempt.at,
                }),
                _ => {}
            }
        }
        self.run(&self.statements.chain_tx_attempts_insert, &attempts).await?;
        let mut changed =
            self.insert(&self.statements.operations_outcome, &outcomes.iter().collect::<Vec<_>>()).await?;
        changed.extend(self.insert(&self.statements.operations_refuse, &refused.iter().collect::<Vec<_>>()).await?);
        for row in changed {
            let row = operations::Model::from_query_result(&row, "")?;
            if let Some(&place) = owners.get(row.id.as_str()) {
                receipts[place].operations.push(row);
            }
        }
        self.insert(&self.statements.deliveries_update, &delivered.iter().collect::<Vec<_>>()).await.map(|_| ())
    }

    async fn write_chain(&self, writes: &[&JournalWrite], receipts: &mut [Receipt]) -> Result<(), DbErr> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut orphaned = Vec::new();
        let mut headers: BTreeMap<(&str, i64), &chain_headers::Model> = BTreeMap::new();
        let mut forgotten = Vec::new();
        let mut found: BTreeMap<TransferId<'_>, transfers::Model> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            let JournalWrite::ChainBatch(batch) = write else { continue };
            let chain = batch.cursor.chain.as_str();
            places.insert(chain, place);
            orphaned.extend(batch.orphaned_blocks.iter().map(|hash| BlockRow { chain, hash }));
            headers.extend(batch.headers.iter().map(|header| ((header.chain.as_str(), header.number), header)));
            forgotten.push(HeightRow { chain, number: batch.headers_keep_from });
            // PostgreSQL rejects two rows with the same key in one statement. The later row is the newer one.
            found.extend(batch.transfers.iter().map(|row| {
                let fresh = transfers::Model { revision: 1, applied_revision: 0, applied_version: 0, ..row.clone() };
                (transfer_id(row), fresh)
            }));
        }
        if places.is_empty() {
            return Ok(());
        }
        let gone = self.query(&self.statements.transfers_orphan, &orphaned).await?;
        let gone = gone.iter().map(|row| transfers::Model::from_query_result(row, ""));
        let mut gone = gone.collect::<Result<Vec<_>, _>>()?;
        self.run(&self.statements.headers_drop, &orphaned).await?;
        self.run(&self.statements.headers_upsert, &headers.into_values().collect::<Vec<_>>()).await?;
        self.run(&self.statements.headers_forget, &forgotten).await?;
        let changed = self.insert(&self.statements.transfers_upsert, &found.values().collect::<Vec<_>>()).await?;
        let changed = changed.iter().map(|row| transfers::Model::from_query_result(row, ""));
        let mut changed = changed.collect::<Result<Vec<_>, _>>()?;
        // A transfer that was orphaned and mined again in one batch is reported once, in its new state.
        let again: HashSet<TransferId<'_>> = changed.iter().map(transfer_id).collect();
        gone.retain(|row| !again.contains(&transfer_id(row)));
        drop(again);
        gone.sort_by_key(|row| (row.block_number, row.log_index));
        changed.sort_by_key(|row| (row.block_number, row.log_index));
        for row in gone.into_iter().chain(changed) {
            if let Some(&place) = places.get(row.chain.as_str()) {
                receipts[place].transfers.push(row);
            }
        }
        Ok(())
    }

    async fn mark_applied(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        // Of two marks of one row the later revision counts, in any join order of the database.
        let mut marks: BTreeMap<TransferId<'_>, (i64, i64)> = BTreeMap::new();
        for write in writes {
            let (version, applied) = match write {
                JournalWrite::Transition(transition) => (transition.payment.version, &transition.applied),
                JournalWrite::TransfersApplied(applied) => (applied.version, &applied.transfers),
                _ => continue,
            };
            for row in applied {
                let mark = marks.entry((&row.chain, &row.tx_hash, row.log_index)).or_default();
                *mark = (*mark).max((row.revision, version));
            }
        }
        let marks = marks.into_iter().map(|((chain, tx_hash, log_index), (applied_revision, applied_version))| {
            AppliedRow { chain, tx_hash, log_index, applied_revision, applied_version }
        });
        let marks: Vec<_> = marks.collect();
        self.insert(&self.statements.transfers_apply, &marks.iter().collect::<Vec<_>>()).await.map(|_| ())
    }
}

/// Returns the name of the counter for the operation numbers of a chain.
pub fn counter_of_operations(chain: &str) -> String {
    format!("operation:{chain}")
}

fn after(next: &HashMap<String, i64>, name: &str) -> Result<i64, DbErr> {
    next.get(name).copied().ok_or_else(|| DbErr::RecordNotFound(format!("the counter {name}")))
}

/// Returns the first column of these rows.
pub(super) fn keys_of(rows: &[QueryResult]) -> Result<HashSet<String>, DbErr> {
    rows.iter().map(|row| row.try_get_by_index(0)).collect()
}

fn outcome_row(operation: &OperationOutcome, chain_tx_id: i64, updated_at: i64) -> OperationOutcomeRow<'_> {
    OperationOutcomeRow {
        id: &operation.id,
        status: operation.status,
        // An operation that is queued again is in no transaction.
        chain_tx_id: (operation.status != "queued").then_some(chain_tx_id),
        tx_hash: operation.tx_hash.as_deref(),
        block_number: operation.block_number,
        amount: operation.carried.map(|carried| carried.amount),
        psp_amount: operation.carried.map(|carried| carried.psp_amount),
        treasury_fee: operation.carried.map(|carried| carried.treasury_fee),
        failure: operation.failure.as_deref(),
        not_before: operation.not_before,
        updated_at,
    }
}

type TransferId<'a> = (&'a str, &'a str, i64);

fn transfer_id(row: &transfers::Model) -> TransferId<'_> {
    (&row.chain, &row.tx_hash, row.log_index)
}
