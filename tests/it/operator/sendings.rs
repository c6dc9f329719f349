//! `/ops/sendings`: payouts and withdrawals with their actors, and manual decisions about addresses in review.

use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::Decision;
use payferry_domain::{Chain, Token, WithdrawalId};
use payferry_journal::audit::Actor;
use payferry_journal::psps::wallets;
use payferry_journal::psps::wallets::WalletChange;
use reqwest::Method;
use sea_orm::ConnectionTrait;
use serde_json::{Value, json};

use super::decisions::{FixedScreener, fixture_with_screener};
use super::stuck::{hold, lift, paged};
use super::{ServiceFixture, reply};
use crate::app::Reply;
use crate::chainside::balance;

/// An account used only here.
const TREASURER: &str = "0x000000000000000000000000000000000000beef";

/// Earns 9.90 USDC, registers a wallet, and then makes the screener undecided.
async fn doubted() -> (ServiceFixture, FixedScreener) {
    let opinions = FixedScreener::new(Decision::Allow);
    let service = fixture_with_screener(&opinions).await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    let app = &service.app;
    let (transaction, now) = (app.state.database().begin().await.unwrap(), app.state.clock().now());
    let change = WalletChange { chain: None, address: Some(TREASURER.parse().unwrap()), delay_secs: 0 };
    wallets::change(&transaction, app.psp_id, change, &Actor::Operator, now).await.unwrap();
    transaction.commit().await.unwrap();
    opinions.set(Decision::Review);
    (service, opinions)
}

async fn ordered(service: &ServiceFixture, amount: &str) -> Reply {
    let body = json!({ "amount": amount, "currency": "USDC", "chain": "base" });
    let asked = service.app.post("/withdrawals", &body).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    let path = format!("/withdrawals/{}", asked.json["id"].as_str().unwrap());
    let in_review = async |service: &ServiceFixture| {
        Some(service.app.get(&path).await).filter(|r| r.json["kyt_verdict"] == "review")
    };
    service.until("its address is in review", in_review).await
}

fn ops(order: &Reply, what: &str) -> String {
    format!("/ops/sendings/{}{what}", order.json["id"].as_str().unwrap())
}

async fn ended(service: &ServiceFixture, order: &Reply, status: &str) -> Reply {
    let path = format!("/withdrawals/{}", order.json["id"].as_str().unwrap());
    let is = async |service: &ServiceFixture| {
        Some(service.app.get(&path).await).filter(|reply| reply.json["status"] == status)
    };
    service.until(status, is).await
}

fn allow() -> Value {
    json!({ "decision": "allow", "reason": "the account is the PSP's own" })
}

#[tokio::test]
async fn address_in_review_is_listed_until_the_operator_decides() {
    let (service, _) = doubted().await;
    let (wanted, unwanted) = (ordered(&service, "4").await, ordered(&service, "5").await);
    let stuck = service.get("/ops/stuck?kind=sending_in_review").await;
    let items = stuck.json["kinds"][0]["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| &item["id"]).collect::<Vec<_>>(), [&wanted.json["id"], &unwanted.json["id"]]);
    assert_eq!(json!(paged(&service, "sending_in_review", 1).await), json!([wanted.json["id"], unwanted.json["id"]]));
    assert_eq!(items[0]["can"], json!([{ "action": "screen", "path": ops(&wanted, "/screen") }]));
    insta::assert_json_snapshot!("sending_in_review", service.get(&ops(&wanted, "")).await.redacted());

    let path = ops(&wanted, "/screen");
    let mut faults = service.post(&path, &json!({ "decision": "review", "note": "x" })).await.faults();
    faults.sort();
    assert_eq!(faults, ["decision: unknown_value", "note: unknown_field", "reason: required"]);
    let nobody = format!("/ops/sendings/{}/screen", OutboundId::Withdrawal(WithdrawalId::generate()));
    service.post(&nobody, &allow()).await.assert_problem(404, "sending_not_found");
    service.post("/ops/sendings/x/screen", &allow()).await.assert_problem(400, "invalid_parameters");
    reply(service.bare(Method::POST, &path).json(&allow())).await.assert_problem(401, "operator_token_missing");

    let decided = service.post(&path, &allow()).await;
    assert_eq!((decided.status.as_u16(), &decided.json["verdict"]), (200, &json!("allow")), "{}", decided.text());
    let entry = &decided.json["history"][0];
    assert_eq!((&entry["action"], &entry["actor_kind"]), (&json!("sending.screened_by_hand"), &json!("operator")));
    ended(&service, &wanted, "sent").await;
    service.post(&path, &allow()).await.assert_problem(409, "not_in_review");

    let block = json!({ "decision": "block", "reason": "the account has no owner" });
    assert_eq!(service.post(&ops(&unwanted, "/screen"), &block).await.status, 200);
    let failed = ended(&service, &unwanted, "failed").await;
    assert_eq!(failed.json["failure_reason"], "address_blocked");
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, TREASURER).await, 4_000_000);
    let left = service.app.get("/balances").await;
    let base = left.json["balances"].as_array().unwrap().iter().find(|row| row["chain"] == "base").unwrap();
    assert_eq!((&base["available"], &base["reserved"]), (&json!("5.90"), &json!("0.00")));
    assert_eq!(service.get("/ops/stuck?kind=sending_in_review").await.json["kinds"], json!([]));
    service.stop().await;
}

#[tokio::test]
async fn decision_with_an_unknown_result_is_not_reported_as_failed() {
    let (service, _) = doubted().await;
    let order = ordered(&service, "4").await;
    let path = ops(&order, "/screen");
    let failing = service.app.database.fail_commits("sendings").await;
    let asked = service.post(&path, &allow()).await;
    asked.assert_problem(503, "timed_out");
    let detail = asked.json["detail"].as_str().unwrap();
    assert!(detail.contains("before you repeat it") && !detail.contains("Idempotency-Key"), "{detail}");
    let view = format!("/ops/view/sendings/{}", id_of(&order));
    let form = service.call(Method::POST, &format!("{view}/screen")).body("decision=allow&reason=ours&confirm=true");
    let page = reply(form.header("content-type", "application/x-www-form-urlencoded")).await;
    assert_eq!(page.status, 503);
    assert!(page.text().contains("may have been carried out") && page.text().contains(&format!("href=\"{view}\"")));
    failing.end().await;
    let decided = service.post(&path, &allow()).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    ended(&service, &order, "sent").await;
    service.stop().await;
}

#[tokio::test]
async fn withdrawal_page_has_the_decision_and_is_found_by_search() {
    let (service, _) = doubted().await;
    let order = ordered(&service, "4").await;
    let id = order.json["id"].as_str().unwrap();
    let found = service.get(&format!("/ops/view/payments?id={id}")).await;
    let view = format!("/ops/view/sendings/{id}");
    assert_eq!(found.header("location"), Some(view.as_str()));
    let page = service.get(&view).await;
    assert!(page.text().contains("Destination") && page.text().contains("4.00 USDC"), "{}", page.text());
    let sent = async |form: &'static str| {
        let call = service.call(Method::POST, &format!("{view}/screen"));
        reply(call.header("content-type", "application/x-www-form-urlencoded").body(form)).await
    };
    assert_eq!(sent("decision=allow&reason=ours").await.status, 422);
    let ticked = sent("decision=allow&reason=ours&confirm=true").await;
    assert_eq!((ticked.status.as_u16(), ticked.header("location")), (303, Some(view.as_str())));
    ended(&service, &order, "sent").await;
    // Without a form the page is live; an answer to a form never is.
    let late = sent("decision=block&reason=ours&confirm=true").await;
    assert_eq!(late.status, 409);
    assert!(!late.text().contains(" data-live"), "{}", late.text());
    let page = service.get(&view).await;
    assert!(!page.text().contains("Destination") && page.text().contains("screened by hand"), "{}", page.text());
    service.stop().await;
}

fn id_of(order: &Reply) -> OutboundId {
    order.json["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn pages_link_from_the_root_to_a_withdrawals_actor() {
    let (service, _) = doubted().await;
    let order = ordered(&service, "1").await;
    for _ in 0..50 {
        let body = json!({ "amount": "0.01", "currency": "USDC", "chain": "base" });
        assert_eq!(service.app.post("/withdrawals", &body).await.status, 202);
    }
    let all_run = async |service: &ServiceFixture| {
        let tree = service.get("/ops/actors").await.json;
        (tree["sendings_live"] == 51).then_some(tree)
    };
    let tree = service.until("all of them run", all_run).await;
    let of_desk =
        tree["tree"]["root"]["children"].as_array().unwrap().iter().find(|node| node["kind"] == "sending_desk");
    assert_eq!((&of_desk.unwrap()["children_live"], &of_desk.unwrap()["children"]), (&json!(51), &json!([])));
    let kind = tree["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "sending").unwrap();
    assert_eq!(kind["live"], 51);

    let first = service.get("/ops/sendings?limit=50").await.json;
    let rest = service.get(&format!("/ops/sendings?after={}", first["next_after"].as_str().unwrap())).await.json;
    let listed = |page: &Value| page["sendings"].as_array().unwrap().clone();
    let mut ids: Vec<_> = listed(&first).iter().chain(&listed(&rest)).map(|line| line["id"].to_string()).collect();
    assert_eq!((listed(&first).len(), listed(&rest).len(), &rest["next_after"]), (50, 1, &Value::Null));
    assert!(ids.is_sorted());
    ids.dedup();
    assert_eq!(ids.len(), 51);
    let line = listed(&first).into_iter().find(|line| line["id"] == order.json["id"]).unwrap();
    assert_eq!(
        (&line["status"], &line["in_review"], &line["chain"], &line["version"]),
        (&json!("pending"), &json!(true), &json!("base"), &json!(2))
    );
    let bad = service.get("/ops/sendings?limit=501&after=pay_1").await;
    assert_eq!(bad.faults(), ["after: invalid_id", "limit: out_of_range"]);
    // An actor that is busy for a second is shown without its memory.
    let remembers = async |service: &ServiceFixture| {
        let one = service.get(&format!("/ops/actors/{}", id_of(&order))).await;
        one.json["actor"]["memory"].is_object().then_some(one)
    };
    let one = service.until("its memory is shown", remembers).await;
    let actor = &one.json["actor"];
    assert_eq!(
        (&actor["state"], &actor["restarts"], &actor["memory"]["version"]),
        (&json!("running"), &json!(0), &json!(2))
    );
    assert_eq!(
        service.get(&ops(&order, "")).await.json["verdict"],
        one.json["verdict"],
        "the same through either path"
    );

    // The same on the pages: the root, its supervisor, the second page of its actors, one of them.
    let root = service.get("/ops").await;
    assert!(root.text().contains("href=\"/ops/view/sendings\"") && root.text().contains("kind-sending\""));
    let page = service.get("/ops/view/sendings").await;
    assert_eq!(page.text().matches("<tr id=\"wd_").count(), 50);
    let next = format!("/ops/view/sendings?after={}", first["next_after"].as_str().unwrap());
    assert!(page.text().contains(&format!("href=\"{next}\"")), "{}", page.text());
    let last = service.get(&next).await;
    assert_eq!(last.text().matches("<tr id=\"wd_").count(), 1);
    let view = format!("/ops/view/sendings/{}", id_of(&order));
    assert!(page.text().contains(&format!("href=\"{view}\"")) && !last.text().contains(&view));
    assert_eq!(service.get("/ops/view/sendings?after=pay_1").await.status, 404);
    let remembers = async |service: &ServiceFixture| {
        let page = service.get(&view).await;
        (page.text().contains("version 2") && page.text().contains("await review")).then_some(())
    };
    service.until("the page shows its memory", remembers).await;
    service.stop().await;
}

#[tokio::test]
async fn repeatedly_failing_withdrawal_is_quarantined_and_released() {
    let (service, _) = doubted().await;
    let (bad, other) = (ordered(&service, "4").await, ordered(&service, "1").await);
    let (id, view) = (id_of(&bad), format!("/ops/view/sendings/{}", id_of(&bad)));
    let give_up = async || {
        for _ in 0..4 {
            service.panic(id).await;
        }
    };
    give_up().await;
    let shown = service.get(&ops(&bad, "")).await.json;
    assert_eq!((&shown["actor"]["state"], &shown["actor"]["restarts"]), (&json!("quarantined"), &json!(3)));
    let actions: Vec<_> = shown["incidents"].as_array().unwrap().iter().map(|incident| &incident["action"]).collect();
    assert_eq!(actions, ["quarantined", "restarted", "restarted", "restarted"]);
    let stuck = service.get("/ops/stuck?kind=quarantined").await;
    insta::assert_json_snapshot!("sending_quarantined", stuck.redacted());
    let tree = service.get("/ops/actors").await.json;
    assert_eq!((&tree["payments_quarantined"], &tree["sendings_quarantined"]), (&json!(0), &json!(1)));
    let given_up = &tree["quarantined"][0];
    assert_eq!(given_up["id"], id.to_string(), "{tree:#}");
    assert!(given_up["reason"].as_str().unwrap().contains("on purpose"), "{tree:#}");
    let kind = tree["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "sending").unwrap();
    assert_eq!((&kind["restarts"], &kind["quarantined"]), (&json!({ "panic": 3 }), &json!(1)));
    // Neither the API nor the page accepts a decision meanwhile.
    let refused = service.post(&ops(&bad, "/screen"), &allow()).await;
    refused.assert_problem(409, "sending_quarantined");
    assert!(refused.json["detail"].as_str().unwrap().contains("has to be released"), "{}", refused.text());
    let call = service.call(Method::POST, &format!("{view}/screen")).body("decision=allow&reason=ours&confirm=true");
    let page = reply(call.header("content-type", "application/x-www-form-urlencoded")).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (409, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("Nothing was changed: ") && page.text().contains("has to be released"));
    let kept = service.get(&ops(&bad, "")).await.json;
    assert_eq!((&kept["verdict"], &kept["history"]), (&json!("review"), &json!([])));
    let button = format!("action=\"{view}/release\"");
    for page in ["/ops", "/ops/view/stuck", &view] {
        let page = service.get(page).await;
        assert!(page.text().contains(&button) && page.text().contains("on purpose"), "{}", page.text());
    }
    let log = service.get("/ops/view/incidents").await;
    assert!(log.text().contains(&format!("href=\"{view}\"")), "{}", log.text());

    // The other withdrawal continues, and so does this one after its release through the API or the button.
    service.post(&ops(&other, "/screen"), &allow()).await;
    ended(&service, &other, "sent").await;
    let release = format!("/ops/actors/{id}/release");
    assert_eq!(service.post(&release, &Value::Null).await.json["sending_id"], id.to_string());
    service.post(&release, &Value::Null).await.assert_problem(409, "sending_not_quarantined");
    give_up().await;
    let pressed = reply(service.call(Method::POST, &format!("{view}/release"))).await;
    assert_eq!((pressed.status.as_u16(), pressed.header("location")), (303, Some(view.as_str())));
    service.post(&release, &Value::Null).await.assert_problem(409, "sending_not_quarantined");
    // Each release is recorded, and a late one has no effect.
    let history = service.get(&ops(&bad, "")).await.json["history"].as_array().unwrap().clone();
    let done: Vec<_> = history.iter().map(|entry| [&entry["action"], &entry["actor_kind"], &entry["psp_id"]]).collect();
    let psp_id = json!(service.app.psp_id.to_string());
    assert_eq!(done, [[&json!("sending.released"), &json!("operator"), &psp_id]; 2]);
    assert_eq!(service.post(&ops(&bad, "/screen"), &allow()).await.status, 200);
    ended(&service, &bad, "sent").await;
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, TREASURER).await, 5_000_000);
    let nothing =
        async |service: &ServiceFixture| (service.get("/ops/stuck").await.json["kinds"] == json!([])).then_some(());
    service.until("nothing needs attention", nothing).await;
    let gone = async |service: &ServiceFixture| service.get(&ops(&bad, "")).await.json["actor"].is_null().then_some(());
    service.until("its actor has left", gone).await;
    service.stop().await;
}

#[tokio::test]
async fn long_pending_withdrawal_is_listed_until_sent() {
    let (service, opinions) = doubted().await;
    let undecided = ordered(&service, "1").await;
    opinions.set(Decision::Allow);
    hold(&service, "sending:base").await;
    let body = json!({ "amount": "4", "currency": "USDC", "chain": "base" });
    let order = service.app.post("/withdrawals", &body).await;
    let path = format!("/withdrawals/{}", id_of(&order));
    let cleared =
        async |service: &ServiceFixture| (service.app.get(&path).await.json["kyt_verdict"] == "allow").then_some(());
    service.until("its address is allowed", cleared).await;
    let overdue = "/ops/stuck?kind=sending_overdue";
    assert_eq!(service.get(overdue).await.json["kinds"], json!([]), "it was just ordered");
    let aged = service.app.writer().execute_unprepared("UPDATE sendings SET created_at = 1").await.unwrap();
    assert_eq!(aged.rows_affected(), 2);
    // The other withdrawal waits for a person and is listed only for that.
    let listed = service.get(overdue).await;
    insta::assert_json_snapshot!("sending_overdue", listed.redacted());
    assert_eq!(listed.json["kinds"][0]["items"][0]["id"], order.json["id"]);
    let all = service.get("/ops/stuck").await.json;
    let in_review = all["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "sending_in_review").unwrap();
    assert_eq!(in_review["items"][0]["id"], undecided.json["id"]);
    let page = service.get("/ops/view/stuck").await;
    assert!(page.text().contains("Sending overdue") && page.text().contains(&format!("/sendings/{}\"", id_of(&order))));
    lift(&service, "sending:base").await;
    ended(&service, &order, "sent").await;
    assert_eq!(service.get(overdue).await.json["kinds"], json!([]));
    service.stop().await;
}
