//! Terms of service: the link, the page, and refusals.

use payferry::http::consent::LINK_SECS;
use payferry::terms::ConsentTerms;
use payferry_domain::customer::{Command, CustomerKind};
use payferry_entities::audit_log;
use payferry_journal::audit::Actor;

use crate::prelude::*;

async fn customer(app: &TestApp) -> CustomerId {
    app.add_customer(CustomerKind::Individual, "").await
}

async fn ask(app: &TestApp, id: CustomerId) -> Reply {
    app.request(Method::POST, &format!("/api/v1/customers/{id}/service-consent")).send().await
}

/// Returns the path of the link in an answer.
fn link(reply: &Reply) -> String {
    reply["url"].as_str().unwrap().strip_prefix("https://pay.example").unwrap().to_owned()
}

async fn click(app: &TestApp, path: &str, form: &str) -> Reply {
    let call = app.request(Method::POST, path).without_key().bytes(form);
    let call = call.header("user-agent", "Mozilla/5.0 (test)");
    call.header("content-type", "application/x-www-form-urlencoded").send().await
}

shared!(#[tokio::test] links, app = TestApp::start().await, app.renew_psp() =>
    customer_accepts_through_a_link, invalid_links_return_404,
    links_are_unique_to_a_request_and_its_psp_and_valid_for_a_day);

async fn customer_accepts_through_a_link(app: &TestApp) {
    let id = customer(app).await;
    let asked = ask(app, id).await.ok(200);
    let path = link(&asked);
    let mut shown = asked.redacted();
    assert!(shown["body"]["url"].as_str().unwrap().starts_with("https://pay.example/consent?token=cr_"));
    shown["body"]["url"] = json!("[link]");
    insta::assert_json_snapshot!(shown, @r#"
    {
      "body": {
        "expires_at": "[time]",
        "message": "Send the customer to this link to accept the terms of service.",
        "url": "[link]"
      },
      "status": 200
    }
    "#);

    let page = app.open(&path).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    page.assert_shows(&ConsentTerms::default().paragraphs().collect::<Vec<_>>());
    page.assert_shows(&["<strong>Test</strong> asks you", "method=\"post\""]);
    page.assert_hides(&["ada@example.com", "cr_", "psp_", "<script", "src="]);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';") && policy.contains("form-action 'self'"), "{policy}");
    assert_eq!((page.header("referrer-policy"), page.header("set-cookie")), (Some("no-referrer"), None));

    // Without the button's value nothing is accepted.
    for form in ["", "accept=no", "accept"] {
        click(app, &path, form).await.ok(422).assert_shows(&["Nothing was accepted"]);
    }
    click(app, &path, "accept=yes").await.ok(200).assert_shows(&["Thank you"]);
    for again in [click(app, &path, "accept=yes").await, app.open(&path).await] {
        again.ok(200).assert_shows(&["accepted these terms already"]);
    }
    insta::assert_json_snapshot!(ask(app, id).await.redacted(), @r#"
    {
      "body": {
        "accepted_at": "[time]",
        "message": "The customer has already accepted the terms of service."
      },
      "status": 200
    }
    "#);
    let entries = audit_log::Entity::find().order_by_asc(audit_log::Column::Number);
    let entries = entries.all(app.reader()).await.unwrap();
    let notified: Vec<_> = entries.iter().map(|row| format!("{} {}", row.actor_kind, row.action)).collect();
    let expected = [
        "service customer.created",
        "api_key customer.consent_requested",
        "customer customer.terms_accepted",
        "customer customer.terms_shown",
    ];
    assert_eq!(notified, expected, "a second acceptance is not recorded again");
    let evidence = json!({ "sha256": ConsentTerms::default().digest(), "user_agent": "Mozilla/5.0 (test)" });
    assert_eq!(entries[3].detail, evidence.to_string());
    assert!(entries[2..].iter().all(|row| row.request_id.is_some()), "{entries:?}");
}

async fn invalid_links_return_404(app: &TestApp) {
    let id = customer(app).await;
    let good = link(&ask(app, id).await);
    let other = good.replace(&id.to_string(), &customer(app).await.to_string());
    let cut = &good[..good.len() - 2];
    for path in ["/consent", "/consent?token=", "/consent?token=a.b.c.d", "/consent?token=%FF", &other, cut] {
        for reply in [app.open(path).await, click(app, path, "accept=yes").await] {
            reply.ok(404).assert_shows(&["No such link"]);
        }
    }
    assert_eq!(ask(app, id).await["accepted_at"], json!(null));
    // A deactivated customer is not asked.
    let id = customer(app).await;
    let path = link(&ask(app, id).await);
    app.change_customer(id, &Command::Deactivate, &Actor::Service).await;
    ask(app, id).await.assert_problem(409, "customer_inactive");
    for reply in [app.open(&path).await, click(app, &path, "accept=yes").await] {
        reply.ok(410).assert_shows(&["nothing to accept"]);
    }
}

async fn links_are_unique_to_a_request_and_its_psp_and_valid_for_a_day(app: &TestApp) {
    let id = customer(app).await;
    let path = format!("/api/v1/customers/{id}/service-consent");
    let call = || app.request(Method::POST, &path).idempotency_key("one");
    let (first, again) = (call().send().await, call().send().await);
    assert_eq!((first["url"].as_str(), again.header("idempotent-replayed")), (again["url"].as_str(), Some("true")));
    let key = app.stranger().await;
    app.request(Method::POST, &path).key(&key).send().await.assert_problem(404, "customer_not_found");
    ask(app, CustomerId::generate()).await.assert_problem(404, "customer_not_found");
    let nonsense = "/api/v1/customers/x/service-consent";
    app.request(Method::POST, nonsense).send().await.assert_problem(404, "customer_not_found");
    // Links are unique and valid for a day.
    let id = customer(app).await;
    let (first, second) = (link(&ask(app, id).await), link(&ask(app, id).await));
    assert_ne!(first, second);
    for path in [&first, &second] {
        assert_eq!(app.open(path).await.status, 200, "older links stay valid");
    }
    app.state.clock().advance_secs(LINK_SECS + 1);
    for old in [app.open(&first).await, click(app, &first, "accept=yes").await] {
        old.ok(410).assert_shows(&["has expired"]);
    }
    let fresh = link(&ask(app, id).await);
    assert_eq!(click(app, &fresh, "accept=yes").await.status, 200, "a new link after expiry");
}
