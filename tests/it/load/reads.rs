//! A service that cannot be read for a while, or not any more, when a run is compared; and one that takes another fee than
//! its settings say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{complaint, report, run};
use crate::process::{Home, Running};

/// Bytes of a request that is passed on.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Between the load tester and a sandbox.
struct Between {
    url: String,
    client: reqwest::Client,
    /// Lists of payments that are still refused with 503.
    refusals: AtomicUsize,
    refused: AtomicUsize,
    /// What the settings say that the fee is, if it is not what they say.
    fee_bps: Option<u16>,
}

async fn pass(State(between): State<Arc<Between>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    if path.starts_with("/payments?") {
        let left = between.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            between.refused.fetch_add(1, Ordering::SeqCst);
            return (StatusCode::SERVICE_UNAVAILABLE, "{}").into_response();
        }
    }
    let (parts, body) = request.into_parts();
    let body: Bytes = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
    let mut headers: HeaderMap = parts.headers;
    for own in ["host", "content-length", "connection"] {
        headers.remove(own);
    }
    let sent = between.client.request(parts.method, format!("{}{path}", between.url)).headers(headers).body(body);
    match sent.send().await {
        Ok(answer) => {
            let status = answer.status();
            let mut body = answer.bytes().await.unwrap_or_default();
            if let Some(fee_bps) = between.fee_bps.filter(|_| path == "/api/v1/settings") {
                let mut settings: Value = serde_json::from_slice(&body).unwrap();
                settings["settings"]["fee_bps"] = json!(fee_bps);
                body = settings.to_string().into();
            }
            (status, body).into_response()
        }
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Loads a sandbox that refuses so many lists of payments; answers what came of it, and how many were refused.
async fn load_refusing(refusals: usize, report: Option<&str>) -> (std::process::Output, usize) {
    load_through(refusals, None, report).await
}

async fn load_through(refusals: usize, fee_bps: Option<u16>, report: Option<&str>) -> (std::process::Output, usize) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let between = Arc::new(Between {
        url: sandbox.text("api_url").to_owned(),
        client: reqwest::Client::new(),
        refusals: AtomicUsize::new(refusals),
        refused: AtomicUsize::new(0),
        fee_bps,
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(pass).with_state(Arc::clone(&between));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let args = ["--url", &url, "--key", sandbox.text("api_key"), "--rate", "50/s", "--payments", "50", "--json"];
    let mut args: Vec<String> = args.iter().chain(&["--mix", "exact=100"]).map(|word| (*word).to_owned()).collect();
    args.extend(report.iter().flat_map(|file| ["--report".to_owned(), (*file).to_owned()]));
    let output = run(args).await;
    serving.abort();
    sandbox.stop();
    (output, between.refused.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_read_that_fails_for_a_moment_is_made_again() {
    let (output, refused) = load_refusing(2, None).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}\n{report:#}", complaint(&output));
    assert_eq!((refused, &report["audited"], &report["read_back"]), (2, &json!(true), &json!(50)));
}

#[tokio::test]
async fn what_cannot_be_read_back_is_a_finding_and_the_rest_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("report.html");
    let (output, refused) = load_refusing(usize::MAX, file.to_str()).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{}\n{report:#}", complaint(&output));
    assert!((2..50).contains(&refused), "asked for again, and not for ever: {refused}");
    assert_eq!((&report["audited"], &report["interrupted"]), (&json!(false), &json!(false)));
    let [finding] = report["findings"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&finding["kind"], &finding["payment_id"]), (&json!("wrong"), &json!(null)));
    let words = finding["found"].as_str().unwrap();
    assert!(words.starts_with("it could not be read: GET /payments?") && words.contains("503"), "{words}");
    // What was measured is there all the same.
    assert_eq!((&report["counted"]["accepted"], &report["counted"]["complete"]), (&json!(50), &json!(50)));
    assert!(report["stages"].as_array().unwrap().len() > 5, "{:#}", report["stages"]);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("Payments were not compared.") && page.contains("it could not be read"), "{page}");
}

#[tokio::test]
async fn a_fee_that_is_not_the_settings_is_found_in_every_settlement_although_it_adds_up() {
    // The sandbox takes 1 %.
    let (output, _) = load_through(0, Some(101), None).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{}\n{report:#}", complaint(&output));
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 50, "{findings:#?}");
    for finding in findings {
        assert_eq!(finding["kind"], "wrong", "{finding:#}");
        let words = finding["found"].as_str().unwrap();
        for says in [
            "payment.confirmed (event 1): psp_amount and treasury_fee is `",
            "payin.settled (event 4): psp_amount and treasury_fee is `",
            "reads back with psp_amount and treasury_fee `",
            " of it to the treasury, not ",
        ] {
            assert!(words.contains(says), "{says}: {words}");
        }
    }
}
