//! Tests of the HTTP provider against a scripted server.

use std::time::Duration;

use payferry_domain::payment::{Decision, Verdict};
use payferry_runtime::clock::Clock;
use serde_json::{Value, json};
use wiremock::matchers::{body_json, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{OUTLAW, request_from};
use crate::compliance::{ChainalysisApi, ChainalysisApiError, KytScreener, RiskDecisions};

const TOKEN: &str = "a-token-nobody-may-see";

fn api(server: &MockServer) -> ChainalysisApi {
    ChainalysisApi::new(&format!("{}/api/risk/", server.uri()), TOKEN, Clock::default()).unwrap()
}

fn call() -> wiremock::MockBuilder {
    Mock::given(method("GET")).and(path(format!("/api/risk/v2/entities/{OUTLAW}"))).and(header("Token", TOKEN))
}

fn assessment(risk: &str) -> Value {
    json!({ "address": OUTLAW, "risk": risk, "riskReason": null, "status": "COMPLETE" })
}

/// Returns the verdict about the listed address if the provider gives this answer.
async fn screened(answer: ResponseTemplate) -> Result<Verdict, String> {
    let server = MockServer::start().await;
    call().respond_with(answer).mount(&server).await;
    let screened = api(&server).screen(&request_from(OUTLAW)).await;
    screened.map_err(|error| {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(TOKEN) && !shown.contains("127.0.0.1"), "{shown}");
        error.to_string()
    })
}

async fn screened_as(body: Value) -> Result<Verdict, String> {
    screened(ResponseTemplate::new(200).set_body_json(body)).await
}

#[tokio::test]
async fn risk_levels_map_to_decisions() {
    for (risk, decision) in
        [("Severe", Decision::Block), ("High", Decision::Review), ("Medium", Decision::Allow), ("Low", Decision::Allow)]
    {
        let verdict = screened_as(assessment(risk)).await.unwrap();
        assert_eq!((verdict.decision, verdict.risk_level), (decision, Some(risk.to_lowercase())));
        assert_eq!(verdict.provider, "chainalysis_api");
    }
    let server = MockServer::start().await;
    call().respond_with(ResponseTemplate::new(200).set_body_json(assessment("Medium"))).mount(&server).await;
    let decisions = RiskDecisions { medium: Decision::Review, ..RiskDecisions::default() };
    let verdict = api(&server).with_decisions(decisions).screen(&request_from(OUTLAW)).await.unwrap();
    assert_eq!(verdict.decision, Decision::Review);
}

#[tokio::test]
async fn categories_become_flags() {
    let mut body = assessment("Severe");
    body["cluster"] = json!({ "name": "Some One", "category": "sanctioned entity" });
    body["addressIdentifications"] = json!([{ "name": "x", "category": "sanctioned entity" }, { "category": null }]);
    body["triggers"] = json!([{ "category": "Darknet-Market" }, {}]);
    body["exposures"] = json!([{ "category": "exchange", "value": 1.5 }]);
    assert_eq!(screened_as(body).await.unwrap().flags, ["sanctioned_entity", "darknet_market"]);
}

#[tokio::test]
async fn unknown_address_is_registered_and_queried_again() {
    let server = MockServer::start().await;
    call().respond_with(ResponseTemplate::new(404)).up_to_n_times(1).expect(1).mount(&server).await;
    Mock::given(method("POST"))
        .and(path("/api/risk/v2/entities"))
        .and(header("Token", TOKEN))
        .and(body_json(json!({ "address": OUTLAW })))
        .respond_with(ResponseTemplate::new(201).set_body_json(json!({ "address": OUTLAW })))
        .expect(1)
        .mount(&server)
        .await;
    call().respond_with(ResponseTemplate::new(200).set_body_json(assessment("Severe"))).expect(1).mount(&server).await;
    let verdict = api(&server).screen(&request_from(OUTLAW)).await.unwrap();
    assert_eq!(verdict.decision, Decision::Block);
}

#[tokio::test]
async fn address_that_stays_unknown_is_an_error() {
    let server = MockServer::start().await;
    call().respond_with(ResponseTemplate::new(404)).expect(2).mount(&server).await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(201)).expect(1).mount(&server).await;
    let error = api(&server).screen(&request_from(OUTLAW)).await.unwrap_err().to_string();
    assert_eq!(error, "the Chainalysis API has not assessed the address yet");
    let error = screened_as(json!({ "address": OUTLAW, "risk": "Low", "status": "IN_PROGRESS" })).await.unwrap_err();
    assert!(error.contains("not assessed"), "{error}");
}

#[tokio::test]
async fn invalid_assessments_are_errors_and_allow_nothing() {
    for (status, says) in [
        (500, "HTTP 500"),
        (503, "HTTP 503"),
        (429, "rate"),
        (401, "refuses the token"),
        (403, "refuses the token"),
        (302, "HTTP 302"),
    ] {
        let answer = ResponseTemplate::new(status).set_body_json(assessment("Low")).insert_header("Location", "/");
        let error = screened(answer).await.unwrap_err();
        assert!(error.contains(says), "{status}: {error}");
    }
    let other = json!({ "address": format!("0x{}", "1".repeat(40)), "risk": "Low" });
    for (body, says) in [
        (other, "unexpected answer"),
        (json!({ "risk": "Low" }), "unexpected answer"),
        (json!([]), "unexpected answer"),
        (json!({ "address": OUTLAW, "risk": 1 }), "unexpected answer"),
        (json!({ "address": OUTLAW }), "not assessed"),
        (assessment("Unheard of"), "unknown risk level"),
    ] {
        let error = screened_as(body.clone()).await.unwrap_err();
        assert!(error.contains(says), "{body}: {error}");
    }
    let error = screened(ResponseTemplate::new(200).set_body_string("<html>")).await.unwrap_err();
    assert!(error.contains("unexpected answer"), "{error}");
    let huge = format!("{}{}", " ".repeat(2_000_000), assessment("Low"));
    let error = screened(ResponseTemplate::new(200).set_body_string(huge)).await.unwrap_err();
    assert!(error.contains("unexpected answer"), "{error}");
}

#[tokio::test]
async fn absent_or_slow_provider_is_an_error() {
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_body_json(assessment("Low")).set_delay(Duration::from_mins(2));
    call().respond_with(slow).mount(&server).await;
    let brief = api(&server).with_timeout(Duration::from_millis(200));
    let error = brief.screen(&request_from(OUTLAW)).await.unwrap_err().to_string();
    assert_eq!(error, "the Chainalysis API did not answer in time");
    let gone = ChainalysisApi::new("http://127.0.0.1:1", TOKEN, Clock::default()).unwrap();
    let error = gone.screen(&request_from(OUTLAW)).await.unwrap_err().to_string();
    assert_eq!(error, "the Chainalysis API cannot be reached");
}

#[test]
fn token_needs_a_safe_url_and_is_hidden_in_debug() {
    let new = |url: &str, token: &str| ChainalysisApi::new(url, token, Clock::default());
    for url in [
        "http://api.chainalysis.com/api/risk",
        "ftp://localhost/",
        "https://user:word@api.chainalysis.com/",
        "https://api.chainalysis.com/?key=1",
        "what",
    ] {
        assert_eq!(new(url, TOKEN).unwrap_err(), ChainalysisApiError::BadUrl, "{url}");
    }
    let url = "https://api.chainalysis.com/api/risk";
    assert_eq!(new(url, " \n").unwrap_err(), ChainalysisApiError::BadToken);
    assert_eq!(new(url, "two\nlines").unwrap_err(), ChainalysisApiError::BadToken);
    let shown = format!("{:?}", new(url, TOKEN).unwrap());
    assert!(!shown.contains(TOKEN), "{shown}");
}
