//! Configuration of a chain, and the checks that compare it with the chain itself.

use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolCall;
use payferry_contracts::{Payferry, Token as TokenContract};
use payferry_domain::{Address, Amount, Chain, FinalityPolicy, Token};

use super::client::{ChainClient, ClientError};

/// Decimals that every token must have.
pub const TOKEN_DECIMALS: u8 = 6;

/// Version of the contract that the service uses.
pub const CONTRACT_VERSION: u64 = 2;

/// Default amount of a payment from which two endpoints must agree on its transfers.
pub const AGREE_FROM: Amount = Amount::from_tokens(10_000);

/// Configuration of one chain.
#[derive(Clone, Debug)]
pub struct ChainSpec {
    /// The chain's name.
    pub chain: Chain,
    /// EIP-155 chain id that the endpoints must report.
    pub chain_id: u64,
    /// Address of the `Payferry` factory.
    pub contract: Address,
    /// Supported tokens and their contracts.
    pub tokens: Vec<(Token, Address)>,
    /// Contracts that imitate those tokens: watched and labelled, never counted.
    pub lookalikes: Vec<Address>,
    /// Recipient of fees, for balances and reconciliation. The contract's own value is authoritative.
    pub treasury: Address,
    /// Finality policy for PSPs without tiers of their own.
    pub finality: FinalityPolicy,
    /// Weakest finality policy that a PSP may configure.
    pub finality_least: FinalityPolicy,
    /// A payment of at least this amount counts a transfer only when two endpoints agree on it, if there are two.
    pub agree_from: Amount,
    /// Interval of head polls when no wake-up arrives.
    pub poll_interval: Duration,
    /// First block to read when there is no cursor; if absent, the head at that time.
    pub start_block: Option<u64>,
    /// True if the endpoints support the `safe` tag.
    pub has_safe: bool,
    /// True if the endpoints support the `finalized` tag.
    pub has_finalized: bool,
    /// Depth in blocks that stands in for `safe` and `finalized` where the endpoints do not support them.
    pub fallback_depth_blocks: u64,
    /// Maximum number of blocks read in one step. Halved when an endpoint reports that the range is too large.
    pub range_blocks_max: u64,
    /// Number of blocks behind the head that are queried by hash, so that a lagging node cannot return an empty result.
    pub recent_blocks: u64,
    /// Number of blocks behind the head that are rescanned for logs that the first read missed.
    pub second_look_blocks: u64,
    /// Limits on transaction fees.
    pub fees: FeeCeilings,
    /// How the chain charges for the data of a transaction.
    pub l1_data: L1Data,
    /// Time that the settler waits for more operations before it signs a batch.
    pub batch_window: Duration,
    /// Maximum number of operations in one transaction.
    pub batch_items_max: usize,
    /// Gas limit of one operation. Chains that reprice storage need more.
    pub item_gas: u64,
    /// Maximum number of unmined transactions per account.
    pub in_flight_max: usize,
    /// A transaction that is not mined after this time is signed again with higher fees.
    pub stuck_after: Duration,
    /// A head older than this many seconds is an outage.
    pub outage_secs: i64,
}

/// Fee limits of a transaction, in wei per gas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeCeilings {
    /// Upper limit of `maxFeePerGas`.
    pub max_fee_wei: u128,
    /// Upper limit of `maxPriorityFeePerGas`.
    pub priority_fee_max_wei: u128,
    /// Lower limit of `maxPriorityFeePerGas`.
    pub priority_fee_min_wei: u128,
}

/// How a chain charges for the data of a transaction, which it publishes on L1 (`l1_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L1Data {
    /// Not at all.
    None,
    /// As gas: `NodeInterface.gasEstimateL1Component` returns the amount.
    Arbitrum,
    /// As a fee beside the gas: `GasPriceOracle.getL1Fee` returns the amount.
    OpStack,
}

impl ChainSpec {
    /// Returns the default configuration of `chain`: batches of 50 items and 250 ms, replacement after 15 s without a
    /// receipt, outage after 30 s, and the chain's default finality tiers.
    pub fn new(chain: Chain, contract: Address, treasury: Address, tokens: Vec<(Token, Address)>) -> Self {
        let gwei = 1_000_000_000;
        let (poll_ms, max_fee_wei, priority_fee_min_wei) = match chain {
            Chain::Base => (1_000, 20 * gwei, 1_000_000),
            Chain::Polygon => (1_000, 2_000 * gwei, 25 * gwei),
            Chain::Arbitrum => (500, 20 * gwei, 0),
        };
        Self {
            chain,
            chain_id: chain.default_id(),
            contract,
            tokens,
            lookalikes: Vec::new(),
            treasury,
            finality: FinalityPolicy::default_for(chain),
            finality_least: FinalityPolicy::default_for(chain),
            agree_from: AGREE_FROM,
            poll_interval: Duration::from_millis(poll_ms),
            start_block: None,
            has_safe: true,
            has_finalized: true,
            fallback_depth_blocks: 64,
            range_blocks_max: 100,
            recent_blocks: 32,
            second_look_blocks: 64,
            fees: FeeCeilings { max_fee_wei, priority_fee_max_wei: max_fee_wei / 2, priority_fee_min_wei },
            l1_data: match chain {
                Chain::Base => L1Data::OpStack,
                Chain::Polygon => L1Data::None,
                Chain::Arbitrum => L1Data::Arbitrum,
            },
            batch_window: Duration::from_millis(250),
            batch_items_max: payferry_contracts::BATCH_ITEMS_MAX,
            item_gas: payferry_contracts::ITEM_GAS,
            in_flight_max: 16,
            stuck_after: Duration::from_secs(15),
            outage_secs: 30,
        }
    }

    /// Returns the sandbox variant: final after two blocks, read from block 0, no L1 charge.
    #[must_use]
    pub fn sandbox(mut self) -> Self {
        self.finality = FinalityPolicy::sandbox();
        self.finality_least = FinalityPolicy::sandbox();
        self.start_block = Some(0);
        self.l1_data = L1Data::None;
        self.fees.priority_fee_min_wei = 0;
        self
    }

    /// Contract of `token` on this chain, if supported.
    pub fn token_address(&self, token: Token) -> Option<Address> {
        self.tokens.iter().find(|(known, _)| *known == token).map(|(_, address)| *address)
    }

    /// Token with this contract; `None` for look-alikes and unknown contracts.
    pub fn token_at(&self, address: Address) -> Option<Token> {
        self.tokens.iter().find(|(_, known)| *known == address).map(|(token, _)| *token)
    }

    /// All contracts that the watcher reads transfers of.
    pub fn watched_contracts(&self) -> impl Iterator<Item = Address> {
        self.tokens.iter().map(|(_, address)| *address).chain(self.lookalikes.iter().copied())
    }

    /// Compares the configuration with the chain: chain id, code at each token, the version of the contract, six decimals. A
    /// chain that differs must not be started.
    pub async fn check(&self, client: &ChainClient) -> Result<(), SpecError> {
        let chain = self.chain;
        let failed = |source| SpecError::Unreachable { chain, source };
        let found = client.chain_id().await.map_err(failed)?;
        if found != self.chain_id {
            return Err(SpecError::ChainId { chain, expected: self.chain_id, found });
        }
        let contracts = self.tokens.iter().map(|(token, address)| (token.as_str(), *address));
        for (what, address) in contracts.chain([("Payferry", self.contract)]) {
            if !client.has_code(address).await.map_err(failed)? {
                return Err(SpecError::NoCode { chain, what, address });
            }
        }
        let version = client.call(self.contract, Payferry::VERSIONCall {}.abi_encode()).await;
        let found = match version {
            Ok(answer) => Payferry::VERSIONCall::abi_decode_returns(&answer).ok(),
            Err(ClientError::Reverted { .. }) => None,
            Err(error) => return Err(failed(error)),
        };
        if found != Some(U256::from(CONTRACT_VERSION)) {
            return Err(SpecError::ContractVersion { chain, address: self.contract });
        }
        for (token, address) in &self.tokens {
            let answer = client.call(*address, TokenContract::decimalsCall {}.abi_encode()).await.map_err(failed)?;
            let found = TokenContract::decimalsCall::abi_decode_returns(&answer).ok();
            if found != Some(TOKEN_DECIMALS) {
                return Err(SpecError::Decimals { chain, token: *token, address: *address, found });
            }
        }
        Ok(())
    }
}

/// Difference between a chain and its configuration.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// No endpoint responded.
    #[error("{chain}: {source}")]
    Unreachable {
        /// The chain.
        chain: Chain,
        /// Error of the last call.
        source: ClientError,
    },
    /// The endpoints belong to another chain.
    #[error("{chain}: the endpoint serves chain {found}, expected chain id {expected}")]
    ChainId {
        /// The chain.
        chain: Chain,
        /// Configured chain id.
        expected: u64,
        /// Reported chain id.
        found: u64,
    },
    /// No contract at the address.
    #[error("{chain}: no contract at {address}, expected {what}")]
    NoCode {
        /// The chain.
        chain: Chain,
        /// Expected contract.
        what: &'static str,
        /// Checked address.
        address: Address,
    },
    /// The contract is of another version.
    #[error(
        "{chain}: the contract at {address} is not version {CONTRACT_VERSION}; run `payferry deploy` and set `contracts.address`"
    )]
    ContractVersion {
        /// The chain.
        chain: Chain,
        /// Checked address.
        address: Address,
    },
    /// The token does not have six decimals.
    #[error("{chain}: {token} at {address} must have {TOKEN_DECIMALS} decimals, found {}", found.map_or("none".to_owned(), |n| n.to_string()))]
    Decimals {
        /// The chain.
        chain: Chain,
        /// The token.
        token: Token,
        /// Its contract.
        address: Address,
        /// Result of `decimals()`, if it is a number.
        found: Option<u8>,
    },
}

impl SpecError {
    /// True if the error may be temporary, because no endpoint responded. All other errors need the operator.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
