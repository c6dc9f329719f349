//! `/ops/customers`: the customers' status, and manual decisions.

use payferry_domain::customer::Command;
use payferry_journal::audit::Actor;

use crate::http::customers::{add, individual};
use crate::prelude::*;

const GOVERNMENT_ID: &str = "P1234567";

/// Creates a customer as the PSP does; returns its id.
async fn customer(service: &ServiceFixture, email: &str) -> String {
    add(&service.app, &with(&individual(), &json!({ "email": email }))).await
}

async fn accept_terms(service: &ServiceFixture, id: &str) {
    service.app.change_customer(id.parse().unwrap(), &Command::AcceptTerms, &Actor::Customer).await;
}

fn actions(view: &Value) -> Vec<String> {
    let entries = view["history"].as_array().unwrap().iter();
    entries
        .map(|entry| format!("{} {}", entry["actor_kind"].as_str().unwrap(), entry["action"].as_str().unwrap()))
        .collect()
}

shared!(#[tokio::test] customers, service = ServiceFixture::start().await, service.app.renew_psp() =>
    manual_decision_requires_accepted_terms, operator_actions_on_psps_and_keys_are_audited,
    a_customer_whose_change_violates_an_invariant_is_quarantined_until_it_is_released);

async fn a_customer_whose_change_violates_an_invariant_is_quarantined_until_it_is_released(service: &ServiceFixture) {
    let (id, other) = (customer(service, "ada@example.com").await, customer(service, "bob@example.com").await);
    let set_reasons = async |reasons: &str| {
        let sql = format!("UPDATE customers SET rejection_reasons = '{reasons}' WHERE id = '{id}'");
        service.execute(&[sql]).await;
    };
    set_reasons(r#"["expired"]"#).await;
    let (of_psp, decide) = (format!("/api/v1/customers/{id}"), format!("/ops/customers/{id}/decide"));
    let change = async |customer: &str, phone: &str| {
        let body = json!({ "phone_number": phone });
        service.app.patch(&format!("/api/v1/customers/{customer}"), &body).await
    };
    let refused = change(&id, "+442079460001").await;
    refused.assert_problem(500, "invariant_violated");
    assert!(refused["detail"].as_str().unwrap().contains("CUS-5"), "{}", refused.text());

    // Until an operator releases it, nothing changes it, although the row is repaired.
    set_reasons("[]").await;
    change(&id, "+442079460001").await.assert_problem(503, "customer_quarantined");
    service.app.request(Method::DELETE, &of_psp).send().await.assert_problem(503, "customer_quarantined");
    let verdict = json!({ "outcome": "rejected", "reason": "unknown" });
    let refused = service.post(&decide, &verdict).await;
    refused.assert_problem(409, "customer_quarantined");
    assert!(refused["detail"].as_str().unwrap().contains("has to be released"), "{}", refused.text());
    service.app.get(&of_psp).await.assert(200, json!({ "customer/kyc_status": "pending" }));
    change(&other, "+442079460001").await.ok(200);

    // It needs attention, and every page that names it has the button.
    let stuck = service.get("/ops/stuck?kind=quarantined").await;
    let release = format!("/ops/actors/{id}/release");
    let item = json!({ "id": id, "payment_id": null, "can": [{ "action": "release", "path": release }] });
    assert_has(&stuck["kinds"][0]["items"][0], item);
    assert!(stuck["kinds"][0]["items"][0]["reason"].as_str().unwrap().contains("CUS-5"), "{}", stuck.text());
    assert_has(&service.get("/ops/overview").await.json, json!({ "customers_quarantined": 1, "quarantined/0/id": id }));
    assert!(service.get(&format!("/ops/customers/{id}")).await["quarantined"]["since"].is_i64());
    let page = format!("/ops/view/customers/{id}");
    for shown in ["/ops", "/ops/view/stuck", &page] {
        service.get(shown).await.assert_shows(&[&format!("action=\"{page}/release\""), "CUS-5"]);
    }
    service.get("/ops").await.assert_shows(&["1 customer is quarantined"]);

    assert_eq!(service.post(&release, &Value::Null).await["customer_id"], id);
    service.post(&release, &Value::Null).await.assert_problem(409, "customer_not_quarantined");
    assert_eq!(service.form(&format!("{page}/release"), &super::SIGNED).await.status, 303);
    let decided = service.post(&decide, &verdict).await;
    let actions = actions(&decided.json);
    let last = ["operator customer.released", "operator customer.rejected", "operator customer.decided_by_hand"];
    assert_eq!(actions[actions.len() - 3..], last);
    assert_eq!(decided["quarantined"], Value::Null);
}

async fn manual_decision_requires_accepted_terms(service: &ServiceFixture) {
    let id = customer(service, "ada@example.com").await;
    let path = format!("/ops/customers/{id}");
    insta::assert_json_snapshot!("customer_inspected", service.get(&path).await.redacted());
    assert!(!service.get(&path).await.text().contains(GOVERNMENT_ID));

    let decide = format!("{path}/decide");
    let approve = json!({ "outcome": "approved", "reason": "seen at the counter" });
    service.post(&decide, &approve).await.assert_problem(409, "tos_not_accepted");
    accept_terms(service, &id).await;
    let approved = service.post(&decide, &approve).await;
    approved.assert(200, json!({ "kyc_status": "approved", "is_cleared": true }));
    let entries = approved["history"].as_array().unwrap().len();
    let again = service.post(&decide, &approve).await;
    assert_eq!(again["history"].as_array().unwrap().len(), entries, "a repeated decision is not recorded again");

    let reject = json!({ "outcome": "rejected", "reason": "left the country" });
    let rejected = service.post(&decide, &reject).await;
    assert_has(&rejected, json!({ "kyc_status": "rejected", "rejection_reasons": ["left the country"] }));
    let expected = [
        "api_key customer.created",
        "customer customer.terms_accepted",
        "operator customer.approved",
        "operator customer.decided_by_hand",
        "operator customer.rejected",
        "operator customer.decided_by_hand",
    ];
    assert_eq!(actions(&rejected.json), expected);
    assert_eq!(rejected["history"][3]["detail"], approve);

    for (bad, faults) in [
        (json!({}), "outcome: required, reason: required"),
        (
            json!({ "outcome": "maybe", "reason": " ", "note": "x" }),
            "note: unknown_field, outcome: unknown_value, reason: empty",
        ),
    ] {
        let refused = service.post(&decide, &bad).await;
        refused.assert_problem(422, "validation_failed");
        assert_eq!(refused.faults_sorted(), faults);
    }
    let nobody = "/ops/customers/cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3";
    service.get(nobody).await.assert_problem(404, "customer_not_found");
    service.post(&format!("{nobody}/decide"), &approve).await.assert_problem(404, "customer_not_found");
    service.get("/ops/customers/ada").await.assert_problem(400, "invalid_parameters");
}

#[tokio::test]
async fn customers_are_found_by_status() {
    let service = ServiceFixture::start().await;
    let (ada, bob) = (customer(&service, "Ada_L@example.com").await, customer(&service, "bob@example.com").await);
    accept_terms(&service, &bob).await;
    service.post(&format!("/ops/customers/{bob}/decide"), &json!({ "outcome": "approved", "reason": "known" })).await;
    let found = async |query: &str| {
        let reply = service.get(&format!("/ops/customers{query}")).await.ok(200);
        reply.assert_hides(&[GOVERNMENT_ID, "particulars"]);
        assert_eq!(reply["total"]["more"], false);
        (reply["total"]["counted"].as_u64().unwrap(), column(&reply["customers"], "customer_id"))
    };
    assert_eq!(found("").await, (2, vec![json!(bob), json!(ada)]), "newest first");
    assert_eq!(found("?limit=1&offset=1").await, (2, vec![json!(ada)]));
    assert_eq!(found("?kyc_status=approved").await, (1, vec![json!(bob)]));
    assert_eq!(found("?search=ADA_l").await, (1, vec![json!(ada)]));
    assert_eq!(found("?search=%25").await.0, 0, "no character is a wildcard");
    assert_eq!(found(&format!("?psp_id={}&status=active", service.app.psp_id)).await.0, 2);
    assert_eq!(found("?status=inactive").await.0, 0);
    for bad in ["?kyc_status=cleared", "?status=gone", "?psp_id=x", "?limit=0"] {
        service.get(&format!("/ops/customers{bad}")).await.assert_problem(400, "invalid_parameters");
    }
}

async fn operator_actions_on_psps_and_keys_are_audited(service: &ServiceFixture) {
    let made = service.post("/ops/psps", &json!({ "name": "Northern Pay" })).await;
    let path = format!("/ops/psps/{}", made["psp_id"].as_str().unwrap());
    service.patch(&path, &json!({ "fee_bps": 50 })).await;
    let key = service
        .post(&format!("{path}/keys"), &json!({ "name": "till", "scopes": ["full"], "expires_days": "never" }))
        .await;
    let secret = key["api_key"].as_str().unwrap();
    service.post(&format!("{path}/keys/{}/revoke", key["key_id"].as_str().unwrap()), &json!({})).await;
    let log = service.get(&format!("/ops/audit?psp_id={}", made["psp_id"].as_str().unwrap())).await;
    assert_eq!(column(&log["entries"], "action"), ["psp.created", "psp.changed", "key.created", "key.revoked"]);
    assert_eq!(column(&log["entries"], "actor_kind"), ["operator"; 4]);
    assert_eq!(log["entries"][1]["detail"], json!({ "fee_bps": { "from": 100, "to": 50 } }));
    log.assert_hides(&[&secret[40..], "hash"]);
}
