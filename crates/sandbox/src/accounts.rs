//! Accounts of the sandbox's chains: well-known keys, the same in every sandbox, without value anywhere else.

use alloy::primitives::{Address, U256};
use payferry_devchain::{GenesisAccount, Wallet};

/// Payers on each chain. Each has its own nonces, so that many payments can be pending at once.
pub const PAYERS: usize = 16;
/// Initial balance for gas of every account, in whole coins.
const GAS_COINS: u64 = 1_000_000_000;

/// The accounts of one chain.
#[derive(Debug)]
pub struct Accounts {
    /// Deploys the contracts and owns the test tokens.
    pub deployer: Wallet,
    /// The operator's account: pays for gas, settles, and sends outbound transfers.
    pub operator: Wallet,
    /// Payers whose funds are clean.
    pub payers: Vec<Wallet>,
    /// A payer on the sandbox's sanctions list.
    pub sanctioned: Wallet,
}

impl Accounts {
    /// Returns the accounts that every sandbox has.
    pub fn known() -> Self {
        let wallet = |name: &str| Wallet::from_seed(&format!("payferry sandbox {name}"));
        Self {
            deployer: wallet("deployer"),
            operator: wallet("operator"),
            payers: (0..PAYERS).map(|n| wallet(&format!("payer {n}"))).collect(),
            sanctioned: wallet("sanctioned payer"),
        }
    }

    /// Admin of the contracts. Its key is not used in the sandbox.
    pub fn admin() -> Address {
        Wallet::from_seed("payferry sandbox admin").address()
    }

    /// Account that receives the fees.
    pub fn treasury() -> Address {
        Wallet::from_seed("payferry sandbox treasury").address()
    }

    /// Clean and sanctioned payers.
    pub fn all_payers(&self) -> impl Iterator<Item = &Wallet> {
        self.payers.iter().chain([&self.sanctioned])
    }

    /// All accounts with a gas balance, for the genesis block.
    pub fn genesis(&self) -> Vec<GenesisAccount> {
        let balance = U256::from(GAS_COINS) * U256::from(10).pow(U256::from(18));
        [&self.deployer, &self.operator]
            .into_iter()
            .chain(self.all_payers())
            .map(|wallet| GenesisAccount { address: wallet.address(), balance, ..GenesisAccount::default() })
            .collect()
    }
}
