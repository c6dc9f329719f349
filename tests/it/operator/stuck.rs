//! `/ops/stuck`.

use std::time::Duration;

use alloy::primitives::U256;
use payferry::sandbox::Payer;
use payferry_devchain::{Devchain, Faults};
use payferry_domain::customer::Command;
use payferry_domain::{Chain, CheckId, PaymentId, Token};
use payferry_harness::database::Lock;
use sea_orm::ConnectionTrait;
use serde_json::{Value, json};

use super::ServiceFixture;
use crate::app::Reply;
use crate::http::compliance::{change, ready};

fn id_of(payment: &Reply) -> &str {
    payment.json["payment_id"].as_str().unwrap()
}

#[tokio::test]
async fn nothing_is_listed_in_normal_operation() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    let stuck = service.get("/ops/stuck").await;
    assert_eq!(stuck.json, json!({ "total": { "counted": 0, "more": false }, "kinds": [], "unread": [] }));
    let bad = service.get("/ops/stuck?kind=everything&limit=1000").await;
    assert_eq!(bad.faults(), ["kind: unknown_value", "limit: out_of_range"]);
    assert_eq!(service.get("/ops/stuck?kind=overdue&after=pay_1").await.faults(), ["after: invalid_cursor"]);
    assert_eq!(
        service.get("/ops/stuck?after=1.pay_1").await.faults(),
        ["after: invalid_cursor"],
        "the kind is missing"
    );
    assert_eq!(service.get("/ops/view/stuck?kind=everything").await.status, 404);
    assert!(service.get("/ops/view/stuck?kind=overdue").await.text().contains("Nothing of this kind needs attention."));
    service.stop().await;
}

#[tokio::test]
async fn items_that_need_attention_have_a_reason_and_advice() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    // Really blocked: the money of a sanctioned payer is held.
    let blocked = service.app.add_payment(&merchant).await;
    let wallet = blocked.json["intermediary_wallet"].as_str().unwrap().parse().unwrap();
    let chain = service.app.env().chain(Chain::Base);
    chain.transfer(Payer::Sanctioned, Token::Usdc, wallet, "10".parse().unwrap()).await.unwrap();
    service.app.payment_when(&blocked, "failed").await;
    let settled = service.app.add_payment(&merchant).await;
    service.app.pay(&settled, "10").await;
    service.app.payment_when(&settled, "settled").await;
    // The other rows are changed as if something had failed long ago.
    let (overdue, unsettled) = (service.app.add_payment(&merchant).await, service.app.add_payment(&merchant).await);
    for sql in [
        format!("UPDATE payments SET expires_at = 1 WHERE id = '{}'", id_of(&overdue)),
        format!("UPDATE payments SET status = 'confirmed', updated_at = 1 WHERE id = '{}'", id_of(&unsettled)),
        format!("UPDATE transfers SET applied_revision = 0, created_at = 1 WHERE payment_id = '{}'", id_of(&settled)),
        format!("UPDATE deliveries SET status = 'exhausted' WHERE payment_id = '{}'", id_of(&blocked)),
        format!("UPDATE deliveries SET created_at = 1, updated_at = 1 WHERE payment_id = '{}'", id_of(&settled)),
    ] {
        service.app.writer().execute_unprepared(&sql).await.unwrap();
    }
    let stuck = service.get("/ops/stuck").await;
    insta::assert_json_snapshot!("stuck", stuck.redacted());
    // Deliveries without a webhook URL are not part of the backlog, and the PSP's page gives the reason.
    let backlog = service.get("/ops/overview").await.json["webhooks"]["backlog"].clone();
    let counted = |what: &str| backlog[what]["counted"].as_u64().unwrap();
    assert_eq!((counted("queued"), counted("unaddressed"), counted("exhausted")), (0, 4, 2), "{backlog:#}");
    assert!(backlog["waiting_since"].is_null() && backlog["unaddressed_since"].is_string(), "{backlog:#}");
    let page = service.get(&format!("/ops/view/webhooks/{}", service.app.psp_id)).await;
    assert!(page.text().contains("Nothing is sent: no webhook URL is set."), "{}", page.text());
    let page = service.get("/ops/view/webhooks").await;
    assert!(page.text().contains("4 without a URL"), "{}", page.text());
    let one = service.get("/ops/stuck?kind=overdue&limit=1").await.json;
    assert_eq!(one["kinds"].as_array().unwrap().len(), 1);
    assert_eq!(one["kinds"][0]["items"][0]["id"], id_of(&overdue));
    service.stop().await;
}

/// Ids of all items of a kind, read in pages of this size.
pub(super) async fn paged(service: &ServiceFixture, kind: &str, limit: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut after = String::new();
    loop {
        let stuck = service.get(&format!("/ops/stuck?kind={kind}&limit={limit}&after={after}")).await.json;
        let group = &stuck["kinds"][0];
        let items = group["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{group:#}");
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        let Some(next) = group["next_after"].as_str() else {
            assert_eq!(group["total"]["counted"], ids.len(), "{group:#}");
            return ids;
        };
        assert_eq!(items.len(), limit, "{group:#}");
        next.clone_into(&mut after);
    }
}

#[tokio::test]
async fn all_items_are_reachable_through_pages() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let mut made = Vec::new();
    for _ in 0..21 {
        made.push(id_of(&service.app.add_payment(&merchant).await).to_owned());
    }
    made.sort();
    // All at the same time, except the last payment, which has been overdue for longest.
    let last = made.pop().unwrap();
    for sql in [
        "UPDATE payments SET expires_at = 2".to_owned(),
        format!("UPDATE payments SET expires_at = 1 WHERE id = '{last}'"),
    ] {
        service.app.writer().execute_unprepared(&sql).await.unwrap();
    }
    made.insert(0, last);
    for limit in [1, 7, 20, 21, 200] {
        assert_eq!(paged(&service, "overdue", limit).await, made, "{limit} at a time");
    }

    let page = service.get("/ops/view/stuck").await;
    let (all, text) = ("/ops/view/stuck?kind=overdue", page.text());
    assert!(text.contains("20 are shown of 21") && !text.contains(&format!("id=\"overdue-{}\"", made[20])), "{text}");
    let next = text.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    assert!(next.starts_with(&format!("{all}&after=")), "{next}");
    let rest = service.get(&next).await;
    let text = rest.text();
    assert!(text.contains("1 is shown of 21") && text.contains(&format!("id=\"overdue-{}\"", made[20])), "{text}");
    assert!(!text.contains(&made[0]) && text.contains(&format!("rel=\"first\" href=\"{all}\"")), "{text}");
    // A page of one kind has a higher limit.
    let whole = service.get(all).await;
    assert!(made.iter().all(|id| whole.text().contains(id)) && !whole.text().contains("shown of"), "{}", whole.text());

    // The same for items that the service holds in memory.
    for id in &made[..3] {
        for _ in 0..4 {
            service.panic(id.parse::<PaymentId>().unwrap()).await;
        }
    }
    assert_eq!(paged(&service, "quarantined", 2).await, made[..3], "the longest quarantined first");
    service.stop().await;
}

/// Waits until an item of this kind is listed, or none any more; returns the first item.
async fn until_stuck(service: &ServiceFixture, kind: &str, is_stuck: bool) -> Value {
    let path = format!("/ops/stuck?kind={kind}");
    let ask = async |service: &ServiceFixture| {
        let kinds = service.get(&path).await.json["kinds"].as_array().cloned().unwrap_or_default();
        (kinds.is_empty() != is_stuck).then(|| kinds.first().map(|kind| kind["items"][0].clone()))
    };
    service.until(&format!("{kind} is {is_stuck}"), ask).await.unwrap_or_default()
}

#[tokio::test]
async fn unreadable_chain_is_listed_until_readable() {
    let service = ServiceFixture::start_with_chains().await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    let item = until_stuck(&service, "chain", true).await;
    assert_eq!(item["id"], "base", "{item:#}");
    assert!(item["reason"].as_str().unwrap().contains("503"), "{item:#}");
    chain.set_faults(Faults::default());
    until_stuck(&service, "chain", false).await;
    service.stop().await;
}

#[tokio::test]
async fn settler_without_gas_is_listed_until_funded() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let env = service.app.env();
    let setups = env.setups().unwrap();
    let setup = setups.iter().find(|setup| setup.spec.chain == Chain::Base).unwrap();
    let operator = setup.signer.address().0.into();
    let chain = env.chain(Chain::Base).devchain();
    chain.set_balance(operator, U256::ZERO).await.unwrap();
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    let item = until_stuck(&service, "settler", true).await;
    assert_eq!(item["id"], "base", "{item:#}");
    assert!(item["reason"].as_str().unwrap().contains("cannot pay"), "{item:#}");
    assert!(item["since"].is_string() && item["age_ms"].as_i64().unwrap() < 600_000, "{item:#}");
    service.app.payment_when(&made, "confirmed").await;
    chain.set_balance(operator, U256::from(10).pow(U256::from(20))).await.unwrap();
    service.app.payment_when(&made, "settled").await;
    until_stuck(&service, "settler", false).await;
    service.stop().await;
}

/// Keeps a chain's base fee at this level until dropped.
struct HighBaseFee(tokio::task::JoinHandle<()>);

impl HighBaseFee {
    fn at(chain: &Devchain, base_fee_wei: u64) -> Self {
        let chain = chain.clone();
        Self(tokio::spawn(async move {
            while chain.set_next_base_fee(base_fee_wei).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }))
    }
}

impl Drop for HighBaseFee {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test]
async fn base_fee_above_the_ceiling_is_listed_with_advice_until_it_falls() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    hold(&service, "settlement:base").await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "confirmed").await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    let ceiling = service.app.env().chain(Chain::Base).spec().fees.max_fee_wei;
    let dear = HighBaseFee::at(chain, u64::try_from(ceiling).unwrap() * 5);
    lift(&service, "settlement:base").await;
    until_stuck(&service, "settler", true).await;
    // Constantly, not only at the moment of each attempt.
    for _ in 0..50 {
        let kinds = service.get("/ops/stuck?kind=settler").await.json["kinds"].clone();
        let (item, advice) = (&kinds[0]["items"][0], kinds[0]["advice"].as_str().unwrap_or_default());
        assert_eq!(item["id"], "base", "{kinds:#}");
        let reason = item["reason"].as_str().unwrap();
        assert!(reason.ends_with(&format!("wei per gas and the ceiling is {ceiling}")), "{reason}");
        assert!(advice.contains("max_fee_gwei"), "{advice}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let page = service.get("/ops/view/stuck").await;
    assert!(page.text().contains(&format!("the ceiling is {ceiling}")), "{}", page.text());
    service.app.payment_when(&made, "confirmed").await;
    drop(dear);
    chain.set_next_base_fee(1).await.unwrap();
    service.app.payment_when(&made, "settled").await;
    until_stuck(&service, "settler", false).await;
    service.stop().await;
}

#[tokio::test]
async fn persistently_failing_receiver_is_paused_and_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    // No server listens there.
    let hook = json!({ "webhook_url": "http://127.0.0.1:1/" });
    service.app.request(reqwest::Method::PATCH, "/api/v1/set_webhook").json(&hook).send().await;
    // Four events each: enough consecutive failures to open the breaker, and some more.
    for _ in 0..6 {
        let made = service.app.add_payment(&merchant).await;
        service.app.pay(&made, "10").await;
        service.app.payment_when(&made, "settled").await;
    }
    let item = until_stuck(&service, "breaker_open", true).await;
    assert_eq!(item["psp_id"], service.app.psp_id.to_string(), "{item:#}");
    service.stop().await;
}

#[tokio::test]
async fn blocked_database_writes_are_listed_while_they_last() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let held = service.app.database.lock(Lock::Writes).await;
    // Pending writes: at least blocks.
    let item = until_stuck(&service, "journal_hindered", true).await;
    assert_eq!(item["id"], "journal", "{item:#}");
    let reason = item["reason"].as_str().unwrap();
    let why = reason.strip_prefix("the last groups could not be written: ").unwrap();
    assert!(["another connection holds a lock", "the statement took too long"].contains(&why), "{reason}");
    assert!(item["since"].is_string() && item["age_ms"].as_i64().unwrap() < 600_000, "{item:#}");
    held.release().await;
    until_stuck(&service, "journal_hindered", false).await;
    service.app.add_payment(&merchant).await;
    service.stop().await;
}

#[tokio::test]
async fn checks_without_a_provider_are_listed() {
    let service = ServiceFixture::start().await;
    let customer = ready(&service.app).await;
    change(&service.app, customer, &Command::RequestCheck(CheckId::generate())).await;
    let waiting = service.get("/ops/stuck").await;
    insta::assert_json_snapshot!("stuck_without_identity_provider", waiting.redacted());
    service.app.writer().execute_unprepared("UPDATE checks SET created_at = 1, attempts = 3").await.unwrap();
    let overdue = service.get("/ops/stuck?kind=check_overdue").await;
    insta::assert_json_snapshot!("stuck_check_overdue", overdue.redacted());
    let another = ready(&service.app).await;
    change(&service.app, another, &Command::RequestCheck(CheckId::generate())).await;
    service.app.writer().execute_unprepared("UPDATE checks SET created_at = 1").await.unwrap();
    let both = paged(&service, "check_overdue", 1).await;
    assert!(both.len() == 2 && both.is_sorted(), "{both:?}");
    service.stop().await;
}

pub(super) async fn hold(service: &ServiceFixture, scope: &str) {
    let held = service.post("/ops/pauses", &json!({ "scope": scope, "reason": "to see who waits" })).await;
    assert_eq!(held.status, 200, "{}", held.text());
}

pub(super) async fn lift(service: &ServiceFixture, scope: &str) {
    assert_eq!(service.post(&format!("/ops/pauses/{scope}/lift"), &json!({})).await.json["was_paused"], true);
}

/// Backdates the operations of a payment to 1970.
async fn age_operations(service: &ServiceFixture, payment: &Reply) {
    let sql = format!("UPDATE operations SET created_at = 1, updated_at = 1 WHERE payment_id = '{}'", id_of(payment));
    service.app.writer().execute_unprepared(&sql).await.unwrap();
}

/// Kinds under which a payment is listed.
async fn kinds_of(service: &ServiceFixture, payment: &Reply) -> Vec<String> {
    let stuck = service.get("/ops/stuck").await.json;
    let kinds = stuck["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|kind| kind["items"].as_array().unwrap().iter().any(|item| item["payment_id"] == id_of(payment)));
    kinds.map(|kind| kind["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn unsent_refund_is_listed_until_sent() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    hold(&service, "sending:base").await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "4").await;
    service.app.payment_when(&made, "mismatched").await;
    let refunds = format!("/payments/{}/refunds", id_of(&made));
    let asked = json!({ "amount": "3", "address": format!("0x{}", "ad".repeat(20)) });
    assert_eq!(service.app.post(&refunds, &asked).await.status, 202);
    let queued = async |service: &ServiceFixture| {
        let read = service.get(&format!("/ops/actors/{}", id_of(&made))).await;
        (read.json["operations"][0]["status"] == "queued").then_some(())
    };
    service.until("the refund is queued", queued).await;
    assert_eq!(kinds_of(&service, &made).await, Vec::<String>::new(), "it was just requested");
    age_operations(&service, &made).await;
    let listed = service.get("/ops/stuck?kind=operation_overdue").await;
    insta::assert_json_snapshot!("stuck_operation_overdue", listed.redacted());
    let page = service.get("/ops/view/stuck").await;
    assert!(page.text().contains("Operation overdue") && page.text().contains("a refund of 3.00 USDC on base"));
    // An operation that is retried constantly changes all the time.
    let id = id_of(&made);
    let tried = format!("UPDATE operations SET attempts = 7, updated_at = {} WHERE payment_id = '{id}'", i64::MAX);
    service.app.writer().execute_unprepared(&tried).await.unwrap();
    let item = service.get("/ops/stuck?kind=operation_overdue").await.json["kinds"][0]["items"][0].clone();
    assert!(item["reason"].as_str().unwrap().ends_with("is queued, after 7 transactions"), "{item:#}");
    lift(&service, "sending:base").await;
    let sent = async |service: &ServiceFixture| {
        (service.app.get(&refunds).await.json["refunds"][0]["status"] == "sent").then_some(())
    };
    service.until("the refund is sent", sent).await;
    let none = async |service: &ServiceFixture| kinds_of(service, &made).await.is_empty().then_some(());
    service.until("it is no longer listed", none).await;
    service.stop().await;
}

#[tokio::test]
async fn waiting_and_repeated_settlements_are_listed_once() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let undone = service.app.add_payment(&merchant).await;
    service.app.pay(&undone, "10").await;
    service.app.payment_when(&undone, "settled").await;
    hold(&service, "settlement:base").await;
    let (waiting, spoiled) = (service.app.add_payment(&merchant).await, service.app.add_payment(&merchant).await);
    for payment in [&waiting, &spoiled] {
        service.app.pay(payment, "10").await;
        service.app.payment_when(payment, "confirmed").await;
    }
    // Really blocked: one of them received more from a sanctioned payer.
    let wallet = spoiled.json["intermediary_wallet"].as_str().unwrap().parse().unwrap();
    let chain = service.app.env().chain(Chain::Base);
    chain.transfer(Payer::Sanctioned, Token::Usdc, wallet, "5".parse().unwrap()).await.unwrap();
    let blocked =
        async |service: &ServiceFixture| (kinds_of(service, &spoiled).await == ["funds_blocked"]).then_some(());
    service.until("the money is blocked", blocked).await;

    // Rows as after a long time, and after a reorg of a settlement.
    let ids = [&undone, &waiting, &spoiled].map(id_of);
    for payment in [&undone, &waiting, &spoiled] {
        age_operations(&service, payment).await;
    }
    for sql in [
        format!("UPDATE operations SET status = 'queued' WHERE payment_id = '{}'", ids[0]),
        format!("UPDATE payments SET updated_at = 1 WHERE id IN ('{}', '{}')", ids[1], ids[2]),
    ] {
        service.app.writer().execute_unprepared(&sql).await.unwrap();
    }
    assert_eq!(kinds_of(&service, &undone).await, ["operation_overdue"]);
    assert_eq!(kinds_of(&service, &waiting).await, ["unsettled"]);
    assert_eq!(kinds_of(&service, &spoiled).await, ["funds_blocked", "operation_overdue"]);
    let listed = service.get("/ops/stuck?kind=operation_overdue").await.json;
    let reasons: Vec<_> = listed["kinds"][0]["items"].as_array().unwrap().iter().map(|item| &item["reason"]).collect();
    let reason = "the settlement of 10.00 USDC on base is queued";
    assert_eq!(reasons, [reason, reason]);
    assert_eq!(paged(&service, "operation_overdue", 1).await.len(), 2);
    service.stop().await;
}
