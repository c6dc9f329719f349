//! Withdrawal wallets of a PSP: one address for all chains, or a separate one for a chain. The operator sets them.
//!
//! An attacker who can change a wallet can take the funds. Therefore in production a change takes effect only after
//! [`WALLET_DELAY_SECS`], so that the PSP can see it in its settings and object. Not here: withdrawals.

use std::collections::BTreeMap;

use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::{Database, Transaction, psps, withdrawal_wallets};
use sea_orm::{
    ActiveValue, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
    QuerySelect,
};
use serde_json::json;

use crate::audit::{self, Actor, NewAuditEntry};

/// Delay in production before a new wallet takes effect, including the first one.
pub const WALLET_DELAY_SECS: i64 = 24 * 60 * 60;
/// Value of the chain column for all chains without their own wallet.
const EVERY_CHAIN: &str = "*";

/// Wallets of a PSP by chain. The key `None` means all chains without their own wallet.
pub type Wallets = BTreeMap<Option<Chain>, WalletState>;

/// State of one wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalletState {
    /// Current wallet.
    pub current: Option<PspWallet>,
    /// Pending wallet.
    pub pending: Option<PspWallet>,
}

/// A withdrawal wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PspWallet {
    /// Address.
    pub address: Address,
    /// Time from which it applies.
    pub effective_at: Timestamp,
    /// Time at which it was set.
    pub set_at: Timestamp,
}

/// A change of a withdrawal wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalletChange {
    /// Chain; `None` means all chains without their own wallet.
    pub chain: Option<Chain>,
    /// New address. `None` disables withdrawals, or, for a chain, uses the wallet for all chains.
    pub address: Option<Address>,
    /// Delay until the change takes effect. Removing a wallet and keeping the current one take effect immediately.
    pub delay_secs: i64,
}

/// Reason why a wallet could not be loaded or changed.
#[derive(Debug, thiserror::Error)]
pub enum WalletError {
    /// No PSP has this id.
    #[error("there is no PSP {0}")]
    NoPsp(PspId),
    /// A stored row is invalid for this version.
    #[error("a stored withdrawal wallet of {0} is invalid")]
    Unreadable(String),
    /// The database is unavailable.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
}

/// Returns the withdrawal wallet of a PSP on a chain at time `now`; `None` if there is none.
pub async fn withdrawal_wallet(
    database: &Database,
    psp_id: PspId,
    chain: Chain,
    now: Timestamp,
) -> Result<Option<Address>, WalletError> {
    let wallets = load(database.reader(), psp_id, now).await?;
    let current = |chain: Option<Chain>| wallets.get(&chain).and_then(|state| state.current);
    Ok(current(Some(chain)).or_else(|| current(None)).map(|wallet| wallet.address))
}

/// Returns all current and pending wallets of a PSP.
pub async fn load(connection: &impl ConnectionTrait, psp_id: PspId, now: Timestamp) -> Result<Wallets, WalletError> {
    let rows = withdrawal_wallets::Entity::find()
        .filter(withdrawal_wallets::Column::PspId.eq(psp_id.to_string()))
        .order_by_asc(withdrawal_wallets::Column::Number)
        .all(connection)
        .await?;
    let mut by_chain: BTreeMap<Option<Chain>, Vec<Setting>> = BTreeMap::new();
    for row in rows {
        let (chain, set) = read(&row).ok_or_else(|| WalletError::Unreadable(row.psp_id.clone()))?;
        by_chain.entry(chain).or_default().push(set);
    }
    let states = by_chain.into_iter().map(|(chain, sets)| (chain, wallet_state(&sets, now)));
    Ok(states.filter(|(_, state)| *state != WalletState::default()).collect())
}

/// Changes a wallet in a transaction that the caller commits, and returns its new state. A new change replaces a
/// pending one.
pub async fn change(
    transaction: &Transaction,
    psp_id: PspId,
    change: WalletChange,
    by: &Actor,
    now: Timestamp,
) -> Result<WalletState, WalletError> {
    // Serialises the changes of a PSP.
    let psp = psps::Entity::find_by_id(psp_id.to_string()).lock_exclusive().one(transaction).await?;
    psp.ok_or(WalletError::NoPsp(psp_id))?;
    let WalletChange { chain, address, delay_secs } = change;
    let before = load(transaction, psp_id, now).await?.remove(&chain).unwrap_or_default();
    let current = before.current.map(|wallet| wallet.address);
    if before.pending.map_or(current, |pending| Some(pending.address)) == address {
        return Ok(before);
    }
    let is_at_once = address.is_none() || address == current;
    let set = Setting { address, effective_at: if is_at_once { now } else { now.plus_secs(delay_secs) }, set_at: now };
    let spelled = chain.map_or(EVERY_CHAIN, Chain::as_str);
    let row = withdrawal_wallets::Model {
        number: 0,
        psp_id: psp_id.to_string(),
        chain: spelled.to_owned(),
        address: address.map(|address| address.to_string()),
        effective_at: set.effective_at.as_millis(),
        set_by: by.kind().to_owned(),
        created_at: now.as_millis(),
    };
    let row = withdrawal_wallets::ActiveModel { number: ActiveValue::NotSet, ..row.into_active_model() };
    withdrawal_wallets::Entity::insert(row).exec_without_returning(transaction).await?;
    let detail = json!({
        "chain": spelled,
        "from": current,
        "given_up": before.pending.map(|pending| pending.address),
        "to": address,
        "effective_at": set.effective_at.to_string(),
    });
    let action = "psp.withdrawal_wallet_set".to_owned();
    let entry = NewAuditEntry { action, psp_id: Some(psp_id), subject: psp_id.to_string(), detail };
    audit::append(transaction, by, now, vec![entry]).await?;
    Ok(load(transaction, psp_id, now).await?.remove(&chain).unwrap_or_default())
}

/// The relevant fields of a row.
#[derive(Debug, Clone, Copy)]
struct Setting {
    address: Option<Address>,
    effective_at: Timestamp,
    set_at: Timestamp,
}

impl Setting {
    fn wallet(self) -> Option<PspWallet> {
        let Self { address, effective_at, set_at } = self;
        address.map(|address| PspWallet { address, effective_at, set_at })
    }
}

fn read(row: &withdrawal_wallets::Model) -> Option<(Option<Chain>, Setting)> {
    let chain = if row.chain == EVERY_CHAIN { None } else { Some(row.chain.parse().ok()?) };
    let address = row.address.as_deref().map(str::parse).transpose().ok()?;
    Some((chain, Setting { address, effective_at: Timestamp(row.effective_at), set_at: Timestamp(row.created_at) }))
}

/// Returns the state after these settings, in order. A setting that was still pending when the next one was made never
/// takes effect.
fn wallet_state(sets: &[Setting], now: Timestamp) -> WalletState {
    let mut current = None;
    for (index, set) in sets.iter().enumerate() {
        let until = sets.get(index + 1).map_or(now, |next| next.set_at);
        if set.effective_at <= until {
            current = set.wallet();
        }
    }
    let pending = sets.last().filter(|last| last.effective_at > now).and_then(|last| last.wallet());
    WalletState { current, pending }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_SECS: i64 = 60 * 60;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_secs(hours * HOUR_SECS)
    }

    fn set(address: u8, hours: i64, delay_hours: i64) -> Setting {
        let address = (address > 0).then_some(Address([address; 20]));
        Setting { address, effective_at: at(hours + delay_hours), set_at: at(hours) }
    }

    fn wallets_at(sets: &[Setting], hours: i64) -> (Option<u8>, Option<u8>) {
        let WalletState { current, pending } = wallet_state(sets, at(hours));
        let byte = |wallet: Option<PspWallet>| wallet.map(|wallet| wallet.address.0[0]);
        (byte(current), byte(pending))
    }

    #[test]
    fn a_wallet_takes_effect_after_its_delay() {
        let first = [set(1, 0, 24)];
        assert_eq!(wallets_at(&[], 0), (None, None));
        assert_eq!(wallets_at(&first, 23), (None, Some(1)));
        assert_eq!(wallets_at(&first, 24), (Some(1), None));
    }

    #[test]
    fn the_previous_wallet_applies_until_the_next_takes_effect() {
        let changed = [set(1, 0, 24), set(2, 30, 24)];
        assert_eq!(wallets_at(&changed, 53), (Some(1), Some(2)));
        assert_eq!(wallets_at(&changed, 54), (Some(2), None));
    }

    #[test]
    fn a_replaced_change_never_takes_effect() {
        let given_up = [set(1, 0, 0), set(2, 1, 24), set(3, 2, 24)];
        for hours in [2, 24, 25] {
            assert_eq!(wallets_at(&given_up, hours), (Some(1), Some(3)), "{hours}");
        }
        assert_eq!(wallets_at(&given_up, 26), (Some(3), None));
        // Setting the current wallet again cancels a pending change.
        assert_eq!(wallets_at(&[set(1, 0, 0), set(2, 1, 24), set(1, 2, 0)], 50), (Some(1), None));
    }

    #[test]
    fn removing_a_wallet_is_immediate_and_cancels_a_pending_change() {
        assert_eq!(wallets_at(&[set(1, 0, 0), set(2, 1, 24), set(0, 2, 0)], 50), (None, None));
        assert_eq!(wallets_at(&[set(1, 0, 0), set(0, 1, 0), set(1, 2, 24)], 3), (None, Some(1)));
    }
}
