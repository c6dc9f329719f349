//! The settler: one row per operation, one per transaction, and the attempts at each transaction.
//!
//! A transaction is stored before it is sent, with the next nonce. Every method is one commit. Not here: messages, and
//! the rules of payments and payouts, which `service` connects.

use std::collections::BTreeMap;

use crate::chain::{Amount, BlockHash, Call, Chain, Effect, Event, FINALIZED_BLOCKS, Number, Operation, Refusal, Tx};
use crate::payment::OperationChange;
use crate::watcher::Watcher;

/// Status of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationStatus {
    /// Waits for the settler.
    Queued,
    /// Signed.
    Submitted,
    /// Executed by the chain.
    Mined,
    /// Executed with the required finality, and applied.
    Succeeded,
    /// Refused for good.
    Failed,
    /// Not to be executed.
    Cancelled,
}

/// Row of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperationRow {
    /// Status.
    pub status: OperationStatus,
    /// Incremented with every outcome.
    pub revision: u8,
    /// Amount.
    pub amount: Amount,
    /// Nonce of the transaction that carries it.
    pub nonce: Option<u8>,
    /// Block that executed it.
    pub block: Option<(Number, BlockHash)>,
}

/// Status of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxStatus {
    /// Stored, and perhaps sent.
    Submitted,
    /// In this block.
    Mined(Number, BlockHash),
    /// Another transaction has its nonce.
    Cancelled,
}

/// Row of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TxRow {
    /// Call; attempts do not change it.
    pub call: Call,
    /// Number of attempts.
    pub attempts: u8,
    /// Status.
    pub status: TxStatus,
}

/// The tables of the settler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settler {
    /// Operations.
    pub operations: BTreeMap<Operation, OperationRow>,
    /// Transactions, by nonce.
    pub txs: BTreeMap<u8, TxRow>,
    /// Nonces of unknown transactions that reconciliation has posted.
    pub reconciled: Vec<u8>,
}

/// Result of a commit: an operation whose success was orphaned, with its new revision.
pub type Undone = Option<(Operation, u8)>;

impl Settler {
    /// Row of an operation.
    pub fn row(&self, operation: Operation) -> Option<&OperationRow> {
        self.operations.get(&operation)
    }

    /// Status of an operation.
    pub fn status(&self, operation: Operation) -> Option<OperationStatus> {
        self.row(operation).map(|row| row.status)
    }

    /// Queues an operation, or queues it again unless it is in progress.
    pub fn queue(&mut self, operation: Operation, amount: Amount) {
        let new = OperationRow { status: OperationStatus::Queued, revision: 1, amount, nonce: None, block: None };
        let change = |row: &mut OperationRow| {
            use OperationStatus::{Cancelled, Failed, Queued};
            if matches!(row.status, Queued | Failed | Cancelled) {
                *row = OperationRow { revision: row.revision + 1, ..new.clone() };
            }
        };
        self.operations.entry(operation).and_modify(change).or_insert_with(|| new.clone());
    }

    /// Applies the change of a payment to its settlement.
    pub fn change(&mut self, operation: Operation, change: OperationChange) {
        match change {
            OperationChange::Queue(amount) => self.queue(operation, amount),
            OperationChange::Cancel => {
                let idle =
                    |row: &&mut OperationRow| matches!(row.status, OperationStatus::Queued | OperationStatus::Failed);
                if let Some(row) = self.operations.get_mut(&operation).filter(idle) {
                    row.status = OperationStatus::Cancelled;
                    row.revision += 1;
                }
            }
        }
    }

    /// Marks a mined operation as succeeded, in the commit of its payment or payout.
    pub fn succeeded(&mut self, operation: Operation, revision: u8) {
        let mined = |row: &&mut OperationRow| row.status == OperationStatus::Mined && row.revision <= revision;
        if let Some(row) = self.operations.get_mut(&operation).filter(mined) {
            row.status = OperationStatus::Succeeded;
        }
    }

    /// Records an outcome. A cancelled operation stays cancelled, unless the chain executed it.
    fn record(&mut self, operation: Operation, status: OperationStatus, paid: Option<(Amount, Number, BlockHash)>) {
        let Some(row) = self.operations.get_mut(&operation) else { return };
        if row.status == OperationStatus::Cancelled && status != OperationStatus::Mined {
            return;
        }
        (row.status, row.revision) = (status, row.revision + 1);
        row.block = paid.map(|(_, number, block)| (number, block));
        if let Some((amount, ..)) = paid {
            row.amount = amount;
        }
    }

    /// Stores a signed transaction of a queued operation, with the next nonce.
    pub fn sign(&mut self, chain: &Chain, operation: Operation) {
        let Some(row) = self.operations.get_mut(&operation) else { return };
        let call = Call { operation, amount: row.amount };
        let ours = self.txs.last_key_value().map_or(0, |(nonce, _)| nonce + 1);
        let nonce = ours.max(chain.next_nonce());
        (row.status, row.nonce) = (OperationStatus::Submitted, Some(nonce));
        self.txs.insert(nonce, TxRow { call, attempts: 1, status: TxStatus::Submitted });
    }

    /// The last attempt at a submitted transaction, if no node has it.
    pub fn unsent(&self, chain: &Chain, nonce: u8) -> Option<Tx> {
        let row = self.txs.get(&nonce).filter(|row| row.status == TxStatus::Submitted)?;
        let tx = Tx::Signed { nonce, attempt: row.attempts, call: row.call };
        let is_known = chain.waiting.contains(&tx) || chain.blocks.iter().any(|block| block.txs.contains(&tx));
        // A used nonce cannot be sent again.
        (!is_known && chain.next_nonce() <= nonce).then_some(tx)
    }

    /// Position of a mined attempt at a transaction.
    fn position(&self, chain: &Chain, nonce: u8) -> Option<(Number, BlockHash)> {
        let row = self.txs.get(&nonce)?;
        let own = |&(n, attempt, call, ..): &(u8, u8, Call, Number, BlockHash)| {
            n == nonce && call == row.call && attempt <= row.attempts
        };
        chain.signed().find(own).map(|(.., number, block)| (number, block))
    }

    /// True if a submitted transaction was mined.
    pub fn can_see_mined(&self, chain: &Chain, nonce: u8) -> bool {
        self.txs[&nonce].status == TxStatus::Submitted && self.position(chain, nonce).is_some()
    }

    /// Records the block of a transaction and the operation that it executed.
    pub fn see_mined(&mut self, chain: &Chain, events: &[Event], nonce: u8) -> Undone {
        let (number, block) = self.position(chain, nonce)?;
        let row = self.txs.get_mut(&nonce)?;
        row.status = TxStatus::Mined(number, block);
        let operation = row.call.operation;
        let mut of_block = events.iter().filter(|event| event.block == block);
        if let Some(call) = of_block.find_map(|event| event.paid(operation)) {
            self.record_mined(operation, nonce, (call.amount, number, block));
            return None;
        }
        self.undo(operation, nonce)
    }

    /// Records an execution, unless another transaction carries the operation: the contract will refuse that one.
    fn record_mined(&mut self, operation: Operation, nonce: u8, paid: (Amount, Number, BlockHash)) {
        use OperationStatus::{Cancelled, Failed, Queued};
        let Some(row) = self.operations.get_mut(&operation) else { return };
        if row.nonce == Some(nonce) || matches!(row.status, Queued | Failed | Cancelled) {
            row.nonce = Some(nonce);
            self.record(operation, OperationStatus::Mined, Some(paid));
        }
    }

    /// Returns an operation that this transaction executed to submitted.
    fn undo(&mut self, operation: Operation, nonce: u8) -> Undone {
        let row = self.row(operation)?;
        let is_done = matches!(row.status, OperationStatus::Mined | OperationStatus::Succeeded);
        if row.nonce != Some(nonce) || !is_done {
            return None;
        }
        self.record(operation, OperationStatus::Submitted, None);
        self.row(operation).map(|row| (operation, row.revision))
    }

    /// True if the watcher has read another block in the place of a transaction's block. If the chain still has the
    /// recorded block, the watcher is behind, and there is nothing to record.
    pub fn can_see_orphaned(&self, chain: &Chain, watcher: &Watcher, nonce: u8) -> bool {
        match self.txs[&nonce].status {
            TxStatus::Mined(number, block) => {
                let is_other = watcher.block(number).is_some_and(|known| known != block);
                is_other && self.position(chain, nonce) != Some((number, block))
            }
            TxStatus::Submitted | TxStatus::Cancelled => false,
        }
    }

    /// Records that the block of a transaction was orphaned: it is in another block, or is sent again.
    pub fn see_orphaned(&mut self, chain: &Chain, events: &[Event], nonce: u8) -> Undone {
        if self.position(chain, nonce).is_some() {
            return self.see_mined(chain, events, nonce);
        }
        let row = self.txs.get_mut(&nonce)?;
        row.status = TxStatus::Submitted;
        let operation = row.call.operation;
        self.undo(operation, nonce)
    }

    /// The operation that a mined transaction failed to execute, if that can be decided: its block has `depth` blocks.
    pub fn failed(&self, watcher: &Watcher, events: &[Event], nonce: u8, depth: u8) -> Option<Operation> {
        let row = &self.txs[&nonce];
        let TxStatus::Mined(number, block) = row.status else { return None };
        let operation = row.call.operation;
        let refused = Effect::Refused(operation, Refusal::Other);
        let is_refused = events.iter().any(|event| event.block == block && event.effect == refused);
        let carried = |row: &OperationRow| row.status == OperationStatus::Submitted && row.nonce == Some(nonce);
        let is_open = self.row(operation).is_some_and(carried);
        (is_refused && is_open && watcher.stands(number, block) && watcher.reached(number, depth)).then_some(operation)
    }

    /// Fails an operation for good.
    pub fn fail(&mut self, operation: Operation) {
        self.record(operation, OperationStatus::Failed, None);
    }

    /// A finalized execution of an open operation by a transaction that the database does not know.
    pub fn done_elsewhere(&self, watcher: &Watcher, events: &[Event], operation: Operation) -> Option<Event> {
        use OperationStatus::{Cancelled, Failed, Queued, Submitted};
        let is_open = matches!(self.status(operation)?, Queued | Submitted | Failed | Cancelled);
        let is_own = |event: &Event| match event.tx {
            Tx::Signed { nonce, call, .. } => {
                self.txs.get(&nonce).is_some_and(|row| row.call == call && row.status == TxStatus::Submitted)
            }
            Tx::Payer(_) | Tx::Elsewhere(..) => false,
        };
        let event = events.iter().find(|event| event.paid(operation).is_some())?;
        let is_final = watcher.stands(event.number, event.block) && watcher.reached(event.number, FINALIZED_BLOCKS);
        (is_open && is_final && !is_own(event)).then_some(*event)
    }

    /// Records that the chain executed an operation.
    pub fn record_done(&mut self, event: &Event, operation: Operation) {
        let paid = event.paid(operation).map(|call| (call.amount, event.number, event.block));
        self.record(operation, OperationStatus::Mined, paid);
    }

    /// True if a finalized transaction of ours that the database does not know has this nonce.
    pub fn is_taken(&self, chain: &Chain, watcher: &Watcher, nonce: u8) -> bool {
        let is_open = self.txs[&nonce].status == TxStatus::Submitted && self.position(chain, nonce).is_none();
        let is_final = |number, block| watcher.stands(number, block) && watcher.reached(number, FINALIZED_BLOCKS);
        is_open && chain.signed().any(|(n, _, _, number, block)| n == nonce && is_final(number, block))
    }

    /// Gives a transaction up, and queues its operation again.
    pub fn give_up(&mut self, nonce: u8) {
        let Some(row) = self.txs.get_mut(&nonce) else { return };
        row.status = TxStatus::Cancelled;
        let operation = row.call.operation;
        let carried = |row: &OperationRow| row.status == OperationStatus::Submitted && row.nonce == Some(nonce);
        if self.row(operation).is_some_and(carried) {
            self.record(operation, OperationStatus::Queued, None);
        }
    }

    /// Mined transactions of our signer that the database does not know.
    pub fn unknown<'a>(&'a self, chain: &'a Chain) -> impl Iterator<Item = (u8, Call, Number, BlockHash)> + 'a {
        let is_known = |nonce: u8, attempt: u8, call: Call| {
            let of_row = |row: &TxRow| row.call == call && attempt <= row.attempts;
            self.reconciled.contains(&nonce) || self.txs.get(&nonce).is_some_and(of_row)
        };
        let unknown =
            move |&(nonce, attempt, call, ..): &(u8, u8, Call, Number, BlockHash)| !is_known(nonce, attempt, call);
        chain.signed().filter(unknown).map(|(nonce, _, call, number, block)| (nonce, call, number, block))
    }
}
