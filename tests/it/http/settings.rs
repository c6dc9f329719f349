//! The PSP's policies: reads, changes, and their effect on payments.

use payferry_entities::audit_log;

use crate::prelude::*;

const SETTINGS: &str = "/api/v1/settings";

/// Changes settings and asserts success.
async fn changed(app: &TestApp, body: Value) -> Value {
    let reply = app.patch(SETTINGS, &body).await;
    reply.assert(200, json!({ "message": "Settings changed" }));
    reply["settings"].clone()
}

shared!(#[tokio::test] settings, app = TestApp::start_with_chains().await, app.renew_psp() =>
    settings_are_read_and_changed_with_an_audit_entry, invalid_settings_are_named_and_change_nothing,
    changes_need_full_scope_and_are_per_psp, concurrent_changes_do_not_undo_each_other);

async fn settings_are_read_and_changed_with_an_audit_entry(app: &TestApp) {
    let first = app.get(SETTINGS).await;
    insta::assert_json_snapshot!("settings", first.redacted());
    let all = json!({ "tolerance": "0.05", "tolerance_bps": 20, "overpayment": "refund_excess", 
        "refund_to_sender": true, "require_customer": true, "dust_floor": "0.01", "event_families": "payment",
        "finality": {
            "base": [{ "below": "500", "wait": 3 }, { "wait": "finalized" }], "polygon": [{ "wait": 12 }],
        } });
    let reply = app.patch(SETTINGS, &all).await;
    insta::assert_json_snapshot!("settings_changed", reply.redacted());
    let read = app.get(SETTINGS).await["settings"].clone();
    assert_eq!(read, reply["settings"]);

    // Omitted settings stay; `default` restores the operator's setting.
    let partly = changed(app, json!({ "overpayment": "hold", "finality": { "base": "default" } })).await;
    let expected = json!({ "overpayment": "hold", "tolerance": "0.05",
        "finality/base": first["settings"]["finality"]["base"], "finality/polygon": read["finality"]["polygon"] });
    assert_has(&partly, expected);
    for nothing_new in [json!({}), json!({ "overpayment": "hold" }), json!({ "tolerance": null })] {
        let reply = app.patch(SETTINGS, &nothing_new).await;
        assert_has(&reply, json!({ "message": "Settings unchanged", "settings": partly }));
    }

    // The audit log has the author, the old and the new values.
    let entries = audit_log::Entity::find()
        .filter(audit_log::Column::Subject.eq(app.psp_id.to_string()))
        .all(app.reader())
        .await
        .unwrap();
    let notified: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.actor_kind.as_str())).collect();
    assert_eq!(notified, [("psp.changed", "api_key"); 2]);
    let detail: Value = serde_json::from_str(&entries[1].detail).unwrap();
    assert_eq!(detail["overpayment"], json!({ "from": "refund_excess", "to": "hold" }));
    assert_eq!(detail.as_object().unwrap().len(), 2, "only the differences: {detail}");
}

async fn invalid_settings_are_named_and_change_nothing(app: &TestApp) {
    let before = app.get(SETTINGS).await.json;
    let bad = json!({ "tolerance": "1e3", "tolerance_bps": 10_001, "overpayment": "keep", "refund_to_sender": "yes",
        "require_customer": 1, "dust_floor": "1.01", "event_families": "all", "fee_bps": 0, "send_max": "1",
        "fee": 1, "finality": { "base": [{ "wait": 1 }], "polygon": [{ "below": "5", "wait": "soon" }, { "wait": 0 }],
            "arbitrum": [{ "below": "5", "wait": "safe" }], "doge": [] } });
    let refused = app.patch(SETTINGS, &bad).await;
    refused.assert_problem(422, "validation_failed");
    let faults = refused.faults_sorted();
    let expected = "dust_floor: amount_too_large, event_families: unknown_value, fee: unknown_field, \
        fee_bps: read_only, finality.arbitrum: bands_disordered, finality.base: below_least, \
        finality.doge: unknown_chain, finality.polygon[0].wait: unknown_value, finality.polygon[1].wait: out_of_range, \
        overpayment: unknown_value, refund_to_sender: wrong_type, require_customer: wrong_type, \
        send_max: read_only, tolerance: amount_malformed, tolerance_bps: out_of_range";
    assert_eq!(faults, expected);
    let cases = [
        (json!({ "finality": [] }), "finality: wrong_type"),
        (json!({ "finality": { "base": [] } }), "finality.base: empty"),
        (json!({ "finality": { "base": "loose" } }), "finality.base: wrong_type"),
        (json!({ "finality": { "base": [{ "wait": 1_001 }] } }), "finality.base[0].wait: out_of_range"),
        (json!({ "withdrawal_wallet": "0x000000000000000000000000000000000000ada5" }), "withdrawal_wallet: read_only"),
        (json!({ "withdrawal_wallets": [] }), "withdrawal_wallets: read_only"),
        (json!({ "limits": { "send_max": "5" } }), "limits: read_only"),
        (json!({ "send_daily_max": "5" }), "send_daily_max: read_only"),
        // An internal value of transfers, and a policy in the spelling of the database.
        (json!({ "overpayment": "keep_excess" }), "overpayment: unknown_value"),
        (json!({ "overpayment": { "hold": null } }), "overpayment: unknown_value"),
        (json!({ "overpayment": true }), "overpayment: unknown_value"),
    ];
    assert_refused(&cases, async |body| app.patch(SETTINGS, body).await).await;
    assert_eq!(app.get(SETTINGS).await.json, before, "nothing was changed");
}

async fn changes_need_full_scope_and_are_per_psp(app: &TestApp) {
    let narrow = [Scope::Read, Scope::Payments, Scope::Customers, Scope::Money, Scope::Webhooks];
    let narrow = app.add_key(app.psp_id, &narrow).await;
    let body = json!({ "overpayment": "accept" });
    app.request(Method::PATCH, SETTINGS).key(&narrow).json(&body).send().await.assert_problem(403, "missing_scope");
    assert_eq!(app.get_as(&narrow, SETTINGS).await.status, 200);
    let key = app.stranger().await;
    changed(app, body.clone()).await;
    let theirs = app.get_as(&key, SETTINGS).await;
    assert_eq!(theirs["settings"]["overpayment"], "hold");

    // A repeated request returns the same answer, even if the setting has changed since.
    let keyed = || app.request(Method::PATCH, SETTINGS).idempotency_key("s").json(&json!({ "tolerance": "1" })).send();
    let first = keyed().await;
    changed(app, json!({ "tolerance": "2" })).await;
    keyed().await.assert_replays(&first);
    assert_eq!(app.get(SETTINGS).await["settings"]["tolerance"], "2.00");
}

async fn concurrent_changes_do_not_undo_each_other(app: &TestApp) {
    let bodies = [
        json!({ "tolerance": "0.5" }),
        json!({ "tolerance_bps": 7 }),
        json!({ "overpayment": "accept" }),
        json!({ "refund_to_sender": true }),
        json!({ "dust_floor": "0.5" }),
        json!({ "event_families": "payin" }),
    ];
    let replies = futures::future::join_all(bodies.iter().map(|body| app.patch(SETTINGS, body))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    let settings = app.get(SETTINGS).await["settings"].clone();
    for body in bodies {
        for (name, value) in body.as_object().unwrap() {
            let value = if name == "tolerance" || name == "dust_floor" { json!("0.50") } else { value.clone() };
            assert_eq!(settings[name], value, "{settings:#}");
        }
    }
}

#[tokio::test]
async fn tolerance_and_acceptance_apply_to_later_payments() {
    let app = TestApp::start_with_chains().await;
    let (short_before, over_before) = (app.add_payment().await, app.add_payment().await);
    changed(&app, json!({ "tolerance": "0.05", "tolerance_bps": 500, "overpayment": "accept" })).await;
    let (short, over) = (app.add_payment().await, app.add_payment().await);
    for (payment, amount) in [(&short_before, "9.5"), (&over_before, "11"), (&short, "9.5"), (&over, "11")] {
        app.pay(payment, amount).await;
    }
    let (short, over) = (app.payment_when(&short, "settled").await, app.payment_when(&over, "settled").await);
    assert_has(&short, json!({ "amount_received": "9.50", "settlement/amount": "9.50" }));
    assert_has(&over, json!({ "amount_received": "11.00", "settlement/amount": "11.00" }));
    for (before, label) in [(&short_before, "UNDERPAID"), (&over_before, "OVERPAID")] {
        assert_eq!(app.payment_when(before, "mismatched").await["labels"], json!([label]));
    }
}

#[tokio::test]
async fn operator_fee_applies_to_later_payments() {
    let service = ServiceFixture::start_with_chains().await;
    let app = &service.app;
    let before = app.add_payment().await;
    service.patch(&format!("/ops/psps/{}", app.psp_id), &json!({ "fee_bps": 250 })).await.ok(200);
    assert_eq!(app.get(SETTINGS).await["settings"]["fee_bps"], 250);
    let after = app.add_payment().await;
    for (payment, amount, fee) in [(&before, "9.90", "0.10"), (&after, "9.75", "0.25")] {
        app.pay(payment, "10").await;
        let settled = app.payment_when(payment, "settled").await;
        assert_has(&settled["settlement"], json!({ "psp_amount": amount, "treasury_fee": fee }));
    }
    let treasury = app.env().chain(Chain::Base).spec().treasury.to_string();
    assert_eq!(balance(app, Chain::Base, Token::Usdc, &treasury).await, 350_000);
}

#[tokio::test]
async fn automatic_excess_refund_applies_to_later_payments() {
    let app = TestApp::start_with_chains().await;
    let before = app.add_payment().await;
    changed(&app, json!({ "overpayment": "refund_excess", "refund_to_sender": true })).await;
    let made = app.add_payment().await;
    for payment in [&before, &made] {
        app.pay(payment, "12.5").await;
    }
    let settled = app.payment_when(&made, "settled").await.json;
    assert_has(&settled, json!({ "amount_received": "12.50", "settlement/amount": "10.00" }));
    let refunded = app.get_until(&made.path(), |read| read["refunds"][0]["status"] == "sent").await;
    assert_has(&refunded["refunds"][0], json!({ "amount": "2.50", "address": settled["transfers"][0]["from"] }));
    assert_eq!(app.payment_when(&before, "mismatched").await["refunds"], json!([]));
}

#[tokio::test]
async fn event_family_required_customer_and_finality_apply_immediately() {
    let app = TestApp::start_with_chains().await;
    for (families, expected) in [
        ("payin", ["payin.underpaid", "payin.mismatched", "payin.confirmed", "payin.settled"].as_slice()),
        ("payment", ["payment.mismatched", "payment.confirmed", "payment.settled"].as_slice()),
    ] {
        changed(&app, json!({ "event_families": families })).await;
        let made = app.paid("4", "mismatched").await;
        app.pay(&made, "6").await;
        app.payment_when(&made, "settled").await;
        assert_eq!(app.events_of(&made).await, expected, "{families}");
        let feed = app.get("/api/v1/events?limit=200").await.json;
        let of_payment = |event: &&Value| event["payment_id"] == made["payment_id"];
        assert_eq!(feed["events"].as_array().unwrap().iter().filter(of_payment).count(), 7, "{feed:#}");
    }
    // A required customer and the finality apply immediately.
    changed(&app, json!({ "require_customer": true })).await;
    assert_eq!(app.initiate(&json!({})).await.faults(), "customer_id: required");
    changed(&app, json!({ "require_customer": false, "finality": { "base": [{ "wait": 4 }] } })).await;
    let settled = app.get(&app.paid("10", "settled").await.path()).await;
    assert_eq!(settled["required_confirmations"], 4);
}
