//! Preconditions: conditions under which a write was created and that must still hold. Each kind is one statement for
//! the whole group, which returns the keys of the rows that passed.
//!
//! A balance is the running sum of its ledger postings, changed in the same commit. The precondition itself deducts
//! reserved funds, so that two reservations cannot use the same funds. All other postings are added afterwards.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use payferry_entities::payments;
use sea_orm::{DbErr, TryGetableMany};

use super::bind::{Row, RowStatement};
use super::rows::{
    ChainTxRow, CursorAdvance, CustomerEventRow, DayRow, LeaseRow, PaymentAdvance, ReserveRow, SubmittedOperation,
    VersionRow,
};
use super::statements::Statements;
use super::write::{Writer, keys_of};
use super::{ChainBatch, JournalError, JournalWrite, NewEvent, Reserve, SignedOperation};

/// Results of the preconditions.
#[derive(Default)]
pub(super) struct Preconditions {
    /// Writes that failed a precondition, by their position.
    pub(super) lost: BTreeMap<usize, JournalError>,
    /// Failed writes that failed because an earlier write reserved the funds. If that write is not committed, they have
    /// not failed.
    pub(super) lost_reservations: HashSet<usize>,
    /// Row ids of the transactions of submissions, by the position of the write.
    pub(super) chain_tx_ids: HashMap<usize, i64>,
}

/// Position of a write in the group, and its reservation.
type Promise<'a> = (usize, &'a Reserve);

impl Preconditions {
    /// Fails the writes whose key is not among those that passed. A write that already failed keeps its first error.
    fn lose<K: Eq + Hash>(
        &mut self,
        conditions: impl IntoIterator<Item = (usize, K)>,
        passed: &HashSet<K>,
        error: &JournalError,
    ) {
        for (place, key) in conditions {
            if !passed.contains(&key) {
                self.lost.entry(place).or_insert_with(|| error.clone());
            }
        }
    }
}

/// Returns the rows of the writes that have this precondition, with their positions.
fn of_writes<'w, T>(
    writes: &[&'w JournalWrite],
    row: impl Fn(&'w JournalWrite) -> Option<T>,
) -> impl Iterator<Item = (usize, T)> {
    writes.iter().enumerate().filter_map(move |(place, write)| Some((place, row(write)?)))
}

impl Writer<'_> {
    /// Runs the preconditions of all writes.
    pub(super) async fn check_preconditions(&self, writes: &[&JournalWrite]) -> Result<Preconditions, DbErr> {
        let mut preconditions = Preconditions::default();
        let Statements { idempotency_take, payments_advance, sendings_advance, .. } = self.statements;
        let Statements { cursors_begin, cursors_advance, customer_events_take, .. } = self.statements;
        let Statements { chain_txs_outcome, fence, payments_unchanged, .. } = self.statements;
        let conflict = &JournalError::Conflict;

        let fenced = of_writes(writes, |write| {
            let lease = write.lease()?;
            let (name, owner, epoch, changed_at) = (lease.text(), lease.owner(), lease.epoch(), lease.changed_at());
            let key = (name.to_owned(), owner.to_owned(), epoch, changed_at);
            Some((key, LeaseRow { name, owner, epoch, changed_at }))
        });
        self.require(fence, fenced, &JournalError::LeaseLost, &mut preconditions).await?;

        let keys = of_writes(writes, |write| {
            let row = write.idempotency()?;
            Some(((row.psp_id.clone(), row.route.clone(), row.key.clone()), row))
        });
        self.require(idempotency_take, keys, &JournalError::IdempotencyKeyTaken, &mut preconditions).await?;

        let moved = of_writes(writes, |write| {
            let JournalWrite::Transition(transition) = write else { return None };
            Some((transition.payment.id.clone(), PaymentAdvance::from(&transition.payment)))
        });
        self.require(payments_advance, moved, conflict, &mut preconditions).await?;

        let moved = of_writes(writes, |write| {
            let JournalWrite::OutboundTransfer(change) = write else { return None };
            (change.outbound.version > 1).then(|| (change.outbound.id.clone(), &change.outbound))
        });
        self.require(sendings_advance, moved, conflict, &mut preconditions).await?;

        let unchanged = of_writes(writes, |write| {
            let JournalWrite::TransfersApplied(applied) = write else { return None };
            let (id, version) = applied.known_to.as_ref()?;
            Some((id.clone(), VersionRow { id, version: *version }))
        });
        self.require(payments_unchanged, unchanged, conflict, &mut preconditions).await?;

        self.reserve(writes, &mut preconditions).await?;

        let begun = of_writes(writes, |write| {
            let JournalWrite::ChainBatch(_, batch) = write else { return None };
            batch.cursor_before.is_none().then(|| (batch.cursor.chain.clone(), &batch.cursor))
        });
        self.require(cursors_begin, begun, conflict, &mut preconditions).await?;
        let advanced = of_writes(writes, |write| {
            let JournalWrite::ChainBatch(_, batch) = write else { return None };
            Some((batch.cursor.chain.clone(), cursor_advance(batch)?))
        });
        self.require(cursors_advance, advanced, conflict, &mut preconditions).await?;

        self.take_nonces(writes, &mut preconditions).await?;

        let outcomes = of_writes(writes, |write| {
            let JournalWrite::ChainTxOutcome(_, outcome) = write else { return None };
            let row = ChainTxRow {
                id: outcome.chain_tx_id,
                status: outcome.status.as_str(),
                tx_hash: outcome.tx_hash.as_deref(),
                block_number: outcome.block_number,
                block_hash: outcome.block_hash.as_deref(),
                updated_at: outcome.at,
            };
            Some((row.id, row))
        });
        self.require(chain_txs_outcome, outcomes, conflict, &mut preconditions).await?;

        let recorded = writes.iter().enumerate().flat_map(|(place, write)| {
            let JournalWrite::CustomerEvents(events) = write else { return Vec::new() };
            let rows = events.iter().map(|NewEvent { event, .. }| {
                let row = CustomerEventRow { customer_id: &event.payment_id, sequence: event.sequence };
                (place, ((event.payment_id.clone(), event.sequence), row))
            });
            rows.collect()
        });
        self.require(customer_events_take, recorded, conflict, &mut preconditions).await?;
        Ok(preconditions)
    }

    /// Runs one precondition: the statement returns the keys of the rows that passed. Other writes fail with `error`.
    async fn require<K: TryGetableMany + Eq + Hash, R: Row>(
        &self,
        statement: &RowStatement<R>,
        conditions: impl Iterator<Item = (usize, (K, impl Borrow<R>))>,
        error: &JournalError,
        preconditions: &mut Preconditions,
    ) -> Result<(), DbErr> {
        let (keys, rows): (Vec<_>, Vec<_>) = conditions.map(|(place, (key, row))| ((place, key), row)).unzip();
        let passed = keys_of(&self.run(statement, &rows).await?)?;
        preconditions.lose(keys, &passed, error);
        Ok(())
    }

    async fn take_nonces(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let submissions: Vec<_> = of_writes(writes, |write| match write {
            JournalWrite::Submission(_, submission) => Some(submission),
            _ => None,
        })
        .collect();
        let rows: Vec<_> = submissions.iter().map(|(_, submission)| &submission.chain_tx).collect();
        let mut ids: HashMap<(String, String, i64), i64> = HashMap::new();
        for row in self.run(&self.statements.chain_txs_insert, &rows).await? {
            let key = (row.try_get_by_index(1)?, row.try_get_by_index(2)?, row.try_get_by_index(3)?);
            ids.insert(key, row.try_get_by_index(0)?);
        }
        let mut signed = Vec::new();
        for (place, submission) in submissions {
            let tx = &submission.chain_tx;
            let Some(&chain_tx_id) = ids.get(&(tx.chain.clone(), tx.sender.clone(), tx.nonce)) else {
                preconditions.lost.insert(place, JournalError::Conflict);
                continue;
            };
            preconditions.chain_tx_ids.insert(place, chain_tx_id);
            signed.extend(submission.operations.iter().map(|SignedOperation { id, revision }| {
                let (revision, updated_at) = (*revision, tx.updated_at);
                (place, (id.clone(), SubmittedOperation { id, revision, chain_tx_id, updated_at }))
            }));
        }
        let operations_submit = &self.statements.operations_submit;
        self.require(operations_submit, signed.into_iter(), &JournalError::Conflict, preconditions).await
    }

    /// Deducts the reservations from the balances. Reservations of the same PSP run one after the other, so that each
    /// sees the remaining balance.
    async fn reserve(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        // A write that failed a precondition is not committed, so it reserves nothing.
        let mut waiting: Vec<Promise<'_>> = of_writes(writes, JournalWrite::reserve)
            .filter(|(place, _)| !preconditions.lost.contains_key(place))
            .collect();
        let mut promised: HashSet<&str> = HashSet::new();
        while !waiting.is_empty() {
            let mut psps = HashSet::new();
            let (turn, rest): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(_, reserve)| psps.insert(reserve.psp_id.as_str()));
            self.reserve_turn(&turn, preconditions).await?;
            for (place, reserve) in turn {
                if !preconditions.lost.contains_key(&place) {
                    promised.insert(&reserve.psp_id);
                } else if promised.contains(reserve.psp_id.as_str()) {
                    preconditions.lost_reservations.insert(place);
                }
            }
            waiting = rest;
        }
        Ok(())
    }

    /// Runs at most one reservation per PSP.
    async fn reserve_turn(&self, turn: &[Promise<'_>], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let Statements { balances_reserve, sends_per_day_begin, sends_per_day_add, .. } = self.statements;
        let off_balances = turn.iter().filter(|(_, reserve)| reserve.amount > 0);
        let off_balances = off_balances
            .map(|(place, reserve)| (*place, (reserve.psp_id.clone(), reserve_row(reserve, reserve.amount))));
        self.require(balances_reserve, off_balances, &JournalError::InsufficientBalance, preconditions).await?;
        let counts =
            |(place, reserve): &&Promise<'_>| reserve.day_amount > 0 && !preconditions.lost.contains_key(place);
        let covered: Vec<_> = turn.iter().filter(counts).collect();
        let days: Vec<_> = covered
            .iter()
            .map(|(_, reserve)| DayRow {
                psp_id: &reserve.psp_id,
                token: &reserve.token,
                day: reserve.day,
                amount: reserve.day_amount,
                amount_max: reserve.day_amount_max,
            })
            .collect();
        self.run(sends_per_day_begin, &days).await?;
        let days = covered.iter().zip(days).map(|((place, _), row)| (*place, (row.psp_id.to_owned(), row)));
        self.require(sends_per_day_add, days, &JournalError::AboveDailyLimit, preconditions).await?;
        // A write that exceeds the daily limit releases its funds, so that later writes see the balance without it.
        let back: Vec<_> = covered
            .iter()
            .filter(|(place, reserve)| reserve.amount > 0 && preconditions.lost.contains_key(place))
            .map(|(_, reserve)| reserve_row(reserve, -reserve.amount))
            .collect();
        self.run(balances_reserve, &back).await.map(|_| ())
    }
}

fn reserve_row(Reserve { psp_id, chain, token_address, .. }: &Reserve, amount: i64) -> ReserveRow<'_> {
    ReserveRow { psp_id, chain, token_address, amount }
}

fn cursor_advance(batch: &ChainBatch) -> Option<CursorAdvance<'_>> {
    let cursor = &batch.cursor;
    Some(CursorAdvance {
        chain: &cursor.chain,
        hash_before: batch.cursor_before.as_deref()?,
        block_number: cursor.block_number,
        block_hash: &cursor.block_hash,
        block_time: cursor.block_time,
        second_look_from: cursor.second_look_from,
        epoch: cursor.epoch,
        updated_at: cursor.updated_at,
    })
}

impl<'a> From<&'a payments::Model> for PaymentAdvance<'a> {
    fn from(row: &'a payments::Model) -> Self {
        Self {
            id: &row.id,
            version: row.version,
            status: &row.status,
            live: row.live,
            attention: row.attention.as_deref(),
            labels: row.labels.as_deref(),
            amount_received: row.amount_received,
            expires_at: row.expires_at,
            updated_at: row.updated_at,
            state: &row.state,
        }
    }
}
