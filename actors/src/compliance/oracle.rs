//! KYT provider for the on-chain sanctions list of Chainalysis: calls `isSanctioned(address)` on the transfer's own
//! chain.
//!
//! Test networks have no such contract. There every request is an error, and money waits until another provider is
//! configured. [`ChainalysisOracle::check`] reports this at startup.

use std::collections::BTreeMap;

use alloy::primitives::address;
use alloy::sol;
use alloy::sol_types::SolCall;
use payferry_domain::payment::Verdict;
use payferry_domain::{Address, Chain};
use payferry_evm::ChainClient;
use payferry_evm::wallet::{alloy_address, domain_address};
use payferry_runtime::clock::Clock;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

sol! {
    /// The used part of the contract.
    interface SanctionsList {
        /// `true` if the address is on the list.
        function isSanctioned(address account) external view returns (bool);
    }
}

/// Provider name in verdicts.
const NAME: &str = "chainalysis_oracle";

/// Blocks transfers from addresses that the chain's contract calls sanctioned; allows the rest.
#[derive(Clone, Debug)]
pub struct ChainalysisOracle {
    clock: Clock,
    chains: BTreeMap<Chain, (ChainClient, Address)>,
}

impl ChainalysisOracle {
    /// Creates an oracle without chains.
    pub const fn new(clock: Clock) -> Self {
        Self { clock, chains: BTreeMap::new() }
    }

    /// Returns the address of the contract that Chainalysis deployed on a chain's main network.
    pub const fn default_address(chain: Chain) -> Address {
        let contract = match chain {
            Chain::Base => address!("3A91A31cB3dC49b4db9Ce721F50a9D076c8D739B"),
            Chain::Polygon | Chain::Arbitrum => address!("40C57923924B5c5c5455c48D93317139ADDaC8fb"),
        };
        Address(contract.0.0)
    }

    /// Adds `chain`, with the contract at `contract` called through `client`.
    #[must_use]
    pub fn on(mut self, chain: Chain, client: ChainClient, contract: Address) -> Self {
        self.chains.insert(chain, (client, contract));
        self
    }

    /// Checks whether the contract answers on `chain`. For startup: if it does not answer, incoming money is held.
    pub async fn check(&self, chain: Chain) -> Result<(), KytError> {
        self.is_sanctioned(chain, domain_address(alloy::primitives::Address::ZERO)).await.map(|_| ())
    }

    async fn is_sanctioned(&self, chain: Chain, account: Address) -> Result<bool, KytError> {
        let failed = |what: &dyn std::fmt::Display| KytError(format!("the sanctions oracle on {chain}: {what}"));
        let (client, contract) = self.chains.get(&chain).ok_or_else(|| failed(&"not configured for this chain"))?;
        let call = SanctionsList::isSanctionedCall { account: alloy_address(account) };
        let answer = client.call(*contract, call.abi_encode()).await.map_err(|error| failed(&error))?;
        // An address without code answers any call with empty data.
        if answer.is_empty() {
            return Err(failed(&format_args!("no such contract at {contract}")));
        }
        let exact = answer.len() == 32;
        let decoded = SanctionsList::isSanctionedCall::abi_decode_returns_validate(&answer).ok().filter(|_| exact);
        decoded.ok_or_else(|| failed(&format_args!("the contract at {contract} returned neither true nor false")))
    }
}

#[async_trait::async_trait]
impl KytScreener for ChainalysisOracle {
    fn name(&self) -> &str {
        NAME
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let listed = self.is_sanctioned(request.chain, request.address).await?;
        Ok(verdict::of_listing(NAME, listed, self.clock.now()))
    }
}
