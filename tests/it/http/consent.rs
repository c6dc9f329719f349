//! Terms of service: the link, the page, and refusals.

use axum::http::Method;
use payferry::http::consent::{LINK_SECS, Terms};
use payferry_domain::customer::{Command, CustomerKind};
use payferry_domain::{CustomerId, Timestamp};
use payferry_entities::audit_log;
use payferry_journal::audit::Actor;
use payferry_journal::customers::{NewCustomer, Opened, create};
use sea_orm::{EntityTrait, QueryOrder};
use serde_json::json;

use crate::app::{Reply, TestApp};

/// Creates a customer of the first PSP.
async fn customer(app: &TestApp) -> CustomerId {
    let new = NewCustomer {
        id: CustomerId::generate(),
        psp_id: app.psp_id,
        kind: CustomerKind::Individual,
        email: "ada@example.com".to_owned(),
        country: "GBR".to_owned(),
        currency: "GBP".to_owned(),
        particulars: String::new(),
    };
    let id = new.id;
    create(app.writer(), &[new.row(Timestamp(0))], &Actor::Service, Timestamp(0)).await.unwrap();
    id
}

async fn ask(app: &TestApp, id: CustomerId) -> Reply {
    app.request(Method::POST, &format!("/api/v1/customers/{id}/service-consent")).send().await
}

/// Returns the path of the link in an answer.
fn link(reply: &Reply) -> String {
    reply.json["url"].as_str().unwrap().strip_prefix("https://pay.example").unwrap().to_owned()
}

async fn open(app: &TestApp, path: &str) -> Reply {
    app.request(Method::GET, path).without_key().send().await
}

async fn click(app: &TestApp, path: &str, form: &str) -> Reply {
    let call = app.request(Method::POST, path).without_key().bytes(form);
    call.header("content-type", "application/x-www-form-urlencoded").send().await
}

#[tokio::test]
async fn customer_accepts_through_a_link() {
    let app = TestApp::start().await;
    let id = customer(&app).await;
    let asked = ask(&app, id).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
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

    let page = open(&app, &path).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    for paragraph in Terms::default().paragraphs() {
        assert!(text.contains(paragraph), "{paragraph}");
    }
    assert!(text.contains("<strong>Test</strong> asks you") && text.contains("method=\"post\""), "{text}");
    for hidden in ["ada@example.com", "cr_", "psp_", "<script", "src="] {
        assert!(!text.contains(hidden), "{hidden} is shown");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';") && policy.contains("form-action 'self'"), "{policy}");
    assert_eq!((page.header("referrer-policy"), page.header("set-cookie")), (Some("no-referrer"), None));

    // Without the button's value nothing is accepted.
    for form in ["", "accept=no", "accept"] {
        let refused = click(&app, &path, form).await;
        assert_eq!(refused.status, 422);
        assert!(refused.text().contains("Nothing was accepted"));
    }
    let thanks = click(&app, &path, "accept=yes").await;
    assert_eq!(thanks.status, 200);
    assert!(thanks.text().contains("Thank you"), "{}", thanks.text());
    for again in [click(&app, &path, "accept=yes").await, open(&app, &path).await] {
        assert_eq!(again.status, 200);
        assert!(again.text().contains("accepted these terms already"));
    }
    insta::assert_json_snapshot!(ask(&app, id).await.redacted(), @r#"
    {
      "body": {
        "accepted_at": "[time]",
        "message": "The customer has already accepted the terms of service."
      },
      "status": 200
    }
    "#);
    let entries = audit_log::Entity::find().order_by_asc(audit_log::Column::Number);
    let entries = entries.all(app.state.database().reader()).await.unwrap();
    let notified: Vec<_> = entries.iter().map(|row| format!("{} {}", row.actor_kind, row.action)).collect();
    let expected = [
        "service customer.created",
        "api_key customer.consent_requested",
        "customer customer.terms_accepted",
        "customer customer.terms_shown",
    ];
    assert_eq!(notified, expected, "a second acceptance is not recorded again");
    assert_eq!(entries[3].detail, json!({"sha256": Terms::default().digest()}).to_string());
}

#[tokio::test]
async fn links_are_unique_and_valid_for_a_day() {
    let app = TestApp::start().await;
    let id = customer(&app).await;
    let (first, second) = (link(&ask(&app, id).await), link(&ask(&app, id).await));
    assert_ne!(first, second);
    for path in [&first, &second] {
        assert_eq!(open(&app, path).await.status, 200, "older links stay valid");
    }
    app.state.clock().advance_secs(LINK_SECS + 1);
    for old in [open(&app, &first).await, click(&app, &first, "accept=yes").await] {
        assert_eq!(old.status, 410);
        assert!(old.text().contains("has expired"), "{}", old.text());
    }
    let fresh = link(&ask(&app, id).await);
    assert_eq!(click(&app, &fresh, "accept=yes").await.status, 200, "a new link after expiry");
}

#[tokio::test]
async fn invalid_links_return_404() {
    let app = TestApp::start().await;
    let id = customer(&app).await;
    let good = link(&ask(&app, id).await);
    let other = good.replace(&id.to_string(), &customer(&app).await.to_string());
    let cut = &good[..good.len() - 2];
    for path in ["/consent", "/consent?token=", "/consent?token=a.b.c.d", "/consent?token=%FF", &other, cut] {
        for reply in [open(&app, path).await, click(&app, path, "accept=yes").await] {
            assert_eq!(reply.status, 404, "{path}");
            assert!(reply.text().contains("No such link"), "{path}");
        }
    }
    assert_eq!(ask(&app, id).await.json["accepted_at"], json!(null));
}

#[tokio::test]
async fn deactivated_customer_is_not_asked() {
    let app = TestApp::start().await;
    let id = customer(&app).await;
    let path = link(&ask(&app, id).await);
    let mut opened = Opened::find(app.state.database(), id, None).await.unwrap();
    opened.apply(&Command::Deactivate, &Actor::Service, Timestamp(0)).await.unwrap();
    opened.commit().await.unwrap();
    ask(&app, id).await.assert_problem(409, "customer_inactive");
    for reply in [open(&app, &path).await, click(&app, &path, "accept=yes").await] {
        assert_eq!(reply.status, 410);
        assert!(reply.text().contains("nothing to accept"), "{}", reply.text());
    }
}

#[tokio::test]
async fn same_request_returns_the_same_link_to_its_psp_only() {
    let app = TestApp::start().await;
    let id = customer(&app).await;
    let path = format!("/api/v1/customers/{id}/service-consent");
    let call = || app.request(Method::POST, &path).idempotency_key("one");
    let (first, again) = (call().send().await, call().send().await);
    assert_eq!(
        (first.json["url"].as_str(), again.header("idempotent-replayed")),
        (again.json["url"].as_str(), Some("true"))
    );
    let other = app.add_psp().await;
    let key = app.add_key(other, &[payferry_domain::KeyScope::Full]).await;
    app.request(Method::POST, &path).key(&key).send().await.assert_problem(404, "customer_not_found");
    ask(&app, CustomerId::generate()).await.assert_problem(404, "customer_not_found");
    let nonsense = "/api/v1/customers/x/service-consent";
    app.request(Method::POST, nonsense).send().await.assert_problem(404, "customer_not_found");
}
