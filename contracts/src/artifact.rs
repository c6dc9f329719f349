//! Embedded compiled artifacts, and creation code with constructor arguments.

use alloy::primitives::{Address, Bytes, address};
use alloy::sol_types::SolConstructor;

use crate::bindings::{Payferry, TestUSDC, TestUSDT};

/// Artifact of `Payferry.sol`: a JSON object with `abi`, `bytecode`, `deployedBytecode`, `solc` and `settings`.
pub const PAYFERRY_JSON: &str = include_str!("../artifacts/Payferry.json");
/// Artifact of `Vault.sol`, which `Payferry` deploys itself. Same format as [`PAYFERRY_JSON`].
pub const VAULT_JSON: &str = include_str!("../artifacts/Vault.json");
/// Artifact of `TestUSDC.sol`. Same format as [`PAYFERRY_JSON`].
pub const TEST_USDC_JSON: &str = include_str!("../artifacts/TestUSDC.json");
/// Artifact of `TestUSDT.sol`. Same format as [`PAYFERRY_JSON`].
pub const TEST_USDT_JSON: &str = include_str!("../artifacts/TestUSDT.json");

/// Artifact of `Multicall3.sol`. Same format as [`PAYFERRY_JSON`].
pub const MULTICALL3_JSON: &str = include_str!("../artifacts/Multicall3.json");

/// Address at which libraries expect Multicall3 on every chain.
pub const MULTICALL3: Address = address!("cA11bde05977b3631167028862bE2a173976CA11");

/// Returns the code of Multicall3. It has no constructor, so a sandbox can place it in its genesis.
pub fn multicall3_code() -> Bytes {
    code_of(MULTICALL3_JSON, "deployedBytecode").into()
}

/// Returns the creation code of `Payferry` with its constructor argument. Together with the salt it determines the
/// address on every chain. `admin` must not be zero; all other roles are granted afterwards.
pub fn payferry_init_code(admin: Address) -> Bytes {
    init_code(PAYFERRY_JSON, &Payferry::constructorCall { admin })
}

/// Returns the creation code of the test token that behaves like USDC. `owner` may mint and blacklist.
pub fn test_usdc_init_code(owner: Address) -> Bytes {
    init_code(TEST_USDC_JSON, &TestUSDC::constructorCall { owner })
}

/// Returns the creation code of the test token that behaves like USDT. `owner` may mint and blacklist.
pub fn test_usdt_init_code(owner: Address) -> Bytes {
    init_code(TEST_USDT_JSON, &TestUSDT::constructorCall { owner })
}

fn init_code(artifact: &str, arguments: &impl SolConstructor) -> Bytes {
    let mut code = code_of(artifact, "bytecode");
    code.extend(arguments.abi_encode());
    code.into()
}

fn code_of(artifact: &str, field: &str) -> Vec<u8> {
    // The artifacts are part of this crate, and its tests parse each of them.
    let artifact: serde_json::Value = serde_json::from_str(artifact).expect("embedded artifact is JSON");
    let code = artifact[field].as_str().expect("embedded artifact has code");
    alloy::hex::decode(code).expect("embedded code is hexadecimal")
}
