//! The sandbox's verification page in a browser without scripts.

use payferry_harness::browser::Browser;

use super::env::NARROW;
use crate::cli::customers::{make_ready, person, verify};
use crate::prelude::*;
use crate::process::Running;

#[tokio::test(flavor = "multi_thread")]
async fn verification_page_approves_and_rejects() {
    let sandbox = Running::new().await;
    let browser = Browser::without_javascript().await;
    browser.resize(NARROW, 900, 1).await;
    let customer = person(&sandbox).await;
    make_ready(&sandbox, &customer).await;
    let read = async || sandbox.ok(Method::GET, &format!("/api/v1/customers/{customer}"), None).await;

    let first = verify(&sandbox, &customer).await;
    browser.open(first["verification_url"].as_str().unwrap()).await;
    browser.until("h1", |text| text == "Identity verification").await;
    browser.until("main", |text| text.contains(&customer) && text.contains("pending")).await;
    assert!(!browser.text("main").await.unwrap().contains("Lovelace"), "no personal data");
    browser.click("button[value=reject]").await;
    browser.until("h1", |text| text == "Rejected").await;
    assert_eq!(browser.count("button").await, 0);
    assert_eq!(read().await["customer"]["kyc_status"], "rejected");

    let second = verify(&sandbox, &customer).await;
    browser.open(second["verification_url"].as_str().unwrap()).await;
    browser.until("h1", |text| text == "Identity verification").await;
    browser.click("button[value=approve]").await;
    browser.until("h1", |text| text == "Approved").await;
    assert_eq!(read().await["customer"]["kyc_status"], "approved");
    // The old page shows its outcome and offers no further decision.
    browser.open(first["verification_url"].as_str().unwrap()).await;
    browser.until("h1", |text| text == "Rejected").await;
    assert_eq!(browser.count("button").await, 0);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}
