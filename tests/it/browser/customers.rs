//! Customers' consent page and the operator's customer pages in a browser.

use payferry_harness::browser::Browser;

use super::env::ServiceFixture;
use crate::http::customers::individual;
use crate::prelude::*;

/// Creates a customer as the PSP does; returns its id.
async fn customer(service: &ServiceFixture) -> String {
    let made = service.psp.ok(Method::POST, "/api/v1/customers", individual()).await;
    made["customers"][0]["id"].as_str().unwrap().to_owned()
}

async fn consent(service: &ServiceFixture, id: &str) -> Value {
    service.psp.ok(Method::POST, &format!("/api/v1/customers/{id}/service-consent"), Value::Null).await
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_are_accepted_without_javascript() {
    let service = ServiceFixture::start_with(Browser::without_javascript().await, [0, 0]).await;
    let browser = &service.browser;
    let id = customer(&service).await;
    let link = consent(&service, &id).await["url"].as_str().unwrap().to_owned();
    browser.open(&link).await;
    browser.until("h1", |text| text == "Terms of service").await;
    service.pictured("consent", true).await;
    browser.click("form button").await;
    browser.until("h1", |text| text == "Thank you").await;
    assert!(consent(&service, &id).await["accepted_at"].is_string());
    browser.open(&link).await;
    browser.until("h1", |text| text.contains("already")).await;
    browser.open(&link[..link.len() - 3]).await;
    browser.until("h1", |text| text == "No such link").await;
    assert_eq!(browser.status().await, 404);
    service.end_after("404").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_finds_a_customer_and_decides() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let id = customer(&service).await;
    browser.click("header nav a[href='/ops/view/customers']").await;
    browser.until("h1", |text| text == "Customers").await;
    browser.fill("#find-customers input[name=search]", "ADA@").await;
    browser.click("#find-customers button").await;
    browser.click(&format!("a[href='/ops/view/customers/{id}']")).await;
    browser.until("h1", |text| text == "ada@example.com").await;
    service.sign("#decision").await;
    browser.until(".notice.bad", |text| text.contains("terms of service")).await;
    assert_eq!(browser.status().await, 409);

    let link = consent(&service, &id).await["url"].as_str().unwrap().to_owned();
    browser.open(&link).await;
    browser.click("form button").await;
    browser.until("h1", |text| text == "Thank you").await;
    service.open(&format!("/ops/view/customers/{id}")).await;
    service.sign("#decision").await;
    browser.until(".notice.good", |text| text.contains("decision")).await;
    browser.until(".title .badge", |text| text == "approved").await;
    browser.until("#history", |text| text.contains("decided by hand") && text.contains("seen at the counter")).await;
    service.pictured("customer", true).await;
    let page = browser.run("return document.documentElement.outerHTML").await;
    assert!(!page.as_str().unwrap().contains("P1234567"), "ids stay sealed");
    service.end_after("409").await;
}
