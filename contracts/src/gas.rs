//! Gas of batches. Figures are execution gas as Ethereum counts it; Arbitrum's L1 part comes on top and is the
//! caller's to add (`NodeInterface.gasEstimateL1Component`).

/// Gas that the contract gives one item, and that an item can't exceed (`Payferry.ITEM_GAS`).
pub const ITEM_GAS_MAX: u64 = 240_000;

/// What a settlement costs in a batch of 50 with fresh vaults, its share of the transaction included: for fee
/// estimates, not for gas limits. Measured in `tests/it/gas.rs`: 57,500 (USDC-like) to 60,300 (USDT-like) when the
/// batch is one PSP's, 62,200 to 65,000 when each item is another's. A PSP vault that never held the token before
/// costs 17,100 more, once.
pub const SETTLE_ITEM_GAS_TYPICAL: u64 = 65_000;

/// What a sending from one existing vault costs in a batch of 50, each to a receiver without any of the token, its
/// share of the transaction included: for fee estimates. Measured in `tests/it/gas.rs` at 33,800; about 40,000 more
/// for a vault that money leaves for the first time.
pub const SEND_ITEM_GAS_TYPICAL: u64 = 35_000;

/// Most items that one batch should hold: the worst case of as many still fits [`TX_GAS_MAX`].
pub const BATCH_ITEMS_MAX: usize = 50;

/// Most gas that one transaction may ask for on chains with Osaka's rule (EIP-7825: 2^24).
pub const TX_GAS_MAX: u64 = 1 << 24;

/// Gas limit that surely suffices to deploy `Payferry` through the CREATE2 deployer.
pub const PAYFERRY_DEPLOY_GAS_MAX: u64 = 3_000_000;

/// Intrinsic gas, the role check, and what the contract keeps back before its last item
/// (`ITEM_GAS / 63 + ITEM_RESERVE_GAS`).
const BATCH_GAS: u64 = 60_000;

/// Around an item: its call data (192 bytes at 16 gas), the call, and the report of its failure.
const ITEM_OVERHEAD_GAS: u64 = 10_000;

/// The gas limit to set on a `settle` or `send` of `items` items, in gas units.
///
/// With it, no mixture of failing and hostile items can make the batch run out: every item may use all of
/// [`ITEM_GAS_MAX`]. Only what is used is paid. Setting less risks `OutOfGasForItem`, which reverts the whole batch.
///
/// ```
/// use payferry_contracts::{BATCH_ITEMS_MAX, TX_GAS_MAX, batch_gas_limit};
/// assert!(batch_gas_limit(BATCH_ITEMS_MAX) < TX_GAS_MAX);
/// ```
pub const fn batch_gas_limit(items: usize) -> u64 {
    BATCH_GAS + items as u64 * (ITEM_GAS_MAX + ITEM_OVERHEAD_GAS)
}
