//! Properties of every page, asserted for each answer in any test.

use payferry_operator::table;
use reqwest::Method;
use sea_orm::ConnectionTrait;

use super::{ServiceFixture, reply};
use crate::app::Reply;

/// Attribute that the script looks for.
const LIVE: &str = " data-live";

/// Asserts that ids are unique and that only answers to GET are refreshed.
pub(super) fn assert_sound(method: &Method, page: &Reply) {
    let mut ids: Vec<&str> = page.text().split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    ids.sort_unstable();
    let twice: Vec<_> = ids.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?} in {}", page.text());
    assert!(method == Method::GET || !page.text().contains(LIVE), "{}", page.text());
}

async fn form(service: &ServiceFixture, path: &str, fields: &'static str) -> Reply {
    let call = service.call(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
    reply(call.body(fields)).await
}

#[tokio::test]
async fn answers_to_forms_are_not_refreshed() {
    let service = ServiceFixture::start().await;
    for route in table().into_iter().filter(|route| route.method == Method::POST && route.path.contains("/view/")) {
        let path = route.path.split('/').map(|part| match part {
            "{payment_id}" => "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
            "{psp_id}" => "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
            part if part.starts_with('{') => "1",
            part => part,
        });
        let answer = form(&service, &path.collect::<Vec<_>>().join("/"), "reason=x&confirm=true").await;
        assert!(!answer.text().contains(LIVE), "{}: {}", route.path, answer.text());
    }
    service.stop().await;
}

#[tokio::test]
async fn unavailable_pages_refresh_except_after_a_form() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    let id = made.json["payment_id"].as_str().unwrap();
    let spoil = format!("UPDATE payments SET state = '{{}}' WHERE id = '{id}'");
    service.app.writer().execute_unprepared(&spoil).await.unwrap();
    let decide = format!("/ops/view/payments/{id}/decide");
    let read = service.get(&decide).await;
    assert_eq!(read.status, 503);
    assert!(read.text().contains(LIVE), "{}", read.text());
    let sent = form(&service, &format!("/ops/view/payments/{id}/take_in"), "reason=x&confirm=true").await;
    assert_eq!(sent.status, 503);
    assert!(sent.text().contains("Not available") && !sent.text().contains(LIVE), "{}", sent.text());
    service.stop().await;
}
