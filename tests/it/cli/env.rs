//! Routes that control the simulated environment.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{Home, Running};

use crate::call::assert_has;

#[tokio::test]
async fn inbox_verifies_stores_and_misbehaves() {
    let home = Home::new().await;
    let sandbox = Running::start_with(&home, [0, 0], &[("PAYFERRY_WEBHOOKS__RETRY_DELAYS_MS", "[100, 100, 100]")]);
    let api = sandbox.text("api_url").to_owned();
    let hook =
        async |url: String| sandbox.ok(Method::PATCH, "/api/v1/set_webhook", Some(json!({"webhook_url": url}))).await;

    hook(format!("{api}/sandbox/inbox/moody?status=500&times=2")).await;
    let id = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/payments/{id}/cancel"), None).await;
    let log = format!("/api/v1/payments/{id}/webhooks");
    let delivered = sandbox
        .until(&log, |log| {
            let deliveries = log["deliveries"].as_array().unwrap();
            deliveries.len() == 2 && deliveries.iter().all(|one| one["delivery_status"] == "delivered")
        })
        .await;
    let attempts: u64 =
        delivered["deliveries"].as_array().unwrap().iter().map(|one| one["attempt_count"].as_u64().unwrap()).sum();
    assert_eq!(attempts, 4, "two refusals and two deliveries: {delivered:#}");
    let inbox = sandbox.ok(Method::GET, "/sandbox/inbox/moody", None).await;
    assert_eq!(inbox["received"], 4);
    let webhooks = inbox["webhooks"].as_array().unwrap();
    assert!(webhooks.iter().all(|webhook| webhook["verified"] == true), "{inbox:#}");
    assert_eq!(webhooks.iter().filter(|webhook| webhook["answered"] == 500).count(), 2);
    let rest = sandbox.ok(Method::GET, "/sandbox/inbox/moody?after=3", None).await;
    assert_eq!(rest["webhooks"].as_array().unwrap().len(), 1);

    // A webhook is shown to the PSP that it names; one without a name is only counted.
    let forge = || reqwest::Client::new().post(format!("{api}/sandbox/inbox/moody")).body("{}");
    let event_id = webhooks[0]["webhook_id"].as_str().unwrap();
    for forged in [forge(), forge().header("webhook-id", event_id), forge().header("webhook-id", "evt_nobodys")] {
        assert_eq!(forged.send().await.unwrap().status(), StatusCode::OK);
    }
    let inbox = sandbox.ok(Method::GET, "/sandbox/inbox/moody?after=4", None).await;
    let shown: Vec<_> =
        inbox["webhooks"].as_array().unwrap().iter().map(|one| (&one["number"], &one["verified"])).collect();
    assert_eq!((&inbox["received"], shown), (&json!(7), vec![(&json!(6), &json!(false))]), "{inbox:#}");

    hook(format!("{api}/sandbox/inbox/elsewhere?redirect=http://127.0.0.1:1/")).await;
    let id = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/payments/{id}/cancel"), None).await;
    let log = sandbox
        .until(&format!("/api/v1/payments/{id}/webhooks"), |log| {
            log["deliveries"].as_array().unwrap().iter().all(|one| one["delivery_status"] == "exhausted")
        })
        .await;
    assert!(log["deliveries"].as_array().unwrap().iter().all(|one| one["response_code"] == 302), "{log:#}");

    let (status, _) = sandbox.call(Method::GET, "/sandbox/inbox/moody?limit=0&after=x", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    sandbox.ok(Method::DELETE, "/sandbox/inbox/moody", None).await;
    assert_eq!(sandbox.ok(Method::GET, "/sandbox/inbox/moody", None).await["received"], 0);
}

shared!(#[tokio::test] sandbox_routes, sandbox = Running::new().await, async {} =>
    inbox_hides_webhooks_of_other_psps, payments_are_paid_and_panic_and_invalid_requests_are_refused);

async fn inbox_hides_webhooks_of_other_psps(sandbox: &Running) {
    let url = format!("{}/sandbox/inbox/shared", sandbox.text("api_url"));
    sandbox.ok(Method::PATCH, "/api/v1/set_webhook", Some(json!({"webhook_url": url}))).await;
    let id = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/payments/{id}/cancel"), None).await;
    let delivered = |inbox: &serde_json::Value| inbox["webhooks"].as_array().unwrap().len() == 2;
    sandbox.until("/sandbox/inbox/shared", delivered).await;

    let other = sandbox.beside(&["psp", "create", "--name", "Southern Pay"]);
    let key = sandbox.beside(&[
        "key",
        "create",
        "--psp",
        &other,
        "--name",
        "theirs",
        "--scope",
        "full",
        "--expires",
        "never",
    ]);
    let theirs = async |method: Method| {
        let asked = reqwest::Client::new().request(method, &url).bearer_auth(&key).send().await.unwrap();
        assert_eq!(asked.status(), StatusCode::OK);
        asked.json::<serde_json::Value>().await.unwrap()
    };
    let seen = theirs(Method::GET).await;
    assert_has(&seen, json!({ "received": 2, "webhooks": [] }));
    // Sent before the endpoint's URL was changed: the secret is not needed here, and the webhook still belongs to its
    // PSP.
    let elsewhere = url.replace("shared", "elsewhere");
    sandbox.ok(Method::PATCH, "/api/v1/set_webhook", Some(json!({"webhook_url": elsewhere}))).await;
    let mine = sandbox.ok(Method::GET, "/sandbox/inbox/shared", None).await;
    let event_id = mine["webhooks"][0]["webhook_id"].as_str().unwrap().to_owned();
    let late = reqwest::Client::new().post(&url).header("webhook-id", event_id).json(&mine["webhooks"][0]["body"]);
    assert_eq!(late.send().await.unwrap().status(), StatusCode::OK);
    let seen = theirs(Method::GET).await;
    assert_has(&seen, json!({ "received": 3, "webhooks": [] }));
    theirs(Method::DELETE).await;
    let mine = sandbox.ok(Method::GET, "/sandbox/inbox/shared", None).await;
    let verified: Vec<_> = mine["webhooks"].as_array().unwrap().iter().map(|one| one["verified"].clone()).collect();
    assert_eq!(verified, [true, true, false]);
}

async fn payments_are_paid_and_panic_and_invalid_requests_are_refused(sandbox: &Running) {
    let id = sandbox.payment().await;
    let pay = format!("/sandbox/payments/{id}/pay");
    for (body, field) in [
        (json!({"amount": 10}), "amount"),
        (json!({"amount": "1e3"}), "amount"),
        (json!({"amount": "2000000000"}), "amount"),
        (json!({"currency": "EUR"}), "currency"),
        (json!({"chain": "doge"}), "chain"),
        (json!({"from": "nobody"}), "from"),
    ] {
        let (status, problem) = sandbox.call(Method::POST, &pay, Some(body.clone())).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {problem:#}");
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem:#}");
    }
    let elsewhere =
        sandbox.ok(Method::POST, &pay, Some(json!({"amount": "3", "currency": "USDT", "chain": "polygon"}))).await;
    assert_has(&elsewhere, json!({ "chain": "polygon", "currency": "USDT", "amount": "3.00" }));
    let held = sandbox.until(&format!("/payments/{id}"), |payment| payment["transfers"][0]["status"] == "final").await;
    assert_has(&held, json!({ "status": "pending", "amount_received": "0.00" }));
    let receipt = json!({
        "jsonrpc": "2.0", "id": 1, "method": "eth_getTransactionReceipt", "params": [elsewhere["tx_hash"]],
    });
    let receipt = sandbox.ok(Method::POST, "/sandbox/rpc/polygon", Some(receipt)).await;
    assert_eq!(receipt["result"]["status"], "0x1", "a real transaction: {receipt:#}");
    // A repeatedly panicking payment is shown to the operator.
    let (sick, sibling) = (sandbox.payment().await, sandbox.payment().await);
    let panicked =
        sandbox.ok(Method::POST, &format!("/sandbox/payments/{sick}/panic"), Some(json!({"times": 3}))).await;
    assert_has(&panicked, json!({ "panics": 3, "quarantined": false }));
    let panicked = sandbox.ok(Method::POST, &format!("/sandbox/payments/{sick}/panic"), None).await;
    assert_has(&panicked, json!({ "panics": 1, "quarantined": true }));
    let (_, view) = sandbox.operator(Method::GET, "/ops/actors", None).await;
    assert_has(&view, json!({ "quarantined/0/id": sick, "payments_quarantined": 1, "restarts/payment": 3 }));
    sandbox.pay(&sibling).await;
    sandbox.until_settled(&sibling).await;
    // Invalid requests return a problem document.
    let padded = json!({"seconds": 1, "padding": "x".repeat(70_000)});
    for (method, path, body, told) in [
        (Method::POST, "/sandbox/clock/advance", Some(padded.clone()), (413, "body_too_large")),
        (Method::POST, "/sandbox/inbox/large", Some(padded), (413, "body_too_large")),
        (Method::POST, "/sandbox/chains/%ff/mine", None, (400, "invalid_parameters")),
        (Method::GET, "/sandbox/inbox/%ff", None, (400, "invalid_parameters")),
    ] {
        let (status, problem) = sandbox.call(method, path, body).await;
        assert_eq!((status.as_u16(), problem["code"].as_str()), (told.0, Some(told.1)), "{path}: {problem:#}");
    }
}
