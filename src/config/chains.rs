//! `[chains.*]`: the configuration of one chain, and its conversion for the chain actors.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use payferry_contracts::{ITEM_GAS_MIN, batch_items_max};
use payferry_domain::{Address, Amount, Chain, Finality, FinalityPolicy, Token};
use payferry_evm::{ChainSpec, L1Data};
use rust_decimal::Decimal;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use url::Url;

use super::ContractsSection;

/// Highest gas limit of one operation: a batch of one must fit into a transaction.
const ITEM_GAS_MAX: u64 = 16_000_000;
/// Wei per gwei.
const GWEI: u32 = 1_000_000_000;

/// The chains by name. A chain without endpoints does not run.
pub type ChainsSection = BTreeMap<Chain, ChainSection>;

/// Configuration of one chain.
#[serde_with::apply(Option<Address> => #[serde(deserialize_with = "super::values::optional")])]
#[derive(Debug, Clone, Deserialize)]
pub struct ChainSection {
    /// JSON-RPC URLs (HTTP), in order of preference.
    pub endpoints: Vec<Endpoint>,
    /// EIP-155 chain id that every endpoint must return.
    pub chain_id: NonZeroU64,
    /// USDC's contract; `None` if USDC is not accepted on this chain.
    pub usdc: Option<Address>,
    /// USDT's contract; `None` if USDT is not accepted on this chain.
    pub usdt: Option<Address>,
    /// Contracts that are easily mistaken for the accepted tokens.
    pub lookalikes: Vec<Address>,
    /// First block to read when no cursor is stored; `None`: the latest block.
    #[serde(deserialize_with = "start_block")]
    pub start_block: Option<u64>,
    /// Finality rule, by amount.
    #[serde(deserialize_with = "finality")]
    pub finality: FinalityPolicy,
    /// Minimum that a PSP's own finality tiers must require; `None`: the same as `finality`.
    #[serde(deserialize_with = "optional_finality")]
    pub finality_least: Option<FinalityPolicy>,
    /// Amount of a payment from which two endpoints must agree on its transfers, if there are two.
    #[serde(deserialize_with = "super::values::parsed")]
    pub endpoints_agree_from: Amount,
    /// Interval at which the head is polled.
    pub poll_interval_ms: NonZeroU64,
    /// True if the endpoints support the `safe` block tag.
    pub has_safe: bool,
    /// True if the endpoints support the `finalized` block tag.
    pub has_finalized: bool,
    /// Depth that replaces an unsupported tag.
    pub fallback_depth_blocks: NonZeroU64,
    /// Maximum number of blocks read in one step.
    pub range_blocks_max: NonZeroU64,
    /// Distance behind the head at which blocks are rescanned.
    pub second_look_blocks: NonZeroU64,
    /// Timeout of a request to an endpoint.
    pub request_timeout_ms: NonZeroU64,
    /// True if the endpoints accept JSON-RPC batches.
    pub json_rpc_batches: bool,
    /// How the chain charges for the data of a transaction.
    #[serde(deserialize_with = "l1_data")]
    pub l1_data: L1Data,
    /// Maximum fee per gas, in wei.
    #[serde(rename = "max_fee_gwei", deserialize_with = "gwei")]
    pub max_fee_wei: u128,
    /// Minimum priority fee per gas, in wei.
    #[serde(rename = "priority_fee_min_gwei", deserialize_with = "gwei")]
    pub priority_fee_min_wei: u128,
    /// Time the settler collects further settlements before it signs a batch.
    pub batch_window_ms: u64,
    /// Gas limit of one operation in a batch.
    #[serde(deserialize_with = "item_gas")]
    pub item_gas: u64,
    /// Time after which a transaction that is not mined is signed again with higher fees.
    pub stuck_after_ms: NonZeroU64,
    /// Address of Chainalysis' sanctions oracle on this chain; `None` if there is none.
    pub sanctions_oracle: Option<Address>,
}

impl ChainSection {
    /// Returns true if the chain is enabled.
    pub fn is_on(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// Specification of the chain for its actors.
    pub fn spec(&self, chain: Chain, contract: Address, contracts: &ContractsSection) -> ChainSpec {
        let tokens = [(Token::Usdc, self.usdc), (Token::Usdt, self.usdt)];
        let tokens = tokens.into_iter().filter_map(|(token, address)| Some((token, address?))).collect();
        let treasury = contracts.treasury.unwrap_or(Address([0; 20]));
        let mut spec = ChainSpec::new(chain, contract, treasury, tokens);
        spec.chain_id = self.chain_id.get();
        spec.lookalikes.clone_from(&self.lookalikes);
        spec.start_block = self.start_block;
        spec.finality = self.finality;
        spec.finality_least = self.finality_least.unwrap_or(self.finality);
        spec.agree_from = self.endpoints_agree_from;
        spec.poll_interval = Duration::from_millis(self.poll_interval_ms.get());
        spec.has_safe = self.has_safe;
        spec.has_finalized = self.has_finalized;
        spec.fallback_depth_blocks = self.fallback_depth_blocks.get();
        spec.range_blocks_max = self.range_blocks_max.get();
        spec.second_look_blocks = self.second_look_blocks.get();
        spec.l1_data = self.l1_data;
        spec.fees.max_fee_wei = self.max_fee_wei;
        spec.fees.priority_fee_max_wei = self.max_fee_wei / 2;
        spec.fees.priority_fee_min_wei = self.priority_fee_min_wei;
        spec.batch_window = Duration::from_millis(self.batch_window_ms);
        spec.item_gas = self.item_gas;
        spec.batch_items_max = batch_items_max(self.item_gas);
        spec.stuck_after = Duration::from_millis(self.stuck_after_ms.get());
        spec
    }
}

/// URL of an endpoint. It often contains an API key, so it is never printed in full.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Returns the full URL, to connect to it.
    pub fn expose(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    /// Prints the host and port only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.host_str().unwrap_or("?"))?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match super::values::optional_url(deserializer)? {
            Some(url) => Ok(Self(url)),
            None => Err(D::Error::custom("an empty URL")),
        }
    }
}

/// Description of the accepted values of a chain's key, for error messages.
pub(super) fn expected(key: &str) -> &'static str {
    match key {
        "endpoints" => "a list of http or https URLs",
        "usdc" | "usdt" | "sanctions_oracle" => "an address, 0x and 40 hexadecimal digits, or nothing",
        "lookalikes" => "a list of addresses",
        "start_block" => "\"latest\" or a block's number",
        "finality" => {
            "one band or three, the amounts rising, such as [{ below = \"1000\", wait = 2 }, { below = \"50000\", \
             wait = \"safe\" }, { wait = \"finalized\" }]"
        }
        "endpoints_agree_from" => "an amount of tokens as text, such as \"10000\"",
        "finality_least" => "the bands of `finality`, or an empty list",
        "has_safe" | "has_finalized" | "json_rpc_batches" => "true or false",
        "l1_data" => "\"none\", \"arbitrum\" or \"op_stack\"",
        "max_fee_gwei" | "priority_fee_min_gwei" => "gwei as text, such as \"0.001\"",
        "batch_window_ms" => "a whole number",
        "item_gas" => "a whole number from 200000 to 16000000",
        _ => "a whole number above zero",
    }
}

fn start_block<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Start {
        Number(u64),
        Text(String),
    }
    match Start::deserialize(deserializer)? {
        Start::Number(number) => Ok(Some(number)),
        Start::Text(text) if text == "latest" => Ok(None),
        Start::Text(text) => text.parse().map(Some).map_err(D::Error::custom),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Band {
    below: Option<String>,
    wait: Wait,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Wait {
    Blocks(u32),
    Tag(String),
}

impl Wait {
    fn finality(&self) -> Option<Finality> {
        match self {
            Self::Blocks(blocks) => (*blocks > 0).then_some(Finality::Blocks(*blocks)),
            Self::Tag(tag) if tag == "safe" => Some(Finality::Safe),
            Self::Tag(tag) if tag == "finalized" => Some(Finality::Finalized),
            Self::Tag(_) => None,
        }
    }
}

fn finality<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FinalityPolicy, D::Error> {
    optional_finality(deserializer)?.ok_or_else(|| D::Error::custom("no bands of amounts"))
}

/// Reads finality bands; an empty list gives `None`.
fn optional_finality<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<FinalityPolicy>, D::Error> {
    let bands = Vec::<Band>::deserialize(deserializer)?;
    if bands.is_empty() {
        return Ok(None);
    }
    policy(&bands).map(Some).ok_or_else(|| D::Error::custom("not bands of amounts"))
}

fn policy(bands: &[Band]) -> Option<FinalityPolicy> {
    let waits: Vec<Finality> = bands.iter().map(|band| band.wait.finality()).collect::<Option<_>>()?;
    let (last, lower) = bands.split_last()?;
    let below: Vec<Amount> =
        lower.iter().map(|band| Amount::from_str(band.below.as_deref()?).ok()).collect::<Option<_>>()?;
    match (waits.as_slice(), below.as_slice(), &last.below) {
        ([all], [], None) => Some(FinalityPolicy::flat(*all)),
        ([small, medium, large], [small_below, medium_below], None) if small_below <= medium_below => {
            Some(FinalityPolicy {
                small_below: *small_below,
                small: *small,
                medium_below: *medium_below,
                medium: *medium,
                large: *large,
            })
        }
        _ => None,
    }
}

fn l1_data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<L1Data, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "none" => Ok(L1Data::None),
        "arbitrum" => Ok(L1Data::Arbitrum),
        "op_stack" => Ok(L1Data::OpStack),
        _ => Err(D::Error::custom("not known")),
    }
}

fn item_gas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let gas = u64::deserialize(deserializer)?;
    if (ITEM_GAS_MIN..=ITEM_GAS_MAX).contains(&gas) { Ok(gas) } else { Err(D::Error::custom("out of range")) }
}

/// Reads gwei from decimal text and returns wei.
fn gwei<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    let text = String::deserialize(deserializer)?;
    let gwei = Decimal::from_str_exact(&text).map_err(D::Error::custom)?;
    let wei = gwei.checked_mul(Decimal::from(GWEI)).filter(Decimal::is_integer);
    wei.and_then(|wei| u128::try_from(wei).ok()).ok_or_else(|| D::Error::custom("not a number of wei"))
}
