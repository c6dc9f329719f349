//! Accounts and storage at the head, and the data to undo blocks.
//!
//! [`State`] contains only the head. Blocks and calls execute in an [`Overlay`]: reads fall through to the state,
//! writes stay in the overlay. Applying an overlay returns the [`Changes`] that undo it: the old values of everything
//! that changed.

use std::convert::Infallible;

use alloy::primitives::map::{AddressMap, HashMap};
use alloy::primitives::{Address, B256, U256};
use revm::state::{Account as EvmAccount, AccountInfo, Bytecode};
use revm::{Database, DatabaseCommit};

use crate::config::GenesisAccount;

/// Storage of one account. Slots with value zero are absent.
pub(crate) type Slots = HashMap<U256, U256>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub info: AccountInfo,
    pub slots: Slots,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    accounts: AddressMap<Account>,
}

/// A change that is not made by a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Balance(Address, U256),
    Nonce(Address, u64),
    Code(Address, alloy::primitives::Bytes),
    Slot(Address, U256, U256),
}

/// Change of an account, except its storage.
#[derive(Clone, Debug, Default)]
enum Info {
    /// Unchanged.
    #[default]
    Same,
    /// The account does not exist.
    Absent,
    Is(AccountInfo),
}

/// Changes of accounts: those of an overlay, or the old values of the changes of one block.
pub(crate) type Changes = AddressMap<Change>;

/// Changes of one account.
#[derive(Debug, Default)]
pub(crate) struct Change {
    info: Info,
    /// The earlier storage of the account no longer counts.
    wiped: bool,
    slots: Slots,
}

impl State {
    pub(crate) fn genesis(accounts: &[GenesisAccount]) -> Self {
        let mut state = Self::default();
        for account in accounts {
            let code = Bytecode::new_raw(account.code.clone());
            let info = AccountInfo::new(account.balance, account.nonce, code.hash_slow(), code);
            state.accounts.insert(account.address, Account { info, slots: Slots::default() });
        }
        state
    }

    pub(crate) fn info(&self, address: &Address) -> Option<&AccountInfo> {
        self.accounts.get(address).map(|account| &account.info)
    }

    pub(crate) fn slot(&self, address: &Address, slot: &U256) -> U256 {
        let account = self.accounts.get(address);
        account.and_then(|account| account.slots.get(slot)).copied().unwrap_or_default()
    }

    pub(crate) fn control(&mut self, control: &Control) {
        let (Control::Balance(address, _)
        | Control::Nonce(address, _)
        | Control::Code(address, _)
        | Control::Slot(address, ..)) = control;
        let account = self.accounts.entry(*address).or_default();
        match control {
            Control::Balance(_, balance) => account.info.balance = *balance,
            Control::Nonce(_, nonce) => account.info.nonce = *nonce,
            Control::Code(_, code) => {
                account.info.set_code(Bytecode::new_raw(code.clone()));
            }
            Control::Slot(_, slot, value) => write_slot(&mut account.slots, *slot, *value),
        }
    }

    /// Applies changes and returns the old values. Applying those reverts them.
    pub(crate) fn apply(&mut self, changes: Changes) -> Changes {
        let mut undo = Changes::default();
        for (address, change) in changes {
            let mut old = Change::default();
            let known = self.accounts.get(&address);
            if !matches!(change.info, Info::Same) {
                old.info = known.map_or(Info::Absent, |account| Info::Is(account.info.clone()));
            }
            if change.wiped {
                old.slots = known.map(|account| account.slots.clone()).unwrap_or_default();
            }
            for slot in change.slots.keys() {
                old.slots
                    .entry(*slot)
                    .or_insert_with(|| known.and_then(|account| account.slots.get(slot)).copied().unwrap_or_default());
            }
            undo.insert(address, old);

            if matches!(change.info, Info::Absent) {
                self.accounts.remove(&address);
                continue;
            }
            let account = self.accounts.entry(address).or_default();
            if let Info::Is(info) = change.info {
                account.info = info;
            }
            if change.wiped {
                account.slots.clear();
            }
            for (slot, value) in change.slots {
                write_slot(&mut account.slots, slot, value);
            }
        }
        undo
    }
}

fn write_slot(slots: &mut Slots, slot: U256, value: U256) {
    if value.is_zero() {
        slots.remove(&slot);
    } else {
        slots.insert(slot, value);
    }
}

/// A state with changes on top.
pub(crate) struct Overlay<'a> {
    state: &'a State,
    changes: Changes,
    /// Hashes of the up to 256 blocks before the executing block.
    hashes: &'a dyn Fn(u64) -> B256,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(state: &'a State, hashes: &'a dyn Fn(u64) -> B256) -> Self {
        Self { state, changes: Changes::default(), hashes }
    }

    /// Reverts one more block. Must be called from the newest block downwards.
    pub(crate) fn rewind(&mut self, undo: &Changes) {
        for (address, old) in undo {
            let change = self.changes.entry(*address).or_default();
            if !matches!(old.info, Info::Same) {
                change.info = old.info.clone();
            }
            change.slots.extend(old.slots.iter().map(|(slot, value)| (*slot, *value)));
        }
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.changes
    }

    pub(crate) fn info(&self, address: &Address) -> Option<&AccountInfo> {
        match self.changes.get(address).map(|change| &change.info) {
            Some(Info::Is(info)) => Some(info),
            Some(Info::Absent) => None,
            Some(Info::Same) | None => self.state.info(address),
        }
    }

    pub(crate) fn slot(&self, address: &Address, slot: &U256) -> U256 {
        if let Some(change) = self.changes.get(address) {
            if let Some(value) = change.slots.get(slot) {
                return *value;
            }
            if change.wiped {
                return U256::ZERO;
            }
        }
        self.state.slot(address, slot)
    }
}

impl Database for Overlay<'_> {
    type Error = Infallible;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        Ok(self.info(&address).cloned())
    }

    // Never called, because every account contains its code.
    fn code_by_hash(&mut self, _code_hash: B256) -> Result<Bytecode, Infallible> {
        Ok(Bytecode::default())
    }

    fn storage(&mut self, address: Address, slot: U256) -> Result<U256, Infallible> {
        Ok(self.slot(&address, &slot))
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, Infallible> {
        Ok((self.hashes)(number))
    }
}

impl DatabaseCommit for Overlay<'_> {
    fn commit(&mut self, accounts: AddressMap<EvmAccount>) {
        for (address, account) in accounts {
            if !account.is_touched() {
                continue;
            }
            let gone = account.is_selfdestructed() || account.is_empty();
            // An account that did not exist and still does not exist leaves no change.
            if gone && self.info(&address).is_none() {
                continue;
            }
            let change = self.changes.entry(address).or_default();
            if gone {
                *change = Change { info: Info::Absent, wiped: true, slots: Slots::default() };
                continue;
            }
            if account.is_created() {
                change.wiped = true;
                change.slots.clear();
            }
            for (slot, value) in account.changed_storage_slots() {
                change.slots.insert(*slot, value.present_value);
            }
            change.info = Info::Is(account.info);
        }
    }
}
