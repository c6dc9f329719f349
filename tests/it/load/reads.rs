//! A service that cannot be read for a while or at all at the end of a run, and a fee that differs from the settings.

use serde_json::json;

use super::between::{Changes, Loaded, load_through};
use super::{complaint, report};

const ASKED: [&str; 4] = ["--rate", "50/s", "--payments", "50"];

/// Puts load on a sandbox that refuses this number of lists of payments.
async fn load_refusing(lists_refused: usize, further: &[&str]) -> Loaded {
    load_through(Changes { lists_refused, ..Changes::default() }, &[&ASKED, further].concat()).await
}

#[tokio::test]
async fn retries_reads() {
    let Loaded { output, lists_refused: refused, .. } = load_refusing(2, &[]).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}\n{report:#}", complaint(&output));
    assert_eq!((refused, &report["audited"], &report["read_back"]), (2, &json!(true), &json!(50)));
}

#[tokio::test]
async fn a_failed_comparison_is_a_finding_and_figures_remain() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("report.html");
    let asked = ["--report", file.to_str().unwrap()];
    let Loaded { output, lists_refused: refused, .. } = load_refusing(usize::MAX, &asked).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{}\n{report:#}", complaint(&output));
    assert!((2..50).contains(&refused), "retried a limited number of times: {refused}");
    assert_eq!((&report["audited"], &report["interrupted"]), (&json!(false), &json!(false)));
    let [finding] = report["findings"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&finding["kind"], &finding["payment_id"]), (&json!("wrong"), &json!(null)));
    let words = finding["found"].as_str().unwrap();
    assert!(words.starts_with("the comparison failed: GET /payments?") && words.contains("503"), "{words}");
    // The measurements remain.
    assert_eq!((&report["counted"]["accepted"], &report["counted"]["complete"]), (&json!(50), &json!(50)));
    assert!(report["stages"].as_array().unwrap().len() > 5, "{:#}", report["stages"]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("Payments were not compared.") && page.contains("the comparison failed"), "{page}");
}

#[tokio::test]
async fn finds_a_fee_that_differs_from_the_settings() {
    // The sandbox takes 1 %.
    let Loaded { output, .. } = load_through(Changes { fee_bps: Some(101), ..Changes::default() }, &ASKED).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{}\n{report:#}", complaint(&output));
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 50, "{findings:#?}");
    for finding in findings {
        assert_eq!(finding["kind"], "wrong", "{finding:#}");
        let words = finding["found"].as_str().unwrap();
        for says in [
            "payment.confirmed (event 1): psp_amount and treasury_fee is `",
            "payin.settled (event 4): psp_amount and treasury_fee is `",
            "shows psp_amount and treasury_fee `",
            " to the treasury, not ",
        ] {
            assert!(words.contains(says), "{says}: {words}");
        }
    }
}
