//! The committed artifacts match the sources, and the bindings match the artifacts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use payferry_contracts::Multicall3::Multicall3Calls;
use payferry_contracts::Payferry::{PayferryCalls, PayferryErrors, PayferryEvents};
use payferry_contracts::TestUSDC::TestUSDCCalls;
use payferry_contracts::TestUSDT::TestUSDTCalls;
use payferry_contracts::Token::{TokenCalls, TokenEvents};
use payferry_contracts::Vault::{VaultCalls, VaultErrors};
use payferry_contracts::{
    ITEM_GAS_MAX, MULTICALL3_JSON, PAYFERRY_JSON, Payferry, TEST_USDC_JSON, TEST_USDT_JSON, VAULT_JSON,
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
fn bindings_match_the_factory() {
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
fn constants_match_the_factory() {
    let mut env = Env::new();
    let item_gas = env.read(env.factory, &Payferry::ITEM_GASCall {});
    assert_eq!(item_gas.to::<u64>(), ITEM_GAS_MAX);
}
