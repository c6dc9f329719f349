//! The committed artifacts match the sources, and the bindings match the artifacts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use alloy::sol_types::{SolCall, SolError, SolEvent};
use payferry_contracts::{
    ITEM_GAS_MAX, PAYFERRY_JSON, Payferry, TEST_USDC_JSON, TEST_USDT_JSON, TestUSDC, TestUSDT, Token, VAULT_JSON, Vault,
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

macro_rules! set {
    ($($kind:literal $trait:ident: $($item:path),* ;)*) => {
        BTreeSet::from([$($(format!("{} {}", $kind, <$item as $trait>::SIGNATURE)),*),*])
    };
}

#[test]
fn bindings_match_the_factory() {
    let bound = set! {
        "function" SolCall: Payferry::settleCall, Payferry::sendCall, Payferry::settleItemCall, Payferry::sendItemCall,
            Payferry::vaultAddressCall, Payferry::isDoneCall, Payferry::ITEM_GASCall, Payferry::TREASURY_DELAYCall,
            Payferry::vaultImplementationCall, Payferry::vaultInitCodeHashCall, Payferry::adminCall,
            Payferry::pendingAdminCall, Payferry::settlerCall, Payferry::settlePausedCall, Payferry::senderCall,
            Payferry::sendPausedCall, Payferry::treasuryCall, Payferry::pendingTreasuryCall,
            Payferry::treasuryEffectiveAtCall, Payferry::proposeAdminCall, Payferry::acceptAdminCall,
            Payferry::setSettlerCall, Payferry::setSenderCall, Payferry::proposeTreasuryCall,
            Payferry::applyTreasuryCall, Payferry::setPausedCall;
        "event" SolEvent: Payferry::Settled, Payferry::Sent, Payferry::SettleFailed, Payferry::SendFailed,
            Payferry::AdminProposed, Payferry::AdminChanged, Payferry::SettlerChanged, Payferry::SenderChanged,
            Payferry::TreasuryProposed, Payferry::TreasuryChanged, Payferry::PauseChanged;
        "error" SolError: Payferry::NotAdmin, Payferry::NotSettler, Payferry::NotSender, Payferry::NotSelf,
            Payferry::SettlePaused, Payferry::SendPaused, Payferry::ZeroAddress, Payferry::NoTreasuryProposed,
            Payferry::TreasuryTooEarly, Payferry::OutOfGasForItem, Payferry::AlreadyDone, Payferry::NothingToMove,
            Payferry::VaultNotCreated;
    };
    assert_eq!(bound, signatures(PAYFERRY_JSON));
    let vault = set! {
        "function" SolCall: Vault::payCall;
        "error" SolError: Vault::Stranger, Vault::TransferFailed;
    };
    assert_eq!(vault, signatures(VAULT_JSON));
}

#[test]
fn bindings_match_the_tokens() {
    let common = set! {
        "function" SolCall: Token::nameCall, Token::symbolCall, Token::decimalsCall, Token::totalSupplyCall,
            Token::balanceOfCall, Token::allowanceCall, Token::transferCall, Token::transferFromCall,
            Token::approveCall, Token::mintCall, Token::mintBatchCall, Token::setPausedCall;
        "event" SolEvent: Token::Transfer, Token::Approval;
    };
    let usdc = set! {
        "function" SolCall: TestUSDC::ownerCall, TestUSDC::blacklistCall, TestUSDC::unBlacklistCall,
            TestUSDC::isBlacklistedCall;
    };
    let usdt = set! {
        "function" SolCall: TestUSDT::ownerCall, TestUSDT::addBlackListCall, TestUSDT::removeBlackListCall,
            TestUSDT::isBlackListedCall;
    };
    for (bound, artifact) in [(usdc, TEST_USDC_JSON), (usdt, TEST_USDT_JSON)] {
        let wanted: BTreeSet<_> = common.union(&bound).cloned().collect();
        let missing: Vec<_> = wanted.difference(&signatures(artifact)).cloned().collect();
        assert_eq!(missing, Vec::<String>::new());
    }
}

#[test]
fn constants_match_the_factory() {
    let mut env = Env::new();
    let item_gas = env.read(env.factory, &Payferry::ITEM_GASCall {});
    assert_eq!(item_gas.to::<u64>(), ITEM_GAS_MAX);
}
