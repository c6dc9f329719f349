//! The place of a run: clock, chains and contracts. A sandbox describes itself (`GET /sandbox`); those of test networks are in a
//! file ([`crate::networks`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy::primitives::Address;
use payferry_devchain::DevWallet;
use serde::Deserialize;

use crate::client::Client;
use crate::payers::Fees;
use crate::rpc::Rpc;
use crate::wire::{Amount, Chain, PspId, Token};

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

impl SandboxInfo {
    /// Returns its tokens, by chain.
    pub fn assets(&self) -> impl Iterator<Item = (Chain, Token)> {
        self.chains.iter().flat_map(|(chain, info)| info.tokens.keys().map(|token| (*chain, *token)))
    }
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
    /// Endpoint and payers, if it is a test network.
    #[serde(skip)]
    pub network: Option<Network>,
}

impl ChainInfo {
    /// Returns the JSON-RPC client of this chain. `client` calls the sandbox.
    pub fn rpc(&self, client: &Arc<Client>, chain: Chain) -> Rpc {
        self.network.as_ref().map_or_else(|| Rpc::of_sandbox(client, chain), |network| network.rpc.clone())
    }
}

/// Access to a test network.
#[derive(Debug, Clone)]
pub struct Network {
    /// Endpoint.
    pub rpc: Rpc,
    /// Accounts that pay.
    pub payers: Arc<[DevWallet]>,
    /// Smallest balance of a payer in each token.
    pub least_balances: BTreeMap<Token, Amount>,
    /// Fees that a transfer offers.
    pub fees: Fees,
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
