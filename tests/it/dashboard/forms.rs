//! Forms of the dashboard: each is a request to the API, is confirmed, and is carried out once.

use payferry_entities::audit_log;
use payferry_harness::receiver::Receiver;

use super::{SignedIn, location, post_file, shown_secret};
use crate::http::checkout::picture;
use crate::http::customers::paid_out::register;
use crate::prelude::*;

shared!(#[tokio::test] forms, app = TestApp::start().await, app.renew_psp() =>
    unconfirmed_forms_change_nothing, keys_are_created_rotated_and_revoked, the_last_full_key_is_kept,
    endpoints_are_added_changed_rotated_and_deleted, invalid_forms_are_shown_again, settings_are_changed,
    the_payers_page_is_changed);

/// Number of keys, endpoints and withdrawals.
async fn counts(app: &TestApp) -> [Value; 3] {
    let total = async |path: &str| app.get(path).await["total"].clone();
    [total("/api/v1/keys").await, total("/api/v1/webhook-endpoints").await, total("/withdrawals").await]
}

async fn unconfirmed_forms_change_nothing(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let (id, _) = app.add_key_as(app.psp_id, &[Scope::Read], |_| {}).await;
    let set = app.patch("/api/v1/set_webhook", &json!({ "webhook_url": "http://127.0.0.1:9/a" })).await.ok(200);
    let before = (counts(app).await, app.get("/api/v1/settings").await.json);
    let endpoint = format!("/dashboard/webhooks/{}", set.string("id"));
    for (path, fields) in [
        ("/dashboard/keys".to_owned(), vec![("scopes", "read"), ("expires_days", "1")]),
        (format!("/dashboard/keys/{id}/rotate"), vec![("expires_days", "1")]),
        (format!("/dashboard/keys/{id}/revoke"), vec![]),
        ("/dashboard/webhook-url".to_owned(), vec![("webhook_url", "http://127.0.0.1:9/b")]),
        ("/dashboard/webhooks".to_owned(), vec![("url", "http://127.0.0.1:9/b")]),
        (endpoint.clone(), vec![("url", "http://127.0.0.1:9/b")]),
        (format!("{endpoint}/rotate"), vec![]),
        (format!("{endpoint}/test"), vec![]),
        (format!("{endpoint}/delete"), vec![]),
        ("/dashboard/withdrawals".to_owned(), vec![("amount", "1"), ("currency", "USDC"), ("chain", "base")]),
        ("/dashboard/settings".to_owned(), vec![("tolerance", "0.7")]),
        ("/dashboard/settings/checkout".to_owned(), vec![("checkout.name", "Ferry Shop")]),
        ("/dashboard/settings/logo/delete".to_owned(), vec![]),
        ("/dashboard/deliveries/pay_x/whd_x/redeliver".to_owned(), vec![]),
        ("/dashboard/payments/pay_x/refund-requests/rr_x/approve".to_owned(), vec![]),
        ("/dashboard/payments/pay_x/refund-requests/rr_x/decline".to_owned(), vec![]),
    ] {
        let refused = signed_in.send(&path, &fields).await.ok(422);
        refused.assert_shows(&["Nothing was changed", "must be ticked"]);
    }
    assert_eq!((counts(app).await, app.get("/api/v1/settings").await.json), before);
    assert_eq!(app.get("/api/v1/webhook").await["webhook_url"], "http://127.0.0.1:9/a");
}

async fn keys_are_created_rotated_and_revoked(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let fields =
        [("name", "till <1>"), ("scopes", "read"), ("scopes", "money"), ("expires_days", "30"), ("form_id", "once")];
    let made = signed_in.confirm("/dashboard/keys", &fields).await.ok(201);
    let key = shown_secret(&made);
    made.assert_shows(&["till &lt;1&gt;", "read, money"]);
    app.get_as(&key, "/withdrawals").await.ok(200);
    assert!(!signed_in.open("/dashboard/keys").await.text().contains(&key[40..]), "it is shown once");
    // A form that is sent twice is carried out once.
    let again = signed_in.confirm("/dashboard/keys", &fields).await.ok(201);
    assert_eq!((shown_secret(&again), app.get("/api/v1/keys").await["total"].clone()), (key.clone(), json!(2)));

    let id = app.get("/api/v1/keys").await["keys"][0]["id"].as_str().unwrap().to_owned();
    let path = |what: &str| format!("/dashboard/keys/{id}/{what}");
    let page = signed_in.open("/dashboard/keys").await;
    // The lifetime of the key is proposed for the new one.
    page.assert_shows(&[&format!("action=\"{}\"", path("rotate")), "value=\"30\""]);
    let rotated = signed_in.confirm(&path("rotate"), &[("expires_days", "never")]).await.ok(201);
    let new = shown_secret(&rotated);
    for key in [&key, &new] {
        app.get_as(key, "/withdrawals").await.ok(200);
    }
    let revoked = signed_in.confirm(&path("revoke"), &[]).await;
    assert_eq!(location(&revoked), (303, "/dashboard/keys?done=revoked"));
    signed_in.open("/dashboard/keys?done=revoked").await.ok(200).assert_shows(&["The key is revoked."]);
    app.get_as(&key, "/withdrawals").await.assert_problem(401, "api_key_revoked");
    let over = signed_in.confirm(&path("rotate"), &[("expires_days", "never")]).await.ok(409);
    over.assert_shows(&["Nothing was changed", "was revoked or has expired", "id=\"back\""]);

    let entries = audit_log::Entity::find().filter(audit_log::Column::PspId.eq(app.psp_id.to_string()));
    let entries = entries.order_by_asc(audit_log::Column::Number).all(app.reader()).await.unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["key.created", "key.created", "key.rotated", "key.revoked"]);
    assert!(entries.iter().all(|entry| entry.request_id.is_some() && entry.actor_kind == "api_key"), "{entries:?}");
}

async fn the_last_full_key_is_kept(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let own = app.get("/api/v1/keys/current").await;
    let revoke = format!("/dashboard/keys/{}/revoke", own.string("id"));
    signed_in.open("/dashboard/keys").await.assert_shows(&["this session", "This session uses the key and ends"]);
    signed_in.confirm(&revoke, &[]).await.ok(409).assert_shows(&["This is the last key with the scope `full`"]);
    signed_in.open("/dashboard").await.ok(200);
    app.add_key(app.psp_id, &[Scope::Full]).await;
    let ended = signed_in.confirm(&revoke, &[]).await;
    assert_eq!(location(&ended), (303, "/dashboard/login"));
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"), "the session of the revoked key is over");
    signed_in.open("/dashboard").await.ok(401).assert_shows(&["was revoked"]);
}

async fn endpoints_are_added_changed_rotated_and_deleted(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let receiver = Receiver::start().await;
    signed_in.open("/dashboard").await.assert_shows(&["No webhook URL is set."]);
    let set = signed_in.confirm("/dashboard/webhook-url", &[("webhook_url", receiver.url())]).await.ok(200);
    let secret = shown_secret(&set);
    assert!(secret.starts_with("whsec_"), "{secret}");
    signed_in.open("/dashboard").await.assert_hides(&["No webhook URL is set."]);
    let again = signed_in.confirm("/dashboard/webhook-url", &[("webhook_url", receiver.url())]).await;
    assert_eq!(location(&again), (303, "/dashboard/webhooks?done=set"));

    let fields = [
        ("url", "http://127.0.0.1:9/b"),
        ("events", "refund.sent, payout.*"),
        ("schedule", "extended"),
        ("description", "<b>"),
    ];
    let added = signed_in.confirm("/dashboard/webhooks", &fields).await.ok(200);
    assert!(shown_secret(&added).starts_with("whsec_"));
    added.assert_shows(&["refund.sent, payout.*", "&lt;b&gt;"]);
    let endpoints = app.get("/api/v1/webhook-endpoints").await["webhook_endpoints"].clone();
    assert_has(&endpoints[0], json!({ "schedule": "extended", "description": "<b>", "status": "enabled" }));
    let path =
        |index: usize, what: &str| format!("/dashboard/webhooks/{}{what}", endpoints[index]["id"].as_str().unwrap());

    let page = signed_in.open(&path(0, "")).await.ok(200);
    page.assert_shows(&["value=\"refund.sent, payout.*\"", "value=\"http://127.0.0.1:9/b\""]);
    let fields = [("url", "http://127.0.0.1:9/c"), ("events", "*"), ("schedule", "default"), ("status", "disabled")];
    let changed = signed_in.confirm(&path(0, ""), &fields).await;
    assert_eq!(location(&changed), (303, format!("{}?done=saved", path(0, "")).as_str()));
    let read = app.get(&format!("/api/v1/webhook-endpoints/{}", endpoints[0]["id"].as_str().unwrap())).await;
    assert_has(
        &read,
        json!({ "url": "http://127.0.0.1:9/c", "events": ["*"], "schedule": "default", "status": "disabled" }),
    );

    let rotated = signed_in.confirm(&path(1, "/rotate"), &[]).await.ok(200);
    assert_ne!(shown_secret(&rotated), secret);
    rotated.assert_shows(&["Previous secret"]);
    receiver.verify_with(&shown_secret(&rotated));
    signed_in
        .confirm(&path(1, "/test"), &[])
        .await
        .ok(200)
        .assert_shows(&["acknowledged the test event", "It answered 200"]);
    signed_in.confirm(&path(0, "/test"), &[]).await.ok(200).assert_shows(&["did not acknowledge the test event"]);
    let deleted = signed_in.confirm(&path(0, "/delete"), &[]).await;
    assert_eq!(location(&deleted), (303, "/dashboard/webhooks?done=deleted"));
    signed_in.open(&path(0, "")).await.ok(404).assert_shows(&["There is no endpoint with this id."]);
    signed_in.confirm(&path(0, "/delete"), &[]).await.ok(404);
    assert_eq!(app.get("/api/v1/webhook-endpoints").await["total"], 1);
}

async fn invalid_forms_are_shown_again(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let fields = [("name", "a\u{7}b"), ("scopes", "all"), ("expires_days", "soon"), ("form_id", "kept")];
    let refused = signed_in.confirm("/dashboard/keys", &fields).await.ok(422);
    refused.assert_shows(&["must be a number of days", "value=\"soon\"", "aria-invalid=\"true\"", "value=\"kept\""]);
    refused.assert_hides(&["Key created"]);
    let refused = signed_in.confirm("/dashboard/webhook-url", &[("webhook_url", "ftp://x\"><b>")]).await.ok(422);
    refused.assert_shows(&["value=\"ftp://x&quot;&gt;&lt;b&gt;\""]);
    let refused =
        signed_in.confirm("/dashboard/webhooks", &[("url", "http://127.0.0.1:9/"), ("events", "nothing.*")]).await;
    refused.ok(422).assert_shows(&["value=\"nothing.*\""]);
    let refused = signed_in
        .confirm("/dashboard/withdrawals", &[("amount", "1e3"), ("currency", "USDC"), ("chain", "base")])
        .await;
    refused.ok(422).assert_shows(&["value=\"1e3\""]);
    signed_in.confirm("/dashboard/keys", &[("form_id", "a b\n")]).await.ok(400).assert_shows(&["Idempotency-Key"]);
    let large = "x".repeat(70_000);
    signed_in.confirm("/dashboard/keys", &[("name", &large)]).await.ok(413);
    assert_eq!(counts(app).await, [json!(1), json!(0), json!(0)]);
}

async fn settings_are_changed(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    signed_in
        .open("/dashboard/settings")
        .await
        .ok(200)
        .assert_shows(&["value=\"0.00\"", "basis points of each settlement"]);
    let fields = [
        ("tolerance", "0.05"),
        ("tolerance_bps", "20"),
        ("overpayment_tolerance", "0.02"),
        ("overpayment_tolerance_bps", "5"),
        ("overpayment", "accept"),
        ("dust_floor", "0.01"),
        ("event_families", "payment"),
        ("payer_refunds", "approve"),
        ("refund_to_sender", "true"),
    ];
    let saved = signed_in.confirm("/dashboard/settings", &fields).await;
    assert_eq!(location(&saved), (303, "/dashboard/settings?done=saved"));
    let expected = json!({ "tolerance": "0.05", "tolerance_bps": 20, "overpayment": "accept", "dust_floor": "0.01",
        "event_families": "payment", "payer_refunds": "approve", "refund_to_sender": true, "require_customer": false });
    let settings = app.get("/api/v1/settings").await;
    assert_has(&settings, expected);
    let fields = [("tolerance", "x"), ("tolerance_bps", "70000")];
    let refused = signed_in.confirm("/dashboard/settings", &fields).await.ok(422);
    refused.assert_shows(&["value=\"x\"", "value=\"70000\"", "Nothing was changed"]);
    assert_eq!(app.get("/api/v1/settings").await["tolerance"], "0.05");
}

async fn the_payers_page_is_changed(app: &TestApp) {
    const CHECKOUT: &str = "/dashboard/settings/checkout";
    const LOGO: &str = "/dashboard/settings/logo";
    let signed_in = SignedIn::with(app, &app.key).await;
    let checkout = async || app.get("/api/v1/settings").await["checkout"].clone();
    let fields = [
        ("checkout.name", "Ferry <Shop>"),
        ("checkout.color", "#0b6e75"),
        ("checkout.return_url", "https://shop.example/{payment_id}"),
    ];
    let saved = signed_in.confirm(CHECKOUT, &fields).await;
    assert_eq!(location(&saved), (303, "/dashboard/settings?done=checkout"));
    let expected = json!({ "name": "Ferry <Shop>", "color": "#0b6e75", "return_url": "https://shop.example/{payment_id}",
        "logo_url": null });
    assert_eq!(checkout().await, expected);
    let page = signed_in.open("/dashboard/settings?done=checkout").await.ok(200);
    page.assert_shows(&["value=\"Ferry &lt;Shop&gt;\"", "value=\"#0b6e75\"", "Saved. It applies to every payer"]);
    page.assert_hides(&["<img"]);
    let bad = [("checkout.name", ""), ("checkout.color", "red"), ("checkout.return_url", "http://x")];
    let refused = signed_in.confirm(CHECKOUT, &bad).await.ok(422);
    refused.assert_shows(&["value=\"red\"", "value=\"http://x\"", "must be # and six hexadecimal digits"]);
    refused.assert_shows(&["must be an https:// URL"]);
    assert_eq!(checkout().await, expected);
    signed_in.confirm(CHECKOUT, &[("checkout.color", "#0b6e75")]).await.ok(303);
    assert_has(&checkout().await, json!({ "name": null, "color": "#0b6e75", "return_url": null }));

    let send = async |fields: &[(&str, &str)], content: &[u8]| {
        post_file(app, LOGO, fields, ("logo", content)).header("cookie", &signed_in.cookie).send().await
    };
    let confirmed = [("form_id", "once"), ("confirm", "true")];
    let png = picture(48, image::ImageFormat::Png);
    send(&[("form_id", "once")], &png).await.ok(422).assert_shows(&["must be ticked"]);
    send(&confirmed, b"<svg/>").await.ok(422).assert_shows(&["must be a PNG, JPEG or WebP"]);
    send(&confirmed, &vec![0; 200 * 1024]).await.ok(413).assert_shows(&["may have at most 131072 bytes"]);
    send(&confirmed, &vec![0; 2 * 1024 * 1024]).await.ok(413);
    let foreign = post_file(app, LOGO, &confirmed, ("logo", &png)).header("origin", "https://evil.example");
    foreign.header("cookie", &signed_in.cookie).send().await.ok(403);
    assert_eq!(checkout().await["logo_url"], Value::Null);
    let uploaded = send(&confirmed, &png).await;
    assert_eq!(location(&uploaded), (303, "/dashboard/settings?done=checkout"));
    let url = checkout().await["logo_url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix("https://pay.example").unwrap();
    signed_in.open("/dashboard/settings").await.assert_shows(&[&format!("<img class=\"logo\" src=\"{path}\"")]);
    let reader = SignedIn::with(app, &app.add_key(app.psp_id, &[Scope::Read]).await).await;
    let page = reader.open("/dashboard/settings").await.ok(200);
    page.assert_shows(&[path, "#0b6e75"]);
    page.assert_hides(&["id=\"checkout\"", "type=\"file\""]);
    let deleted = signed_in.confirm("/dashboard/settings/logo/delete", &[]).await;
    assert_eq!(location(&deleted), (303, "/dashboard/settings?done=checkout"));
    assert_eq!(checkout().await["logo_url"], Value::Null);
}

#[tokio::test]
async fn finality_is_changed_on_each_chain() {
    let app = TestApp::start_with_chains().await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    let page = signed_in.open("/dashboard/settings").await.ok(200);
    page.assert_shows(&["Finality on base", "name=\"finality.polygon[1].wait\"", "name=\"finality.arbitrum.default\""]);
    let bands = |base: &'static str, wait: &'static str| {
        [
            ("finality.base.sent", "true"),
            ("finality.base[0].below", base),
            ("finality.base[0].wait", "10"),
            ("finality.base[1].wait", wait),
            ("finality.polygon.sent", "true"),
            ("finality.polygon.default", "true"),
        ]
    };
    signed_in.confirm("/dashboard/settings", &bands("500", "finalized")).await.ok(303);
    let finality = app.get("/api/v1/settings").await["finality"].clone();
    let expected = json!([{ "below": "500.00", "wait": 10 }, { "wait": "finalized" }]);
    assert_has(&finality, json!({ "base/tiers": expected, "base/is_default": false, "polygon/is_default": true }));
    let refused = signed_in.confirm("/dashboard/settings", &bands("500", "soon")).await.ok(422);
    refused.assert_shows(&["value=\"soon\"", "must be a number of blocks"]);
    let default = [("finality.base.sent", "true"), ("finality.base.default", "true"), ("finality.base[0].wait", "10")];
    signed_in.confirm("/dashboard/settings", &default).await.ok(303);
    assert_eq!(app.get("/api/v1/settings").await["finality"]["base"]["is_default"], true);
}

#[tokio::test]
async fn withdrawals_are_sent_once() {
    let app = TestApp::start_with_chains().await;
    app.paid("10", "settled").await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    signed_in.open("/dashboard/balances").await.ok(200).assert_shows(&["9.90", "Ask the operator to register one."]);
    let fields =
        [("amount", "2.5"), ("currency", "USDC"), ("chain", "base"), ("reference", "payroll"), ("form_id", "w-1")];
    let refused = signed_in.confirm("/dashboard/withdrawals", &fields).await.ok(409);
    refused.assert_shows(&["The operator has registered no withdrawal wallet", "value=\"2.5\"", "value=\"w-1\""]);
    register(&app).await;
    // The same form: a refusal changed nothing and is not stored.
    for _ in 0..2 {
        let sent = signed_in.confirm("/dashboard/withdrawals", &fields).await;
        assert_eq!(location(&sent), (303, "/dashboard/balances?done=withdrawn"));
    }
    let list = app.get("/withdrawals").await;
    assert_eq!(list["total"], 1, "a form that is sent twice is carried out once");
    assert_has(&list["withdrawals"][0], json!({ "amount": "2.50", "reference": "payroll" }));
    let id = list["withdrawals"][0]["id"].as_str().unwrap();
    let page = signed_in.open("/dashboard/balances?done=withdrawn").await.ok(200);
    page.assert_shows(&[id, "The withdrawal was accepted.", &format!("href=\"/dashboard/outbound/{id}\"")]);
    app.when(&format!("/withdrawals/{id}"), "sent").await;
    let page = signed_in.open(&format!("/dashboard/outbound/{id}")).await.ok(200);
    page.assert_shows(&["2.50 USDC", "payroll", "withdraw.sent"]);
    let stranger = SignedIn::with(&app, &app.stranger().await).await;
    stranger.open(&format!("/dashboard/outbound/{id}")).await.ok(404).assert_hides(&["payroll"]);
    let much = [("amount", "100"), ("currency", "USDC"), ("chain", "base")];
    signed_in
        .confirm("/dashboard/withdrawals", &much)
        .await
        .ok(409)
        .assert_shows(&["The available balance on this chain is too small."]);
}
