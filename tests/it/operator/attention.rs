//! `/ops/stuck`.

use std::time::Duration;

use alloy::primitives::{U64, U256};
use alloy::sol_types::SolCall;
use payferry::sandbox::{Accounts, Payer};
use payferry_contracts::Payferry;
use payferry_devchain::{Devchain, Faults};
use payferry_domain::Amount;
use payferry_domain::customer::Command;
use payferry_harness::database::Lock;
use payferry_harness::endpoint::{Fault, What};
use tokio_util::task::AbortOnDropHandle;

use crate::http::compliance::{change, ready};
use crate::prelude::*;

#[tokio::test]
async fn nothing_is_listed_in_normal_operation() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.paid("10", "settled").await;
    let stuck = service.get("/ops/stuck").await;
    assert_eq!(
        stuck.json,
        json!({ "total": { "counted": 0, "more": false }, "kinds": [], "unread": [], "acknowledged": [] })
    );
    let bad = service.get("/ops/stuck?kind=everything&limit=1000").await;
    assert_eq!(bad.faults(), "kind: unknown_value, limit: out_of_range");
    assert_eq!(service.get("/ops/stuck?kind=overdue&after=pay_1").await.faults(), "after: invalid_cursor");
    assert_eq!(service.get("/ops/stuck?after=1.pay_1").await.faults(), "after: invalid_cursor", "the kind is missing");
    assert_eq!(service.get("/ops/view/stuck?kind=everything").await.status, 404);
    assert!(service.get("/ops/view/stuck?kind=overdue").await.text().contains("Nothing of this kind needs attention."));
}

#[tokio::test]
async fn items_that_need_attention_have_a_reason_and_advice() {
    let service = ServiceFixture::start_with_chains().await;
    // Really blocked: the money of a sanctioned payer is held.
    let blocked = service.app.add_payment().await;
    service.app.send(&blocked, Payer::Sanctioned, Chain::Base, Token::Usdc, "10").await;
    service.app.payment_when(&blocked, "failed").await;
    let settled = service.app.paid("10", "settled").await;
    // The other rows are changed as if something had failed long ago.
    let (overdue, unsettled) = (service.app.add_payment().await, service.app.add_payment().await);
    service
        .execute(&[
            format!("UPDATE payments SET expires_at = 1 WHERE id = '{}'", overdue.id()),
            format!("UPDATE payments SET status = 'confirmed', updated_at = 1 WHERE id = '{}'", unsettled.id()),
            format!("UPDATE transfers SET applied_revision = 0, created_at = 1 WHERE payment_id = '{}'", settled.id()),
            format!("UPDATE deliveries SET status = 'exhausted' WHERE payment_id = '{}'", blocked.id()),
            format!("UPDATE deliveries SET created_at = 1, updated_at = 1 WHERE payment_id = '{}'", settled.id()),
        ])
        .await;
    let stuck = service.get("/ops/stuck").await;
    insta::assert_json_snapshot!("stuck", stuck.redacted());
    // Deliveries without a webhook URL are not part of the backlog, and the PSP's page gives the reason.
    let backlog = service.get("/ops/overview").await["webhooks"]["backlog"].clone();
    let counted = |what: &str| backlog[what]["counted"].as_u64().unwrap();
    assert_eq!((counted("queued"), counted("unaddressed"), counted("exhausted")), (0, 4, 2), "{backlog:#}");
    assert!(backlog["waiting_since"].is_null() && backlog["unaddressed_since"].is_string(), "{backlog:#}");
    let page = service.get(&format!("/ops/view/webhooks/{}", service.app.psp_id)).await;
    page.assert_shows(&["Nothing is sent: no webhook URL is set.", "lane-we_"]);
    service.get("/ops/view/webhooks").await.assert_shows(&["4 without a URL"]);
    let one = service.get("/ops/stuck?kind=overdue&limit=1").await.json;
    assert_eq!(one["kinds"].as_array().unwrap().len(), 1);
    assert_eq!(one["kinds"][0]["items"][0]["id"], overdue.id());
}

#[tokio::test]
async fn large_payment_is_listed_until_its_endpoints_agree() {
    let config = TestConfig { chains: true, agree_from: Some(Amount::from_tokens(10)), ..TestConfig::default() };
    let service = ServiceFixture::over(TestApp::start_with(config).await).await;
    let second = &service.app.endpoints[1];
    second.show([Fault::of(What::NullReceipts)]);
    let payment = service.app.paid("10", "pending").await;
    let path = "/ops/stuck?kind=transfer_held";
    let stuck = service.get_until(path, |stuck| stuck["total"]["counted"] == 1).await;
    let item = &stuck["kinds"][0]["items"][0];
    let held = service.app.get(&payment.path()).await;
    let tx_hash = held["transfers"][0]["tx_hash"].as_str().unwrap();
    let reason = format!(
        "transaction {tx_hash} on base, for a payment of 10.00: endpoint 1 contradicts it: it has the block and not the \
         transaction"
    );
    assert_has(item, json!({ "id": payment.id(), "payment_id": payment.id(), "reason": reason, "can": [] }));
    assert!(item["since"].is_string() && item["age_ms"].is_u64(), "{item:#}");
    service.get("/ops/view/stuck").await.assert_shows(&[payment.id(), &reason]);
    assert_eq!(service.app.get(&payment.path()).await["status"], "pending");

    second.behave();
    service.app.payment_when(&payment, "settled").await;
    assert_eq!(service.get(path).await["kinds"], json!([]));
}

/// Ids of all items of a kind, read in pages of this size.
pub(super) async fn paged(service: &ServiceFixture, kind: &str, limit: usize) -> Vec<String> {
    let ids = paged_by(service, kind, limit, ("after", "next_after")).await;
    assert_eq!(paged_by(service, kind, limit, ("cursor", "next_cursor")).await, ids);
    ids
}

async fn paged_by(service: &ServiceFixture, kind: &str, limit: usize, (start, next): (&str, &str)) -> Vec<String> {
    let mut ids = Vec::new();
    let mut after = String::new();
    loop {
        let stuck = service.get(&format!("/ops/stuck?kind={kind}&limit={limit}&{start}={after}")).await.json;
        let group = &stuck["kinds"][0];
        let items = group["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{group:#}");
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        let Some(next) = group[next].as_str() else {
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
    let made = futures::future::join_all((0..21).map(|_| service.app.add_payment())).await;
    let mut made: Vec<_> = made.iter().map(|payment| payment.id().to_owned()).collect();
    made.sort();
    // All at the same time, except the last payment, which has been overdue for longest.
    let last = made.pop().unwrap();
    let longest = format!("UPDATE payments SET expires_at = 1 WHERE id = '{last}'");
    service.execute(&["UPDATE payments SET expires_at = 2".to_owned(), longest]).await;
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
        service.quarantine(id.parse::<PaymentId>().unwrap()).await;
    }
    assert_eq!(paged(&service, "quarantined", 2).await, made[..3], "the longest quarantined first");
}

/// Waits until an item of this kind is listed, or none any more; returns the first item.
pub(super) async fn until_stuck(service: &ServiceFixture, kind: &str, is_stuck: bool) -> Value {
    let path = format!("/ops/stuck?kind={kind}");
    let is_so = |reply: &Reply| reply["kinds"].as_array().is_none_or(Vec::is_empty) != is_stuck;
    service.get_until(&path, is_so).await["kinds"][0]["items"][0].clone()
}

#[tokio::test]
async fn unreadable_chain_blocked_writes_and_failing_receiver_are_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    let item = until_stuck(&service, "chain", true).await;
    assert_eq!(item["id"], "base", "{item:#}");
    assert!(item["reason"].as_str().unwrap().contains("503"), "{item:#}");
    chain.set_faults(Faults::default());
    until_stuck(&service, "chain", false).await;
    // Blocked database writes.
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
    service.app.add_payment().await;
    // A persistently failing receiver is paused.
    // No server listens there.
    let hook = json!({ "webhook_url": "http://127.0.0.1:1/" });
    service.app.patch("/api/v1/set_webhook", &hook).await;
    // Four events each: enough consecutive failures to open the breaker, and some more.
    for _ in 0..6 {
        service.app.paid("10", "settled").await;
    }
    let item = until_stuck(&service, "breaker_open", true).await;
    assert_eq!(item["psp_id"], service.app.psp_id.to_string(), "{item:#}");
}

/// Nonce of an account, as a quantity.
async fn nonce_of(chain: &Devchain, account: alloy::primitives::Address) -> U64 {
    let nonce = chain.call("eth_getTransactionCount", json!([account, "pending"])).await.unwrap();
    serde_json::from_value(nonce).unwrap()
}

/// Pauses the contract on Base, or ends its pause, as its admin.
pub(super) async fn set_contract_paused(service: &ServiceFixture, is_paused: bool) {
    let base = service.app.env().chain(Chain::Base);
    let (chain, contract) = (base.devchain(), base.spec().contract.0.into());
    let admin = Accounts::known().admin;
    let (settle_, send_) = (true, true);
    let pause = Payferry::pauseCall { settle_, send_ }.abi_encode();
    let call = if is_paused { pause } else { Payferry::unpauseCall { settle_, send_ }.abi_encode() };
    let nonce = nonce_of(chain, admin.address()).await.to();
    let fees = (100_000_000_000, 1_000_000);
    let (raw, _) = admin.sign_call(chain.chain_id(), nonce, contract, call.into(), 200_000, fees.0, fees.1);
    chain.send_raw(raw).await.unwrap();
    chain.mine(1).await.unwrap();
}

#[tokio::test]
async fn pause_on_chain_costs_no_gas() {
    let service = ServiceFixture::start_with_chains().await;
    set_contract_paused(&service, true).await;
    service.app.paid("10", "confirmed").await;
    until_stuck(&service, "settler", true).await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    assert_eq!(nonce_of(chain, Accounts::known().settler.address()).await, U64::ZERO, "no transaction");
}

#[tokio::test]
async fn settler_without_gas_or_with_a_high_base_fee_is_listed() {
    let service = ServiceFixture::start_with_chains().await;
    let env = service.app.env();
    let setups = env.setups().unwrap();
    let setup = setups.iter().find(|setup| setup.spec.chain == Chain::Base).unwrap();
    let settler = setup.settler.address().0.into();
    let chain = env.chain(Chain::Base).devchain();
    chain.set_balance(settler, U256::ZERO).await.unwrap();
    let made = service.app.add_payment().await;
    service.app.pay(&made, "10").await;
    let item = until_stuck(&service, "settler", true).await;
    assert_eq!(item["id"], "base", "{item:#}");
    assert!(item["reason"].as_str().unwrap().contains("cannot pay"), "{item:#}");
    assert!(item["since"].is_string() && item["age_ms"].as_i64().unwrap() < 600_000, "{item:#}");
    service.app.payment_when(&made, "confirmed").await;
    chain.set_balance(settler, U256::from(10).pow(U256::from(20))).await.unwrap();
    service.app.payment_when(&made, "settled").await;
    until_stuck(&service, "settler", false).await;
    // A base fee above the ceiling, with advice, until it falls.
    service.hold("settlement:base").await;
    let made = service.app.paid("10", "confirmed").await;
    let ceiling = service.app.env().chain(Chain::Base).spec().fees.max_fee_wei;
    let dear = high_base_fee(chain, u64::try_from(ceiling).unwrap() * 5);
    assert!(service.lift("settlement:base").await);
    until_stuck(&service, "settler", true).await;
    // Constantly, not only at the moment of each attempt.
    for _ in 0..50 {
        let kinds = service.get("/ops/stuck?kind=settler").await["kinds"].clone();
        let (item, advice) = (&kinds[0]["items"][0], kinds[0]["advice"].as_str().unwrap_or_default());
        assert_eq!(item["id"], "base", "{kinds:#}");
        let reason = item["reason"].as_str().unwrap();
        assert!(reason.ends_with(&format!("wei per gas and the ceiling is {ceiling}")), "{reason}");
        assert!(advice.contains("max_fee_gwei"), "{advice}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    service.get("/ops/view/stuck").await.assert_shows(&[&format!("the ceiling is {ceiling}")]);
    service.app.payment_when(&made, "confirmed").await;
    drop(dear);
    chain.set_next_base_fee(1).await.unwrap();
    service.app.payment_when(&made, "settled").await;
    until_stuck(&service, "settler", false).await;
}

/// Keeps a chain's base fee at this level until dropped.
fn high_base_fee(chain: &Devchain, base_fee_wei: u64) -> AbortOnDropHandle<()> {
    let chain = chain.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        while chain.set_next_base_fee(base_fee_wei).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }))
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
}

/// Backdates the operations of a payment to 1970.
async fn age_operations(service: &ServiceFixture, payment: &Reply) {
    let sql = format!("UPDATE operations SET created_at = 1, updated_at = 1 WHERE payment_id = '{}'", payment.id());
    service.execute(&[sql]).await;
}

/// Kinds under which a payment is listed.
async fn kinds_of(service: &ServiceFixture, payment: &Reply) -> Vec<String> {
    let stuck = service.get("/ops/stuck").await;
    let is_of_payment = |kind: &&Value| column(&kind["items"], "payment_id").contains(&json!(payment.id()));
    let kinds = stuck["kinds"].as_array().unwrap().iter().filter(is_of_payment);
    kinds.map(|kind| kind["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn unsent_refund_is_listed_until_sent() {
    let service = ServiceFixture::start_with_chains().await;
    service.hold("sending:base").await;
    let made = service.app.paid("4", "mismatched").await;
    let refunds = format!("{}/refunds", made.path());
    let asked = json!({ "amount": "3", "address": format!("0x{}", "ad".repeat(20)) });
    assert_eq!(service.app.post(&refunds, &asked).await.status, 202);
    service.get_until(&format!("/ops/actors/{}", made.id()), |read| read["operations"][0]["status"] == "queued").await;
    assert_eq!(kinds_of(&service, &made).await, Vec::<String>::new(), "it was just requested");
    age_operations(&service, &made).await;
    let listed = service.get("/ops/stuck?kind=operation_overdue").await;
    insta::assert_json_snapshot!("stuck_operation_overdue", listed.redacted());
    service.get("/ops/view/stuck").await.assert_shows(&["Operation overdue", "a refund of 3.00 USDC on base"]);
    // An operation that is retried constantly changes all the time.
    let id = made.id();
    let tried = format!("UPDATE operations SET attempts = 7, updated_at = {} WHERE payment_id = '{id}'", i64::MAX);
    service.execute(&[tried]).await;
    let item = service.stuck("kind=operation_overdue").await["items"][0].clone();
    assert!(item["reason"].as_str().unwrap().ends_with("is queued, after 7 transactions"), "{item:#}");
    assert!(service.lift("sending:base").await);
    service.app.get_until(&refunds, |reply| reply["refunds"][0]["status"] == "sent").await;
    let none = async || kinds_of(&service, &made).await.is_empty().then_some(());
    until("it is no longer listed", none).await;
}

#[tokio::test]
async fn waiting_and_repeated_settlements_are_listed_once() {
    let service = ServiceFixture::start_with_chains().await;
    let undone = service.app.paid("10", "settled").await;
    service.hold("settlement:base").await;
    let (waiting, spoiled) = (service.app.add_payment().await, service.app.add_payment().await);
    for payment in [&waiting, &spoiled] {
        service.app.pay(payment, "10").await;
        service.app.payment_when(payment, "confirmed").await;
    }
    // Really blocked: one of them received more from a sanctioned payer.
    service.app.send(&spoiled, Payer::Sanctioned, Chain::Base, Token::Usdc, "5").await;
    let blocked = async || (kinds_of(&service, &spoiled).await == ["funds_blocked"]).then_some(());
    until("the money is blocked", blocked).await;

    // Rows as after a long time, and after a reorg of a settlement.
    let ids = [&undone, &waiting, &spoiled].map(Reply::id);
    for payment in [&undone, &waiting, &spoiled] {
        age_operations(&service, payment).await;
    }
    service
        .execute(&[
            format!("UPDATE operations SET status = 'queued' WHERE payment_id = '{}'", ids[0]),
            format!("UPDATE payments SET updated_at = 1 WHERE id IN ('{}', '{}')", ids[1], ids[2]),
        ])
        .await;
    assert_eq!(kinds_of(&service, &undone).await, ["operation_overdue"]);
    assert_eq!(kinds_of(&service, &waiting).await, ["unsettled"]);
    assert_eq!(kinds_of(&service, &spoiled).await, ["funds_blocked", "operation_overdue"]);
    let listed = service.stuck("kind=operation_overdue").await;
    assert_eq!(column(&listed["items"], "reason"), ["the settlement of 10.00 USDC on base is queued"; 2]);
    assert_eq!(paged(&service, "operation_overdue", 1).await.len(), 2);
}
