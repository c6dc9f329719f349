//! Where a PSP withdraws to: one address for all chains, or one of its own for a chain. The operator sets it.
//!
//! Whoever can change where money goes can take it, so a change holds only after [`WALLET_DELAY_SECS`] in production: time
//! for the PSP to see it in its settings and to object. Deliberately absent: withdrawals.

use std::collections::BTreeMap;

use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::{Database, Transaction, psps, withdrawal_wallets};
use sea_orm::{
    ActiveValue, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
    QuerySelect,
};
use serde_json::json;

use crate::audit::{self, Actor, Entry};

/// How long a new wallet waits in production before it is withdrawn to, the first as well as any other.
pub const WALLET_DELAY_SECS: i64 = 24 * 60 * 60;
/// How a row spells every chain without a wallet of its own.
const EVERY_CHAIN: &str = "*";

/// The wallets of a PSP by chain; `None` stands for every chain without one of its own.
pub type Wallets = BTreeMap<Option<Chain>, Standing>;

/// How it stands with one wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The one that holds.
    pub current: Option<Wallet>,
    /// The one that will.
    pub pending: Option<Wallet>,
}

/// A wallet that is withdrawn to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wallet {
    /// Where.
    pub address: Address,
    /// From when on.
    pub effective_at: Timestamp,
    /// When it was set.
    pub set_at: Timestamp,
}

/// A change of where a PSP withdraws to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalletChange {
    /// On this chain; `None`: on every chain without a wallet of its own.
    pub chain: Option<Chain>,
    /// To this address; `None`: nowhere, or on a chain: to where all others do.
    pub address: Option<Address>,
    /// After how long it holds. Taking a wallet away holds at once, and so does keeping the one that is there.
    pub delay_secs: i64,
}

/// Why a wallet was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum WalletError {
    /// There is none with this id.
    #[error("there is no PSP {0}")]
    NoPsp(PspId),
    /// A stored row is not what this version writes.
    #[error("a withdrawal wallet of {0} cannot be read")]
    Unreadable(String),
    /// The database is away.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
}

/// Where a PSP withdraws to on a chain at the moment `now`; `None`: nowhere.
pub async fn withdrawal_wallet(
    database: &Database,
    psp_id: PspId,
    chain: Chain,
    now: Timestamp,
) -> Result<Option<Address>, WalletError> {
    let wallets = load(database.reader(), psp_id, now).await?;
    let current = |chain: Option<Chain>| wallets.get(&chain).and_then(|standing| standing.current);
    Ok(current(Some(chain)).or_else(|| current(None)).map(|wallet| wallet.address))
}

/// All wallets of a PSP that hold or will hold.
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
    let standing = by_chain.into_iter().map(|(chain, sets)| (chain, standing(&sets, now)));
    Ok(standing.filter(|(_, standing)| *standing != Standing::default()).collect())
}

/// Changes a wallet, in a transaction that somebody else commits; answers how it stands then. A change that is still waiting
/// is given up for the new one.
pub async fn change(
    transaction: &Transaction,
    psp_id: PspId,
    change: WalletChange,
    by: &Actor,
    now: Timestamp,
) -> Result<Standing, WalletError> {
    // One change of a PSP after the other.
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
    let entry = Entry { action, psp_id: Some(psp_id), subject: psp_id.to_string(), detail };
    audit::append(transaction, by, now, vec![entry]).await?;
    Ok(load(transaction, psp_id, now).await?.remove(&chain).unwrap_or_default())
}

/// One row, as far as it matters.
#[derive(Debug, Clone, Copy)]
struct Setting {
    address: Option<Address>,
    effective_at: Timestamp,
    set_at: Timestamp,
}

impl Setting {
    fn wallet(self) -> Option<Wallet> {
        let Self { address, effective_at, set_at } = self;
        address.map(|address| Wallet { address, effective_at, set_at })
    }
}

fn read(row: &withdrawal_wallets::Model) -> Option<(Option<Chain>, Setting)> {
    let chain = if row.chain == EVERY_CHAIN { None } else { Some(row.chain.parse().ok()?) };
    let address = row.address.as_deref().map(str::parse).transpose().ok()?;
    Some((chain, Setting { address, effective_at: Timestamp(row.effective_at), set_at: Timestamp(row.created_at) }))
}

/// How it stands after all of these, in their order: what waited when the next was set is given up.
fn standing(sets: &[Setting], now: Timestamp) -> Standing {
    let mut current = None;
    for (index, set) in sets.iter().enumerate() {
        let until = sets.get(index + 1).map_or(now, |next| next.set_at);
        if set.effective_at <= until {
            current = set.wallet();
        }
    }
    let pending = sets.last().filter(|last| last.effective_at > now).and_then(|last| last.wallet());
    Standing { current, pending }
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

    fn told(sets: &[Setting], hours: i64) -> (Option<u8>, Option<u8>) {
        let Standing { current, pending } = standing(sets, at(hours));
        let byte = |wallet: Option<Wallet>| wallet.map(|wallet| wallet.address.0[0]);
        (byte(current), byte(pending))
    }

    #[test]
    fn a_wallet_holds_after_its_delay() {
        let first = [set(1, 0, 24)];
        assert_eq!(told(&[], 0), (None, None));
        assert_eq!(told(&first, 23), (None, Some(1)));
        assert_eq!(told(&first, 24), (Some(1), None));
    }

    #[test]
    fn until_another_holds_the_one_before_does() {
        let changed = [set(1, 0, 24), set(2, 30, 24)];
        assert_eq!(told(&changed, 53), (Some(1), Some(2)));
        assert_eq!(told(&changed, 54), (Some(2), None));
    }

    #[test]
    fn a_change_that_was_given_up_never_holds() {
        let given_up = [set(1, 0, 0), set(2, 1, 24), set(3, 2, 24)];
        for hours in [2, 24, 25] {
            assert_eq!(told(&given_up, hours), (Some(1), Some(3)), "{hours}");
        }
        assert_eq!(told(&given_up, 26), (Some(3), None));
        // Setting what holds again gives up what waits.
        assert_eq!(told(&[set(1, 0, 0), set(2, 1, 24), set(1, 2, 0)], 50), (Some(1), None));
    }

    #[test]
    fn a_wallet_is_taken_away_at_once_and_what_waits_with_it() {
        assert_eq!(told(&[set(1, 0, 0), set(2, 1, 24), set(0, 2, 0)], 50), (None, None));
        assert_eq!(told(&[set(1, 0, 0), set(0, 1, 0), set(1, 2, 24)], 3), (None, Some(1)));
    }
}
