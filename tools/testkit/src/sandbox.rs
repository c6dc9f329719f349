//! The sandbox's description of itself (`GET /sandbox`): its clock, chains and contracts.

use std::collections::BTreeMap;

use alloy::primitives::Address;
use payferry_devchain::DevWallet;
use serde::Deserialize;

use crate::wire::{Chain, PspId, Token};

/// A sandbox as one PSP sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct SandboxInfo {
    /// The PSP.
    pub psp_id: PspId,
    /// The sandbox's clock.
    pub clock: ClockInfo,
    /// Its chains.
    pub chains: BTreeMap<Chain, ChainInfo>,
    /// True if it keeps a ledger. Absent means that it may have none.
    #[serde(default)]
    pub keeps_ledger: bool,
}

/// Clock of a sandbox.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct ClockInfo {
    /// Offset from real time.
    pub offset_seconds: i64,
}

/// One chain of a sandbox.
#[derive(Debug, Clone, Deserialize)]
pub struct ChainInfo {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// Settlement contract.
    pub payferry: Address,
    /// Account that gets the fees.
    pub treasury: Address,
    /// Vault that gets the PSP's shares.
    pub psp_vault: Address,
    /// Token contracts.
    pub tokens: BTreeMap<Token, Address>,
    /// Newest block.
    pub head: Head,
}

/// A block.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Head {
    /// Its number.
    pub number: u64,
}

/// Returns the account that deploys the contracts of every sandbox and owns its test tokens. The key is public: the
/// sandbox's documentation names it.
pub fn deployer() -> DevWallet {
    DevWallet::from_seed("payferry sandbox deployer")
}
