//! Withdrawal wallets of a PSP, as shown to the PSP and the operator.

use payferry_domain::Chain;
use payferry_evm::wallet::checksummed;
use payferry_journal::psps::wallets::{Standing, Wallet, Wallets};
use serde::Serialize;
use utoipa::ToSchema;

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
    /// `effective`, or `pending` until `effective_at`. If you did not request a pending wallet, tell the operator at
    /// once.
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
        let each = wallets.iter().flat_map(|(chain, Standing { current, pending })| {
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
