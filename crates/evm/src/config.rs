//! What is known of a chain before it is talked to, and the checks that compare it with the chain itself.

use std::time::Duration;

use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_domain::{Address, Chain, FinalityPolicy, Token};

use super::client::{ChainClient, ClientError};

/// Decimals that every token must have.
pub const TOKEN_DECIMALS: u8 = 6;

/// One chain as it is configured.
#[derive(Clone, Debug)]
pub struct ChainSpec {
    /// Its name here.
    pub chain: Chain,
    /// EIP-155 id the endpoints must answer with.
    pub chain_id: u64,
    /// The `Payferry` factory.
    pub contract: Address,
    /// Tokens taken there.
    pub tokens: Vec<(Token, Address)>,
    /// Contracts that are mistaken for those tokens: watched, labelled, never counted.
    pub lookalikes: Vec<Address>,
    /// Where fees go, for balances and reconciliation; the contract holds the truth.
    pub treasury: Address,
    /// What final means where a PSP has no tiers of its own.
    pub finality: FinalityPolicy,
    /// The least that a PSP's own tiers have to want.
    pub finality_least: FinalityPolicy,
    /// How often the head is asked for when no wake-up comes.
    pub poll_interval: Duration,
    /// The first block that is read when there is no cursor; the head at that moment if absent.
    pub start_block: Option<u64>,
    /// Whether the endpoints know the `safe` block.
    pub has_safe: bool,
    /// Whether the endpoints know the `finalized` block.
    pub has_finalized: bool,
    /// Depth that stands for `safe` and `finalized` where the endpoints do not know them, in blocks.
    pub fallback_depth_blocks: u64,
    /// Most blocks read in one step. Halved when an endpoint says that it is too many.
    pub range_blocks_max: u64,
    /// Blocks behind the head that are asked for by hash, so that a lagging node cannot answer "nothing" for them.
    pub recent_blocks: u64,
    /// Blocks behind the head that are read a second time, against logs that were left out the first time.
    pub second_look_blocks: u64,
    /// Limits of what a transaction may cost.
    pub fees: FeeCeilings,
    /// Gas that the chain charges besides execution.
    pub l1_gas: L1Gas,
    /// How long the settler waits for more operations before it signs a batch.
    pub batch_window: Duration,
    /// Most operations in one transaction.
    pub batch_items_max: usize,
    /// Most transactions of one account that are not mined yet.
    pub in_flight_max: usize,
    /// A transaction that is not mined for so long is signed again with higher fees.
    pub stuck_after: Duration,
    /// A head older than this is an outage, seconds.
    pub outage_secs: i64,
}

/// Limits of what a transaction may cost, in wei per gas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeCeilings {
    /// `maxFeePerGas` never exceeds this.
    pub max_fee_wei: u128,
    /// `maxPriorityFeePerGas` never exceeds this.
    pub priority_fee_max_wei: u128,
    /// `maxPriorityFeePerGas` is never below this.
    pub priority_fee_min_wei: u128,
}

/// Gas that a chain charges besides execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L1Gas {
    /// None that counts against the gas limit.
    None,
    /// Arbitrum: `NodeInterface.gasEstimateL1Component` says how much.
    ArbitrumNodeInterface,
}

impl ChainSpec {
    /// A spec with the defaults for `chain`: 250 ms and 50 items a batch, 15 s until a transaction is stuck, 30 s until
    /// a chain is down, the finality tiers of the chain.
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
            poll_interval: Duration::from_millis(poll_ms),
            start_block: None,
            has_safe: true,
            has_finalized: true,
            fallback_depth_blocks: 64,
            range_blocks_max: 100,
            recent_blocks: 32,
            second_look_blocks: 64,
            fees: FeeCeilings { max_fee_wei, priority_fee_max_wei: max_fee_wei / 2, priority_fee_min_wei },
            l1_gas: if chain == Chain::Arbitrum { L1Gas::ArbitrumNodeInterface } else { L1Gas::None },
            batch_window: Duration::from_millis(250),
            batch_items_max: payferry_contracts::BATCH_ITEMS_MAX,
            in_flight_max: 16,
            stuck_after: Duration::from_secs(15),
            outage_secs: 30,
        }
    }

    /// The same chain as the sandbox runs it: two blocks are final, everything is read from block 0, no L1 gas.
    #[must_use]
    pub fn sandbox(mut self) -> Self {
        self.finality = FinalityPolicy::sandbox();
        self.finality_least = FinalityPolicy::sandbox();
        self.start_block = Some(0);
        self.l1_gas = L1Gas::None;
        self.fees.priority_fee_min_wei = 0;
        self
    }

    /// The contract of a token, if it is taken here.
    pub fn token_address(&self, token: Token) -> Option<Address> {
        self.tokens.iter().find(|(known, _)| *known == token).map(|(_, address)| *address)
    }

    /// The token of a contract; `None` for look-alikes and strangers.
    pub fn token_at(&self, address: Address) -> Option<Token> {
        self.tokens.iter().find(|(_, known)| *known == address).map(|(token, _)| *token)
    }

    /// Every contract whose transfers are read.
    pub fn watched_contracts(&self) -> impl Iterator<Item = Address> {
        self.tokens.iter().map(|(_, address)| *address).chain(self.lookalikes.iter().copied())
    }

    /// Compares this with the chain: its id, code at each token and at the factory, six decimals. What it finds is for
    /// the operator; a chain that differs must not be started.
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

/// Why a chain is not what its configuration says.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// No endpoint answered.
    #[error("{chain}: {source}")]
    Unreachable {
        /// Which chain.
        chain: Chain,
        /// Why.
        source: ClientError,
    },
    /// The endpoints are of another chain.
    #[error("{chain}: the endpoint is of chain {found}, expected chain id {expected}")]
    ChainId {
        /// Which chain.
        chain: Chain,
        /// As configured.
        expected: u64,
        /// As answered.
        found: u64,
    },
    /// Nothing is deployed there.
    #[error("{chain}: there is no contract at {address}, where {what} is expected")]
    NoCode {
        /// Which chain.
        chain: Chain,
        /// What should be there.
        what: &'static str,
        /// Where.
        address: Address,
    },
    /// Not a token of six decimals.
    #[error("{chain}: {token} at {address} must have {TOKEN_DECIMALS} decimals, found {}", found.map_or("none".to_owned(), |n| n.to_string()))]
    Decimals {
        /// Which chain.
        chain: Chain,
        /// Which token.
        token: Token,
        /// Where.
        address: Address,
        /// What `decimals()` answered, if a number.
        found: Option<u8>,
    },
}

impl SpecError {
    /// Whether it may pass by itself: the endpoint did not answer. Everything else wants a person.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
