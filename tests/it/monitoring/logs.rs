//! Every field of the JSON logs is documented.

use std::collections::BTreeSet;

use payferry_harness::psp::Psp;

use super::file;
use crate::prelude::*;
use crate::process::{Home, Running};

/// The fields of a table of the guide, below this heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let guide = file("docs/src/operate/logs.md");
    let (_, section) = guide.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').step_by(2))
        .map(str::to_owned)
        .filter(|name| !name.is_empty())
        .collect()
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_is_json_with_documented_fields() {
    let home = Home::new().await;
    let log = [("PAYFERRY_LOG__FORMAT", "json"), ("RUST_LOG", "payferry=debug"), ("RUST_BACKTRACE", "1")];
    let running = Running::start_with(&home, [0, 0], &log);
    let mut psp = Psp::new(running.text("api_url"), running.text("api_key"));
    psp.merchant_id = psp.merchant("m-1").await;
    let id = psp.payment("25", Token::Usdc, Chain::Base).await;
    psp.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), json!({"times": 10})).await;
    let operator = Psp::new(running.text("operator_url"), running.text("operator_token"));
    let is_listed = async || operator.metric("payferry_payments_quarantined").await > 0.0;
    until("the payment is quarantined", async || is_listed().await.then_some(())).await;
    let text = std::fs::read_to_string(home.path().join("stderr.log")).unwrap();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();

    let (of_line, of_span, of_event) =
        (documented("A line"), documented("The span of a request"), documented("Fields of events"));
    for line in &lines {
        assert!(keys(line).is_subset(&of_line), "{line}");
        assert!(keys(&line["fields"]).is_subset(&of_event), "{line}");
        for span in line["spans"].as_array().into_iter().flatten().chain(line.get("span")) {
            assert!(keys(span).is_subset(&of_span), "{line}");
        }
    }
    // All fields of a line occur, and those of a request with a key.
    let request = lines.iter().find(|line| line["span"]["http.route"] == "/payments/initiate").unwrap();
    assert_eq!(keys(request), of_line);
    assert_eq!(keys(&request["span"]), of_span);
    let panic = lines.iter().find(|line| line["fields"]["panic.location"].is_string()).unwrap();
    assert!(panic["fields"]["panic.backtrace"].as_str().unwrap().contains("aggregate"), "{panic}");
    assert_eq!(panic["fields"]["message"], "a thread panicked: panicked on purpose for a test");
    running.stop();
}
