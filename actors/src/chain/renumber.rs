//! Assigns a new number to an operation with a number that another operation has used on-chain: the counter fell back,
//! as after a restore of the database from an older backup.

use std::iter;

use payferry_contracts::Payferry;
use payferry_domain::{Chain, Timestamp};
use payferry_entities::{Database, chain_counters, operations};
use payferry_journal::{JournalWrite, Renumbering, counter_of_operations};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder};

use super::ChainContext;
use super::checkpoint::Step;
use super::done::{decoded, is_done_call};
use super::errors::{Errors, SettleError};
use super::settler::SettlerState;

/// Numbers checked at once, at doubling distances: up to half a million ahead.
const GALLOP_DOUBLINGS: u32 = 20;
/// Maximum number of such checks, each further ahead.
const GALLOPS_MAX: usize = 256;

impl SettlerState {
    /// Assigns a new number to an operation whose number another one has used, and queues it again. The chain's counter
    /// advances past all used numbers, so that later operations are not rejected one by one.
    pub(super) async fn renumber(
        &mut self,
        row: &operations::Model,
        read: u64,
        errors: &mut Errors,
    ) -> Result<(), SettleError> {
        let lowest = self.unused_number(row, read).await?;
        let ChainContext { spec, journal, clock, .. } = &self.args.context;
        let why = format!("its number {} was used on {} by another operation", row.number, spec.chain);
        let renumbering = Renumbering {
            id: row.id.clone(),
            chain: spec.chain,
            number: row.number,
            revision: row.revision,
            lowest,
            failure: why.clone(),
            at: clock.real_now::<Timestamp>().as_millis(),
        };
        let renumbered = journal.submit(JournalWrite::Renumbering(Box::new(renumbering))).await?.operations;
        self.searched.remove(&row.id);
        self.reached(Step::Recorded)?;
        let number = renumbered.first().map_or(lowest, |row| row.number);
        tracing::error!(chain = %self.args.spec.chain, operation.id = row.id, operation.number = number,
            "operation {} is queued again as number {number}: {why}; check whether the database was restored from a backup", row.id);
        self.args.handle.nudge();
        // It continues by itself, but the operator must find out why the counter fell back.
        let what = format!("operation {} is queued again with a new number", row.id);
        errors.add(SettleError::Item { what, why })?;
        Ok(())
    }

    /// A number from which on none is used, as far as checked: neither it nor any number at a power-of-two distance is
    /// known to the database or done on-chain. Numbers of failed operations in between are free.
    async fn unused_number(&self, row: &operations::Model, read: u64) -> Result<i64, SettleError> {
        let ChainContext { spec, database, .. } = &self.args.context;
        let mut lowest = next_number(database, spec.chain).await?.max(row.number.saturating_add(1));
        for _ in 0..GALLOPS_MAX {
            let probes = (0..GALLOP_DOUBLINGS).map(|doublings| lowest.saturating_add((1_i64 << doublings) - 1));
            let calls = probes.map(|number| is_done_call(spec.contract, number)).collect();
            let mut furthest = None;
            for (doublings, answer) in iter::zip(0_u32.., self.state_at(read, calls).await?) {
                if decoded::<Payferry::isDoneCall>(&answer?)? {
                    furthest = Some(doublings);
                }
            }
            let Some(doublings) = furthest else { return Ok(lowest) };
            lowest = lowest.saturating_add(1_i64 << (doublings + 1));
        }
        Err(SettleError::Row("no operation number is unused"))
    }
}

/// Number after all that this database has assigned on a chain, by its counter and by its rows: they may come from
/// backups of different ages.
async fn next_number(database: &Database, chain: Chain) -> Result<i64, DbErr> {
    let counter = chain_counters::Entity::find_by_id(counter_of_operations(chain.as_str()));
    let counter = counter.one(database.reader()).await?.map_or(0, |row| row.next);
    let last = operations::Entity::find()
        .filter(operations::Column::Chain.eq(chain.as_str()))
        .order_by_desc(operations::Column::Number)
        .one(database.reader())
        .await?;
    Ok(last.map_or(0, |row| row.number.saturating_add(1)).max(counter))
}
