//! Answers of the chains' nodes to the payers that are lost: a webhook may then tell of a transfer before its payer knows
//! of it, and nothing is wrong with that.

use reqwest::Method;
use serde_json::json;

use super::{against, complaint, report, run};
use crate::process::{Home, Running};

/// What a payer asks for.
const METHODS: [&str; 2] = ["eth_sendRawTransaction", "eth_getTransactionByHash"];
/// Payments that are made before answers are lost: the payers have their money by then.
const MADE_BEFORE: usize = 5;

/// Nearly a third of the answers to whoever sends a transaction, or asks for one, are lost; the settler's among them.
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
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    // A single one overtakes its answer where it is lost three times over: of some hundred batches, a few are.
    let asked = ["--rate", "50/s", "--payments", "300", "--mix", "exact=80,under=10,over=10", "--json"];
    let (output, ()) = tokio::join!(run(against(&sandbox, &asked)), lose_answers(&sandbox));
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}\n{report:#}", complaint(&output));
    assert_eq!((&report["counted"]["sent"], &report["counted"]["unsent"]), (&json!(300), &json!(0)));
    assert_eq!(report["findings"], json!([]));
    sandbox.stop();
}
