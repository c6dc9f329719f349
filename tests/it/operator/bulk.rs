//! `/ops/bulk`: one action on many subjects.

use payferry_accounts::operators::OperatorRole;
use payferry_harness::database::{DatabaseFault, Lock};
use payferry_journal::psps::PspPolicies;

use super::admission::create;
use super::reply;
use crate::http::mismatches::set_policies;
use crate::prelude::*;
use crate::process::{Home, Running};

/// Starts the action on the subjects that the query finds, and waits for its end.
async fn carry_out(service: &ServiceFixture, query: &str) -> Value {
    let preview = service.get(&format!("/ops/bulk?{query}")).await.ok(200).json;
    let mut body: Value = url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (name.into_owned(), Value::from(value.into_owned())))
        .collect::<serde_json::Map<_, _>>()
        .into();
    body["selection"] = preview["selection"].clone();
    body["reason"] = json!("ticket 17");
    let started = service.post("/ops/bulk", &body).await.ok(202);
    assert_eq!(started["total"], preview["total"]);
    let path = format!("/ops/bulk/jobs/{}", started["id"].as_str().unwrap());
    service.get_until(&path, |job| job["state"] != "running").await.json
}

#[tokio::test]
async fn quarantined_subjects_are_released_with_one_reason() {
    let service = ServiceFixture::start_with_chains().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let made = service.app.add_payment().await;
        let id: PaymentId = made.id().parse().unwrap();
        service.quarantine(id).await;
        ids.push(id.to_string());
    }
    let query = "/ops/bulk?action=release";
    let preview = service.get(query).await.ok(200).json;
    assert_has(
        &preview,
        json!({ "action": "release", "total": 3, "more": false,
        "sums": [{ "currency": "USDC", "amount": "30.00" }] }),
    );
    assert_eq!(json!(column(&preview["items"], "id")), json!(ids), "oldest first");
    let psp = service.app.psp_id;
    for (filter, wanted) in [
        (format!("psp_id={psp}&chain=base&contains=ON+PURPOSE"), 3),
        (format!("psp_id={}", PspId::generate()), 0),
        ("chain=polygon".to_owned(), 0),
        ("contains=overflow".to_owned(), 0),
    ] {
        assert_eq!(service.get(&format!("{query}&{filter}")).await["total"], wanted, "{filter}");
    }
    service.get("/ops/bulk").await.assert_problem(400, "invalid_parameters");
    assert_eq!(
        service.get("/ops/bulk?action=delete&chain=mars").await.faults_sorted(),
        "action: unknown_value, chain: unknown_value"
    );

    // Only what was previewed is carried out.
    let start = async |body: Value| service.post("/ops/bulk", &body).await;
    assert_eq!(start(json!({ "action": "release" })).await.faults_sorted(), "reason: required, selection: required");
    let body = json!({ "action": "release", "selection": preview["selection"], "reason": "ticket 17" });
    service.post(&format!("/ops/actors/{}/release", ids[0]), &Value::Null).await.ok(200);
    start(body).await.assert_problem(409, "selection_changed");
    let none = json!({ "action": "release", "chain": "polygon", "selection": "x", "reason": "ticket 17" });
    start(none).await.assert_problem(409, "nothing_selected");
    let viewer = create(&service, "vic", OperatorRole::Viewer).await;
    let by_viewer = service.bare(Method::POST, "/ops/bulk").bearer_auth(&viewer).json(&json!({}));
    reply(by_viewer).await.assert_problem(403, "operator_role_missing");
    assert_eq!(service.get("/ops/bulk/jobs").await["jobs"], json!([]));

    let job = carry_out(&service, "action=release").await;
    assert_has(
        &job,
        json!({ "state": "completed", "total": 2, "carried_out": 2, "refused": 0, "failed": 0,
        "operator": "admin", "reason": "ticket 17", "sums/0/amount": "20.00" }),
    );
    assert_eq!(json!(column(&job["outcomes"], "id")), json!(ids[1..]));
    for id in &ids[1..] {
        let audit = service.get(&format!("/ops/audit?subject={id}")).await;
        assert_has(
            &audit["entries"][0],
            json!({ "action": "payment.released", "actor": "admin", "detail/reason": "ticket 17" }),
        );
        assert!(audit["entries"][0]["request_id"].is_string(), "{audit:#?}");
    }
    assert_eq!(service.get(query).await["total"], 0);
    let listed = service.get("/ops/bulk/jobs").await;
    assert_has(&listed.json, json!({ "total": 1, "jobs/0/id": job["id"], "jobs/0/outcomes": [] }));
    // A job that has ended cannot be stopped any more.
    let stopped = service.post(&format!("/ops/bulk/jobs/{}/stop", job["id"].as_str().unwrap()), &json!({})).await;
    assert_eq!(stopped["state"], "completed");
    let unknown = "/ops/bulk/jobs/blk_01J9Z3K4M5N6P7Q8R9S0T1V2W3";
    service.get(unknown).await.assert_problem(404, "job_not_found");
}

#[tokio::test]
async fn exhausted_deliveries_are_delivered_again() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.paid("10", "settled").await;
    assert_eq!(service.get("/ops/bulk?action=redeliver").await["total"], 0);
    service.execute(&["UPDATE deliveries SET status = 'exhausted', next_attempt_at = NULL".to_owned()]).await;
    assert_eq!(service.get("/ops/bulk?action=redeliver&contains=settled").await["total"], 2);
    let job = carry_out(&service, "action=redeliver").await;
    assert_has(&job, json!({ "state": "completed", "carried_out": 4 }));
    assert_eq!(service.get("/ops/bulk?action=redeliver").await["total"], 0);
    assert_eq!(service.get("/ops/bulk?action=redeliver&status=queued").await["total"], 4);
    let id = job["outcomes"][0]["id"].as_str().unwrap();
    let audit = service.get(&format!("/ops/audit?subject={id}")).await;
    let psp_id = service.app.psp_id.to_string();
    assert_has(
        &audit["entries"][0],
        json!({ "action": "webhook.redelivered", "psp_id": psp_id, "detail/reason": "ticket 17" }),
    );
}

#[tokio::test]
async fn failed_settlements_are_retried_and_the_rest_is_refused() {
    let service = ServiceFixture::start_with_chains().await;
    let treasury = service.app.env().chain(Chain::Base).spec().treasury.to_string();
    blacklist(&service.app, Chain::Base, &treasury, true).await;
    let mut made = Vec::new();
    for _ in 0..2 {
        let payment = service.app.add_payment().await;
        service.app.pay(&payment, "10").await;
        made.push(payment);
    }
    let query = "/ops/bulk?action=retry_settlement";
    let preview = service.get_until(query, |preview| preview["total"] == 2).await;
    assert_has(&preview.json, json!({ "sums": [{ "currency": "USDC", "amount": "20.00" }] }));
    assert!(preview["items"][0]["reason"].as_str().unwrap().contains("blacklisted"), "{:#}", preview.json);
    blacklist(&service.app, Chain::Base, &treasury, false).await;
    let job = carry_out(&service, "action=retry_settlement&chain=base").await;
    assert_has(&job, json!({ "state": "completed", "carried_out": 2 }));
    for payment in &made {
        service.app.payment_when(payment, "settled").await;
    }
    assert_eq!(service.get(query).await["total"], 0);
}

#[tokio::test]
async fn refunds_above_the_limit_are_approved_or_proposed() {
    for four_eyes in [false, true] {
        let app = TestApp::start_with_chains().await;
        let service = ServiceFixture::serve(app, four_eyes).await;
        let app = &service.app;
        let limit = Some("1".parse().unwrap());
        set_policies(app, &PspPolicies { refund_elsewhere_daily_max: limit, ..PspPolicies::default() }).await;
        let mut refunds = Vec::new();
        for amount in ["2", "3"] {
            let made = app.paid("10", "settled").await;
            let path = format!("{}/refunds", made.path());
            let body = json!({ "amount": amount, "address": "0x000000000000000000000000000000000000ada7" });
            let asked = app.post(&path, &body).await.ok(202);
            refunds.push(format!("{path}/{}", asked.string("refund_id")));
        }
        for refund in &refunds {
            app.get_until(refund, |read| read["kyt_verdict"] == "allow").await;
        }
        let query = "/ops/bulk?action=approve_refund";
        let preview = service.get_until(query, |preview| preview["total"] == 2).await;
        assert_has(&preview.json, json!({ "sums": [{ "currency": "USDC", "amount": "5.00" }] }));
        let job = carry_out(&service, "action=approve_refund").await;
        if four_eyes {
            assert_has(&job, json!({ "state": "completed", "carried_out": 0, "proposed": 2 }));
            assert_eq!(service.stuck("kind=approval_open").await["total"]["counted"], 2);
            // A second job finds the same refunds, and changes nothing.
            let again = carry_out(&service, "action=approve_refund").await;
            assert_has(&again, json!({ "state": "completed", "proposed": 0, "refused": 2 }));
            continue;
        }
        assert_has(&job, json!({ "state": "completed", "carried_out": 2, "proposed": 0 }));
        for refund in &refunds {
            app.when(refund, "sent").await;
        }
    }
}

#[tokio::test]
async fn job_ends_at_the_first_subject_that_is_not_answered() {
    let service = ServiceFixture::start_with_chains().await;
    for _ in 0..3 {
        let id: PaymentId = service.app.add_payment().await.id().parse().unwrap();
        service.quarantine(id).await;
    }
    let preview = service.get("/ops/bulk?action=release").await.ok(200);
    let away = DatabaseFault::table_away(service.app.database.url(), "audit_log").await;
    let body = json!({ "action": "release", "selection": preview["selection"], "reason": "ticket 17" });
    let started = service.post("/ops/bulk", &body).await.ok(202);
    let path = format!("/ops/bulk/jobs/{}", started["id"].as_str().unwrap());
    let job = service.get_until(&path, |job| job["state"] != "running").await;
    assert_has(&job.json, json!({ "state": "interrupted", "carried_out": 0, "failed": 1 }));
    away.end().await;
    let page = service.get(&format!("/ops/view/bulk/{}", started["id"].as_str().unwrap())).await.ok(200);
    page.assert_shows(&["2 were not reached and are unchanged."]);
    assert_has(&carry_out(&service, "action=release").await, json!({ "state": "completed", "carried_out": 3 }));
}

#[tokio::test]
async fn stopped_job_leaves_the_rest_unchanged() {
    let service = ServiceFixture::start_with_chains().await;
    for _ in 0..3 {
        let id: PaymentId = service.app.add_payment().await.id().parse().unwrap();
        service.quarantine(id).await;
    }
    let preview = service.get("/ops/bulk?action=release").await.ok(200);
    let body = json!({ "action": "release", "selection": preview["selection"], "reason": "ticket 17" });
    // The first release waits for the lock.
    let lock = service.app.database.lock(Lock::Writes).await;
    let started = service.post("/ops/bulk", &body).await.ok(202);
    service.post("/ops/bulk", &body).await.assert_problem(409, "bulk_job_running");
    let path = format!("/ops/bulk/jobs/{}", started["id"].as_str().unwrap());
    service.post(&format!("{path}/stop"), &json!({})).await.ok(200);
    lock.release().await;
    let job = service.get_until(&path, |job| job["state"] != "running").await;
    assert_eq!(job["state"], "stopped");
    let done = job["carried_out"].as_u64().unwrap();
    assert!(done <= 1, "{:#}", job.json);
    assert_eq!(service.get("/ops/bulk?action=release").await["total"], 3 - done);
}

/// A killed job needs no repair: what it released is in the audit log once, and the rest is previewed again.
#[tokio::test(flavor = "multi_thread")]
async fn killed_job_is_continued_by_another() {
    let home = Home::new().await;
    let running = Running::start(&home);
    let mut ids = Vec::new();
    for _ in 0..20 {
        let id = running.payment().await;
        running.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), Some(json!({ "times": 10 }))).await;
        ids.push(id);
    }
    let preview = async |running: &Running| running.operator(Method::GET, "/ops/bulk?action=release", None).await.1;
    let start = async |running: &Running, preview: &Value| {
        let body = json!({ "action": "release", "selection": preview["selection"], "reason": "ticket 17" });
        let (status, job) = running.operator(Method::POST, "/ops/bulk", Some(body)).await;
        assert_eq!(status, 202, "{job:#}");
        format!("/ops/bulk/jobs/{}", job["id"].as_str().unwrap())
    };
    let all = until("all are quarantined", async || {
        let found = preview(&running).await;
        (found["total"] == 20).then_some(found)
    })
    .await;
    start(&running, &all).await;
    running.kill();
    let running = Running::start(&home);
    let rest = preview(&running).await;
    if rest["total"] != 0 {
        let path = start(&running, &rest).await;
        until("the job has ended", async || {
            let job = running.operator(Method::GET, &path, None).await.1;
            (job["state"] == "completed" && job["carried_out"] == rest["total"]).then_some(())
        })
        .await;
    }
    assert_eq!(preview(&running).await["total"], 0);
    for id in &ids {
        let path = format!("/ops/audit?subject={id}&action=payment.released");
        let audit = running.operator(Method::GET, &path, None).await.1;
        assert_eq!(audit["entries"].as_array().unwrap().len(), 1, "{id}: {audit:#}");
        running.pay(id).await;
        running.until_settled(id).await;
    }
    running.stop();
}

#[tokio::test]
async fn reason_of_a_program_is_in_the_audit_log() {
    let service = ServiceFixture::start_with_chains().await;
    let lift = "/ops/pauses/sending/lift";
    service.hold("sending").await;
    let with_reason = async |reason: &str| reply(service.call(Method::POST, lift).header("x-reason", reason)).await;
    for bad in ["", &"x".repeat(256)] {
        with_reason(bad).await.assert_problem(400, "invalid_header");
    }
    with_reason("the key is replaced").await.ok(200);
    let audit = service.get("/ops/audit?action=pause.lifted").await;
    assert_eq!(audit["entries"][0]["detail"]["reason"], "the key is replaced");
}
