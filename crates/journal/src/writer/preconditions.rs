//! Preconditions: conditions under which a write was created and that must still hold. Each kind is one statement for
//! the whole group, which returns the keys of the rows that passed.

use std::collections::{BTreeMap, HashMap, HashSet};

use payferry_entities::{delivery_attempts, idempotency_keys};
use sea_orm::DbErr;

use super::rows::{Advance, ChainTxRow, CursorAdvance, NumberLostRow, OutboundAdvance, SubmittedOperation};
use super::write::{Writer, keys_of};
use super::{JournalError, JournalWrite};

/// Results of the preconditions.
#[derive(Default)]
pub(super) struct Preconditions {
    /// Writes that failed a precondition, by their position.
    pub(super) lost: BTreeMap<usize, JournalError>,
    /// Failed writes that failed because an earlier write reserved the funds. If that write is not committed, they have
    /// not failed.
    pub(super) outdone: HashSet<usize>,
    /// Row ids of the transactions of submissions, by the position of the write.
    pub(super) chain_tx_ids: HashMap<usize, i64>,
}

impl Preconditions {
    /// Fails the writes whose key is not among those that passed.
    fn keep<'k>(&mut self, keyed: impl IntoIterator<Item = (usize, &'k str)>, passed: &HashSet<String>) {
        self.lose(keyed, passed, || JournalError::Conflict);
    }

    /// Like `keep`, with another error. A write that already failed keeps its first error.
    pub(super) fn lose<'k>(
        &mut self,
        keyed: impl IntoIterator<Item = (usize, &'k str)>,
        passed: &HashSet<String>,
        why: impl Fn() -> JournalError,
    ) {
        for (place, key) in keyed {
            if !passed.contains(key) {
                self.lost.entry(place).or_insert_with(&why);
            }
        }
    }
}

impl Writer<'_> {
    /// Runs the preconditions of all writes.
    pub(super) async fn pass_gates(&self, writes: &[&JournalWrite]) -> Result<Preconditions, DbErr> {
        let mut preconditions = Preconditions::default();
        self.take_idempotency_keys(writes, &mut preconditions).await?;
        self.advance_payments(writes, &mut preconditions).await?;
        self.advance_outbound(writes, &mut preconditions).await?;
        self.reserve(writes, &mut preconditions).await?;
        self.advance_cursors(writes, &mut preconditions).await?;
        self.take_nonces(writes, &mut preconditions).await?;
        self.lose_numbers(writes, &mut preconditions).await?;
        self.record_chain_tx_outcomes(writes, &mut preconditions).await?;
        self.record_delivery_attempts(writes, &mut preconditions).await?;
        Ok(preconditions)
    }

    async fn take_idempotency_keys(
        &self,
        writes: &[&JournalWrite],
        preconditions: &mut Preconditions,
    ) -> Result<(), DbErr> {
        let keyed: Vec<(usize, &idempotency_keys::Model)> =
            writes.iter().enumerate().filter_map(|(place, write)| Some((place, write.idempotency()?))).collect();
        let rows: Vec<_> = keyed.iter().map(|(_, row)| *row).collect();
        let taken = self.insert(&self.statements.idempotency_take, &rows).await?;
        let taken: HashSet<(String, String, String)> = taken
            .iter()
            .map(|row| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?, row.try_get_by_index(2)?)))
            .collect::<Result<_, DbErr>>()?;
        for (place, row) in keyed {
            if !taken.contains(&(row.psp_id.clone(), row.route.clone(), row.key.clone())) {
                preconditions.lost.insert(place, JournalError::IdempotencyKeyTaken);
            }
        }
        Ok(())
    }

    async fn advance_payments(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let moved: Vec<(usize, Advance<'_>)> = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match write {
                JournalWrite::Transition(transition) => Some((place, Advance::from(&transition.payment))),
                _ => None,
            })
            .collect();
        let rows: Vec<_> = moved.iter().map(|(_, row)| row).collect();
        let passed = keys_of(&self.insert(&self.statements.payments_advance, &rows).await?)?;
        preconditions.keep(moved.iter().map(|(place, row)| (*place, row.id)), &passed);
        Ok(())
    }

    async fn advance_outbound(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let moved: Vec<(usize, OutboundAdvance<'_>)> = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match write {
                JournalWrite::OutboundTransfer(change) if change.outbound.version > 1 => {
                    Some((place, (&change.outbound).into()))
                }
                _ => None,
            })
            .collect();
        let rows: Vec<_> = moved.iter().map(|(_, row)| row).collect();
        let passed = self.passed(&self.statements.sendings_advance, &rows).await?;
        preconditions.keep(moved.iter().map(|(place, row)| (*place, row.id)), &passed);
        Ok(())
    }

    async fn advance_cursors(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let mut begun = Vec::new();
        let mut advanced = Vec::new();
        let mut chains = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            let JournalWrite::ChainBatch(batch) = write else { continue };
            chains.push((place, batch.cursor.chain.as_str()));
            match &batch.cursor_before {
                None => begun.push(&batch.cursor),
                Some(hash_before) => advanced.push(CursorAdvance {
                    chain: &batch.cursor.chain,
                    hash_before,
                    block_number: batch.cursor.block_number,
                    block_hash: &batch.cursor.block_hash,
                    block_time: batch.cursor.block_time,
                    second_look_from: batch.cursor.second_look_from,
                    epoch: batch.cursor.epoch,
                    updated_at: batch.cursor.updated_at,
                }),
            }
        }
        let mut passed = self.passed(&self.statements.cursors_begin, &begun).await?;
        passed.extend(self.passed(&self.statements.cursors_advance, &advanced).await?);
        preconditions.keep(chains, &passed);
        Ok(())
    }

    async fn take_nonces(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let submissions: Vec<_> = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match write {
                JournalWrite::Submission(submission) => Some((place, submission)),
                _ => None,
            })
            .collect();
        let rows: Vec<_> = submissions.iter().map(|(_, submission)| &submission.chain_tx).collect();
        let mut ids: HashMap<(String, String, i64), i64> = HashMap::new();
        for row in self.query(&self.statements.chain_txs_insert, &rows).await? {
            let key = (row.try_get_by_index(1)?, row.try_get_by_index(2)?, row.try_get_by_index(3)?);
            ids.insert(key, row.try_get_by_index(0)?);
        }
        let mut signed = Vec::new();
        for (place, submission) in &submissions {
            let tx = &submission.chain_tx;
            let Some(&chain_tx_id) = ids.get(&(tx.chain.clone(), tx.sender.clone(), tx.nonce)) else {
                preconditions.lost.insert(*place, JournalError::Conflict);
                continue;
            };
            preconditions.chain_tx_ids.insert(*place, chain_tx_id);
            signed.extend(submission.operations.iter().map(|operation| SubmittedOperation {
                id: &operation.id,
                revision: operation.revision,
                chain_tx_id,
                updated_at: tx.updated_at,
            }));
        }
        let signed: Vec<_> = signed.iter().collect();
        let passed = keys_of(&self.insert(&self.statements.operations_submit, &signed).await?)?;
        let carried = submissions.iter().flat_map(|(place, submission)| {
            submission.operations.iter().map(move |operation| (*place, operation.id.as_str()))
        });
        preconditions.keep(carried, &passed);
        Ok(())
    }

    async fn lose_numbers(&self, writes: &[&JournalWrite], preconditions: &mut Preconditions) -> Result<(), DbErr> {
        let lost: Vec<(usize, NumberLostRow<'_>)> = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match write {
                JournalWrite::Renumbering(renumbering) => Some((place, NumberLostRow::from(&**renumbering))),
                _ => None,
            })
            .collect();
        let rows: Vec<_> = lost.iter().map(|(_, row)| row).collect();
        let passed = self.passed(&self.statements.operations_lose_number, &rows).await?;
        preconditions.keep(lost.iter().map(|(place, row)| (*place, row.id)), &passed);
        Ok(())
    }

    async fn record_chain_tx_outcomes(
        &self,
        writes: &[&JournalWrite],
        preconditions: &mut Preconditions,
    ) -> Result<(), DbErr> {
        let outcomes: Vec<_> = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match write {
                JournalWrite::ChainTxOutcome(outcome) => Some((
                    place,
                    ChainTxRow {
                        id: outcome.chain_tx_id,
                        status: outcome.status,
                        tx_hash: outcome.tx_hash.as_deref(),
                        block_number: outcome.block_number,
                        block_hash: outcome.block_hash.as_deref(),
                        updated_at: outcome.at,
                    },
                )),
                _ => None,
            })
            .collect();
        let rows: Vec<_> = outcomes.iter().map(|(_, row)| row).collect();
        let found: HashSet<i64> = self
            .query(&self.statements.chain_txs_outcome, &rows)
            .await?
            .iter()
            .map(|row| row.try_get_by_index(0))
            .collect::<Result<_, _>>()?;
        for (place, row) in &outcomes {
            if !found.contains(&row.id) {
                preconditions.lost.insert(*place, JournalError::Conflict);
            }
        }
        Ok(())
    }

    async fn record_delivery_attempts(
        &self,
        writes: &[&JournalWrite],
        preconditions: &mut Preconditions,
    ) -> Result<(), DbErr> {
        let made: Vec<(usize, &delivery_attempts::Model)> = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match write {
                JournalWrite::Delivery(outcome) => Some((place, &outcome.attempt)),
                _ => None,
            })
            .collect();
        let rows: Vec<_> = made.iter().map(|(_, row)| *row).collect();
        let passed = keys_of(&self.insert(&self.statements.delivery_attempts_insert, &rows).await?)?;
        preconditions.keep(made.iter().map(|(place, row)| (*place, row.delivery_id.as_str())), &passed);
        Ok(())
    }
}
