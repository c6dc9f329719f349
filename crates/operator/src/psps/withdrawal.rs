//! Withdrawal wallets of PSPs, set by the operator's listener, its page or the command line.

use payferry_accounts::keys::KeyMode;
use payferry_actors::destination::{self, Unsuitable};
use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::Database;
use payferry_evm::ChainSpec;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::ApiError;
use payferry_journal::audit::Actor;
use payferry_journal::psps::wallets::{
    self, WALLET_DELAY_SECS, Wallet, WalletChange, WalletError, WalletState, Wallets,
};
use sea_orm::DbErr;
use serde::Serialize;
use utoipa::ToSchema;

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

/// Name for all chains without a wallet of their own.
pub const EVERY_CHAIN: &str = "all";

/// A current or pending withdrawal wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WalletRecord {
    /// The chain, or `all`: every chain without a wallet of its own.
    #[schema(example = "all")]
    pub chain: &'static str,
    /// Address of the wallet.
    #[schema(example = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")]
    pub address: String,
    /// `effective`, or `pending` until `effective_at`. If you did not request a pending wallet, inform the operator
    /// immediately.
    pub status: &'static str,
    /// When it becomes or became effective.
    #[schema(format = "date-time")]
    pub effective_at: String,
    /// When the operator set it.
    #[schema(format = "date-time")]
    pub set_at: String,
}

impl WalletRecord {
    /// Lists all wallets: first those for every chain, and the current one before the pending one.
    pub fn of_all(wallets: &Wallets) -> Vec<Self> {
        let each = wallets.iter().flat_map(|(chain, WalletState { current, pending })| {
            let record = |wallet: &Option<Wallet>, status| wallet.map(|wallet| Self::of(*chain, wallet, status));
            [record(current, "effective"), record(pending, "pending")]
        });
        each.flatten().collect()
    }

    fn of(chain: Option<Chain>, wallet: Wallet, status: &'static str) -> Self {
        Self {
            chain: chain.map_or(EVERY_CHAIN, Chain::as_str),
            address: checksummed(wallet.address),
            status,
            effective_at: wallet.effective_at.to_string(),
            set_at: wallet.set_at.to_string(),
        }
    }
}
