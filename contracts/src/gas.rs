//! Gas of batches. The numbers are execution gas as counted by Ethereum. Arbitrum's L1 part is added by the caller
//! (`NodeInterface.gasEstimateL1Component`).

/// Lowest gas limit of an item that the contract accepts (`Payferry.ITEM_GAS_MIN`).
pub const ITEM_GAS_MIN: u64 = 200_000;

/// Gas limit of an item under the rules up to Osaka: the most expensive regular item with a reserve. After a repricing,
/// callers pass more. See [`ITEM_GAS_AMSTERDAM`].
pub const ITEM_GAS: u64 = 240_000;

/// Gas limit of an item under Amsterdam rules, where EIP-8037 reprices new accounts and storage slots.
pub const ITEM_GAS_AMSTERDAM: u64 = 900_000;

/// Gas of a settlement in a batch of 50 with new vaults, including its share of the transaction, if the PSP holds the
/// token. For fee estimates, not for gas limits. Measured with the real USDC in `tests/it/gas.rs`.
pub const SETTLE_ITEM_GAS_TYPICAL: u64 = 90_000;

/// Gas of a payment by signature in a batch of 50 for one PSP. For fee estimates. A batch for 50 PSPs costs
/// [`COLLECT_GROUP_GAS_TYPICAL`] more for each.
pub const COLLECT_ITEM_GAS_TYPICAL: u64 = 55_000;

/// Additional gas of a group of payments by signature: receiving into the contract and passing on.
pub const COLLECT_GROUP_GAS_TYPICAL: u64 = 21_000;

/// Gas of an outbound transfer from an existing vault in a batch of 50, each to a recipient without a balance of the
/// token, including its share of the transaction. For fee estimates.
pub const SEND_ITEM_GAS_TYPICAL: u64 = 95_000;

/// Maximum number of items in one batch (`Payferry.ITEMS_MAX`).
pub const BATCH_ITEMS_MAX: usize = 50;

/// Maximum gas of one transaction on chains with the Osaka rule (EIP-7825: 2^24).
pub const TX_GAS_MAX: u64 = 1 << 24;

/// Gas limit that is always sufficient to deploy `Payferry` through the CREATE2 deployer, up to Osaka rules.
pub const PAYFERRY_DEPLOY_GAS_MAX: u64 = 6_000_000;

/// Intrinsic gas, the role check, and the 64th of an item's limit that a call does not forward (EIP-150).
const BATCH_GAS: u64 = 60_000;

/// Overhead of an item: its call data, the call, and the report of its failure. The contract reserves as much.
const ITEM_OVERHEAD_GAS: u64 = 15_000;

/// Returns the gas limit for `settle` or `send` with `items` items of at most `item_gas` each, in gas units.
///
/// With this limit, no combination of failing and hostile items can make the batch run out of gas. Only used gas is paid.
/// A lower limit risks `OutOfGasForItem`, which reverts the whole batch.
///
/// ```
/// use payferry_contracts::{BATCH_ITEMS_MAX, ITEM_GAS, TX_GAS_MAX, batch_gas_limit};
/// assert!(batch_gas_limit(BATCH_ITEMS_MAX, ITEM_GAS) < TX_GAS_MAX);
/// ```
pub const fn batch_gas_limit(items: usize, item_gas: u64) -> u64 {
    BATCH_GAS + item_gas / 63 + items as u64 * (item_gas + ITEM_OVERHEAD_GAS)
}

/// Returns the gas limit for `collect` with `items` items in `groups` groups (a deposit counts as an item), in gas units.
/// Properties as of [`batch_gas_limit`]: a group needs the limit of one more item for passing on.
///
/// It may exceed [`TX_GAS_MAX`] for many groups. Regular items use a quarter of it, so such a batch can be submitted with
/// `TX_GAS_MAX`; the contract then reverts it with `OutOfGasForItem` only if items use up their limits.
pub const fn collect_gas_limit(items: usize, groups: usize, item_gas: u64) -> u64 {
    let calls = (items + groups) as u64;
    BATCH_GAS + calls * (item_gas + 3 * ITEM_OVERHEAD_GAS) * 64 / 63
}

/// Returns how many items of `settle` or `send` fit into one transaction, at most [`BATCH_ITEMS_MAX`].
///
/// ```
/// use payferry_contracts::{ITEM_GAS, ITEM_GAS_AMSTERDAM, batch_items_max};
/// assert_eq!(batch_items_max(ITEM_GAS), 50);
/// assert_eq!(batch_items_max(ITEM_GAS_AMSTERDAM), 18);
/// ```
pub const fn batch_items_max(item_gas: u64) -> usize {
    let mut items = BATCH_ITEMS_MAX;
    while items > 1 && batch_gas_limit(items, item_gas) > TX_GAS_MAX {
        items -= 1;
    }
    items
}
