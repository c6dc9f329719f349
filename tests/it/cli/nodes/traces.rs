//! A trace that another node continues.

use std::collections::BTreeSet;

use wiremock::MockServer;

use super::*;
use crate::monitoring::traces::{CALLER, TRACE, server, spans};

/// The first node takes the request and exports its spans. It is killed before the payer pays.
#[tokio::test(flavor = "multi_thread")]
async fn another_node_continues_the_trace_of_a_payment() {
    let mut fixture = Fixture::new().await;
    let collector = server().await;
    let endpoint = toml::Table::from_iter([("endpoint".to_owned(), collector.uri().into())]);
    fixture.outside.folder.settings.insert("traces".to_owned(), endpoint.into());
    fixture.outside.folder.write();
    let mut nodes = fixture.nodes(2).await;
    let urls = [0, 1].map(|number| nodes.node(number).api_url().to_owned());
    let [first, second] = [fixture.psp(&urls[0]).await, fixture.psp(&urls[1]).await];
    let request = reqwest::Client::new().post(format!("{}/payments/initiate", urls[0])).bearer_auth(&fixture.key);
    let request = request.header("traceparent", CALLER).json(&first.initiation("10", Token::Usdc, "base"));
    let payment: Value = request.send().await.unwrap().json().await.unwrap();
    until_exported(&collector, "n1", &["POST /payments/initiate", "journal.commit"]).await;
    nodes.node(0).process.kill();
    fixture.pay(&payment).await;
    second.until_status(payment["payment_id"].as_str().unwrap(), "settled").await;
    let continued = ["watcher.transfer", "watcher.finality", "settler.submit", "settler.confirm", "webhook.attempt"];
    until_exported(&collector, "n2", &continued).await;
}

/// Waits until a node has exported these steps of the trace.
async fn until_exported(collector: &MockServer, node: &str, steps: &[&str]) {
    let missing = async || {
        let found = spans(collector).await.into_iter();
        let of_node = found.filter(|(_, service)| service["service.instance.id"] == node).map(|(span, _)| span);
        let traced = of_node.filter(|span| hex::encode(&span.trace_id) == TRACE);
        let names: BTreeSet<String> = traced.map(|span| span.name).collect();
        let missing: Vec<&str> = steps.iter().copied().filter(|step| !names.contains(*step)).collect();
        expect(missing.join(", "), String::is_empty)
    };
    eventually(format!("{node} exports its steps"), missing).await;
}
