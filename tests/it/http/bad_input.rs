//! Invalid input on any route returns a problem document.

use crate::prelude::*;

shared!(#[tokio::test] bad_input, app = TestApp::start().await, app.renew_psp() =>
    rejects_bodies_that_are_not_json_or_not_declared_as_json, rejects_paths_that_are_not_utf8);

async fn rejects_bodies_that_are_not_json_or_not_declared_as_json(app: &TestApp) {
    let sync = || app.request(Method::POST, "/merchants/sync");
    for bad in ["", "{", "[1", "{} x", "{\"merchants\":[],\"merchants\":[]}", "null", "[]", "\"text\"", "{\"a\":1e999}"]
    {
        sync().bytes(bad).send().await.assert_problem(400, "malformed_json");
    }
    let rounded = sync().bytes("{\"order\":18446744073709551616}").send().await;
    rounded.assert_problem(400, "malformed_json");
    assert!(rounded["detail"].as_str().unwrap().contains("write it as a string"), "{}", rounded.text());
    let reply = sync().bytes("{\"merchants\": tru").send().await;
    insta::assert_json_snapshot!("malformed_json", reply.redacted());
    sync().bytes(vec![0xff, 0xfe]).send().await.assert_problem(400, "malformed_json");
    // Bodies without a JSON content type.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "jsonish"] {
        let call = sync().json(&json!({})).header("content-type", kind);
        call.send().await.assert_problem(415, "unsupported_media_type");
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"] {
        let call = sync().json(&json!({})).header("content-type", kind);
        call.send().await.assert_problem(422, "validation_failed");
    }
}

async fn rejects_paths_that_are_not_utf8(app: &TestApp) {
    for (method, path) in [
        (Method::GET, "/payments/%ff"),
        (Method::GET, "/api/v1/payments/%ff/webhooks"),
        (Method::GET, "/merchants/%ff"),
        (Method::POST, "/payments/%ff/cancel"),
        (Method::POST, "/payments/pay_x/webhooks/%ff/redeliver"),
    ] {
        let reply = app.request(method.clone(), path).json(&json!({})).send().await;
        reply.assert_problem(400, "invalid_parameters");
        assert_eq!(reply.faults(), "path: not_utf8", "{method} {path}");
    }
    let page = app.open("/pay/%ff").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (404, Some("text/html; charset=utf-8")));
}
