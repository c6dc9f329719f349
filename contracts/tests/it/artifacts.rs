//! The committed artifacts match the sources, and the bindings match the artifacts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use alloy::sol_types::{SolCall, SolInterface};
use payferry_contracts::Erc3009::{Erc3009Calls, Erc3009Events};
use payferry_contracts::Multicall3::Multicall3Calls;
use payferry_contracts::Payferry::{PayferryCalls, PayferryErrors, PayferryEvents};
use payferry_contracts::TestUSDC::TestUSDCCalls;
use payferry_contracts::TestUSDT::TestUSDTCalls;
use payferry_contracts::Token::{TokenCalls, TokenEvents};
use payferry_contracts::Vault::{VaultCalls, VaultErrors};
use payferry_contracts::{
    BATCH_ITEMS_MAX, Erc3009, ITEM_GAS_MIN, MULTICALL3_JSON, OperationKind, PAYFERRY_JSON, Payferry, TEST_USDC_JSON,
    TEST_USDT_JSON, Token, VAULT_JSON,
};

use crate::env::Env;

#[test]
fn artifacts_match_the_sources() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.mjs");
    let output = Command::new("node")
        .arg(&script)
        .arg("--check")
        .output()
        .unwrap_or_else(|error| panic!("compiling the contracts requires node 20 or later, with npm: {error}"));
    assert!(
        output.status.success(),
        "contracts/build.mjs --check failed (it requires npm, and on the first run the npm registry):\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Returns the signatures in the ABI of an artifact, such as `function transfer(address,uint256)`.
fn signatures(artifact: &str) -> BTreeSet<String> {
    fn type_of(parameter: &serde_json::Value) -> String {
        let name = parameter["type"].as_str().unwrap();
        match name.strip_prefix("tuple") {
            Some(suffix) => format!("{}{suffix}", list(&parameter["components"])),
            None => name.to_owned(),
        }
    }
    fn list(parameters: &serde_json::Value) -> String {
        let types: Vec<_> = parameters.as_array().unwrap().iter().map(type_of).collect();
        format!("({})", types.join(","))
    }
    let artifact: serde_json::Value = serde_json::from_str(artifact).unwrap();
    let entries = artifact["abi"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["type"] != "constructor")
        .map(|e| format!("{} {}{}", e["type"].as_str().unwrap(), e["name"].as_str().unwrap(), list(&e["inputs"])))
        .collect()
}

/// Returns the same of generated bindings.
fn bound(functions: &[&str], events: &[&str], errors: &[&str]) -> BTreeSet<String> {
    let kinds = [("function", functions), ("event", events), ("error", errors)];
    kinds.iter().flat_map(|(kind, all)| all.iter().map(move |signature| format!("{kind} {signature}"))).collect()
}

#[test]
fn bindings_match_the_contract() {
    let factory = bound(PayferryCalls::SIGNATURES, PayferryEvents::SIGNATURES, PayferryErrors::SIGNATURES);
    assert_eq!(factory, signatures(PAYFERRY_JSON));
    assert_eq!(bound(VaultCalls::SIGNATURES, &[], VaultErrors::SIGNATURES), signatures(VAULT_JSON));
}

#[test]
fn bindings_match_the_tokens() {
    let common = bound(TokenCalls::SIGNATURES, TokenEvents::SIGNATURES, &[]);
    let usdc = bound(TestUSDCCalls::SIGNATURES, &[], &[]);
    let usdt = bound(TestUSDTCalls::SIGNATURES, &[], &[]);
    for (bound, artifact) in [(usdc, TEST_USDC_JSON), (usdt, TEST_USDT_JSON)] {
        let wanted: BTreeSet<_> = common.union(&bound).cloned().collect();
        let missing: Vec<_> = wanted.difference(&signatures(artifact)).cloned().collect();
        assert_eq!(missing, Vec::<String>::new());
    }
}

#[test]
fn bindings_match_multicall3() {
    assert_eq!(bound(Multicall3Calls::SIGNATURES, &[], &[]), signatures(MULTICALL3_JSON));
}

#[test]
fn the_test_token_implements_eip_3009_and_the_other_does_not() {
    let wanted = bound(Erc3009Calls::SIGNATURES, Erc3009Events::SIGNATURES, &[]);
    assert_eq!(wanted.difference(&signatures(TEST_USDC_JSON)).count(), 0);
    assert!(!signatures(TEST_USDT_JSON).iter().any(|signature| signature.contains("WithAuthorization")));
}

/// The contract has the selectors of EIP-3009 as numbers, because a name with two forms has no selector in Solidity.
/// Calls that a token can receive must not be calls of the contract or of a vault: the settler chooses the token.
#[test]
fn calls_of_a_token_are_no_calls_of_the_contract_or_a_vault() {
    let code = alloy::hex::encode(artifact_code(PAYFERRY_JSON));
    let selectors = [
        Erc3009::receiveWithAuthorization_0Call::SELECTOR,
        Erc3009::receiveWithAuthorization_1Call::SELECTOR,
        Erc3009::transferWithAuthorization_0Call::SELECTOR,
        Erc3009::transferWithAuthorization_1Call::SELECTOR,
        Token::transferCall::SELECTOR,
        Token::balanceOfCall::SELECTOR,
    ];
    for selector in selectors {
        assert!(code.contains(&alloy::hex::encode(selector)), "{selector:02x?} is called");
        let own = PayferryCalls::selectors().chain(VaultCalls::selectors());
        assert_eq!(own.filter(|other| *other == selector).count(), 0);
    }
}

fn artifact_code(artifact: &str) -> Vec<u8> {
    let artifact: serde_json::Value = serde_json::from_str(artifact).unwrap();
    alloy::hex::decode(artifact["deployedBytecode"].as_str().unwrap()).unwrap()
}

#[test]
fn constants_match_the_contract() {
    let mut env = Env::new();
    let factory = env.factory;
    assert_eq!(env.read(factory, &Payferry::ITEM_GAS_MINCall {}).to::<u64>(), ITEM_GAS_MIN);
    assert_eq!(env.read(factory, &Payferry::ITEMS_MAXCall {}).to::<usize>(), BATCH_ITEMS_MAX);
    assert_eq!(env.read(factory, &Payferry::SETTLEMENTCall {}), OperationKind::Settlement.number());
}
