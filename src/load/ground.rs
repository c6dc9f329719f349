//! Where everything is in the world of a sandbox: what `GET /sandbox` tells.

use std::collections::BTreeMap;

use alloy::primitives::Address;
use payferry_domain::{Chain, PspId, Token};
use serde::Deserialize;

/// The world of one sandbox, seen by one PSP.
#[derive(Debug, Clone, Deserialize)]
pub struct Ground {
    /// Who asks.
    pub psp_id: PspId,
    /// The sandbox's clock.
    pub clock: GroundClock,
    /// Its chains.
    pub chains: BTreeMap<Chain, ChainGround>,
    /// Whether it keeps a ledger; one that does not say so may have none.
    #[serde(default)]
    pub keeps_ledger: bool,
}

/// The sandbox's clock.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct GroundClock {
    /// How far it is ahead of the real time.
    pub offset_seconds: i64,
}

/// One chain.
#[derive(Debug, Clone, Deserialize)]
pub struct ChainGround {
    /// EIP-155.
    pub chain_id: u64,
    /// The settlement contract.
    pub payferry: Address,
    /// Where fees go.
    pub treasury: Address,
    /// Where the PSP's share goes.
    pub psp_vault: Address,
    /// The tokens' contracts.
    pub tokens: BTreeMap<Token, Address>,
    /// The newest block.
    pub head: Head,
}

/// A block.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Head {
    /// Its number.
    pub number: u64,
}
