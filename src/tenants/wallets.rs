//! Withdrawal wallets of PSPs, set by the operator's listener, its page or the command line.

use payferry_actors::chain::ChainSpec;
use payferry_actors::customers::audit::Actor;
use payferry_actors::destination;
use payferry_actors::psps::wallets::{self, WALLET_DELAY_SECS, WalletChange, WalletError, Wallets};
use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::Database;

use super::TenantError;
use crate::keys::KeyMode;

/// Delay until a new wallet becomes effective; none in the sandbox.
const fn delay_secs(mode: KeyMode) -> i64 {
    match mode {
        KeyMode::Live => WALLET_DELAY_SECS,
        KeyMode::Test => 0,
    }
}

/// Sets a PSP's withdrawal wallet (`None` removes it) on one chain, or with `None` as chain on every chain without a
/// wallet of its own. `specs` are the known chains: an address of the service on one of them is refused.
pub async fn set(
    database: &Database,
    specs: &[&ChainSpec],
    mode: KeyMode,
    psp_id: PspId,
    (chain, address): (Option<Chain>, Option<Address>),
    now: Timestamp,
) -> Result<Wallets, TenantError> {
    if let Some(address) = address
        && let Some(reason) = destination::unsuitable(database, specs.iter().copied(), address).await?
    {
        return Err(TenantError::Unsuitable(address, reason));
    }
    let change = WalletChange { chain, address, delay_secs: delay_secs(mode) };
    let transaction = database.begin().await?;
    wallets::change(&transaction, psp_id, change, &Actor::Operator, now).await?;
    transaction.commit().await?;
    list(database, psp_id, now).await
}

/// Reads a PSP's current and pending withdrawal wallets.
pub async fn list(database: &Database, psp_id: PspId, now: Timestamp) -> Result<Wallets, TenantError> {
    Ok(wallets::load(database.reader(), psp_id, now).await?)
}

impl From<WalletError> for TenantError {
    fn from(error: WalletError) -> Self {
        match error {
            WalletError::NoPsp(id) => Self::NoPsp(id),
            WalletError::Unreadable(psp_id) => Self::Unreadable("a withdrawal wallet", psp_id),
            WalletError::Database(error) => Self::Database(error),
        }
    }
}
