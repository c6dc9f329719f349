//! `/ops/sendings`: payouts and withdrawals with their actors, and manual decisions about addresses in review.

use payferry_domain::WithdrawalId;
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::Decision;

use super::attention::paged;
use super::reply;
use crate::http::customers::paid_out::{TREASURER, balances, register, withdrawal};
use crate::prelude::*;

/// Field of a confirmed form.
const CONFIRM: (&str, &str) = ("confirm", "true");

/// Earns 9.90 USDC, registers a wallet, and then makes the screener undecided.
async fn doubted() -> (ServiceFixture, FixedScreener) {
    let opinions = FixedScreener::new(Some(Decision::Allow));
    let service = ServiceFixture::over(TestApp::start_with_screener(&opinions).await).await;
    service.app.paid("10", "settled").await;
    register(&service.app).await;
    opinions.set(Decision::Review);
    (service, opinions)
}

async fn ordered(service: &ServiceFixture, amount: &str) -> Reply {
    let asked = service.app.post("/withdrawals", &withdrawal(amount)).await.ok(202);
    let path = format!("/withdrawals/{}", asked["id"].as_str().unwrap());
    service.app.get_until(&path, |read| read["kyt_verdict"] == "review").await
}

fn ops(order: &Reply, what: &str) -> String {
    format!("/ops/sendings/{}{what}", order.string("id"))
}

async fn ended(service: &ServiceFixture, order: &Reply, status: &str) -> Reply {
    service.app.when(&format!("/withdrawals/{}", order.string("id")), status).await
}

fn allow() -> Value {
    json!({ "decision": "allow", "reason": "the account is the PSP's own" })
}

#[tokio::test]
async fn address_in_review_is_listed_until_the_operator_decides() {
    let (service, _) = doubted().await;
    let (wanted, unwanted) = (ordered(&service, "4").await, ordered(&service, "5").await);
    let stuck = service.get("/ops/stuck?kind=sending_in_review").await;
    let items = stuck["kinds"][0]["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| &item["id"]).collect::<Vec<_>>(), [&wanted["id"], &unwanted["id"]]);
    assert_eq!(json!(paged(&service, "sending_in_review", 1).await), json!([wanted["id"], unwanted["id"]]));
    assert_eq!(items[0]["can"], json!([{ "action": "screen", "path": ops(&wanted, "/screen") }]));
    insta::assert_json_snapshot!("sending_in_review", service.get(&ops(&wanted, "")).await.redacted());

    let path = ops(&wanted, "/screen");
    let faults = service.post(&path, &json!({ "decision": "review", "note": "x" })).await.faults_sorted();
    assert_eq!(faults, "decision: unknown_value, note: unknown_field, reason: required");
    let nobody = format!("/ops/sendings/{}/screen", OutboundId::Withdrawal(WithdrawalId::generate()));
    service.post(&nobody, &allow()).await.assert_problem(404, "sending_not_found");
    service.post("/ops/sendings/x/screen", &allow()).await.assert_problem(400, "invalid_parameters");
    reply(service.bare(Method::POST, &path).json(&allow())).await.assert_problem(401, "operator_token_missing");

    let decided = service.post(&path, &allow()).await;
    decided.assert(200, json!({ "verdict": "allow" }));
    // The first entry is that of the request.
    let entry = &decided["history"][1];
    assert_has(entry, json!({ "action": "sending.screened_by_hand", "actor_kind": "operator" }));
    ended(&service, &wanted, "sent").await;
    service.post(&path, &allow()).await.assert_problem(409, "not_in_review");

    let block = json!({ "decision": "block", "reason": "the account has no owner" });
    assert_eq!(service.post(&ops(&unwanted, "/screen"), &block).await.status, 200);
    let failed = ended(&service, &unwanted, "failed").await;
    assert_eq!(failed["failure_reason"], "address_blocked");
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, TREASURER).await, 4_000_000);
    assert_eq!(balances(&service.app).await, ["5.90", "0.00", "0.00"]);
    assert_eq!(service.get("/ops/stuck?kind=sending_in_review").await["kinds"], json!([]));
}

#[tokio::test]
async fn decision_with_an_unknown_result_is_not_reported_as_failed() {
    let (service, _) = doubted().await;
    let order = ordered(&service, "4").await;
    let path = ops(&order, "/screen");
    let failing = service.app.database.fail_commits("sendings").await;
    let asked = service.post(&path, &allow()).await;
    asked.assert_problem(503, "timed_out");
    let detail = asked["detail"].as_str().unwrap();
    assert!(detail.contains("before you repeat it") && !detail.contains("Idempotency-Key"), "{detail}");
    let view = format!("/ops/view/sendings/{}", order.string("id"));
    let page = service.form(&format!("{view}/screen"), &[("decision", "allow"), ("reason", "ours"), CONFIRM]).await;
    page.ok(503).assert_shows(&["may have been carried out", &format!("href=\"{view}\"")]);
    failing.end().await;
    service.post(&path, &allow()).await.ok(200);
    ended(&service, &order, "sent").await;
}

#[tokio::test]
async fn withdrawal_page_has_the_decision_and_is_found_by_search() {
    let (service, _) = doubted().await;
    let order = ordered(&service, "4").await;
    let id = order.string("id");
    let found = service.get(&format!("/ops/view/search?q={id}")).await;
    let view = format!("/ops/view/sendings/{id}");
    assert_eq!(found.header("location"), Some(view.as_str()));
    service.get(&view).await.assert_shows(&["Destination", "4.00 USDC"]);
    let sent = async |decision: &str, ticked: &[(&str, &str)]| {
        let fields = [&[("decision", decision), ("reason", "ours")], ticked].concat();
        service.form(&format!("{view}/screen"), &fields).await
    };
    assert_eq!(sent("allow", &[]).await.status, 422);
    let ticked = sent("allow", &[CONFIRM]).await;
    assert_eq!((ticked.status.as_u16(), ticked.header("location")), (303, Some(view.as_str())));
    ended(&service, &order, "sent").await;
    // Without a form the page is live; an answer to a form never is.
    sent("block", &[CONFIRM]).await.ok(409).assert_hides(&[" data-live"]);
    let page = service.get(&view).await;
    page.assert_shows(&["screened by hand"]);
    page.assert_hides(&["Destination"]);
}

#[tokio::test]
async fn pages_link_from_the_root_to_a_withdrawals_actor() {
    let (service, _) = doubted().await;
    let order = ordered(&service, "1").await;
    for _ in 0..50 {
        service.app.post("/withdrawals", &withdrawal("0.01")).await.ok(202);
    }
    let tree = service.get_until("/ops/actors", |tree| tree["sendings_live"] == 51).await;
    let children = tree["tree"]["root"]["children"].as_array().unwrap();
    let of_desk = children.iter().find(|node| node["kind"] == "sending_desk").unwrap();
    assert_has(of_desk, json!({ "children_live": 51, "children": [] }));
    let kind = tree["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "sending").unwrap();
    assert_eq!(kind["live"], 51);

    let first = service.get("/ops/sendings?limit=50").await;
    let after = first.string("next_after");
    let rest = service.get(&format!("/ops/sendings?after={after}")).await;
    let mut ids = column(&first["sendings"], "id");
    assert_eq!((ids.len(), &rest["next_after"]), (50, &Value::Null));
    ids.extend(column(&rest["sendings"], "id"));
    assert!(ids.is_sorted_by(|one, next| one.as_str() < next.as_str()), "in order, and none twice");
    assert_eq!(ids.len(), 51);
    let mut lines = first["sendings"].as_array().unwrap().iter().chain(rest["sendings"].as_array().unwrap());
    let line = lines.find(|line| line["id"] == order["id"]).unwrap();
    assert_has(line, json!({ "status": "pending", "in_review": true, "chain": "base", "version": 2 }));
    let bad = service.get("/ops/sendings?limit=501&after=pay_1").await;
    assert_eq!(bad.faults(), "after: invalid_id, limit: out_of_range");
    // An actor that is busy for a second is shown without its memory.
    let path = format!("/ops/actors/{}", order.string("id"));
    let one = service.get_until(&path, |one| one["actor"]["memory"].is_object()).await;
    assert_has(&one["actor"], json!({ "state": "running", "restarts": 0, "memory/version": 2 }));
    assert_eq!(service.get(&ops(&order, "")).await["verdict"], one["verdict"], "the same through either path");

    // The same on the pages: the root, its supervisor, the second page of its actors, one of them.
    service.get("/ops").await.assert_shows(&["href=\"/ops/view/sendings\"", "kind-sending\""]);
    let page = service.get("/ops/view/sendings").await;
    assert_eq!(page.text().matches("<tr id=\"wd_").count(), 50);
    let next = format!("/ops/view/sendings?after={after}");
    let view = format!("/ops/view/sendings/{}", order.string("id"));
    page.assert_shows(&[&format!("href=\"{next}\""), &format!("href=\"{view}\"")]);
    let last = service.get(&next).await;
    assert_eq!(last.text().matches("<tr id=\"wd_").count(), 1);
    last.assert_hides(&[&view]);
    assert_eq!(service.get("/ops/view/sendings?after=pay_1").await.status, 404);
    service.get_until(&view, |page| page.text().contains("version 2") && page.text().contains("await review")).await;
}

#[tokio::test]
async fn repeatedly_failing_withdrawal_is_quarantined_and_released() {
    let (service, _) = doubted().await;
    let (bad, other) = (ordered(&service, "4").await, ordered(&service, "1").await);
    let (id, view): (OutboundId, _) =
        (bad.string("id").parse().unwrap(), format!("/ops/view/sendings/{}", bad.string("id")));
    service.quarantine(id).await;
    let shown = service.get(&ops(&bad, "")).await.json;
    assert_has(&shown["actor"], json!({ "state": "quarantined", "restarts": 3 }));
    let actions = column(&shown["incidents"], "action");
    assert_eq!(actions, ["quarantined", "restarted", "restarted", "restarted"]);
    let stuck = service.get("/ops/stuck?kind=quarantined").await;
    insta::assert_json_snapshot!("sending_quarantined", stuck.redacted());
    let tree = service.get("/ops/actors").await.json;
    assert_has(&tree, json!({ "payments_quarantined": 0, "sendings_quarantined": 1 }));
    assert_eq!(tree["quarantined"][0]["id"], id.to_string(), "{tree:#}");
    assert!(tree["quarantined"][0]["reason"].as_str().unwrap().contains("on purpose"), "{tree:#}");
    let kind = tree["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "sending").unwrap();
    assert_has(kind, json!({ "restarts": { "panic": 3 }, "quarantined": 1 }));
    // Neither the API nor the page accepts a decision meanwhile.
    let refused = service.post(&ops(&bad, "/screen"), &allow()).await;
    refused.assert_problem(409, "sending_quarantined");
    assert!(refused["detail"].as_str().unwrap().contains("has to be released"), "{}", refused.text());
    let page = service.form(&format!("{view}/screen"), &[("decision", "allow"), ("reason", "ours"), CONFIRM]).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (409, Some("text/html; charset=utf-8")));
    page.assert_shows(&["Nothing was changed: ", "has to be released"]);
    let kept = service.get(&ops(&bad, "")).await.json;
    assert_eq!(
        (&kept["verdict"], column(&kept["history"], "action")),
        (&json!("review"), vec![json!("withdrawal.created")])
    );
    let button = format!("action=\"{view}/release\"");
    for page in ["/ops", "/ops/view/stuck", &view] {
        service.get(page).await.assert_shows(&[&button, "on purpose"]);
    }
    service.get("/ops/view/incidents").await.assert_shows(&[&format!("href=\"{view}\"")]);

    // The other withdrawal continues, and so does this one after its release through the API or the button.
    service.post(&ops(&other, "/screen"), &allow()).await;
    ended(&service, &other, "sent").await;
    let release = format!("/ops/actors/{id}/release");
    assert_eq!(service.post(&release, &Value::Null).await["sending_id"], id.to_string());
    service.post(&release, &Value::Null).await.assert_problem(409, "sending_not_quarantined");
    service.quarantine(id).await;
    let pressed = service.form(&format!("{view}/release"), &super::SIGNED).await;
    assert_eq!((pressed.status.as_u16(), pressed.header("location")), (303, Some(view.as_str())));
    service.post(&release, &Value::Null).await.assert_problem(409, "sending_not_quarantined");
    // Each release is recorded, and a late one has no effect.
    let history = service.get(&ops(&bad, "")).await["history"].clone();
    for entry in &history.as_array().unwrap()[1..] {
        let psp_id = service.app.psp_id.to_string();
        assert_has(entry, json!({ "action": "sending.released", "actor_kind": "operator", "psp_id": psp_id }));
    }
    assert_eq!(history.as_array().unwrap().len(), 3);
    assert_eq!(service.post(&ops(&bad, "/screen"), &allow()).await.status, 200);
    ended(&service, &bad, "sent").await;
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, TREASURER).await, 5_000_000);
    service.get_until("/ops/stuck", |read| read["kinds"] == json!([])).await;
    service.get_until(&ops(&bad, ""), |read| read["actor"].is_null()).await;
}

#[tokio::test]
async fn long_pending_withdrawal_is_listed_until_sent() {
    let (service, opinions) = doubted().await;
    let undecided = ordered(&service, "1").await;
    opinions.set(Decision::Allow);
    service.hold("sending:base").await;
    let order = service.app.post("/withdrawals", &withdrawal("4")).await;
    let path = format!("/withdrawals/{}", order.string("id"));
    service.app.get_until(&path, |read| read["kyt_verdict"] == "allow").await;
    let overdue = "/ops/stuck?kind=sending_overdue";
    assert_eq!(service.get(overdue).await["kinds"], json!([]), "it was just ordered");
    let aged = service.app.writer().execute_unprepared("UPDATE sendings SET created_at = 1").await.unwrap();
    assert_eq!(aged.rows_affected(), 2);
    // The other withdrawal waits for a person and is listed only for that.
    let listed = service.get(overdue).await;
    insta::assert_json_snapshot!("sending_overdue", listed.redacted());
    assert_eq!(listed["kinds"][0]["items"][0]["id"], order["id"]);
    let all = service.get("/ops/stuck").await.json;
    let in_review = all["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "sending_in_review").unwrap();
    assert_eq!(in_review["items"][0]["id"], undecided["id"]);
    service
        .get("/ops/view/stuck")
        .await
        .assert_shows(&["Sending overdue", &format!("/sendings/{}\"", order.string("id"))]);
    assert!(service.lift("sending:base").await);
    ended(&service, &order, "sent").await;
    assert_eq!(service.get(overdue).await["kinds"], json!([]));
}
