//! Decisions with an unknown result: the answer says so, and the refund is sent once, however often it is requested
//! again.

use payferry_domain::payment::Decision;
use payferry_harness::database::Lock;
use payferry_runtime::observe::ActorKind;

use crate::prelude::*;

const ADA: &str = "0x000000000000000000000000000000000000ada3";

/// Creates a payment whose 10 tokens are blocked, with a screener that allows everything afterwards.
async fn blocked() -> (ServiceFixture, PaymentId) {
    let opinions = FixedScreener::new(Some(Decision::Block));
    let service = ServiceFixture::over(TestApp::start_with_screener(&opinions).await).await;
    let made = service.app.paid("10", "failed").await;
    opinions.set(Decision::Allow);
    let id = made.id().parse().unwrap();
    (service, id)
}

/// Asserts that one refund of 4 tokens was made and nothing else.
async fn four_are_sent(service: &ServiceFixture, id: PaymentId) {
    let is_sent = |read: &Reply| {
        let statuses = column(&read["refunds"], "status");
        !statuses.is_empty() && statuses.iter().all(|status| status == "sent")
    };
    let read = service.app.get_until(&format!("/payments/{id}/refunds"), is_sent).await;
    assert_eq!(read["total"], 1, "{}", read.text());
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 4_000_000);
}

/// Commits the next decision after its payment's actor has died, so that its answer is lost.
async fn losing_the_answer<T>(service: &ServiceFixture, id: PaymentId, asked: impl Future<Output = T>) -> T {
    let system = &service.app.state.system;
    let held = service.app.database.lock(Lock::Writes).await;
    let dies = async {
        let busy = async || system.observe_payment(id).await.filter(|view| view.memory.is_none());
        until("the decision waits for the commit", busy).await;
        system.inject_crash(ActorKind::Shard);
    };
    let (answer, ()) = tokio::join!(asked, dies);
    held.release().await;
    answer
}

/// Returns the idempotency key in the form of a decision's page.
async fn key_of_form(service: &ServiceFixture, id: PaymentId) -> String {
    let page = service.get(&format!("/ops/view/payments/{id}/decide")).await;
    let (_, rest) = page.text().split_once("name=\"idempotency_key\" value=\"").expect("the form has a key");
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn repeated_refund_with_one_key_is_sent_once() {
    let (service, id) = blocked().await;
    let path = format!("/ops/payments/{id}/refund_blocked");
    let body = json!({ "address": ADA, "amount": "4", "idempotency_key": "case-17", "reason": "by order" });
    let asked = losing_the_answer(&service, id, service.post(&path, &body)).await;
    asked.assert_problem(503, "timed_out");
    let detail = asked["detail"].as_str().unwrap();
    assert!(detail.contains("before you repeat it") && !detail.contains("Idempotency-Key"), "{detail}");

    let again = async || Some(service.post(&path, &body).await).filter(|reply| reply.status == 202);
    until("it is accepted", again).await;
    four_are_sent(&service, id).await;
    // At any later time, with the same refund.
    assert_eq!(service.post(&path, &body).await.status, 202);
    let other = json!({ "address": ADA, "amount": "5", "idempotency_key": "case-17", "reason": "by order" });
    service.post(&path, &other).await.assert_problem(409, "refund_exists");
    four_are_sent(&service, id).await;
    let history = service.get(&format!("/ops/payments/{id}")).await["history"].clone();
    assert_eq!(history.as_array().unwrap().len(), 1, "{history:#}");
    // Another key is another refund.
    let rest = json!({ "address": ADA, "idempotency_key": "case-18", "reason": "by order" });
    assert_eq!(service.post(&path, &rest).await.status, 202);
    assert_eq!(service.app.get(&format!("/payments/{id}/refunds")).await["total"], 2);
    for key in ["", "with a space", &"x".repeat(256)] {
        let bad = json!({ "address": ADA, "idempotency_key": key, "reason": "x" });
        assert_eq!(service.post(&path, &bad).await.faults(), "idempotency_key: invalid_key");
    }
}

#[tokio::test]
async fn form_with_an_unknown_result_sends_once() {
    let (service, id) = blocked().await;
    let action = format!("/ops/view/payments/{id}/refund_blocked");
    let key = key_of_form(&service, id).await;
    let filled = [("idempotency_key", &*key), ("address", ADA), ("amount", "4"), ("reason", "x"), ("confirm", "true")];
    let asked = losing_the_answer(&service, id, service.form(&action, &filled)).await;
    let link = format!("href=\"/ops/view/payments/{id}\"");
    asked.assert_shows(&["may have been carried out", "before you repeat it", &link]);
    asked.ok(503).assert_hides(&["did not return the data"]);
    // A resubmitted form was rendered before the refund existed.
    let decide = format!("/ops/view/payments/{id}/decide?done=decided");
    let taken = async || Some(service.form(&action, &filled).await).filter(|page| page.status == 303);
    let taken = until("it is accepted", taken).await;
    assert_eq!(taken.header("location"), Some(&*decide));
    let mut more = filled;
    more[2] = ("amount", "5");
    service.form(&action, &more).await.ok(409).assert_shows(&["look at the payment before you ask for more"]);
    four_are_sent(&service, id).await;
    // A form that shows the refund requests the next one.
    assert_ne!(key_of_form(&service, id).await, key);
}
