//! One attempt at a group: one transaction with the lines of the PSPs first (`psp_line`), then the preconditions of all
//! writes, then the dependent statements.
//!
//! Groups of only new payments are the most frequent groups under load. Their only precondition (each idempotency key
//! is new) almost never fails, so their rows are written in one round trip, from the begin to the commit, without
//! reading any answer. If anything fails, the database rolls back everything, and the group is attempted again with
//! separate preconditions, which determine the affected writes. Not here: the preconditions (`preconditions`), the rows
//! of blocks (`blocks`), the handling of failed groups (`task`), the selection of a group (`queue`).

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use payferry_domain::ledger::PostingKind;
use payferry_entities::{
    Database, DatabaseFailure, NotCommitted, OperationStatus, Transaction, ledger_postings, operations,
};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, FromQueryResult, QueryResult, Statement, TryGetableMany};

use super::bind::{Row, RowStatement, values_of};
use super::preconditions::Preconditions;
use super::rows::{DeliveryRow, EndedAlarm, NewDelivery, OperationOutcomeRow, OperationRow, RefusedRow, SuccessRow};
use super::statements::Statements;
use super::{DeliveryOutcome, JournalWrite, NewEvent, OperationChange, OperationOutcome, Receipt};
use crate::postings::balance_changes;

/// Outcome of an attempt.
pub(super) enum Attempt {
    /// Committed; one receipt per write.
    Committed(Vec<Receipt>),
    /// Rolled back because some writes failed a precondition. The other writes are valid.
    Lost(Preconditions),
    /// Rolled back, or never started.
    Failed(DatabaseFailure, DbErr),
    /// The commit was sent and failed.
    Unknown(DbErr),
}

/// Commits `writes` in one transaction.
pub(super) async fn attempt(database: &Database, statements: &Statements, writes: &[&JournalWrite]) -> Attempt {
    if let Some(attempt) = attempt_new_payments(database, statements, writes).await {
        return attempt;
    }
    let transaction = match database.begin().await {
        Ok(transaction) => transaction,
        Err(error) => return Attempt::Failed(DatabaseFailure::of(&error), error),
    };
    let writer = Writer { backend: database.backend(), transaction: &transaction, statements };
    let written = async {
        writer.take_lines(writes).await?;
        let preconditions = writer.check_preconditions(writes).await?;
        if preconditions.lost.is_empty() {
            writer.write(writes, preconditions).await.map(Ok)
        } else {
            Ok(Err(preconditions))
        }
    };
    match written.await {
        Ok(Ok(receipts)) => match transaction.commit().await {
            Ok(()) => Attempt::Committed(receipts),
            // With this error the server reports a rollback. With any other error the outcome is unknown.
            Err(error) if DatabaseFailure::of(&error) == DatabaseFailure::Contention => {
                Attempt::Failed(DatabaseFailure::Contention, error)
            }
            Err(error) => Attempt::Unknown(error),
        },
        Ok(Err(rejected)) => {
            roll_back(transaction).await;
            Attempt::Lost(rejected)
        }
        Err(error) => {
            roll_back(transaction).await;
            Attempt::Failed(DatabaseFailure::of(&error), error)
        }
    }
}

/// Attempts `writes` in one round trip. Returns `None`, with nothing written, if some do more than create payments, or
/// if something failed.
pub(super) async fn attempt_new_payments(
    database: &Database,
    statements: &Statements,
    writes: &[&JournalWrite],
) -> Option<Attempt> {
    let initiations: Vec<_> = writes
        .iter()
        .map(|write| match write {
            JournalWrite::Initiation(initiation) if initiation.audit.is_none() => Some(&**initiation),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let (batch, values) = match statements.new_payments.bind(database.backend(), &initiations) {
        Ok(bound) => bound,
        Err(error) => return Some(Attempt::Failed(DatabaseFailure::of(&error), error)),
    };
    match database.commit_in_one_statement(batch, values).await {
        Ok(()) => Some(Attempt::Committed(writes.iter().map(|_| Receipt::default()).collect())),
        Err(NotCommitted::Unknown(error)) => Some(Attempt::Unknown(error)),
        Err(NotCommitted::RolledBack(error)) => match DatabaseFailure::of(&error) {
            DatabaseFailure::Request => None,
            failure => Some(Attempt::Failed(failure, error)),
        },
    }
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
    /// Runs the statement over the rows and returns its results.
    pub(super) async fn run<R: Row>(
        &self,
        statement: &RowStatement<R>,
        rows: &[impl Borrow<R>],
    ) -> Result<Vec<QueryResult>, DbErr> {
        let (rows_max, _) = statement.texts[statement.texts.len() - 1];
        let mut returned = Vec::new();
        for part in rows.chunks(rows_max) {
            let mut texts = statement.texts.iter();
            let (_, sql) = texts.find(|(room, _)| part.len() <= *room).expect("a part fits the longest list");
            let values = values_of::<R>(self.backend, part)?;
            let statement = Statement::from_sql_and_values(self.backend, sql, values);
            returned.extend(self.transaction.query_all_raw(statement).await?);
        }
        Ok(returned)
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
        self.change_operations(writes).await?;
        self.write_outcomes(writes, &mut receipts).await?;
        self.write_deliveries(writes).await?;
        self.write_chain(writes, &mut receipts).await?;
        self.mark_applied(writes).await?;
        Ok(receipts)
    }

    async fn write_payments(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let mut payments = Vec::new();
        let mut transitions = Vec::new();
        let (mut refunds, mut requests) = (Vec::new(), Vec::new());
        let (mut alarms, mut ended) = (Vec::new(), Vec::new());
        for write in writes {
            match write {
                JournalWrite::Initiation(initiation) => {
                    payments.push(&initiation.payment);
                    transitions.push(&initiation.transition);
                }
                JournalWrite::Transition(transition) => {
                    transitions.push(&transition.transition);
                    refunds.extend(&transition.refunds);
                    requests.extend(&transition.refund_requests);
                    alarms.extend(&transition.alarms);
                    ended.extend(transition.ended_alarms.iter().map(|kind| EndedAlarm {
                        payment_id: &transition.payment.id,
                        kind: kind.as_str(),
                        ended_at: transition.payment.updated_at,
                    }));
                }
                _ => {}
            }
        }
        self.run(&self.statements.payments_insert, &payments).await?;
        self.run(&self.statements.payment_transitions_insert, &transitions).await?;
        let signed: Vec<_> = writes.iter().filter_map(|write| write.consequences()?.authorization.as_ref()).collect();
        self.run(&self.statements.authorizations_insert, &signed).await?;
        // A commit may raise an alarm again that it ends.
        self.run(&self.statements.alarms_end, &ended).await?;
        self.run(&self.statements.alarms_insert, &alarms).await?;
        self.run(&self.statements.refund_requests_upsert, &requests).await?;
        self.run(&self.statements.refunds_upsert, &refunds).await.map(|_| ())
    }

    async fn write_outbound(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let changes = || {
            writes.iter().filter_map(|write| {
                if let JournalWrite::OutboundTransfer(change) = write { Some(change) } else { None }
            })
        };
        let new: Vec<_> = changes().map(|change| &change.outbound).filter(|outbound| outbound.version == 1).collect();
        let transitions: Vec<_> = changes().map(|change| &change.transition).collect();
        self.run(&self.statements.sendings_insert, &new).await?;
        self.run(&self.statements.sending_transitions_insert, &transitions).await.map(|_| ())
    }

    /// Writes new customers and all audit entries.
    async fn write_customers(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let mut customers = Vec::new();
        let mut entries = Vec::new();
        for write in writes {
            match write {
                JournalWrite::Customer(creation) => {
                    customers.push(&creation.customer);
                    entries.push(&creation.audit);
                }
                JournalWrite::Audit(entry) => entries.push(entry),
                JournalWrite::Initiation(initiation) => entries.extend(initiation.audit.as_ref()),
                _ => entries.extend(write.consequences().and_then(|consequences| consequences.audit.as_ref())),
            }
        }
        self.run(&self.statements.customers_insert, &customers).await?;
        self.run(&self.statements.audit_log_insert, &entries).await.map(|_| ())
    }

    /// Writes the postings and updates the balances.
    async fn post(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let postings: Vec<&ledger_postings::Model> = writes.iter().flat_map(|write| write.postings()).collect();
        self.run(&self.statements.ledger_postings_insert, &postings).await?;
        // The precondition has deducted reserved funds.
        let others = postings.into_iter().filter(|posting| posting.kind != PostingKind::Reserved.as_str());
        self.run(&self.statements.balances_add, &balance_changes(others)).await.map(|_| ())
    }

    async fn announce(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let announced: Vec<_> = writes.iter().flat_map(|write| write.announcements()).collect();
        let events: Vec<_> = announced.iter().map(|new| &new.event).collect();
        let mut deliveries = Vec::new();
        for NewEvent { event, deliveries: to } in &announced {
            for (id, endpoint_id) in to {
                deliveries.push(NewDelivery { id, event_id: &event.id, endpoint_id: endpoint_id.as_deref() });
            }
        }
        self.run(&self.statements.events_insert, &events).await?;
        self.run(&self.statements.deliveries_insert, &deliveries).await.map(|_| ())
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
        let mut queued = Vec::new();
        let mut cancelled = Vec::new();
        let mut succeeded = Vec::new();
        for (change, updated_at) in changes {
            match change {
                OperationChange::Queue(row) => queued.push(&**row),
                OperationChange::Cancel { id } => cancelled.push(OperationRow { id, updated_at }),
                OperationChange::Succeeded { id, revision } => {
                    succeeded.push(SuccessRow { id, updated_at, revision: *revision });
                }
            }
        }
        self.run(&self.statements.operations_queue, &queued).await?;
        self.run(&self.statements.operations_cancel, &cancelled).await?;
        self.run(&self.statements.operations_succeed, &succeeded).await.map(|_| ())
    }

    async fn write_outcomes(&self, writes: &[&JournalWrite], receipts: &mut [Receipt]) -> Result<(), DbErr> {
        let mut attempts = Vec::new();
        let mut outcomes = Vec::new();
        let mut refused = Vec::new();
        let mut owners: HashMap<&str, usize> = HashMap::new();
        for (place, write) in writes.iter().enumerate() {
            match write {
                JournalWrite::Submission(_, submission) => attempts.push(&submission.attempt),
                JournalWrite::Attempt(_, attempt) => attempts.push(attempt),
                JournalWrite::ChainTxOutcome(_, outcome) => {
                    owners.extend(outcome.operations.iter().map(|operation| (operation.id.as_str(), place)));
                    let tx = outcome.chain_tx_id;
                    outcomes.extend(outcome.operations.iter().map(|operation| outcome_row(operation, tx, outcome.at)));
                }
                JournalWrite::Refusal(_, refusal) => {
                    owners.extend(refusal.operations.iter().map(|operation| (operation.id.as_str(), place)));
                    refused.extend(refusal.operations.iter().map(|operation| RefusedRow {
                        id: &operation.id,
                        revision: operation.revision,
                        failure: &operation.failure,
                        updated_at: refusal.at,
                    }));
                }
                _ => {}
            }
        }
        self.run(&self.statements.chain_tx_attempts_insert, &attempts).await?;
        report(&self.run(&self.statements.operations_outcome, &outcomes).await?, &owners, receipts)?;
        report(&self.run(&self.statements.operations_refuse, &refused).await?, &owners, receipts)
    }

    /// Records webhook attempts, and the resulting state of their deliveries.
    async fn write_deliveries(&self, writes: &[&JournalWrite]) -> Result<(), DbErr> {
        let outcomes = writes.iter().flat_map(|write| match write {
            JournalWrite::Deliveries(outcomes) => &**outcomes,
            _ => &[],
        });
        let attempts: Vec<_> = outcomes.clone().map(|outcome| &outcome.attempt).collect();
        let new: HashSet<String> = keys_of(&self.run(&self.statements.delivery_attempts_insert, &attempts).await?)?;
        let new = outcomes.filter(|outcome| new.contains(&outcome.attempt.delivery_id));
        self.run(&self.statements.deliveries_update, &new.map(delivery_row).collect::<Vec<_>>()).await.map(|_| ())
    }
}

/// Adds changed operations to the receipts of their writes.
fn report(rows: &[QueryResult], owners: &HashMap<&str, usize>, receipts: &mut [Receipt]) -> Result<(), DbErr> {
    for row in rows {
        let row = operations::Model::from_query_result(row, "")?;
        if let Some(&place) = owners.get(row.id.as_str()) {
            receipts[place].operations.push(row);
        }
    }
    Ok(())
}

/// Returns the keys in these rows: the first columns, or all.
pub(super) fn keys_of<K: TryGetableMany + Eq + Hash>(rows: &[QueryResult]) -> Result<HashSet<K>, DbErr> {
    rows.iter().map(QueryResult::try_get_many_by_index).collect()
}

fn outcome_row(operation: &OperationOutcome, chain_tx_id: i64, updated_at: i64) -> OperationOutcomeRow<'_> {
    OperationOutcomeRow {
        id: &operation.id,
        status: operation.status.as_str(),
        // An operation that is queued again is in no transaction.
        chain_tx_id: (operation.status != OperationStatus::Queued).then_some(chain_tx_id),
        tx_hash: operation.tx_hash.as_deref(),
        block_number: operation.block_number,
        log_index: operation.carried.and_then(|carried| carried.log_index),
        amount: operation.carried.map(|carried| carried.amount),
        psp_amount: operation.carried.map(|carried| carried.psp_amount),
        treasury_fee: operation.carried.map(|carried| carried.treasury_fee),
        failure: operation.failure.as_deref(),
        not_before: operation.not_before,
        updated_at,
    }
}

fn delivery_row(outcome: &DeliveryOutcome) -> DeliveryRow<'_> {
    let DeliveryOutcome { attempt, status, retries_left, next_attempt_at, is_urgent: _ } = outcome;
    DeliveryRow {
        id: &attempt.delivery_id,
        status: status.as_str(),
        url: &attempt.url,
        attempt_count: attempt.number,
        retries_left: *retries_left,
        next_attempt_at: *next_attempt_at,
        response_code: attempt.response_code,
        response_body: attempt.response_body.as_deref(),
        duration_ms: attempt.duration_ms,
        error: attempt.error.as_deref(),
        updated_at: attempt.at,
    }
}
