//! Data that the scope `read` hides.

use payferry_entities::audit_log;

use super::{PAYMENT_DETAILS, add, business_in_full, individual_in_full};
use crate::prelude::*;

#[tokio::test]
async fn identity_data_needs_the_scope_customers() {
    let app = TestApp::start().await;
    let bank = json!({ "bank_name": "First Bank", "account_number": "000123456789", "account_type": "checking",
        "routing_number": "021000021", "bank_address": super::address() });
    let only_read = app.add_key(app.psp_id, &[Scope::Read, Scope::Payments, Scope::Money]).await;
    let both = app.add_key(app.psp_id, &[Scope::Read, Scope::Customers]).await;
    for body in [individual_in_full(), business_in_full()] {
        let id = add(&app, &body).await;
        app.patch(PAYMENT_DETAILS, &with(&bank, &json!({ "customer_id": id }))).await.ok(200);
        let path = format!("/api/v1/customers/{id}");
        let full = app.get(&path).await.ok(200);
        assert_eq!(app.get_as(&both, &path).await.ok(200).json, full.json);
        let hidden = app.get_as(&only_read, &path).await.ok(200);
        let identities = ["P1234567", "123-45-6789", "12-3456789", "1990-12-10", "+14155550123", "000123456789"];
        let shown = identities.iter().filter(|text| full.text().contains(**text)).count();
        assert_eq!(shown, if body["type"] == "business" { 6 } else { 5 });
        hidden.assert_hides(&identities);
        // Everything else is the same.
        let mut expected = full.json.clone();
        for name in ["dob", "government_id_number", "tax_id"] {
            expected["customer"][name] = Value::Null;
        }
        if body["type"] == "business" {
            expected["customer"]["business_tax_id"] = Value::Null;
        }
        expected["customer"]["payment_details"]["account_number"] = Value::Null;
        expected["customer"].as_object_mut().unwrap().remove("phone_number");
        assert_eq!(hidden.json, expected);
    }
}

#[tokio::test]
async fn each_read_of_a_customer_is_audited() {
    let app = TestApp::start().await;
    let id = add(&app, &individual_in_full()).await;
    let path = format!("/api/v1/customers/{id}");
    let (only_read, _) = (app.add_key(app.psp_id, &[Scope::Read]).await, app.get("/api/v1/customers").await.ok(200));
    let requests =
        [app.get(&path).await.ok(200), app.get(&path).await.ok(200), app.get_as(&only_read, &path).await.ok(200)];
    let stranger = app.stranger().await;
    app.get_as(&stranger, &path).await.assert_problem(404, "customer_not_found");
    let entries = audit_log::Entity::find().filter(audit_log::Column::Action.eq("customer.read"));
    let entries = entries.order_by_asc(audit_log::Column::Number).all(app.reader()).await.unwrap();
    assert_eq!(entries.len(), requests.len(), "neither lists nor refused reads");
    for (index, (entry, request)) in entries.iter().zip(&requests).enumerate() {
        assert_eq!((&entry.subject, &entry.actor_kind), (&id, &"api_key".to_owned()));
        assert_eq!(entry.psp_id, Some(app.psp_id.to_string()));
        assert_eq!(entry.request_id.as_deref(), request.header("x-request-id"));
        assert_eq!(entry.detail, json!({ "identity_data": index < 2 }).to_string());
    }
    assert_ne!(entries[0].actor, entries[2].actor, "the id of the key");
    assert!(entries[2].actor.starts_with("key_") && !only_read.contains(&entries[2].actor));
}
