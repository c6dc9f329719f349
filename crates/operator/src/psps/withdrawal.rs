//! Withdrawal wallets of PSPs, set by the operator's listener, its page or the command line.

use payferry_accounts::keys::KeyMode;
use payferry_actors::destination::{self, Unsuitable};
use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::Database;
use payferry_evm::ChainSpec;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::ApiError;
use payferry_journal::audit::Actor;
use payferry_journal::psps::wallets;
use payferry_journal::psps::wallets::{WALLET_DELAY_SECS, WalletChange, WalletError, Wallets};
use sea_orm::DbErr;

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
) -> Result<Wallets, WithdrawalWalletError> {
    if let Some(address) = address
        && let Some(reason) = destination::unsuitable(database, specs.iter().copied(), address).await?
    {
        return Err(WithdrawalWalletError::Unsuitable(address, reason));
    }
    let change = WalletChange { chain, address, delay_secs: delay_secs(mode) };
    let transaction = database.begin().await?;
    wallets::change(&transaction, psp_id, change, &Actor::Operator, now).await?;
    transaction.commit().await?;
    list(database, psp_id, now).await
}

/// Reads a PSP's current and pending withdrawal wallets.
pub async fn list(database: &Database, psp_id: PspId, now: Timestamp) -> Result<Wallets, WithdrawalWalletError> {
    Ok(wallets::load(database.reader(), psp_id, now).await?)
}

/// Error of reading or setting a withdrawal wallet.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawalWalletError {
    /// Money must not be sent to this address.
    #[error("{address} {reason}", address = checksummed(*.0), reason = .1)]
    Unsuitable(Address, Unsuitable),
    /// The wallet could not be read or changed.
    #[error(transparent)]
    Wallet(#[from] WalletError),
    /// The database is not available.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
}

impl From<WithdrawalWalletError> for ApiError {
    fn from(error: WithdrawalWalletError) -> Self {
        match error {
            WithdrawalWalletError::Unsuitable(_, reason) => Self::field("address", reason.code(), reason.to_string()),
            WithdrawalWalletError::Wallet(WalletError::NoPsp(_)) => Self::NotFound("psp"),
            WithdrawalWalletError::Wallet(error @ WalletError::Unreadable(_)) => Self::internal(error),
            WithdrawalWalletError::Wallet(WalletError::Database(error)) | WithdrawalWalletError::Database(error) => {
                error.into()
            }
        }
    }
}
