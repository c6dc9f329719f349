//! Salts, nonces, the address of the factory, and the addresses of vaults, computed without a chain.

use alloy::primitives::{Address, B256, Bytes, U256, address, bytes, keccak256};
use alloy::sol_types::SolValue;

/// The canonical CREATE2 deployer, at the same address on every chain named in this project
/// (<https://github.com/Arachnid/deterministic-deployment-proxy>). It takes a transaction whose data is a 32-byte
/// salt followed by creation code (see [`create2_deploy_input`]) and returns the 20-byte address.
pub const CREATE2_DEPLOYER: Address = address!("4e59b44847b379578588920cA78FbF26c0B4956C");

/// Runtime code at [`CREATE2_DEPLOYER`]: 69 bytes.
pub const CREATE2_DEPLOYER_CODE: Bytes = bytes!(
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3"
);

/// Returns the data of a transaction to [`CREATE2_DEPLOYER`] that deploys `init_code` with `salt`.
pub fn create2_deploy_input(salt: B256, init_code: &[u8]) -> Bytes {
    [salt.as_slice(), init_code].concat().into()
}

/// Returns the address at which [`CREATE2_DEPLOYER`] deploys `init_code` with `salt`: the address of the factory on
/// every chain (EIP-1014).
pub fn payferry_address(init_code: &[u8], salt: B256) -> Address {
    CREATE2_DEPLOYER.create2_from_code(salt, init_code)
}

/// Returns the address of the code behind the vaults of `factory`: the first contract that it created (nonce 1,
/// EIP-161).
pub fn vault_implementation_address(factory: Address) -> Address {
    factory.create(1)
}

/// Returns the address of the vault of `salt`, whether it exists yet or not. Equal to `Payferry.vaultAddress(salt)` on
/// every chain with the factory at `factory`. Costs three hashes; frequent callers keep [`vault_code_hash`], which
/// leaves one.
pub fn vault_address(factory: Address, salt: B256) -> Address {
    factory.create2(salt, vault_code_hash(factory))
}

/// Returns the hash of the creation code of the vaults of `factory`. It is the same for all of them. The address of a
/// vault is `factory.create2(salt, hash)`.
pub fn vault_code_hash(factory: Address) -> B256 {
    let mut clone = [0_u8; CLONE_HEAD.len() + 20 + CLONE_TAIL.len()];
    let (head, rest) = clone.split_at_mut(CLONE_HEAD.len());
    let (middle, tail) = rest.split_at_mut(20);
    head.copy_from_slice(&CLONE_HEAD);
    middle.copy_from_slice(vault_implementation_address(factory).as_slice());
    tail.copy_from_slice(&CLONE_TAIL);
    keccak256(clone)
}

/// Returns the salt of a payment's vault. It commits to the PSP and to the maximum fee in basis points, so a settler can
/// pay no other PSP and take no larger fee. Ids are ULIDs. Equal to `Payferry.paymentSalt`.
///
/// ```
/// use payferry_contracts::{payment_salt, psp_salt};
/// assert_ne!(payment_salt(1, 2, 100), payment_salt(1, 3, 100));
/// assert_ne!(payment_salt(1, 2, 100), payment_salt(1, 2, 101));
/// assert_ne!(psp_salt(2), psp_salt(3));
/// ```
pub fn payment_salt(payment_id: u128, psp_id: u128, max_fee_bps: u16) -> B256 {
    let (payment, psp, fee) = (payment_id.to_be_bytes(), psp_id.to_be_bytes(), max_fee_bps.to_be_bytes());
    keccak256([PAYMENT_DOMAIN, payment.as_slice(), psp.as_slice(), fee.as_slice()].concat())
}

/// Returns the salt of a PSP's vault. The id is a ULID. Equal to `Payferry.pspSalt`.
pub fn psp_salt(psp_id: u128) -> B256 {
    keccak256([PSP_DOMAIN, psp_id.to_be_bytes().as_slice()].concat())
}

/// Returns the nonce that a payer signs to pay a payment by signature. Equal to `Payferry.collectNonce`.
///
/// It commits to the chain, the contract, the payment, the vault of the PSP, and the maximum fee in basis points. The
/// attempt number allows another signature after an attempt that was cancelled or failed.
///
/// ```
/// use alloy::primitives::Address;
/// use payferry_contracts::collect_nonce;
/// let [contract, psp_vault] = [1, 2].map(Address::with_last_byte);
/// let first = collect_nonce(8453, contract, 7, psp_vault, 100, 1);
/// assert_ne!(first, collect_nonce(8453, contract, 7, psp_vault, 100, 2));
/// assert_ne!(first, collect_nonce(137, contract, 7, psp_vault, 100, 1));
/// ```
pub fn collect_nonce(
    chain_id: u64,
    contract: Address,
    payment_id: u128,
    psp_vault: Address,
    max_fee_bps: u16,
    attempt: u16,
) -> B256 {
    let [chain, payment, fee, attempt] =
        [u128::from(chain_id), payment_id, max_fee_bps.into(), attempt.into()].map(U256::from);
    keccak256((chain, contract, payment, psp_vault, fee, attempt).abi_encode_params())
}

const PAYMENT_DOMAIN: &[u8] = b"payment";
const PSP_DOMAIN: &[u8] = b"psp";

/// Creation code of a clone before and after the address of the implementation; see `Payferry.sol`.
const CLONE_HEAD: [u8; 18] = alloy::hex!("60283d8160093d39f3365f5f37365f365f73");
const CLONE_TAIL: [u8; 11] = alloy::hex!("5af45f3d91602657fd5bf3");
