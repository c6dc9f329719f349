//! Reads of the audit log: on the operator's listener and by `payferry audit`.

use payferry_domain::customer::Command;
use payferry_entities::audit_log;
use payferry_journal::audit::{Actor, NewAuditEntry, append};
use payferry_journal::customers::Opened;

use super::add_customer;
use crate::http::customers::paid_out::{payee, payout};
use crate::prelude::*;
use crate::process::{payferry, printed};

fn actions(page: &Value) -> Vec<&str> {
    page["entries"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn audit_entries_are_found_by_every_filter() {
    let service = ServiceFixture::start().await;
    let app = &service.app;
    let (one, other) = (add_customer(app, "x").await, add_customer(app, "y").await);
    for (command, by, at) in [
        (Command::AcceptTerms, Actor::Customer, 1_700_000_100_000),
        (Command::Deactivate, Actor::Operator, 1_700_000_200_000),
    ] {
        let mut opened = Opened::find(app.state.database(), one, None).await.unwrap();
        opened.apply(&command, &by, Timestamp(at)).await.unwrap();
        opened.commit().await.unwrap();
    }
    let theirs = PspId::generate();
    let entry = NewAuditEntry {
        action: "customer.document_read".to_owned(),
        psp_id: Some(theirs),
        subject: "cr_x".to_owned(),
        detail: json!({}),
    };
    let by = Actor::Provider("didit".to_owned());
    append(app.writer(), &by, Timestamp(1_700_000_300_000), vec![entry]).await.unwrap();

    let all = service.get("/ops/audit").await;
    insta::assert_json_snapshot!("audit", all.redacted());
    let accepted = "customer.terms_accepted";
    for (query, expected) in [
        (format!("subject={other}"), vec!["customer.created"]),
        (format!("customer_id={one}"), vec!["customer.created", accepted, "customer.deactivated"]),
        (format!("psp_id={theirs}"), vec!["customer.document_read"]),
        ("actor_kind=provider".to_owned(), vec!["customer.document_read"]),
        (format!("action={accepted}"), vec![accepted]),
        ("from=2023-11-14T22:15:00Z&to=2023-11-14T22:16:00Z".to_owned(), vec![accepted]),
        (format!("subject={one}&actor_kind=operator"), vec!["customer.deactivated"]),
        ("subject=nobody".to_owned(), vec![]),
    ] {
        let page = service.get(&format!("/ops/audit?{query}")).await;
        assert_eq!(actions(&page.json), expected, "{query}");
    }
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = service.get(&format!("/ops/audit?limit=2&after={after}")).await.json;
        seen.extend(actions(&page).into_iter().map(str::to_owned));
        match page["next_after"].as_i64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen, actions(&all.json));

    let bad = service.get("/ops/audit?limit=0&after=-1&actor_kind=x&from=now&psp_id=x&subject=%00").await;
    let faults = "subject: invalid_characters, psp_id: invalid_id, actor_kind: unknown_value";
    let more = "from: invalid_timestamp, after: out_of_range, limit: out_of_range";
    assert_eq!(bad.faults(), [faults, more].join(", "));

    let cli = |args: &[&str]| {
        printed(&payferry().arg("audit").args(args).args(["--database-url", app.database.url()]).output().unwrap())
    };
    let lines = cli(&["--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entries = all["entries"].as_array().unwrap();
    assert_eq!(lines.len(), entries.len(), "both contain the same entries");
    for (line, entry) in lines.iter().zip(entries) {
        assert_has(entry, line.clone());
    }
    let table = cli(&["--customer", &one.to_string(), "--actor-kind", "operator"]);
    assert!(table.contains("customer.deactivated") && table.lines().count() == 2, "{table}");
    assert_eq!(cli(&["--json", "--limit", "3", "--after", "1"]).lines().count(), 3);
}

#[tokio::test]
async fn audit_entries_are_immutable() {
    let service = ServiceFixture::start().await;
    add_customer(&service.app, "x").await;
    let connection = service.app.database.connect().await;
    for statement in ["UPDATE audit_log SET actor_kind = 'operator'", "DELETE FROM audit_log"] {
        let refused = connection.execute_unprepared(statement).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{statement}: {refused}");
    }
    if service.app.database.is_postgres() {
        let refused = connection.execute_unprepared("TRUNCATE audit_log").await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{refused}");
    }
    assert_eq!(actions(&service.get("/ops/audit").await.json), ["customer.created"]);
}

#[tokio::test]
async fn requests_that_send_money_or_change_the_webhook_are_audited() {
    let app = TestApp::start_with_chains().await;
    app.paid("10", "settled").await;
    let customer = payee(&app).await;
    let asked = payout(&customer, "2");
    let transfer = app.post_keyed("t", "/transfers", &asked).await.ok(202);
    app.post_keyed("t", "/transfers", &asked).await.assert_replays(&transfer);
    let sent = app.post("/payouts", &asked).await.ok(202);
    app.post("/payouts", &payout(&customer, "50")).await.assert_problem(409, "insufficient_balance");
    let webhook = json!({ "webhook_url": "https://psp.example/hooks?token=MARKED" });
    app.patch("/api/v1/set_webhook", &webhook).await.ok(200);
    app.request(Method::POST, "/api/v1/webhook/rotate").send().await.ok(200);

    let entries = audit_log::Entity::find().order_by_asc(audit_log::Column::Number).all(app.reader()).await.unwrap();
    assert!(entries.iter().all(|entry| entry.actor_kind != "api_key" || !entry.actor.is_empty()));
    let of_it = |entry: &audit_log::Model| !entry.action.starts_with("customer.");
    let seen: Vec<_> = entries
        .into_iter()
        .filter(of_it)
        .map(|entry| (entry.action, entry.subject, serde_json::from_str::<Value>(&entry.detail).unwrap()))
        .collect();
    let (psp, money) = (app.psp_id.to_string(), json!({ "amount": "2.00", "currency": "USDC" }));
    let endpoint = psp.replace("psp_", "we_");
    let expected = [
        ("transfer.created", transfer.id(), money.clone()),
        ("payout.created", sent.string("id"), money),
        ("webhook.set", psp.as_str(), json!({ "endpoint": endpoint, "host": "psp.example", "events": ["*"] })),
        ("webhook.secret_rotated", psp.as_str(), json!({ "endpoint": endpoint })),
    ];
    let expected = expected.map(|(action, subject, detail)| (action.to_owned(), subject.to_owned(), detail));
    assert_eq!(seen, expected);
}
