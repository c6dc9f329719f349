//! `/ops/payments`: manual decisions about money in review, blocked money and failed settlements.

use std::sync::Arc;

use parking_lot::Mutex;
use payferry::sandbox::Payer;
use payferry_actors::compliance::{KytError, KytScreener, ScreenRequest};
use payferry_domain::payment::{Decision, MISDIRECTED_LISTED_MAX, Verdict};
use payferry_domain::{Chain, PaymentId, Token};
use payferry_evm::wallet::checksummed;
use payferry_runtime::clock::Clock;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ServiceFixture, reply};
use crate::app::{Reply, TestApp, TestConfig};
use crate::chainside::{balance, blacklist};

const ADA: &str = "0x000000000000000000000000000000000000ada3";

/// A screener with one configurable decision for everything.
#[derive(Clone)]
pub(super) struct FixedScreener(Arc<Mutex<Decision>>);

impl FixedScreener {
    pub(super) fn new(decision: Decision) -> Self {
        Self(Arc::new(Mutex::new(decision)))
    }

    pub(super) fn set(&self, decision: Decision) {
        *self.0.lock() = decision;
    }
}

#[async_trait::async_trait]
impl KytScreener for FixedScreener {
    #[allow(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn name(&self) -> &str {
        "doubtful"
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        Ok(Verdict {
            decision: *self.0.lock(),
            by_operator: false,
            risk_level: Some("medium".to_owned()),
            score: Some(55),
            flags: vec!["mixer".to_owned()],
            provider: "doubtful".to_owned(),
            provider_ref: None,
            list_version: None,
            plain_sender: None,
            checked_at: Clock::default().now(),
        })
    }
}

/// Starts a service with chains and this screener.
pub(super) async fn fixture_with_screener(opinions: &FixedScreener) -> ServiceFixture {
    let screener: Arc<dyn KytScreener> = Arc::new(opinions.clone());
    let config = TestConfig { chains: true, screener: Some(screener), ..TestConfig::default() };
    ServiceFixture::over(TestApp::start_with(config).await).await
}

async fn fixture_with_reviews() -> ServiceFixture {
    fixture_with_screener(&FixedScreener::new(Decision::Review)).await
}

fn id_of(payment: &Reply) -> &str {
    payment.json["payment_id"].as_str().unwrap()
}

fn ops(payment: &Reply, what: &str) -> String {
    format!("/ops/payments/{}{what}", id_of(payment))
}

/// Creates a payment with a transfer in review; returns it with the request body that decides about the transfer.
async fn in_review(service: &ServiceFixture, merchant: &str) -> (Reply, Value) {
    let made = service.app.add_payment(merchant).await;
    service.app.pay(&made, "10").await;
    let final_and_in_review = async |service: &ServiceFixture| {
        let read = service.get(&ops(&made, "")).await;
        let transfer = read.json["transfers"][0].clone();
        (transfer["status"] == "final" && transfer["verdict"] == "review").then_some(transfer)
    };
    let transfer = service.until("the transfer is final and in review", final_and_in_review).await;
    let decision = json!({ "chain": "base", "tx_hash": transfer["tx_hash"], "log_index": transfer["log_index"],
        "decision": "allow", "reason": "the payer showed its invoices" });
    (made, decision)
}

fn but(body: &Value, field: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[field] = value;
    body
}

async fn stuck(service: &ServiceFixture, kind: &str) -> Value {
    service.get(&format!("/ops/stuck?kind={kind}")).await.json["kinds"][0]["items"][0].clone()
}

#[tokio::test]
async fn money_in_review_is_allowed_or_blocked_and_refunded() {
    let service = fixture_with_reviews().await;
    let merchant = service.app.add_merchant().await;
    let (allowed, allow) = in_review(&service, &merchant).await;
    let (blocked, block) = in_review(&service, &merchant).await;
    let block = but(&block, "decision", json!("block"));
    insta::assert_json_snapshot!("decisions", service.get(&ops(&allowed, "")).await.redacted());
    assert_eq!(
        stuck(&service, "in_review").await["can"],
        json!([{ "action": "screen", "path": ops(&allowed, "/screen") }])
    );

    let path = ops(&allowed, "/screen");
    let bad = json!({ "decision": "review", "tx_hash": "0x1", "log_index": -1, "note": "x" });
    let mut faults = service.post(&path, &bad).await.faults();
    faults.sort();
    let expected = [
        "chain: required",
        "decision: unknown_value",
        "log_index: out_of_range",
        "note: unknown_field",
        "reason: required",
        "tx_hash: invalid_hash",
    ];
    assert_eq!(faults, expected);
    service.post(&path, &but(&allow, "log_index", json!(99))).await.assert_problem(404, "transfer_not_found");
    let nobody = format!("/ops/payments/{}/screen", PaymentId::generate());
    service.post(&nobody, &allow).await.assert_problem(404, "payment_not_found");
    service.post("/ops/payments/x/screen", &allow).await.assert_problem(400, "invalid_parameters");
    reply(service.bare(Method::POST, &path).json(&allow)).await.assert_problem(401, "operator_token_missing");
    service
        .post(&ops(&allowed, "/retry_settlement"), &json!({ "reason": "x" }))
        .await
        .assert_problem(409, "settlement_not_failed");

    let decided = service.post(&path, &allow).await;
    assert_eq!((decided.status.as_u16(), &decided.json["transfers"][0]["verdict"]), (200, &json!("allow")));
    let entry = &decided.json["history"][0];
    assert_eq!(
        (&entry["actor_kind"], &entry["action"]),
        (&json!("operator"), &json!("payment.transfer_screened_by_hand"))
    );
    assert_eq!(entry["detail"], allow);
    let settled = service.app.payment_when(&allowed, "settled").await;
    assert_eq!(
        (&settled.json["kyt"]["provider"], &settled.json["kyt"]["flags"]),
        (&json!("operator"), &json!(["mixer"]))
    );
    service.post(&path, &but(&allow, "decision", json!("block"))).await.assert_problem(409, "not_in_review");

    let decided = service.post(&ops(&blocked, "/screen"), &block).await;
    assert_eq!(decided.json["blocked_held"], "10.00", "{}", decided.text());
    assert_eq!(service.app.payment_when(&blocked, "failed").await.json["failure_reason"], "kyt_blocked");
    let path = ops(&blocked, "/refund_blocked");
    let item = stuck(&service, "funds_blocked").await;
    assert_eq!((&item["payment_id"], &item["can"][0]["path"]), (&json!(id_of(&blocked)), &json!(path)), "{item:#}");
    // The PSP must not refund it.
    let refunds = format!("/payments/{}/refunds", id_of(&blocked));
    service.app.post(&refunds, &json!({ "address": ADA })).await.assert_problem(409, "funds_blocked");
    let wallet = &blocked.json["intermediary_wallet"];
    let bad = service.post(&path, &json!({ "address": wallet, "amount": "0", "reason": "" })).await;
    let mut faults = bad.faults();
    faults.sort();
    assert_eq!(faults, ["address: service_vault", "amount: amount_too_small", "reason: empty"]);
    let too_much = json!({ "address": ADA, "amount": "10.01", "reason": "ordered by the court" });
    service.post(&path, &too_much).await.assert_problem(409, "refund_too_large");
    let asked = service.post(&path, &json!({ "address": ADA, "reason": "ordered by the court" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    // The refund's address is screened too, and this screener puts it into review.
    let in_review = async |service: &ServiceFixture| {
        let line = service.get(&ops(&blocked, "")).await.json["refunds"][0].clone();
        (line["verdict"] == "review").then_some(line)
    };
    let line = service.until("the refund is in review", in_review).await;
    assert_eq!((&line["may"], &line["flags"]), (&json!(["allow", "block"]), &json!(["mixer"])), "{line:#}");
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 0, "nothing is sent before it is allowed");
    let path = ops(&blocked, "/screen_refund");
    let mut faults = service.post(&path, &json!({ "decision": "maybe", "refund_id": "x" })).await.faults();
    faults.sort();
    assert_eq!(faults, ["decision: unknown_value", "reason: required", "refund_id: invalid_id"]);
    let nobody = json!({ "refund_id": "rf_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "decision": "allow", "reason": "x" });
    service.post(&path, &nobody).await.assert_problem(404, "refund_not_found");
    let lift_pause =
        json!({ "refund_id": line["refund_id"], "decision": "allow", "reason": "the court's own account" });
    let allowed = service.post(&path, &lift_pause).await;
    assert_eq!((allowed.status.as_u16(), &allowed.json["refunds"]), (200, &json!([])), "{}", allowed.text());
    let sent = async |service: &ServiceFixture| {
        let listed = service.app.get(&refunds).await;
        (listed.json["refunds"][0]["status"] == "sent").then_some(listed)
    };
    let sent = service.until("the refund is sent", sent).await;
    let refund = &sent.json["refunds"][0];
    assert_eq!((&refund["funds"], &refund["requested_by"]), (&json!("blocked"), &json!("operator")));
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 10_000_000);
    service.post(&path, &lift_pause).await.assert_problem(409, "not_in_review");
    service.stop().await;
}

#[tokio::test]
async fn blocked_money_of_another_token_is_refunded_by_its_contract() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    let wallet = made.json["intermediary_wallet"].as_str().unwrap().parse().unwrap();
    let base = service.app.env().chain(Chain::Base);
    base.transfer(Payer::Sanctioned, Token::Usdt, wallet, "7".parse().unwrap()).await.unwrap();
    let held = async |service: &ServiceFixture| Some(stuck(service, "funds_blocked").await).filter(Value::is_object);
    let item = service.until("the money is blocked", held).await;
    let path = ops(&made, "/refund_blocked");
    assert!(item["can"].as_array().unwrap().contains(&json!({ "action": "refund_blocked", "path": path })), "{item:#}");
    let line = service.get(&ops(&made, "")).await.json["blocked"][0].clone();
    let usdt = base.spec().token_address(Token::Usdt).unwrap();
    let contract = checksummed(usdt);
    assert_eq!(line, json!({ "chain": "base", "currency": "USDT", "amount": "7.00", "misdirected": contract }));

    // The PSP must not refund it, it is not the due asset, and there is no more of it.
    let refunds = format!("/payments/{}/refunds", id_of(&made));
    let by_psp = json!({ "address": ADA, "token_address": usdt });
    service.app.post(&refunds, &by_psp).await.assert_problem(409, "funds_blocked");
    let asked = json!({ "address": ADA, "chain": "base", "token_address": contract, "reason": "ordered by the court" });
    let of_what_is_due = json!({ "address": ADA, "reason": "ordered by the court" });
    service.post(&path, &of_what_is_due).await.assert_problem(409, "nothing_to_refund");
    service.post(&path, &but(&asked, "chain", json!("polygon"))).await.assert_problem(409, "nothing_to_refund");
    service.post(&path, &but(&asked, "amount", json!("7.000001"))).await.assert_problem(409, "refund_too_large");
    let bad = json!({ "address": usdt, "token_address": usdt, "reason": "x" });
    let mut faults = service.post(&path, &bad).await.faults();
    faults.sort();
    assert_eq!(faults, ["address: token_contract", "chain: required"]);
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdt, ADA).await, 0, "nothing was moved");

    let sending = service.post(&path, &asked).await;
    assert_eq!(sending.status, 202, "{}", sending.text());
    let gone = async |service: &ServiceFixture| {
        let listed = service.app.get(&refunds).await.json["refunds"][0].clone();
        (listed["status"] == "sent").then_some(listed)
    };
    let sent = service.until("the refund is sent", gone).await;
    assert_eq!(
        (&sent["currency"], &sent["amount"], &sent["funds"], &sent["requested_by"]),
        (&json!("USDT"), &json!("7.00"), &json!("blocked"), &json!("operator"))
    );
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdt, ADA).await, 7_000_000);
    service.post(&path, &asked).await.assert_problem(409, "nothing_to_refund");
    assert_eq!(stuck(&service, "funds_blocked").await, Value::Null);
    // The due amount can still be paid.
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    service.stop().await;
}

#[tokio::test]
async fn settlement_is_retried_after_its_cause_is_fixed() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let treasury = service.app.env().chain(Chain::Base).spec().treasury.to_string();
    blacklist(&service.app, Chain::Base, &treasury, true).await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    let failed =
        async |service: &ServiceFixture| Some(stuck(service, "settlement_failed").await).filter(Value::is_object);
    let item = service.until("the settlement has failed", failed).await;
    let path = ops(&made, "/retry_settlement");
    assert_eq!(item["can"], json!([{ "action": "retry_settlement", "path": path }]));
    assert!(item["reason"].as_str().unwrap().contains("blacklisted"), "{item:#}");
    blacklist(&service.app, Chain::Base, &treasury, false).await;
    assert_eq!(service.post(&path, &json!({})).await.faults(), ["reason: required"]);
    let retried = service.post(&path, &json!({ "reason": "the issuer took the treasury off its list" })).await;
    assert_eq!(retried.status, 202, "{}", retried.text());
    service.app.payment_when(&made, "settled").await;
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, &treasury).await, 100_000);
    service.stop().await;
}

#[tokio::test]
async fn set_aside_transfers_are_listed_and_refundable() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    let (path, wallet) = (ops(&made, "/take_in"), made.json["intermediary_wallet"].as_str().unwrap().parse().unwrap());
    service.post(&path, &json!({ "reason": "x" })).await.assert_problem(409, "nothing_set_aside");
    let chain = service.app.env().chain(Chain::Base);
    for _ in 0..MISDIRECTED_LISTED_MAX + 2 {
        chain.transfer(Payer::Clean, Token::Usdt, wallet, "1".parse().unwrap()).await.unwrap();
    }
    let all_aside = async |service: &ServiceFixture| {
        let item = stuck(service, "transfer_set_aside").await;
        (item["reason"] == "2 transfers of 2.00 USDT on base").then_some(item)
    };
    let item = service.until("two transfers are set aside", all_aside).await;
    assert_eq!(item["can"], json!([{ "action": "take_in", "path": path }]));
    let read = service.get(&ops(&made, "")).await.json;
    assert_eq!((&read["set_aside"][0]["transfers"], &read["set_aside"][0]["amount"]), (&json!(2), &json!("2.00")));
    assert_eq!(read["can"].as_array().unwrap().last(), item["can"].get(0));
    // No other decision is pending, but the payment's page still links to the form.
    let view = service.get(&format!("/ops/view/payments/{}", id_of(&made))).await;
    assert!(view.text().contains("2 transfers of 2.00 USDT on base"), "{}", view.text());
    assert!(view.text().contains(&format!("{}/decide\"", id_of(&made))), "{}", view.text());
    assert_eq!(service.get(&format!("/ops/actors/{}", id_of(&made))).await.json["set_aside"], read["set_aside"]);
    let page = service.get(&format!("/ops/view/payments/{}/decide", id_of(&made))).await;
    assert!(page.text().contains("id=\"take-in\"") && page.text().contains("2.00 USDT"), "{}", page.text());

    let mut faults = service.post(&path, &json!({ "amount": "2" })).await.faults();
    faults.sort();
    assert_eq!(faults, ["amount: unknown_field", "reason: required"]);
    // The command is queued behind the transfers, of which a hundred are screened and finalised one by one.
    let is_quiet = async |service: &ServiceFixture| {
        let read = service.get(&ops(&made, "")).await.json;
        read["transfers"].as_array().unwrap().iter().all(|line| line["status"] == "final").then_some(())
    };
    service.until("all listed transfers are final", is_quiet).await;
    let taken = service.post(&path, &json!({ "reason": "the payer has paid in small coin" })).await;
    assert_eq!((taken.status.as_u16(), &taken.json["set_aside"]), (200, &json!([])), "{}", taken.text());
    assert_eq!(taken.json["transfers"].as_array().unwrap().len(), MISDIRECTED_LISTED_MAX + 2);
    let last = taken.json["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["action"], &last["detail"]["transfers_max"]), (&json!("payment.set_aside_taken_in"), &json!(2)));
    assert_eq!(stuck(&service, "transfer_set_aside").await, Value::Null);
    service.post(&path, &json!({ "reason": "again" })).await.assert_problem(409, "nothing_set_aside");

    // The whole amount can be refunded to the payer.
    let usdt = chain.spec().token_address(Token::Usdt).unwrap();
    let refunds = format!("/payments/{}/refunds", id_of(&made));
    let back = json!({ "token_address": usdt, "amount": (MISDIRECTED_LISTED_MAX + 2).to_string(), "address": ADA });
    let asked = async |service: &ServiceFixture| {
        Some(service.app.post(&refunds, &back).await).filter(|reply| reply.status == 202)
    };
    service.until("the whole amount is final and refundable", asked).await;
    let arrived = async |service: &ServiceFixture| {
        (balance(&service.app, Chain::Base, Token::Usdt, ADA).await == 102_000_000).then_some(())
    };
    service.until("the refund has arrived", arrived).await;
    service.stop().await;
}

#[tokio::test]
async fn quarantined_payment_accepts_no_decisions() {
    let service = fixture_with_reviews().await;
    let merchant = service.app.add_merchant().await;
    let (made, allow) = in_review(&service, &merchant).await;
    let id: PaymentId = id_of(&made).parse().unwrap();
    for _ in 0..4 {
        service.panic(id).await;
    }
    let before = service.get(&ops(&made, "")).await.json;
    for (action, body) in [
        ("screen", allow.clone()),
        ("take_in", json!({ "reason": "x" })),
        ("retry_settlement", json!({ "reason": "x" })),
        ("refund_blocked", json!({ "address": ADA, "reason": "x" })),
    ] {
        let refused = service.post(&ops(&made, &format!("/{action}")), &body).await;
        refused.assert_problem(409, "payment_quarantined");
        assert!(refused.json["detail"].as_str().unwrap().contains("has to be released"), "{}", refused.text());
    }
    let call = service.call(Method::POST, &format!("/ops/view/payments/{id}/take_in")).body("reason=x&confirm=true");
    let page = reply(call.header("content-type", "application/x-www-form-urlencoded")).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (409, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("Nothing was changed: ") && page.text().contains("has to be released"));
    assert_eq!(service.get(&ops(&made, "")).await.json, before, "nothing was done");

    assert_eq!(service.post(&format!("/ops/actors/{id}/release"), &Value::Null).await.status, 200);
    assert_eq!(service.post(&ops(&made, "/screen"), &allow).await.status, 200);
    service.app.payment_when(&made, "settled").await;
    service.stop().await;
}

#[tokio::test]
async fn page_has_a_confirmed_form_for_each_decision() {
    let service = fixture_with_reviews().await;
    let merchant = service.app.add_merchant().await;
    let (made, allow) = in_review(&service, &merchant).await;
    let view = format!("/ops/view/payments/{}", id_of(&made));
    let decide = format!("{view}/decide");
    assert!(service.get(&view).await.text().contains(&decide), "the payment's page links to the form");
    assert!(service.get("/ops/view/stuck").await.text().contains(&decide), "the attention page links to the form");
    let page = service.get(&decide).await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains(&format!("{view}/screen")) && !page.text().contains("refund_blocked"));
    let form = |confirmed: bool, decision: &str, reason: &str| {
        let log_index = allow["log_index"].to_string();
        let mut pairs = vec![("chain", "base".to_owned()), ("log_index", log_index), ("decision", decision.to_owned())];
        pairs.push(("tx_hash", allow["tx_hash"].as_str().unwrap().to_owned()));
        pairs.push(("reason", reason.to_owned()));
        pairs.extend(confirmed.then(|| ("confirm", "true".to_owned())));
        pairs
    };
    let send = async |action: &str, pairs: &[(&str, String)]| {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let call = service.call(Method::POST, &format!("{view}/{action}")).body(body);
        reply(call.header("content-type", "application/x-www-form-urlencoded")).await
    };
    let refused = send("screen", &form(false, "block", "")).await;
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("<code>confirm</code>") && refused.text().contains("<code>reason</code>"));
    let blocked = send("screen", &form(true, "block", "known to the police")).await;
    assert_eq!((blocked.status.as_u16(), blocked.header("location")), (303, Some(&*format!("{decide}?done=decided"))));
    service.app.payment_when(&made, "failed").await;
    let late = send("screen", &form(true, "allow", "changed my mind")).await;
    assert_eq!(late.status, 409, "it is decided");
    let page = service.get(&format!("{decide}?done=decided")).await;
    assert!(page.text().contains("id=\"refund-blocked\"") && page.text().contains("known to the police"));
    let pairs = |address: &str| {
        vec![("address", address.to_owned()), ("reason", "by order".to_owned()), ("confirm", "true".to_owned())]
    };
    let own = send("refund_blocked", &pairs(made.json["intermediary_wallet"].as_str().unwrap())).await;
    assert_eq!(own.status, 422);
    assert!(own.text().contains("is a vault of this service"));
    assert_eq!(send("refund_blocked", &pairs(ADA)).await.status, 303);
    let unknown = service.get(&format!("/ops/view/payments/{}/decide", PaymentId::generate())).await;
    assert_eq!(unknown.status, 404);
    service.stop().await;
}
