//! Salts, the address of the factory, and the addresses of vaults, computed without a chain.

use alloy::primitives::{Address, B256, Bytes, address, bytes, keccak256};

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

/// Returns the salt of the vault of an entity: `keccak256("payferry.vault:" ++ id)`.
///
/// `id` is the complete public id with its prefix (`pay_...`, `psp_...`, `tr_...`), so that a payment and a PSP never
/// share a vault. The complete id is hashed; nothing is truncated.
pub fn salt_of(id: &str) -> B256 {
    keccak256([SALT_DOMAIN, id.as_bytes()].concat())
}

const SALT_DOMAIN: &[u8] = b"payferry.vault:";

/// Creation code of a clone before and after the address of the implementation; see `Payferry.sol`.
const CLONE_HEAD: [u8; 18] = alloy::hex!("60223d8160093d39f3365f5f37365f365f73");
const CLONE_TAIL: [u8; 5] = alloy::hex!("5af43d5ff3");
