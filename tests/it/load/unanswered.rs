//! Payments that exist although their initiation got an error or an unreadable response.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::between::{Changes, load_through};
use super::{complaint, report};

/// Payments whose response is changed.
const DENIED: usize = 3;
const ASKED: [&str; 6] = ["--rate", "50/s", "--payments", "50", "--not-made-max", "10"];

fn denied_with(status: StatusCode, body: Value) -> Changes {
    Changes { initiations_denied: DENIED, denied_with: Some((status, body)), ..Changes::default() }
}

#[tokio::test]
async fn finds_refused_payments_that_exist() {
    let refusal = denied_with(StatusCode::SERVICE_UNAVAILABLE, json!({"code": "overloaded"}));
    let loaded = load_through(refusal, &ASKED).await;
    let report = report(&loaded.output);
    assert_eq!(loaded.output.status.code(), Some(1), "{}\n{report:#}", complaint(&loaded.output));
    assert_eq!((&report["counted"]["accepted"], &report["counted"]["refused"]), (&json!(47), &json!(DENIED)));
    let findings = report["findings"].as_array().unwrap();
    let mut found: Vec<&str> = findings.iter().map(|finding| finding["payment_id"].as_str().unwrap()).collect();
    let mut denied = loaded.denied.clone();
    found.sort_unstable();
    denied.sort_unstable();
    assert_eq!(found, denied, "{findings:#?}");
    for finding in findings {
        assert_eq!((&finding["kind"], &finding["expected"]), (&json!("wrong"), &json!("no payment")), "{finding:#}");
        let words = finding["found"].as_str().unwrap();
        let says = "was not made (initiate: 503 overloaded), but exists: pending, 0.00 of ";
        assert!(words.starts_with(says), "{words}");
    }
}

#[tokio::test]
async fn payments_with_an_unreadable_response_may_exist() {
    let loaded = load_through(denied_with(StatusCode::CREATED, json!({})), &ASKED).await;
    let report = report(&loaded.output);
    assert_eq!(loaded.output.status.code(), Some(0), "{}\n{report:#}", complaint(&loaded.output));
    assert_eq!((report["findings"].clone(), loaded.denied.len()), (json!([]), DENIED));
    let counted = &report["counted"];
    assert_eq!((&counted["accepted"], &counted["unanswered"]), (&json!(47), &json!(DENIED)), "{counted:#}");
    assert_eq!(
        (&report["read_back"], &report["errors"]),
        (&json!(50), &json!({"initiate: unreadable answer": DENIED}))
    );
}
