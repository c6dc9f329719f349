//! Routes of the sandbox with which a PSP brings about what it wants to test, with its own key alone.

use alloy::primitives::{Address, U256};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;

use super::Running;
use crate::prelude::*;

/// An account that nobody uses.
pub(super) const NOBODY: &str = "0x00000000000000000000000000000000DeaDBeef";

/// Result of a JSON-RPC request to a chain.
async fn rpc(sandbox: &Running, chain: &str, method: &str, params: Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut answer = sandbox.ok(Method::POST, &format!("/sandbox/rpc/{chain}"), Some(call)).await;
    assert!(answer.get("error").is_none(), "{method}: {answer:#}");
    answer["result"].take()
}

/// Balance of an account in a token, base units.
async fn tokens(sandbox: &Running, chain: &str, token: &Value, of: &str) -> U256 {
    let account: Address = of.parse().unwrap();
    let data = alloy::hex::encode_prefixed(TokenContract::balanceOfCall { account }.abi_encode());
    let answer = rpc(sandbox, chain, "eth_call", json!([{"to": token, "data": data}, "latest"])).await;
    answer.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn accounts_of_the_sandbox_hold_funds_and_have_their_keys() {
    let sandbox = Running::new().await;
    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    let accounts = facts["accounts"].as_array().unwrap();
    let usdc = &facts["chains"]["base"]["tokens"]["USDC"];
    for account in accounts {
        let (address, key) = (account["address"].as_str().unwrap(), account["private_key"].as_str().unwrap());
        assert_eq!(key.parse::<PrivateKeySigner>().unwrap().address().to_string(), address);
        assert!(tokens(&sandbox, "base", usdc, address).await > U256::ZERO);
        let coins = rpc(&sandbox, "base", "eth_getBalance", json!([address, "latest"])).await;
        assert_ne!(coins, "0x0");
    }
    assert_eq!(column(&facts["accounts"], "screening"), ["allow", "allow", "allow", "allow", "block", "review"]);
    assert_eq!(facts["sanctioned_address"], accounts[4]["address"]);
    assert_eq!(facts["review_address"], accounts[5]["address"]);

    let body = json!({"chain": "polygon", "address": NOBODY, "amount": "25"});
    let sent = sandbox.ok(Method::POST, "/sandbox/faucet", Some(body)).await;
    assert_eq!(column(&sent["sent"], "currency"), ["native", "USDC", "USDT"]);
    assert_eq!(column(&sent["sent"], "amount"), ["1", "25.00", "25.00"]);
    for transfer in sent["sent"].as_array().unwrap() {
        let receipt = async || {
            let receipt = rpc(&sandbox, "polygon", "eth_getTransactionReceipt", json!([transfer["tx_hash"]])).await;
            (!receipt.is_null()).then_some(receipt)
        };
        assert_eq!(until("the transfer is mined", receipt).await["status"], "0x1");
    }
    let polygon = &facts["chains"]["polygon"]["tokens"];
    assert_eq!(tokens(&sandbox, "polygon", &polygon["USDT"], NOBODY).await, U256::from(25_000_000));
    assert_eq!(rpc(&sandbox, "polygon", "eth_getBalance", json!([NOBODY, "latest"])).await, "0xde0b6b3a7640000");
}

/// The screening of the sandbox leaves the money of one payer to the operator.
#[tokio::test]
async fn money_of_the_review_account_waits_for_the_operator() {
    let sandbox = Running::new().await;
    let id = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), Some(json!({"from": "review"}))).await;
    let path = format!("/payments/{id}");
    let waiting = sandbox.until(&path, |payment| has_label(payment, "IN_REVIEW")).await;
    assert_eq!((&waiting["status"], &waiting["kyt_verdict"]), (&json!("pending"), &json!("review")));
}

/// An advance of a day responds when payments are possible again, on every chain and without a wait.
#[tokio::test]
async fn chains_are_usable_when_an_advance_responds() {
    let sandbox = Running::new().await;
    let mut psp = sandbox.psp();
    psp.merchant_id = psp.merchant("m").await;
    for _ in 0..3 {
        sandbox.ok(Method::POST, "/sandbox/clock/advance", Some(json!({"seconds": 24 * 3_600}))).await;
        let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
        for chain in Chain::ALL {
            assert_eq!(facts["chains"][chain.as_str()]["usable"], true, "{facts:#}");
            psp.payment("10", Token::Usdc, chain).await;
        }
    }
    // A chain that its faults hold back is not waited for.
    let broken = json!({"unavailable_rate": 1.0});
    sandbox.ok(Method::POST, "/sandbox/chains/base/faults", Some(broken)).await;
    sandbox.ok(Method::POST, "/sandbox/clock/advance", Some(json!({"seconds": 60}))).await;
    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    assert_eq!(column(&json!([facts["chains"]["base"], facts["chains"]["polygon"]]), "usable"), [false, true]);
}
