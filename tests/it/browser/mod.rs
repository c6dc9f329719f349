//! The pages of operators, PSPs and payers in a real browser: display, clicks and refusals.

mod admin;
mod console;
mod customers;
mod dashboard;
mod env;
mod live;
mod pay;
mod pictures;
mod reference;
mod refund;
mod verify;

use payferry_harness::browser::Browser;

use env::ServiceFixture;
pub(crate) use env::pictures as pictures_folder;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_token_shows_the_form_again() {
    let service = ServiceFixture::start().await;
    let browser = &service.browser;
    let shard = "/ops/view/shards/0";
    service.open(shard).await;
    assert_eq!(browser.status().await, 401);
    assert_eq!(browser.count(".panel").await, 0, "nothing is shown before login");
    service.enter("not the token").await;
    assert_eq!(browser.status().await, 401);
    browser.until("[role=alert]", |text| text.contains("not the token of an operator")).await;
    service.assert_fits_both().await;
    service.enter(service.running.text("operator_token")).await;
    browser.until("h1", |text| text == "Shard 0").await;
    assert_eq!((browser.path().await.as_str(), browser.status().await), (shard, 200), "the requested page");
    service.end_after("401").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_javascript_is_current_when_loaded() {
    let service = ServiceFixture::start_with(Browser::without_javascript().await, [0, 0]).await;
    let id = service.payment().await;
    service.log_in().await;
    let browser = &service.browser;
    let live = "#status-pending td:nth-of-type(2)";
    assert_eq!(browser.text(live).await.as_deref(), Some("1"));
    service.panic(&id, 1).await;
    assert_eq!(browser.count(".log li").await, 0, "nothing updates automatically");
    browser.reload().await;
    browser.until(".log li", |text| text.contains(&id)).await;
    browser.click(&format!(".log a[href$='{id}']")).await;
    browser.until("h1", |text| text == id).await;
    browser.fill("input[type=search]", " pay_nothing").await;
    browser.click("form.search button").await;
    browser.until("h1", |text| text == "Search").await;
    browser.until("main", |text| text.contains("Nothing was found.")).await;
    service.browser.close().await;
}
