//! The settlement contracts: compiled artifacts, typed bindings, addresses, and gas.
//!
//! This crate contains the external interface of the contracts (sources in `sol/`, compiled code in `artifacts/`) and
//! the computations that must agree with them: the address of a vault, the salt of an id, the gas of a batch. Not here:
//! I/O, signing, knowledge of payments, access to a chain.
//!
//! ```
//! use alloy::primitives::{Address, U256};
//! use alloy::sol_types::SolCall;
//! use payferry_contracts::{Payferry, SettleItem, payferry_address, payferry_init_code, salt_of, vault_address};
//!
//! let [admin, settler, sender, treasury, token] = [1, 2, 3, 4, 5].map(Address::with_last_byte);
//! let factory = payferry_address(&payferry_init_code(admin, settler, sender, treasury), Default::default());
//! let vault_salt = salt_of("pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3");
//! let _pay_to = vault_address(factory, vault_salt);
//! let call = Payferry::settleCall {
//!     items: vec![SettleItem {
//!         number: U256::from(1),
//!         vaultSalt: vault_salt,
//!         token,
//!         pspSalt: salt_of("psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
//!         pspAmount: U256::from(99_000_000),
//!         treasuryFee: U256::from(1_000_000),
//!     }],
//! };
//! assert_eq!(call.abi_encode().len(), 4 + 2 * 32 + 6 * 32);
//! ```

mod address;
mod artifact;
mod bindings;
mod gas;

pub use address::{
    CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE, create2_deploy_input, payferry_address, salt_of, vault_address,
    vault_code_hash, vault_implementation_address,
};
pub use artifact::{
    MULTICALL3, MULTICALL3_JSON, PAYFERRY_JSON, TEST_USDC_JSON, TEST_USDT_JSON, VAULT_JSON, multicall3_code,
    payferry_init_code, test_usdc_init_code, test_usdt_init_code,
};
pub use bindings::{
    ItemError, Multicall3, Payferry, SendItem, SettleItem, TestUSDC, TestUSDT, Token, Vault, describe_reason,
};
pub use gas::{
    BATCH_ITEMS_MAX, ITEM_GAS_MAX, PAYFERRY_DEPLOY_GAS_MAX, SEND_ITEM_GAS_TYPICAL, SETTLE_ITEM_GAS_TYPICAL, TX_GAS_MAX,
    batch_gas_limit,
};
