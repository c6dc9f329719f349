//! Bad arguments and unusable services are rejected before anything changes.

use axum::Router;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{against, complaint, run};
use crate::process::Running;

#[tokio::test]
async fn rejects_bad_arguments() {
    let cases = [
        ("--rate 0/s", "expected a rate such as 500/s"),
        ("--rate many", "expected a rate such as 500/s"),
        ("--rate 60000/s", "at most 50000/s"),
        ("--payments 0", "--payments"),
        ("--mix exact=90", "add up to 90, not to 100"),
        (
            "--mix exact=90,early=10",
            "`early` is unknown; known are exact, under, over, late, never, authorized, refunded, paid_out, withdrawn, customer",
        ),
        ("--mix exact=50,exact=50", "named twice"),
        ("--mix exact", "not written as name=percent"),
        ("--hold=-1", "--hold"),
        ("--in-flight-max 0", "--in-flight-max"),
        ("--threshold accepted:p99", "has no single < or >; write it as accepted:p99<100ms"),
        ("--threshold done:p99<1s", "`done` is no stage; known are begun, accepted"),
        ("--threshold refused<90", "no share such as 0.9"),
        ("--duration soon", "`soon` is not a duration such as 90s"),
        ("--duration 5s --payments 9", "--payments"),
        ("--stages 300", "not written as rate/duration"),
        ("--stages 5/1s --rate 9/s", "--rate"),
        ("--stages 5/1s --in-turn", "--in-turn"),
        ("--stages 0/1s", "has no arrivals"),
        ("--stages 50000/1h", "more than 1000000 payments"),
        ("--settle-timeout 0", "--settle-timeout"),
        ("--not-made-max 101", "percentage from 0 to 100"),
        ("--url http://127.0.0.1:1", "--key"),
        ("--key sk_test_x", "--url"),
        ("--advance-clock", "--url"),
        ("--seed 7", "--poisson"),
        ("--block-time-ms 1", "--block-time-ms"),
        ("--psps 0", "--psps"),
        ("--psps 2 --url http://127.0.0.1:1 --key sk_test_x", "--psps"),
        (
            "--payments 400 --mix refunded=100 --fault 'reorg base 3@1s'",
            "`reorg` is not supported with outbound transfers",
        ),
        ("--find-knee --stages 5/1s", "--stages"),
        ("--find-knee --payments 9", "--payments"),
        ("--compare /nowhere/old.json", "/nowhere/old.json cannot be read"),
        ("--compare Cargo.toml", "Cargo.toml is no report of `payferry load --json`"),
        ("--report /nowhere/report.html", "/nowhere/report.html cannot be written"),
    ];
    for (args, says) in cases {
        let output = run(args).await;
        assert!(!output.status.success(), "{args}");
        assert!(complaint(&output).contains(says), "{args}: {}", complaint(&output));
    }
    for (url, says) in [
        ("https://127.0.0.1:1", "only the scheme http is supported"),
        ("http://192.0.2.1:8080", "is not on this machine; add --allow-remote"),
        ("http://pay.example.com", "is not on this machine; add --allow-remote"),
        ("http://127.0.0.1:1", "the service cannot be reached"),
        ("http://127.0.0.1:1/payferry", "only a host and a port are supported"),
        ("http://127.0.0.1:1/?a=b", "only a host and a port are supported"),
        ("http://127.0.0.1:1#a", "only a host and a port are supported"),
        ("http://someone@127.0.0.1:1", "a user and a password are not supported"),
        ("http://someone:hush@pay.example.com/", "a user and a password are not supported"),
    ] {
        let output = run(&format!("--url {url} --key sk_test_x")).await;
        assert_eq!(output.status.code(), Some(1), "{url}");
        assert!(complaint(&output).contains(says), "{url}: {}", complaint(&output));
        assert!(!complaint(&output).contains("hush"), "{}", complaint(&output));
    }
}

#[tokio::test]
async fn a_run_that_does_not_start_keeps_existing_reports() {
    let temp = tempfile::tempdir().unwrap();
    let [old, new] = ["old.html", "new.html"].map(|name| temp.path().join(name));
    std::fs::write(&old, "of yesterday").unwrap();
    for file in [&old, &new] {
        let args = format!("--url http://127.0.0.1:1 --key sk_test_x --report {}", file.display());
        let output = run(&args).await;
        assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "of yesterday");
    assert!(!new.exists());
}

#[tokio::test]
async fn rejects_services_that_are_no_sandbox_and_wrong_keys() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let nothing = Router::new().fallback(|| async { StatusCode::NOT_FOUND });
    tokio::spawn(async move { axum::serve(listener, nothing).await });
    let output = run(&format!("--url {url} --key sk_test_x")).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("it is no sandbox: it has no /sandbox"), "{}", complaint(&output));

    let sandbox = Running::new().await;
    let output = run(&format!("--url {} --key sk_test_x", sandbox.text("api_url"))).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("does not take the key"), "{}", complaint(&output));
}

#[tokio::test]
async fn rejects_unsupported_settings_before_any_change() {
    let sandbox = Running::new().await;
    let own = json!({
        "event_families": "payin", "overpayment": "accept", "tolerance": "1.50", "tolerance_bps": 200,
        "require_customer": true, "finality": {"base": [{"wait": "finalized"}]},
    });
    sandbox.ok(Method::PATCH, "/api/v1/settings", Some(own)).await;
    let endpoint = sandbox.ok(Method::GET, "/api/v1/webhook", None).await;
    let merchants = sandbox.ok(Method::GET, "/merchants", None).await;
    let output = run(&against(&sandbox, "--rate 50/s --payments 10 --mix exact=100")).await;
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    for says in [
        "event_families is payin, not both",
        "overpayment is accept, not hold",
        "tolerance is 1.50, not below 1.00",
        "tolerance_bps is 200, not below 1.00 of each payment",
        "require_customer is true",
        "finality on base is set by the PSP",
    ] {
        assert!(complaint(&output).contains(says), "{says}: {}", complaint(&output));
    }
    assert_eq!(sandbox.ok(Method::GET, "/api/v1/webhook", None).await, endpoint);
    assert_eq!(sandbox.ok(Method::GET, "/merchants", None).await, merchants);
    // Settings that do not affect the end of a payment are allowed.
    let back = json!({
        "event_families": "both", "overpayment": "hold", "tolerance": "0.50", "tolerance_bps": 0,
        "require_customer": false, "refund_to_sender": true, "finality": {"base": "default"},
    });
    sandbox.ok(Method::PATCH, "/api/v1/settings", Some(back)).await;
    let mixed = "--rate 50/s --payments 30 --mix exact=80,under=10,over=10";
    let output = run(&against(&sandbox, mixed)).await;
    assert_eq!(output.status.code(), Some(0), "{}\n{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
}
