//! A service that cannot be read for a while, or not any more, when a run is compared; and one that takes another fee than
//! its settings say.

use serde_json::json;

use super::between::{Changes, Loaded, load_through};
use super::{complaint, report};

const ASKED: [&str; 4] = ["--rate", "50/s", "--payments", "50"];

/// Loads a sandbox that refuses so many lists of payments.
async fn load_refusing(lists_refused: usize, further: &[&str]) -> Loaded {
    load_through(Changes { lists_refused, ..Changes::default() }, &[&ASKED, further].concat()).await
}

#[tokio::test]
async fn a_read_that_fails_for_a_moment_is_made_again() {
    let Loaded { output, lists_refused: refused, .. } = load_refusing(2, &[]).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}\n{report:#}", complaint(&output));
    assert_eq!((refused, &report["audited"], &report["read_back"]), (2, &json!(true), &json!(50)));
}

#[tokio::test]
async fn what_cannot_be_read_back_is_a_finding_and_the_rest_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("report.html");
    let asked = ["--report", file.to_str().unwrap()];
    let Loaded { output, lists_refused: refused, .. } = load_refusing(usize::MAX, &asked).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{}\n{report:#}", complaint(&output));
    assert!((2..50).contains(&refused), "asked for again, and not for ever: {refused}");
    assert_eq!((&report["audited"], &report["interrupted"]), (&json!(false), &json!(false)));
    let [finding] = report["findings"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&finding["kind"], &finding["payment_id"]), (&json!("wrong"), &json!(null)));
    let words = finding["found"].as_str().unwrap();
    assert!(words.starts_with("it could not be read: GET /payments?") && words.contains("503"), "{words}");
    // What was measured is there all the same.
    assert_eq!((&report["counted"]["accepted"], &report["counted"]["complete"]), (&json!(50), &json!(50)));
    assert!(report["stages"].as_array().unwrap().len() > 5, "{:#}", report["stages"]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("Payments were not compared.") && page.contains("it could not be read"), "{page}");
}

#[tokio::test]
async fn a_fee_that_is_not_the_settings_is_found_in_every_settlement_although_it_adds_up() {
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
            "reads back with psp_amount and treasury_fee `",
            " of it to the treasury, not ",
        ] {
            assert!(words.contains(says), "{says}: {words}");
        }
    }
}
