//! The payment: which transfers count, the status that follows, and its settlement.
//!
//! These are the rules of `payferry_domain::payment` for in-time, allowed transfers of the due token, without tolerances
//! and refunds; `conformance` checks that both agree. The domain itself is not used here, because the model also undoes
//! rules, and because a stored payment contains times, a history and texts that multiply the states. The authorization
//! follows the design, which the domain does not implement yet.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::chain::{Amount, BlockHash, Number};

/// Amount due of every payment: 10.00.
pub const DUE: Amount = 10_000;

/// Key of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Block; the default while the fix that added it is undone.
    pub block: BlockHash,
    /// Transaction of a payer.
    pub tx: u8,
    /// Log index.
    pub log: u8,
}

/// A row of the watcher, as a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Observed {
    /// Key.
    pub key: Key,
    /// Revision of the row.
    pub revision: u8,
    /// Number of the block.
    pub number: Number,
    /// Amount.
    pub amount: Amount,
    /// False if the block was orphaned.
    pub is_present: bool,
}

/// State of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransferState {
    /// In a block that may be orphaned.
    Seen,
    /// In a block with the required finality.
    Final,
    /// Its block was orphaned.
    Orphaned,
}

/// A transfer as the payment stores it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transfer {
    /// Newest applied revision.
    pub revision: u8,
    /// Number of the block.
    pub number: Number,
    /// Amount.
    pub amount: Amount,
    /// State.
    pub state: TransferState,
    /// True if screening allowed it.
    pub is_screened: bool,
    /// True if it is part of the amount received.
    pub is_counted: bool,
    /// True if it counted after the confirmation.
    pub is_excess: bool,
}

impl Transfer {
    /// True unless its block was orphaned.
    pub fn is_present(&self) -> bool {
        self.state != TransferState::Orphaned
    }
}

/// Status of a payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Waits for funds.
    #[default]
    Pending,
    /// Mismatched: too little.
    Underpaid,
    /// Mismatched: too much; the PSP decides.
    Overpaid,
    /// Paid, and not settled.
    Confirmed,
    /// Settled.
    Settled,
}

/// State of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettlementState {
    /// Queued for the settler.
    Queued,
    /// Executed by the chain.
    Settled,
    /// Refused by the chain; retried later.
    Failed,
    /// Not to be executed, because its funds were orphaned.
    Withdrawn,
}

/// The settlement of a payment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Settlement {
    /// State.
    pub state: SettlementState,
    /// Newest applied revision of the settler's row.
    pub revision: u8,
    /// Amount, frozen at the confirmation.
    pub amount: Amount,
}

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Executed with this amount, with the required finality.
    Completed(Amount),
    /// Refused.
    Failed,
    /// Was executed, and is now orphaned.
    Orphaned,
}

/// A command to a payment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// The watcher changed a row.
    Observe(Observed),
    /// Screening allowed a transfer.
    Screen(Key),
    /// Transfers, by key and revision, have the required finality.
    Finalise(Vec<(Key, u8)>),
    /// Outcome of the settlement, with the revision of its row.
    Settlement(u8, Outcome),
    /// Outcome of the collection of this attempt, with the revision of its row.
    Collection(u8, u8, Outcome),
    /// The collection was signed.
    SubmitCollection,
    /// The settlement is retried.
    Retry,
}

/// Change of the operation that settles the payment, in the same commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationChange {
    /// Queue it, or queue it again, with this amount.
    Queue(Amount),
    /// Do not execute it, if that can still be prevented.
    Cancel,
}

/// Rules of a payment that the model can undo.
#[derive(Clone, Copy, Debug)]
pub struct PaymentRules {
    /// A transfer without finality or verdict holds back later ones.
    pub holds_back: bool,
    /// No transfer counts while an authorization is submitted.
    pub waits_for_collection: bool,
    /// New transfers await the result of screening. If false, they are allowed at once.
    pub screens: bool,
}

/// A payment.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payment {
    /// Status.
    pub status: Status,
    /// Transfers that were ever seen.
    pub transfers: BTreeMap<Key, Transfer>,
    /// True if the status does not take account of a counted transfer yet.
    pub is_undecided: bool,
    /// Settlement by the contract's `settle`.
    pub settlement: Option<Settlement>,
    /// True while an authorization is submitted.
    pub is_collecting: bool,
    /// Amount of the collection that was applied.
    pub collected: Option<Amount>,
    /// Newest applied outcome of a collection: attempt and revision.
    pub collection: Option<(u8, u8)>,
}

impl Payment {
    /// Sum of all transfers that count.
    pub fn counted(&self) -> Amount {
        self.transfers.values().filter(|transfer| transfer.is_counted).map(|transfer| transfer.amount).sum()
    }

    /// True if a present transfer does not count yet.
    pub fn awaits_transfer(&self) -> bool {
        self.transfers.values().any(|transfer| transfer.is_present() && !transfer.is_counted)
    }

    /// True if an orphaned transaction is in no block.
    pub fn misses_remined(&self) -> bool {
        let is_mined = |key: &Key| self.transfers.iter().any(|(other, t)| other.tx == key.tx && t.is_present());
        self.transfers.iter().any(|(key, transfer)| !transfer.is_present() && !is_mined(key))
    }

    /// Applies a command and everything that follows from it.
    pub fn apply(&mut self, rules: PaymentRules, command: &Command) -> Vec<OperationChange> {
        let was_undecided = self.is_undecided;
        let mut changes = Vec::new();
        match command {
            Command::Observe(observed) => self.observe(rules, *observed, &mut changes),
            Command::Screen(key) => {
                if let Some(transfer) = self.transfers.get_mut(key) {
                    transfer.is_screened = true;
                }
            }
            Command::Finalise(reached) => {
                for (key, revision) in reached {
                    let seen = |t: &&mut Transfer| t.state == TransferState::Seen && t.revision == *revision;
                    if let Some(transfer) = self.transfers.get_mut(key).filter(seen) {
                        transfer.state = TransferState::Final;
                    }
                }
            }
            Command::Settlement(revision, outcome) => self.settlement_outcome(*revision, *outcome, &mut changes),
            Command::Collection(attempt, revision, outcome) => self.collection_outcome(*attempt, *revision, *outcome),
            Command::SubmitCollection => self.is_collecting = true,
            Command::Retry => {
                if let Some(settlement) = &mut self.settlement
                    && (settlement.state, self.status) == (SettlementState::Failed, Status::Confirmed)
                {
                    settlement.state = SettlementState::Queued;
                    changes.push(OperationChange::Queue(settlement.amount));
                }
            }
        }
        self.judge(rules, was_undecided, &mut changes);
        changes
    }

    fn observe(&mut self, rules: PaymentRules, observed: Observed, changes: &mut Vec<OperationChange>) {
        let Observed { key, revision, number, amount, is_present } = observed;
        let known = self.transfers.get(&key).cloned();
        if known.as_ref().is_some_and(|known| known.revision >= revision) {
            return;
        }
        let was_screened = |(other, t): (&Key, &Transfer)| other.tx == key.tx && t.amount == amount && t.is_screened;
        let is_screened = known
            .as_ref()
            .map_or_else(|| !rules.screens || self.transfers.iter().any(was_screened), |known| known.is_screened);
        let state = if is_present { TransferState::Seen } else { TransferState::Orphaned };
        let mut transfer =
            Transfer { revision, number, amount, state, is_screened, is_counted: false, is_excess: false };
        if let Some(known) = known.as_ref().filter(|known| is_present && known.is_present()) {
            (transfer.state, transfer.is_counted, transfer.is_excess) =
                (known.state, known.is_counted, known.is_excess);
        }
        let lost = known.filter(|known| known.is_counted && !transfer.is_counted);
        self.transfers.insert(key, transfer);
        if lost.is_some_and(|lost| !lost.is_excess) && self.status != Status::Pending {
            self.reopen(changes);
        }
    }

    /// Returns to pending, because a counted transfer was orphaned.
    fn reopen(&mut self, changes: &mut Vec<OperationChange>) {
        for transfer in self.transfers.values_mut() {
            transfer.is_excess = false;
        }
        if self.settlement.as_ref().is_some_and(|settlement| settlement.state != SettlementState::Settled) {
            self.withdraw(changes);
        }
        self.enter(Status::Pending);
    }

    fn withdraw(&mut self, changes: &mut Vec<OperationChange>) {
        if let Some(settlement) = &mut self.settlement {
            settlement.state = SettlementState::Withdrawn;
            changes.push(OperationChange::Cancel);
        }
    }

    fn enter(&mut self, status: Status) {
        self.status = status;
        self.is_undecided = false;
    }

    fn settlement_outcome(&mut self, revision: u8, outcome: Outcome, changes: &mut Vec<OperationChange>) {
        let (status, counted) = (self.status, self.counted());
        let Some(settlement) = self.settlement.as_mut().filter(|settlement| settlement.revision < revision) else {
            return;
        };
        settlement.revision = revision;
        let is_paid = matches!(status, Status::Confirmed | Status::Settled);
        match outcome {
            Outcome::Completed(amount) => {
                (settlement.state, settlement.amount) = (SettlementState::Settled, amount);
            }
            Outcome::Failed if !is_paid => self.withdraw(changes),
            Outcome::Failed if settlement.state == SettlementState::Withdrawn => changes.push(OperationChange::Cancel),
            Outcome::Failed => {
                settlement.state = SettlementState::Failed;
                if counted < settlement.amount && counted > 0 {
                    settlement.amount = counted;
                }
                self.enter(Status::Confirmed);
            }
            Outcome::Orphaned if settlement.state != SettlementState::Settled => {}
            Outcome::Orphaned if status == Status::Settled => {
                settlement.state = SettlementState::Queued;
                changes.push(OperationChange::Queue(settlement.amount));
            }
            Outcome::Orphaned => self.withdraw(changes),
        }
    }

    fn collection_outcome(&mut self, attempt: u8, revision: u8, outcome: Outcome) {
        if self.collection >= Some((attempt, revision)) {
            return;
        }
        self.collection = Some((attempt, revision));
        self.is_collecting = outcome == Outcome::Orphaned;
        match outcome {
            Outcome::Completed(amount) => {
                self.collected = Some(amount);
                self.enter(Status::Settled);
            }
            Outcome::Failed | Outcome::Orphaned => {
                if self.collected.take().is_some() {
                    for transfer in self.transfers.values_mut() {
                        (transfer.is_counted, transfer.is_excess) = (false, false);
                    }
                    self.enter(Status::Pending);
                }
            }
        }
    }

    /// Counts transfers one by one, in the order of the chain, and decides after each.
    fn judge(&mut self, rules: PaymentRules, was_undecided: bool, changes: &mut Vec<OperationChange>) {
        let mut is_fresh = was_undecided;
        loop {
            if self.decide(is_fresh, changes) {
                is_fresh = false;
                continue;
            }
            let Some(key) = self.next_to_count(rules) else { return };
            is_fresh = true;
            let is_excess = matches!(self.status, Status::Confirmed | Status::Settled);
            self.is_undecided |= !is_excess;
            if let Some(transfer) = self.transfers.get_mut(&key) {
                (transfer.is_counted, transfer.is_excess) = (true, is_excess);
            }
        }
    }

    fn next_to_count(&self, rules: PaymentRules) -> Option<Key> {
        if self.is_collecting && rules.waits_for_collection {
            return None;
        }
        let counts = |key: &Key, transfer: &Transfer| {
            let in_two_blocks = self
                .transfers
                .iter()
                .any(|(other, t)| other.tx == key.tx && other.block != key.block && t.is_present());
            transfer.state == TransferState::Final && transfer.is_screened && !in_two_blocks
        };
        let open = self.transfers.iter().filter(|(_, transfer)| transfer.is_present() && !transfer.is_counted);
        let open = open.filter(|(key, transfer)| rules.holds_back || counts(key, transfer));
        let (key, transfer) = open.min_by_key(|(key, transfer)| (transfer.number, key.log, **key))?;
        counts(key, transfer).then_some(*key)
    }

    /// Changes the status, if it must change.
    fn decide(&mut self, is_fresh: bool, changes: &mut Vec<OperationChange>) -> bool {
        match self.status {
            Status::Pending => self.transfers.values().any(|t| t.is_counted) && self.decide_amount(changes),
            Status::Underpaid => is_fresh && self.decide_amount(changes),
            Status::Overpaid => {
                self.is_undecided &= !is_fresh;
                is_fresh
            }
            Status::Confirmed => {
                let is_done = self.settlement.as_ref().is_some_and(|s| s.state == SettlementState::Settled);
                if is_done {
                    self.enter(Status::Settled);
                }
                is_done
            }
            // Settled again after it was orphaned.
            Status::Settled => false,
        }
    }

    fn decide_amount(&mut self, changes: &mut Vec<OperationChange>) -> bool {
        let counted = self.counted();
        match counted.cmp(&DUE) {
            Ordering::Less => {
                if self.awaits_transfer() || self.status == Status::Pending && self.misses_remined() {
                    return false;
                }
                self.enter(Status::Underpaid);
            }
            Ordering::Equal => self.confirm(changes),
            Ordering::Greater => self.enter(Status::Overpaid),
        }
        true
    }

    fn confirm(&mut self, changes: &mut Vec<OperationChange>) {
        let new = Settlement { state: SettlementState::Queued, revision: 0, amount: DUE };
        let settlement = self.settlement.get_or_insert(new);
        if settlement.state != SettlementState::Settled {
            (settlement.state, settlement.amount) = (SettlementState::Queued, DUE);
            changes.push(OperationChange::Queue(DUE));
        }
        self.enter(Status::Confirmed);
    }
}
