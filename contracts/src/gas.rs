//! Gas of batches. The numbers are execution gas as counted by Ethereum. Arbitrum's L1 part is added by the caller
//! (`NodeInterface.gasEstimateL1Component`).

/// Maximum gas of one item, enforced by the contract (`Payferry.ITEM_GAS`).
pub const ITEM_GAS_MAX: u64 = 240_000;

/// Gas of a settlement in a batch of 50 with new vaults, including its share of the transaction. For fee estimates, not
/// for gas limits. Measured in `tests/it/gas.rs`: 57,500 (USDC-like) to 60,300 (USDT-like) if all items have the same
/// PSP, 62,200 to 65,000 if each item has another PSP. The first transfer of a token to the vault of a PSP costs 17,100
/// more.
pub const SETTLE_ITEM_GAS_TYPICAL: u64 = 65_000;

/// Gas of an outbound transfer from an existing vault in a batch of 50, each to a recipient without a balance of the
/// token, including its share of the transaction. For fee estimates. Measured in `tests/it/gas.rs`: 33,800. The first
/// outbound transfer from a vault costs about 40,000 more.
pub const SEND_ITEM_GAS_TYPICAL: u64 = 35_000;

/// Maximum number of items in one batch. The worst case of this many items still fits into [`TX_GAS_MAX`].
pub const BATCH_ITEMS_MAX: usize = 50;

/// Maximum gas of one transaction on chains with the Osaka rule (EIP-7825: 2^24).
pub const TX_GAS_MAX: u64 = 1 << 24;

/// Gas limit that is always sufficient to deploy `Payferry` through the CREATE2 deployer.
pub const PAYFERRY_DEPLOY_GAS_MAX: u64 = 3_000_000;

/// Intrinsic gas, the role check, and the gas that the contract reserves before its last item (`ITEM_GAS / 63 +
/// ITEM_RESERVE_GAS`).
const BATCH_GAS: u64 = 60_000;

/// Overhead of an item: its call data (192 bytes at 16 gas), the call, and the report of its failure.
const ITEM_OVERHEAD_GAS: u64 = 10_000;

/// Returns the gas limit for `settle` or `send` with `items` items, in gas units.
///
/// With this limit, no combination of failing and hostile items can make the batch run out of gas: every item may use
/// all of [`ITEM_GAS_MAX`]. Only used gas is paid. A lower limit risks `OutOfGasForItem`, which reverts the whole
/// batch.
///
/// ```
/// use payferry_contracts::{BATCH_ITEMS_MAX, TX_GAS_MAX, batch_gas_limit};
/// assert!(batch_gas_limit(BATCH_ITEMS_MAX) < TX_GAS_MAX);
/// ```
pub const fn batch_gas_limit(items: usize) -> u64 {
    BATCH_GAS + items as u64 * (ITEM_GAS_MAX + ITEM_OVERHEAD_GAS)
}
