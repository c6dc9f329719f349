//! Where things are: salts, the factory's address and the vaults' addresses, computed without a chain.

use alloy::primitives::{Address, B256, Bytes, address, bytes, keccak256};

/// The canonical CREATE2 deployer, at the same address on every chain named in this project
/// (<https://github.com/Arachnid/deterministic-deployment-proxy>). It takes a transaction whose data is a 32-byte
/// salt followed by creation code (see [`create2_deploy_input`]) and returns the 20-byte address.
pub const CREATE2_DEPLOYER: Address = address!("4e59b44847b379578588920cA78FbF26c0B4956C");

/// Runtime code at [`CREATE2_DEPLOYER`]: 69 bytes.
pub const CREATE2_DEPLOYER_CODE: Bytes = bytes!(
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3"
);

/// The one-time account whose first transaction creates [`CREATE2_DEPLOYER`]; nobody has its key.
pub const CREATE2_DEPLOYER_SIGNER: Address = address!("3fab184622dc19b6109349b94811493bf2a45362");

/// What [`CREATE2_DEPLOYER_SIGNER`] needs before [`CREATE2_DEPLOYER_TRANSACTION`], in wei: 100,000 gas at 100 gwei.
pub const CREATE2_DEPLOYER_FUNDING_WEI: u64 = 10_000_000_000_000_000;

/// The raw, pre-signed legacy transaction (without a chain id) that creates [`CREATE2_DEPLOYER`] on a chain that
/// has none and still takes such transactions.
pub const CREATE2_DEPLOYER_TRANSACTION: Bytes = bytes!(
    "f8a58085174876e800830186a08080b853604580600e600039806000f350fe7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf31ba02222222222222222222222222222222222222222222222222222222222222222a02222222222222222222222222222222222222222222222222222222222222222"
);

/// Data of the transaction to [`CREATE2_DEPLOYER`] that deploys `init_code` under `salt`.
pub fn create2_deploy_input(salt: B256, init_code: &[u8]) -> Bytes {
    [salt.as_slice(), init_code].concat().into()
}

/// Where [`CREATE2_DEPLOYER`] puts `init_code` under `salt`: the factory's address on every chain (EIP-1014).
pub fn payferry_address(init_code: &[u8], salt: B256) -> Address {
    CREATE2_DEPLOYER.create2_from_code(salt, init_code)
}

/// Where `factory` deployed the code behind its vaults: the first contract it ever created (nonce 1, EIP-161).
pub fn vault_implementation_address(factory: Address) -> Address {
    factory.create(1)
}

/// Where the vault of `salt` is, or will be: the same as `Payferry.vaultAddress(salt)` on every chain that has the
/// factory at `factory`. Three hashes; who asks often keeps [`vault_code_hash`], which leaves one.
pub fn vault_address(factory: Address, salt: B256) -> Address {
    factory.create2(salt, vault_code_hash(factory))
}

/// The hash of the code that creates a vault of `factory`: the same for all of them. A vault is at
/// `factory.create2(salt, hash)`.
pub fn vault_code_hash(factory: Address) -> B256 {
    let mut clone = [0_u8; CLONE_HEAD.len() + 20 + CLONE_TAIL.len()];
    let (head, rest) = clone.split_at_mut(CLONE_HEAD.len());
    let (middle, tail) = rest.split_at_mut(20);
    head.copy_from_slice(&CLONE_HEAD);
    middle.copy_from_slice(vault_implementation_address(factory).as_slice());
    tail.copy_from_slice(&CLONE_TAIL);
    keccak256(clone)
}

/// The salt of an entity's vault: `keccak256("payferry.vault:" ++ id)`.
///
/// `id` is the full public id with its prefix (`pay_...`, `psp_...`, `tr_...`), so that a payment and a PSP never
/// share a vault. It is hashed whole: nothing of it is lost to truncation.
pub fn salt_of(id: &str) -> B256 {
    keccak256([SALT_DOMAIN, id.as_bytes()].concat())
}

const SALT_DOMAIN: &[u8] = b"payferry.vault:";

/// The clone's creation code before and after the implementation's address; explained in `Payferry.sol`.
const CLONE_HEAD: [u8; 18] = alloy::hex!("60223d8160093d39f3365f5f37365f365f73");
const CLONE_TAIL: [u8; 5] = alloy::hex!("5af43d5ff3");
