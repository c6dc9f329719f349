//! The watcher: the cursor with the blocks that were read, and one row per transfer.
//!
//! A reorganisation is two commits: one marks the rows of the orphaned blocks, a later one reads the new blocks. A crash
//! between them loses the messages of the first. Not here: messages, which `service` holds in memory.

use std::collections::BTreeMap;

use crate::chain::{Amount, BlockHash, Chain, Effect, Event, Number, Script, Tx};
use crate::payment::{Key, Observed};

/// One row: a transfer to a payment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Payment.
    pub payment: u8,
    /// Block.
    pub block: BlockHash,
    /// Number of the block.
    pub number: Number,
    /// Amount.
    pub amount: Amount,
    /// False if the block was orphaned.
    pub is_present: bool,
    /// Incremented with every change.
    pub revision: u8,
    /// Revision that the payment has applied.
    pub applied: u8,
}

impl Row {
    /// The row as a fact.
    pub fn observed(&self, key: Key) -> Observed {
        let Self { revision, number, amount, is_present, .. } = *self;
        Observed { key, revision, number, amount, is_present }
    }
}

/// A changed row: its payment, and the fact.
pub type Change = (u8, Observed);

/// The tables of the watcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watcher {
    /// Blocks that were read, by number.
    pub known: Vec<BlockHash>,
    /// Transfers.
    pub rows: BTreeMap<Key, Row>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { known: vec![BlockHash::default()], rows: BTreeMap::new() }
    }
}

impl Watcher {
    /// Number of blocks that were read.
    pub fn len(&self) -> Number {
        Number::try_from(self.known.len()).unwrap_or(Number::MAX)
    }

    /// True if the block at this number has `depth` blocks, with its own.
    pub fn reached(&self, number: Number, depth: u8) -> bool {
        number.saturating_add(depth) <= self.len()
    }

    /// The block that was read at this number.
    pub fn block(&self, number: Number) -> Option<BlockHash> {
        self.known.get(usize::from(number)).copied()
    }

    /// True if this block was read and is not orphaned, as far as the watcher knows.
    pub fn stands(&self, number: Number, block: BlockHash) -> bool {
        self.block(number) == Some(block)
    }

    /// Number of blocks below the fork, if the chain was reorganised.
    pub fn fork(&self, chain: &Chain) -> Option<usize> {
        let pairs = self.known.iter().zip(&chain.blocks);
        let common = pairs.take_while(|(known, block)| **known == block.hash).count();
        (common < self.known.len()).then_some(common)
    }

    /// Reverts the orphaned blocks in one commit; returns the changed rows.
    pub fn unwind(&mut self, fork: usize) -> Vec<Change> {
        let orphaned = self.known.split_off(fork);
        let is_orphaned = |row: &Row| row.is_present && orphaned.contains(&row.block);
        let mut changes = Vec::new();
        for (key, row) in self.rows.iter_mut().filter(|(_, row)| is_orphaned(row)) {
            row.is_present = false;
            row.revision += 1;
            changes.push((row.payment, row.observed(*key)));
        }
        changes
    }

    /// Reads the blocks below `to` in one commit; returns the changed rows.
    pub fn read(&mut self, chain: &Chain, script: &Script, to: Number, block_in_key: bool) -> Vec<Change> {
        let from = self.len();
        self.known.extend(chain.blocks[usize::from(from)..usize::from(to)].iter().map(|block| block.hash));
        let events = chain.events(script);
        let new = events.iter().filter(|event| (from..to).contains(&event.number));
        new.filter_map(|event| self.upsert(event, block_in_key)).collect()
    }

    /// With the block in the key, a row never changes its contents.
    fn upsert(&mut self, event: &Event, block_in_key: bool) -> Option<Change> {
        let &Event { number, block, tx: Tx::Payer(tx), effect: Effect::Received { payment, log, amount } } = event
        else {
            return None;
        };
        let key = Key { block: if block_in_key { block } else { BlockHash::default() }, tx, log };
        let new = Row { payment, block, number, amount, is_present: true, revision: 1, applied: 0 };
        let row = self.rows.entry(key).and_modify(|row| {
            let (revision, applied) = (row.revision + 1, row.applied);
            *row = Row { revision, applied, ..new.clone() };
        });
        let row = row.or_insert(new);
        Some((payment, row.observed(key)))
    }

    /// Rows that their payment has not applied.
    pub fn unapplied(&self) -> impl Iterator<Item = Change> {
        let rows = self.rows.iter().filter(|(_, row)| row.applied < row.revision);
        rows.map(|(key, row)| (row.payment, row.observed(*key)))
    }

    /// Marks a revision of a row as applied, in the commit of the payment.
    pub fn mark_applied(&mut self, payment: u8, observed: Observed) {
        if let Some(row) = self.rows.get_mut(&observed.key).filter(|row| row.payment == payment) {
            row.applied = row.applied.max(observed.revision);
        }
    }
}
