//! The settlement contracts: compiled artifacts, typed bindings, addresses, and gas.
//!
//! This crate contains the external interface of the contracts (sources in `sol/`, compiled code in `artifacts/`) and
//! the computations that must agree with them: the address of a vault, the salt of an id, the gas of a batch. Not here:
//! I/O, signing, knowledge of payments, access to a chain.
//!
//! ```
//! use alloy::primitives::Address;
//! use alloy::sol_types::SolCall;
//! use payferry_contracts::{
//!     ITEM_GAS, Payferry, SettleItem, payferry_address, payferry_init_code, payment_salt, vault_address,
//! };
//!
//! let [admin, token] = [1, 2].map(Address::with_last_byte);
//! let factory = payferry_address(&payferry_init_code(admin), Default::default());
//! let (payment_id, psp_id, max_fee_bps) = (0x0192_0000_0000_0000_0000_0000_0000_0001, 0x0191_0000, 100);
//! let _pay_to = vault_address(factory, payment_salt(payment_id, psp_id, max_fee_bps));
//! let call = Payferry::settleCall {
//!     items: vec![SettleItem {
//!         id: payment_id + 1,
//!         paymentId: payment_id,
//!         pspId: psp_id,
//!         maxFeeBps: max_fee_bps,
//!         token,
//!         amount: 100_000_000,
//!         fee: 1_000_000,
//!     }],
//!     itemGas: ITEM_GAS,
//! };
//! assert_eq!(call.abi_encode().len(), 4 + 3 * 32 + 7 * 32);
//! ```

mod address;
mod artifact;
mod authorization;
mod bindings;
mod gas;
mod grants;
mod operation;

pub use address::{
    CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE, collect_nonce, create2_deploy_input, payferry_address, payment_salt,
    psp_salt, vault_address, vault_code_hash, vault_implementation_address,
};
pub use artifact::{
    MULTICALL3, MULTICALL3_JSON, PAYFERRY_JSON, TEST_USDC_JSON, TEST_USDT_JSON, VAULT_JSON, multicall3_code,
    payferry_init_code, test_usdc_init_code, test_usdt_init_code,
};
pub use authorization::{PLAIN_SIGNATURE_BYTES, SignedAuthorization};
pub use bindings::{
    Authorization, CancelAuthorization, CollectGroup, CollectItem, DepositItem, Erc1271, Erc3009, ItemError,
    Multicall3, Payferry, Proposal, ReceiveWithAuthorization, Role, SendItem, Setting, SettleItem, TestUSDC, TestUSDT,
    Token, TransferWithAuthorization, Vault, describe_reason,
};
pub use gas::{
    BATCH_ITEMS_MAX, COLLECT_GROUP_GAS_TYPICAL, COLLECT_ITEM_GAS_TYPICAL, ITEM_GAS, ITEM_GAS_AMSTERDAM, ITEM_GAS_MIN,
    PAYFERRY_DEPLOY_GAS_MAX, SEND_ITEM_GAS_TYPICAL, SETTLE_ITEM_GAS_TYPICAL, TX_GAS_MAX, batch_gas_limit,
    batch_items_max, collect_gas_limit,
};
pub use grants::Grants;
pub use operation::{OperationKind, SIGNATURE_BYTES_MAX};
