//! Properties of every page, asserted for each answer in any test.

use payferry_operator::table;

use super::concrete;
use crate::prelude::*;

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

#[tokio::test]
async fn answers_to_forms_are_not_refreshed() {
    let service = ServiceFixture::start().await;
    for route in table().into_iter().filter(|route| route.method == Method::POST && route.path.contains("/view/")) {
        let answer = service.form(&concrete(&route.path), &[("reason", "x"), ("confirm", "true")]).await;
        assert!(!answer.text().contains(LIVE), "{}: {}", route.path, answer.text());
    }
}

#[tokio::test]
async fn unavailable_pages_refresh_except_after_a_form() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    let id = made.id();
    let spoil = format!("UPDATE payments SET state = '{{}}' WHERE id = '{id}'");
    service.app.writer().execute_unprepared(&spoil).await.unwrap();
    let decide = format!("/ops/view/payments/{id}/decide");
    service.get(&decide).await.ok(503).assert_shows(&[LIVE]);
    let sent = service
        .form(&format!("/ops/view/payments/{id}/take_in"), &[("reason", "x"), ("confirm", "true")])
        .await
        .ok(503);
    assert!(sent.text().contains("Not available") && !sent.text().contains(LIVE), "{}", sent.text());
}
