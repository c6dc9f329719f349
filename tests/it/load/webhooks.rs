//! Repeated webhooks and a forged one.

use serde_json::json;

use super::between::{Changes, load_through};
use super::{complaint, report};

const ASKED: [&str; 4] = ["--rate", "50/s", "--payments", "50"];

#[tokio::test]
async fn counts_repeated_webhooks() {
    let loaded = load_through(Changes { repeats: true, ..Changes::default() }, &ASKED).await;
    let report = report(&loaded.output);
    assert_eq!(loaded.output.status.code(), Some(0), "{}\n{report:#}", complaint(&loaded.output));
    let counted = &report["counted"];
    assert_eq!((&counted["webhooks"], &counted["repeated"]), (&json!(400), &json!(200)), "{counted:#}");
    assert_eq!((&counted["complete"], &report["findings"]), (&json!(50), &json!([])));
    let webhook = report["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == "webhook").unwrap();
    assert_eq!(webhook["from_intended"]["count"], 200, "each is in the figures once: {webhook:#}");
}

#[tokio::test]
async fn finds_a_forged_webhook() {
    let loaded = load_through(Changes { forges: Some(70), ..Changes::default() }, &ASKED).await;
    let report = report(&loaded.output);
    assert_eq!(loaded.output.status.code(), Some(1), "{}\n{report:#}", complaint(&loaded.output));
    let counted = &report["counted"];
    assert_eq!((&counted["webhooks"], &counted["forged"]), (&json!(200), &json!(1)), "{counted:#}");
    assert_eq!(report["errors"], json!({"webhook: no signature is by the endpoint's secret": 1}));
    let [finding] = report["findings"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&finding["kind"], &finding["payment_id"]), (&json!("wrong"), &json!(null)));
    let words = finding["found"].as_str().unwrap();
    assert!(
        words.starts_with("a webhook evt_") && words.ends_with("no signature is by the endpoint's secret"),
        "{words}"
    );
}
