//! Configuration and genesis of a chain.

use std::path::PathBuf;
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use payferry_contracts::{CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE};

use crate::tags::Tags;

/// Time at which blocks are mined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mining {
    /// One block per interval, empty or not.
    Interval(Duration),
    /// Blocks are mined only on request.
    OnDemand,
    /// One block per accepted transaction, mined before the response.
    PerTransaction,
}

/// An account in the genesis state.
#[derive(Clone, Debug, Default)]
pub struct GenesisAccount {
    /// Address.
    pub address: Address,
    /// Balance in wei.
    pub balance: U256,
    /// Next nonce.
    pub nonce: u64,
    /// Runtime code; empty for an ordinary account.
    pub code: Bytes,
}

/// Configuration of a chain. The chain id, the genesis, and the gas and fee parameters belong to the file: a file that
/// was created with other values cannot be opened.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// Append-only file; `None` keeps the chain in memory.
    pub path: Option<PathBuf>,
    /// Time at which blocks are mined.
    pub mining: Mining,
    /// `safe` and `finalized`.
    pub tags: Tags,
    /// Base fee of block 0, in wei; block 1 follows from it.
    pub base_fee_initial_wei: u64,
    /// Minimum base fee, in wei.
    pub base_fee_min_wei: u64,
    /// Result of `eth_maxPriorityFeePerGas`, in wei.
    pub priority_fee_wei: u64,
    /// Gas limit of a block.
    pub block_gas_limit: u64,
    /// Number of blocks that a reorg can undo, and whose state can be read.
    pub history_blocks_max: usize,
    /// Timestamp of block 0; `None` uses the wall clock at the creation of the file.
    pub genesis_timestamp_secs: Option<u64>,
    /// Accounts in the genesis state, in addition to the CREATE2 deployer.
    pub genesis: Vec<GenesisAccount>,
}

impl Default for ChainConfig {
    fn default() -> Self {
        Self {
            chain_id: 31_337,
            path: None,
            mining: Mining::OnDemand,
            tags: Tags::default(),
            base_fee_initial_wei: 10_000_000,
            base_fee_min_wei: 1_000_000,
            priority_fee_wei: 1_000_000,
            block_gas_limit: 200_000_000,
            history_blocks_max: 4_096,
            genesis_timestamp_secs: None,
            genesis: Vec::new(),
        }
    }
}

impl ChainConfig {
    /// Returns the deployer and the configured accounts. A configured account with the same address takes precedence.
    pub(crate) fn genesis_accounts(&self) -> Vec<GenesisAccount> {
        let mut accounts = vec![GenesisAccount {
            address: CREATE2_DEPLOYER,
            nonce: 1,
            code: CREATE2_DEPLOYER_CODE,
            ..GenesisAccount::default()
        }];
        accounts.extend(self.genesis.iter().cloned());
        accounts
    }

    /// Returns a hash of everything that affects the execution of the records in the file.
    pub(crate) fn fingerprint(&self) -> B256 {
        let mut text = format!(
            "v1 {} {} {} {}",
            self.chain_id, self.base_fee_initial_wei, self.base_fee_min_wei, self.block_gas_limit
        );
        for account in &self.genesis_accounts() {
            use std::fmt::Write as _;
            let _ = write!(
                text,
                "\n{} {} {} {} {{}}",
                account.address,
                account.balance,
                account.nonce,
                keccak256(&account.code)
            );
        }
        keccak256(text)
    }
}
