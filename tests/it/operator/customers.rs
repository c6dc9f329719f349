//! `/ops/customers`: the customers' status, and manual decisions.

use payferry_domain::customer::Command;
use payferry_journal::audit::Actor;
use payferry_journal::customers::Opened;
use serde_json::{Value, json};

use super::ServiceFixture;

const GOVERNMENT_ID: &str = "P1234567";

/// Creates a customer as the PSP does; returns its id.
async fn customer(service: &ServiceFixture, email: &str) -> String {
    let address = json!({ "street_line_1": "1 Harbour Road", "city": "Oakland", "region": "CA", "zip": "94607",
        "country": "USA" });
    let body = json!({ "type": "individual", "country": "USA", "currency": "USD", "email": email,
        "first_name": "Ada", "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": GOVERNMENT_ID,
        "residential_address": address });
    let made = service.app.post("/api/v1/customers", &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json["customers"][0]["id"].as_str().unwrap().to_owned()
}

async fn accept_terms(service: &ServiceFixture, id: &str) {
    let app = &service.app;
    let mut opened = Opened::find(app.state.database(), id.parse().unwrap(), None).await.unwrap();
    opened.apply(&Command::AcceptTerms, &Actor::Customer, app.state.clock().now()).await.unwrap();
    opened.commit().await.unwrap();
}

fn actions(view: &Value) -> Vec<String> {
    let entries = view["history"].as_array().unwrap().iter();
    entries
        .map(|entry| format!("{} {}", entry["actor_kind"].as_str().unwrap(), entry["action"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn manual_decision_requires_accepted_terms() {
    let service = ServiceFixture::start().await;
    let id = customer(&service, "ada@example.com").await;
    let path = format!("/ops/customers/{id}");
    insta::assert_json_snapshot!("customer_inspected", service.get(&path).await.redacted());
    assert!(!service.get(&path).await.text().contains(GOVERNMENT_ID));

    let decide = format!("{path}/decide");
    let approve = json!({ "outcome": "approved", "reason": "seen at the counter" });
    service.post(&decide, &approve).await.assert_problem(409, "tos_not_accepted");
    accept_terms(&service, &id).await;
    let approved = service.post(&decide, &approve).await;
    assert_eq!(
        (approved.status.as_u16(), &approved.json["kyc_status"]),
        (200, &json!("approved")),
        "{}",
        approved.text()
    );
    assert_eq!(approved.json["is_cleared"], true);
    let entries = approved.json["history"].as_array().unwrap().len();
    assert_eq!(
        service.post(&decide, &approve).await.json["history"].as_array().unwrap().len(),
        entries,
        "a repeated decision is not recorded again"
    );

    let reject = json!({ "outcome": "rejected", "reason": "left the country" });
    let rejected = service.post(&decide, &reject).await;
    assert_eq!(
        (&rejected.json["kyc_status"], &rejected.json["rejection_reasons"]),
        (&json!("rejected"), &json!(["left the country"]))
    );
    let expected = [
        "api_key customer.created",
        "customer customer.terms_accepted",
        "operator customer.approved",
        "operator customer.decided_by_hand",
        "operator customer.rejected",
        "operator customer.decided_by_hand",
    ];
    assert_eq!(actions(&rejected.json), expected);
    assert_eq!(rejected.json["history"][3]["detail"], approve);

    for (bad, faults) in [
        (json!({}), vec!["outcome: required", "reason: required"]),
        (
            json!({ "outcome": "maybe", "reason": " ", "note": "x" }),
            vec!["note: unknown_field", "outcome: unknown_value", "reason: empty"],
        ),
    ] {
        let refused = service.post(&decide, &bad).await;
        refused.assert_problem(422, "validation_failed");
        let mut notified = refused.faults();
        notified.sort();
        assert_eq!(notified, faults);
    }
    let nobody = "/ops/customers/cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3";
    service.get(nobody).await.assert_problem(404, "customer_not_found");
    service.post(&format!("{nobody}/decide"), &approve).await.assert_problem(404, "customer_not_found");
    service.get("/ops/customers/ada").await.assert_problem(400, "invalid_parameters");
    service.stop().await;
}

#[tokio::test]
async fn customers_are_found_by_status() {
    let service = ServiceFixture::start().await;
    let (ada, bob) = (customer(&service, "Ada_L@example.com").await, customer(&service, "bob@example.com").await);
    accept_terms(&service, &bob).await;
    service.post(&format!("/ops/customers/{bob}/decide"), &json!({ "outcome": "approved", "reason": "known" })).await;
    let found = async |query: &str| {
        let reply = service.get(&format!("/ops/customers{query}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(!reply.text().contains(GOVERNMENT_ID) && !reply.text().contains("particulars"));
        let ids = reply.json["customers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["customer_id"].as_str().unwrap().to_owned());
        assert_eq!(reply.json["total"]["more"], false);
        (reply.json["total"]["counted"].as_u64().unwrap(), ids.collect::<Vec<_>>())
    };
    assert_eq!(found("").await, (2, vec![bob.clone(), ada.clone()]), "newest first");
    assert_eq!(found("?limit=1&offset=1").await, (2, vec![ada.clone()]));
    assert_eq!(found("?kyc_status=approved").await, (1, vec![bob.clone()]));
    assert_eq!(found("?search=ADA_l").await, (1, vec![ada.clone()]));
    assert_eq!(found("?search=%25").await.0, 0, "no character is a wildcard");
    assert_eq!(found(&format!("?psp_id={}&status=active", service.app.psp_id)).await.0, 2);
    assert_eq!(found("?status=inactive").await.0, 0);
    for bad in ["?kyc_status=cleared", "?status=gone", "?psp_id=x", "?limit=0"] {
        service.get(&format!("/ops/customers{bad}")).await.assert_problem(400, "invalid_parameters");
    }
    service.stop().await;
}

#[tokio::test]
async fn operator_actions_on_psps_and_keys_are_audited() {
    let service = ServiceFixture::start().await;
    let made = service.post("/ops/psps", &json!({ "name": "Northern Pay" })).await;
    let path = format!("/ops/psps/{}", made.json["psp_id"].as_str().unwrap());
    service.call(reqwest::Method::PATCH, &path).json(&json!({ "fee_bps": 50 })).send().await.unwrap();
    let key = service.post(&format!("{path}/keys"), &json!({ "name": "till" })).await;
    let secret = key.json["api_key"].as_str().unwrap();
    service.post(&format!("{path}/keys/{}/revoke", key.json["key_id"].as_str().unwrap()), &json!({})).await;
    let log = service.get(&format!("/ops/audit?psp_id={}", made.json["psp_id"].as_str().unwrap())).await;
    let notified = log.json["entries"].as_array().unwrap().iter();
    let notified: Vec<_> =
        notified.map(|entry| (entry["actor_kind"].as_str().unwrap(), entry["action"].as_str().unwrap())).collect();
    let expected = ["psp.created", "psp.changed", "key.created", "key.revoked"].map(|action| ("operator", action));
    assert_eq!(notified, expected);
    assert_eq!(log.json["entries"][1]["detail"], json!({ "fee_bps": { "from": 100, "to": 50 } }));
    assert!(!log.text().contains(&secret[40..]) && !log.text().contains("hash"));
    service.stop().await;
}
