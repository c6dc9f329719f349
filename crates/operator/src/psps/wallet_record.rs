//! Where a PSP withdraws to, as it is shown to the PSP and to the operator.

use payferry_actors::psps::wallets::{Standing, Wallet, Wallets};
use payferry_actors::wallet::checksummed;
use payferry_domain::Chain;
use serde::Serialize;
use utoipa::ToSchema;

/// How every chain without a wallet of its own is spelled.
pub const EVERY_CHAIN: &str = "all";

/// Where the account withdraws to, or will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WalletRecord {
    /// On this chain, or `all`: on every chain without one of its own.
    #[schema(example = "all")]
    pub chain: &'static str,
    /// Where to.
    #[schema(example = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")]
    pub address: String,
    /// `effective`, or `pending`: from `effective_at` on. If you did not ask for it, tell the operator at once.
    pub status: &'static str,
    /// From when on.
    #[schema(format = "date-time")]
    pub effective_at: String,
    /// When the operator set it.
    #[schema(format = "date-time")]
    pub set_at: String,
}

impl WalletRecord {
    /// All of them: of every chain first, what holds before what will.
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
