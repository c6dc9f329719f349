//! The chain: blocks, reorganisations, transactions that wait to be mined, and the contract.
//!
//! A reorganisation replaces up to `REORG_BLOCKS_MAX` blocks by as many others. The time of a block is its number. The
//! balances and the operations that the contract has executed follow from the canonical blocks.

use std::collections::{BTreeMap, BTreeSet};

/// Amount, in thousandths of a token.
pub type Amount = u16;
/// Number of a block.
pub type Number = u8;

/// Largest depth of a reorganisation.
pub const REORG_BLOCKS_MAX: u8 = 2;
/// Number of blocks, with its own, after which a block is finalized: no reorganisation reaches it.
pub const FINALIZED_BLOCKS: u8 = REORG_BLOCKS_MAX + 1;

/// Hash of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub u8);

/// Id of an operation of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Settles a payment.
    Settle(u8),
    /// Sends a payout from the vault of the PSP.
    Send(u8),
    /// Collects an authorization: payment and attempt.
    Collect(u8, u8),
}

impl Operation {
    /// Payment that the operation pays, if it pays one.
    pub fn payment(self) -> Option<u8> {
        match self {
            Self::Settle(payment) | Self::Collect(payment, _) => Some(payment),
            Self::Send(_) => None,
        }
    }
}

/// A call of the contract, as it was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Operation.
    pub operation: Operation,
    /// Amount.
    pub amount: Amount,
}

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tx {
    /// Transaction of a payer, by its index in the script.
    Payer(u8),
    /// Uses the authorization of this payment and attempt for another recipient.
    Elsewhere(u8, u8),
    /// Attempt at a transaction of the service.
    Signed {
        /// Nonce of the signer.
        nonce: u8,
        /// Number of the attempt: replacements have the same nonce and call.
        attempt: u8,
        /// Call.
        call: Call,
    },
}

/// A block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Block {
    /// Hash.
    pub hash: BlockHash,
    /// Log index of the first log below. Foreign transactions come first.
    pub first_log: u8,
    /// True if the token refuses recipients of `send` in this block.
    pub refuses: bool,
    /// Transactions, in order.
    pub txs: Vec<Tx>,
}

/// Content of the blocks that replace orphaned ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// The same transactions in the same order. The token accepts all recipients.
    Same,
    /// The same transactions after a foreign one, so that log indexes shift.
    Shifted,
    /// The transactions of payers in the reverse order.
    Reversed,
    /// None of the transactions: they wait again, and those of the service are forgotten.
    Empty,
}

/// The canonical chain and the transactions that are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Canonical blocks, by number. The first block is empty.
    pub blocks: Vec<Block>,
    /// Transactions that may be mined.
    pub waiting: BTreeSet<Tx>,
    /// Number of hashes in use.
    hashes: u8,
}

/// Transfers in one transaction of a payer: payment and amount, in the order of the logs.
pub type Transfers = Vec<(u8, Amount)>;

/// Reason for which the contract refuses an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The operation id was used.
    AlreadyDone,
    /// The vault is short, the token refuses the recipient, or the authorization is used or expired.
    Other,
}

/// Effect of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Transfer to the wallet of a payment.
    Received {
        /// Payment.
        payment: u8,
        /// Log index.
        log: u8,
        /// Amount.
        amount: Amount,
    },
    /// The contract executed an operation.
    Paid(Call),
    /// The contract refused an operation.
    Refused(Operation, Refusal),
    /// An authorization was used for another recipient.
    UsedElsewhere(u8, u8),
}

/// Effect of a transaction, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Number of the block.
    pub number: Number,
    /// Hash of the block.
    pub block: BlockHash,
    /// Transaction.
    pub tx: Tx,
    /// Effect.
    pub effect: Effect,
}

impl Event {
    /// The executed call, if the event is an execution of this operation.
    pub fn paid(&self, operation: Operation) -> Option<Call> {
        match self.effect {
            Effect::Paid(call) if call.operation == operation => Some(call),
            _ => None,
        }
    }
}

/// Content of the chain that a scenario fixes.
#[derive(Clone, Debug)]
pub struct Script {
    /// Transactions of payers.
    pub payers: Vec<Transfers>,
    /// Initial balance of the vault of the PSP.
    pub psp_balance: Amount,
    /// Number of the block from which on an authorization is expired.
    pub valid_before: Number,
    /// True if the contract executes an operation id only once.
    pub once_only: bool,
}

/// State of the contract and its vaults.
struct Contract<'a> {
    script: &'a Script,
    vaults: BTreeMap<u8, Amount>,
    psp: Amount,
    done: BTreeSet<Operation>,
}

impl Contract<'_> {
    fn execute(&mut self, call: Call, number: Number, refuses: bool) -> Result<(), Refusal> {
        let Call { operation, amount } = call;
        let is_done = self.done.contains(&operation);
        match operation {
            Operation::Settle(_) | Operation::Send(_) if self.script.once_only && is_done => {
                return Err(Refusal::AlreadyDone);
            }
            Operation::Settle(payment) => {
                let vault = self.vaults.entry(payment).or_default();
                *vault = vault.checked_sub(amount).ok_or(Refusal::Other)?;
                self.psp += amount;
            }
            Operation::Send(_) => {
                let left = self.psp.checked_sub(amount).filter(|_| !refuses);
                self.psp = left.ok_or(Refusal::Other)?;
            }
            // The token itself refuses a used nonce.
            Operation::Collect(..) => {
                if is_done || number >= self.script.valid_before {
                    return Err(Refusal::Other);
                }
                self.psp += amount;
            }
        }
        self.done.insert(operation);
        Ok(())
    }

    fn run(&mut self, number: Number, block: &Block, events: &mut Vec<Event>) {
        let mut log = block.first_log;
        for &tx in &block.txs {
            let mut add = |effect| events.push(Event { number, block: block.hash, tx, effect });
            match tx {
                Tx::Payer(index) => {
                    for &(payment, amount) in &self.script.payers[usize::from(index)] {
                        *self.vaults.entry(payment).or_default() += amount;
                        add(Effect::Received { payment, log, amount });
                        log += 1;
                    }
                }
                Tx::Elsewhere(payment, attempt) => {
                    if self.done.insert(Operation::Collect(payment, attempt)) {
                        add(Effect::UsedElsewhere(payment, attempt));
                    }
                }
                Tx::Signed { call, .. } => add(match self.execute(call, number, block.refuses) {
                    Ok(()) => Effect::Paid(call),
                    Err(refusal) => Effect::Refused(call.operation, refusal),
                }),
            }
        }
    }
}

impl Chain {
    /// A chain with one block, on which the payers' transactions wait.
    pub fn new(script: &Script) -> Self {
        let waiting = (0..).zip(&script.payers).map(|(index, _)| Tx::Payer(index)).collect();
        Self { blocks: vec![Block::default()], waiting, hashes: 1 }
    }

    /// Number of blocks.
    pub fn len(&self) -> Number {
        Number::try_from(self.blocks.len()).unwrap_or(Number::MAX)
    }

    /// All events of the canonical chain, in order.
    pub fn events(&self, script: &Script) -> Vec<Event> {
        self.run(script).1
    }

    fn run<'a>(&self, script: &'a Script) -> (Contract<'a>, Vec<Event>) {
        let psp = script.psp_balance;
        let mut contract = Contract { script, vaults: BTreeMap::new(), psp, done: BTreeSet::new() };
        let mut events = Vec::new();
        for (number, block) in (0..).zip(&self.blocks) {
            contract.run(number, block, &mut events);
        }
        (contract, events)
    }

    /// Simulates a call on the state after the last block.
    pub fn simulate(&self, script: &Script, call: Call) -> Result<(), Refusal> {
        self.run(script).0.execute(call, self.len(), false)
    }

    /// The next nonce of the service's account.
    pub fn next_nonce(&self) -> u8 {
        let signed = self.blocks.iter().flat_map(|block| &block.txs).filter(|tx| matches!(tx, Tx::Signed { .. }));
        u8::try_from(signed.count()).unwrap_or(u8::MAX)
    }

    /// Mined transactions of the service, with their positions.
    pub fn signed(&self) -> impl Iterator<Item = (u8, u8, Call, Number, BlockHash)> {
        let of_block = |(number, block): (Number, &Block)| {
            let hash = block.hash;
            let signed = block.txs.iter().filter_map(move |tx| match *tx {
                Tx::Signed { nonce, attempt, call } => Some((nonce, attempt, call, number, hash)),
                _ => None,
            });
            signed.collect::<Vec<_>>()
        };
        (0..).zip(&self.blocks).flat_map(of_block)
    }

    /// Contents of the next block: nothing, waiting transactions of payers in any order, or one other transaction.
    pub fn minable(&self) -> Vec<Vec<Tx>> {
        let payers: Vec<Tx> = self.waiting.iter().filter(|tx| matches!(tx, Tx::Payer(_))).copied().collect();
        let mut contents = vec![Vec::new()];
        contents.extend(payers.iter().map(|tx| vec![*tx]));
        for first in &payers {
            contents.extend(payers.iter().filter(|tx| *tx != first).map(|second| vec![*first, *second]));
        }
        let next = self.next_nonce();
        let is_next = |tx: &&Tx| match tx {
            Tx::Payer(_) => false,
            Tx::Elsewhere(..) => true,
            Tx::Signed { nonce, .. } => *nonce == next,
        };
        contents.extend(self.waiting.iter().filter(is_next).map(|tx| vec![*tx]));
        contents
    }

    /// Mines a block.
    pub fn mine(&mut self, txs: Vec<Tx>, first_log: u8, refuses: bool) {
        for tx in &txs {
            self.waiting.remove(tx);
        }
        self.blocks.push(Block { hash: BlockHash(self.hashes), first_log, refuses, txs });
        self.hashes += 1;
    }

    /// Replacements of the last `depth` blocks that differ from each other.
    pub fn replacements(&self, depth: u8) -> Vec<Replacement> {
        let orphaned = || self.blocks.iter().rev().take(usize::from(depth)).flat_map(|block| &block.txs);
        let payers = orphaned().filter(|tx| matches!(tx, Tx::Payer(_))).count();
        let mut found = vec![Replacement::Empty];
        if orphaned().count() > 0 {
            found.extend([Replacement::Same, Replacement::Shifted]);
        }
        if payers > 1 {
            found.push(Replacement::Reversed);
        }
        found
    }

    /// Replaces the last `depth` blocks. The first of the new blocks has all their transactions.
    pub fn reorganise(&mut self, depth: u8, replacement: Replacement) {
        let common = self.blocks.len() - usize::from(depth);
        let mut txs: Vec<Tx> = self.blocks.drain(common..).flat_map(|block| block.txs).collect();
        match replacement {
            Replacement::Same | Replacement::Shifted => {}
            Replacement::Reversed => {
                let (mut payers, others): (Vec<_>, Vec<_>) = txs.iter().partition(|tx| matches!(tx, Tx::Payer(_)));
                payers.reverse();
                txs = payers.into_iter().chain(others).collect();
            }
            Replacement::Empty => {
                let returning = txs.drain(..).filter(|tx| !matches!(tx, Tx::Signed { .. }));
                self.waiting.extend(returning);
            }
        }
        self.mine(txs, u8::from(replacement == Replacement::Shifted), false);
        for _ in 1..depth {
            self.mine(Vec::new(), 0, false);
        }
    }
}
