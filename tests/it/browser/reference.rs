//! The API reference at `/docs`, on a desktop and on a phone.

use super::env::ServiceFixture;
use crate::prelude::*;

/// Shows every operation: the page renders sections as they come into view.
const SHOW_ALL: &str =
    "scrollBy(0, innerHeight); return scrollY + innerHeight >= document.documentElement.scrollHeight - 1";
/// Text of the first example.
const EXAMPLE: &str = "return document.querySelector('pre code.hljs')?.textContent ?? ''";

/// Selects the language of the examples.
async fn select(service: &ServiceFixture, language: &str) {
    let click = format!(
        "[...document.querySelectorAll('button[role=tab]')].find(tab => tab.textContent.trim() === '{language}').click()"
    );
    service.browser.run(&click).await;
}

async fn until_example(service: &ServiceFixture, text: &str) {
    let shown = async || {
        let example = service.browser.run(EXAMPLE).await;
        example.as_str().is_some_and(|example| example.contains(text)).then_some(())
    };
    until(&format!("an example contains {text}"), shown).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_shows_every_operation_with_examples_and_loads_nothing_from_elsewhere() {
    let service = ServiceFixture::start().await;
    let (browser, api) = (&service.browser, service.running.text("api_url"));
    browser.open(&format!("{api}/docs")).await;
    browser.until("h1", |text| text == "Payferry").await;

    // Every operation of the document is in the navigation.
    let described = service.running.ok(Method::GET, "/openapi.json", None).await;
    let operations =
        described["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let summaries: Vec<&str> = operations.map(|operation| operation["summary"].as_str().unwrap()).collect();
    let listed = async || {
        let text = browser.run("return document.body.innerText").await;
        let text = text.as_str().unwrap_or_default();
        summaries.iter().all(|summary| text.contains(summary)).then_some(())
    };
    until("every operation is listed", listed).await;

    // Examples of the first operation.
    until_example(&service, "curl").await;
    select(&service, "Python").await;
    until_example(&service, "http.client").await;
    select(&service, "Node.js").await;
    until_example(&service, "await request(").await;

    for width in [400, 1440] {
        browser.resize(width, 900, 1).await;
        browser.run("scrollTo(0, 0)").await;
        while browser.run(SHOW_ALL).await != true {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let scrolled = browser.run("return document.documentElement.scrollWidth").await;
        assert!(scrolled.as_u64().unwrap() <= u64::from(width), "{scrolled} at {width}");
    }

    // The browser has requested only this service, and its policy has refused nothing.
    let requested = browser.run("return performance.getEntriesByType('resource').map(one => one.name)").await;
    let requested: Vec<&str> = requested.as_array().unwrap().iter().map(|url| url.as_str().unwrap()).collect();
    assert!(requested.len() >= 3 && requested.iter().all(|url| url.starts_with(api)), "{requested:?}");
    let complaints = browser.complaints().await;
    assert!(complaints.iter().all(|complaint| complaint.to_lowercase().starts_with("info")), "{complaints:?}");
    service.browser.close().await;
}
