//! `/ops/sendings`: payouts and withdrawals whose address is in review, decided about by hand.

use payferry_actors::customers::audit::Actor;
use payferry_actors::psps::wallets::{self, WalletChange};
use payferry_domain::payment::Decision;
use payferry_domain::sending::SendingId;
use payferry_domain::{Chain, Token, WithdrawalId};
use reqwest::Method;
use serde_json::{Value, json};

use super::decisions::{Opinions, desk_of};
use super::{Desk, reply};
use crate::app::Reply;
use crate::chainside::balance;

/// An account that nobody else uses.
const TREASURER: &str = "0x000000000000000000000000000000000000beef";

/// 9.90 USDC earned, a registered wallet, and a screener that is undecided from then on.
async fn doubted() -> (Desk, Opinions) {
    let opinions = Opinions::new(Decision::Allow);
    let desk = desk_of(&opinions).await;
    let merchant = desk.app.add_merchant().await;
    let made = desk.app.add_payment(&merchant).await;
    desk.app.pay(&made, "10").await;
    desk.app.payment_when(&made, "settled").await;
    let app = &desk.app;
    let (transaction, now) = (app.state.database().begin().await.unwrap(), app.state.clock().now());
    let change = WalletChange { chain: None, address: Some(TREASURER.parse().unwrap()), delay_secs: 0 };
    wallets::change(&transaction, app.psp_id, change, &Actor::Operator, now).await.unwrap();
    transaction.commit().await.unwrap();
    opinions.set(Decision::Review);
    (desk, opinions)
}

async fn ordered(desk: &Desk, amount: &str) -> Reply {
    let body = json!({ "amount": amount, "currency": "USDC", "chain": "base" });
    let asked = desk.app.post("/withdrawals", &body).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    let path = format!("/withdrawals/{}", asked.json["id"].as_str().unwrap());
    let in_review = async |desk: &Desk| Some(desk.app.get(&path).await).filter(|r| r.json["kyt_verdict"] == "review");
    desk.until("its address is in review", in_review).await
}

fn ops(order: &Reply, what: &str) -> String {
    format!("/ops/sendings/{}{what}", order.json["id"].as_str().unwrap())
}

async fn ended(desk: &Desk, order: &Reply, status: &str) -> Reply {
    let path = format!("/withdrawals/{}", order.json["id"].as_str().unwrap());
    let is = async |desk: &Desk| Some(desk.app.get(&path).await).filter(|reply| reply.json["status"] == status);
    desk.until(status, is).await
}

fn allow() -> Value {
    json!({ "decision": "allow", "reason": "the account is the PSP's own" })
}

#[tokio::test]
async fn an_address_in_review_is_stuck_until_the_operator_allows_or_blocks_it() {
    let (desk, _) = doubted().await;
    let (wanted, unwanted) = (ordered(&desk, "4").await, ordered(&desk, "5").await);
    let stuck = desk.get("/ops/stuck?kind=sending_in_review").await;
    let items = stuck.json["kinds"][0]["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| &item["id"]).collect::<Vec<_>>(), [&wanted.json["id"], &unwanted.json["id"]]);
    assert_eq!(items[0]["can"], json!([{ "action": "screen", "path": ops(&wanted, "/screen") }]));
    insta::assert_json_snapshot!("sending_in_review", desk.get(&ops(&wanted, "")).await.redacted());

    let path = ops(&wanted, "/screen");
    let mut faults = desk.post(&path, &json!({ "decision": "review", "note": "x" })).await.faults();
    faults.sort();
    assert_eq!(faults, ["decision: unknown_value", "note: unknown_field", "reason: required"]);
    let nobody = format!("/ops/sendings/{}/screen", SendingId::Withdrawal(WithdrawalId::generate()));
    desk.post(&nobody, &allow()).await.assert_problem(404, "sending_not_found");
    desk.post("/ops/sendings/x/screen", &allow()).await.assert_problem(400, "invalid_parameters");
    reply(desk.bare(Method::POST, &path).json(&allow())).await.assert_problem(401, "operator_token_missing");

    let decided = desk.post(&path, &allow()).await;
    assert_eq!((decided.status.as_u16(), &decided.json["verdict"]), (200, &json!("allow")), "{}", decided.text());
    let entry = &decided.json["history"][0];
    assert_eq!((&entry["action"], &entry["actor_kind"]), (&json!("sending.screened_by_hand"), &json!("operator")));
    ended(&desk, &wanted, "sent").await;
    desk.post(&path, &allow()).await.assert_problem(409, "not_in_review");

    let block = json!({ "decision": "block", "reason": "the account is nobody's" });
    assert_eq!(desk.post(&ops(&unwanted, "/screen"), &block).await.status, 200);
    let failed = ended(&desk, &unwanted, "failed").await;
    assert_eq!(failed.json["failure_reason"], "address_blocked");
    assert_eq!(balance(&desk.app, Chain::Base, Token::Usdc, TREASURER).await, 4_000_000);
    let left = desk.app.get("/balances").await;
    let base = left.json["balances"].as_array().unwrap().iter().find(|row| row["chain"] == "base").unwrap();
    assert_eq!((&base["available"], &base["reserved"]), (&json!("5.90"), &json!("0.00")));
    assert_eq!(desk.get("/ops/stuck?kind=sending_in_review").await.json["kinds"], json!([]));
    desk.stop().await;
}

#[tokio::test]
async fn the_page_of_a_withdrawal_has_the_decision_and_the_search_leads_to_it() {
    let (desk, _) = doubted().await;
    let order = ordered(&desk, "4").await;
    let id = order.json["id"].as_str().unwrap();
    let found = desk.get(&format!("/ops/view/payments?id={id}")).await;
    let view = format!("/ops/view/sendings/{id}");
    assert_eq!(found.header("location"), Some(view.as_str()));
    let page = desk.get(&view).await;
    assert!(page.text().contains("Where it goes") && page.text().contains("4.00 USDC"), "{}", page.text());
    let sent = async |form: &'static str| {
        let call = desk.call(Method::POST, &format!("{view}/screen"));
        reply(call.header("content-type", "application/x-www-form-urlencoded").body(form)).await
    };
    assert_eq!(sent("decision=allow&reason=ours").await.status, 422);
    let ticked = sent("decision=allow&reason=ours&confirm=true").await;
    assert_eq!((ticked.status.as_u16(), ticked.header("location")), (303, Some(view.as_str())));
    ended(&desk, &order, "sent").await;
    let page = desk.get(&view).await;
    assert!(!page.text().contains("Where it goes") && page.text().contains("screened by hand"), "{}", page.text());
    desk.stop().await;
}
