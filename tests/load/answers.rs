//! Lost responses of the chains' nodes to the payers: a webhook may report a transfer before its payer knows of it,
//! which is no fault.

use reqwest::Method;
use serde_json::json;

use super::{against, report, run};
use crate::call::assert_has;
use crate::process::Running;

/// Methods that payers call.
const METHODS: [&str; 2] = ["eth_sendRawTransaction", "eth_getTransactionByHash"];
/// Payments that are made before responses are lost. The payers are funded by then.
const MADE_BEFORE: usize = 5;

/// Loses nearly a third of the responses to clients that send a transaction or ask for one, including the settler.
async fn lose_answers(sandbox: &Running) {
    let is_under_way =
        |list: &serde_json::Value| list["payments"].as_array().is_some_and(|list| list.len() >= MADE_BEFORE);
    sandbox.until("/payments?limit=200", is_under_way).await;
    for chain in ["base", "polygon", "arbitrum"] {
        let faults = json!({"methods": METHODS, "lost_answer_rate": 0.3});
        sandbox.ok(Method::POST, &format!("/sandbox/chains/{chain}/faults"), Some(faults)).await;
    }
}

#[tokio::test]
async fn a_webhook_before_the_nodes_response_is_no_fault() {
    let sandbox = Running::new().await;
    // A webhook overtakes the response only if it is lost three times over: a few of about a hundred batches.
    let asked = against(&sandbox, "--rate 50/s --payments 300 --mix exact=80,under=10,over=10 --json");
    let (output, ()) = tokio::join!(run(&asked), lose_answers(&sandbox));
    let report = report(&output, 0);
    assert_has(&report, json!({ "counted/sent": 300, "counted/unsent": 0, "findings": [] }));
}
