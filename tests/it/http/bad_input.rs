//! Invalid input on any route returns a problem document.

use crate::prelude::*;

shared!(#[tokio::test] bad_input, app = TestApp::start().await, app.renew_psp() =>
    rejects_bodies_that_are_not_json_or_not_declared_as_json, rejects_compressed_bodies_and_other_charsets,
    rejects_paths_that_are_not_utf8);

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

async fn rejects_compressed_bodies_and_other_charsets(app: &TestApp) {
    let sync = |name, value: &str| app.request(Method::POST, "/merchants/sync").json(&json!({})).header(name, value);
    for (name, bad, accepted) in [
        ("content-encoding", "gzip", "The Content-Encoding of the body must be identity."),
        ("content-encoding", "identity, br", "The Content-Encoding of the body must be identity."),
        ("content-type", "application/json; charset=iso-8859-1", "The charset of the body must be utf-8."),
        ("content-type", "application/json;a=b; Charset=\"UTF-16\"", "The charset of the body must be utf-8."),
        ("content-type", "application/json; charset", "The charset of the body must be utf-8."),
    ] {
        let refused = sync(name, bad).send().await;
        refused.assert_problem(415, "unsupported_media_type");
        assert_eq!(refused["detail"], accepted, "{bad}");
    }
    for (name, good) in [
        ("content-encoding", "Identity"),
        ("content-encoding", ""),
        ("content-type", "application/json; charset=UTF-8"),
        ("content-type", "application/json; version=1; charset=\"utf-8\""),
    ] {
        sync(name, good).send().await.assert_problem(422, "validation_failed");
    }
    // A form, and a request without a body.
    let form = app.request(Method::POST, "/consent?token=x").bytes("accept=yes");
    let form = form.header("content-type", "application/x-www-form-urlencoded; charset=latin1").send().await;
    form.assert_problem(415, "unsupported_media_type");
    app.request(Method::GET, "/merchants").header("content-encoding", "gzip").send().await.assert(200, json!({}));
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
