//! Tests of the Sumsub client against a stand-in, which verifies every signature.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use payferry_domain::CheckId;
use payferry_domain::customer::{CustomerKind, IdentityVerdict};
use payferry_harness::sumsub::{
    APP_TOKEN, CALLBACK_SECRET, Callback, LEVEL, RESCREEN_LEVEL, SECRET_KEY, SumsubStandIn, green, red, sign,
};
use payferry_runtime::clock::Clock;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{
    CallbackError, CallbackFact, CheckRequest, IdentityProvider, IdentitySubject, ProviderCheckStatus, StartedCheck,
    Sumsub, SumsubError, SumsubSettings,
};

fn settings(url: &str) -> SumsubSettings {
    SumsubSettings {
        base_url: url.to_owned(),
        app_token: format!("{APP_TOKEN}\n"),
        secret_key: SECRET_KEY.to_owned(),
        callback_secret: CALLBACK_SECRET.to_owned(),
        level: LEVEL.to_owned(),
        rescreen_level: RESCREEN_LEVEL.to_owned(),
        timeout: Duration::from_secs(30),
    }
}

/// Stand-in and its client.
struct Pair {
    remote: SumsubStandIn,
    client: Sumsub,
}

impl Pair {
    async fn new() -> Self {
        let remote = SumsubStandIn::start().await;
        // A sandbox with advanced time still signs with the wall clock.
        let client = Sumsub::new(settings(remote.url()), Clock::with_offset_ms(86_400_000)).unwrap();
        Self { remote, client }
    }

    /// Starts a verification; returns the request and the provider's id.
    async fn begun(&self) -> (CheckRequest, String) {
        let request = request();
        let StartedCheck::Open { provider_ref, .. } = self.client.begin(&request).await.unwrap() else { panic!() };
        (request, provider_ref)
    }

    async fn check_status(&self, request: CheckRequest, provider_ref: &str) -> ProviderCheckStatus {
        self.client.check_status(request.check, provider_ref).await.unwrap()
    }

    fn read(&self, callback: &Callback) -> Result<Vec<CallbackFact>, CallbackError> {
        self.client.read_callback(&callback.headers(), callback.body.as_bytes(), Clock::default().real_now())
    }
}

fn request() -> CheckRequest {
    CheckRequest { check: CheckId::generate(), kind: CustomerKind::Individual }
}

fn ada() -> IdentitySubject {
    IdentitySubject {
        first_name: "Ada".to_owned(),
        last_name: "Lovelace".to_owned(),
        dob: "1990-12-10".to_owned(),
        country: "GBR".to_owned(),
        phone_number: Some("+442079460000".to_owned()),
    }
}

fn rejected(reasons: &[&str]) -> IdentityVerdict {
    IdentityVerdict::Rejected { reasons: reasons.iter().map(ToString::to_string).collect() }
}

#[tokio::test]
async fn repeated_starts_of_a_check_use_one_applicant() {
    let pair = Pair::new().await;
    let request = request();
    let first = pair.client.begin(&request).await.unwrap();
    let StartedCheck::Open { provider_ref, url: Some(url), look_after: None } = &first else { panic!("{first:?}") };
    let applicant = pair.remote.applicant(&request.check.to_string()).unwrap();
    assert_eq!((&applicant.id, applicant.level.as_str()), (provider_ref, LEVEL));
    assert_eq!(applicant.data, json!({ "externalUserId": request.check }), "no personal data");
    assert_eq!(url.as_str(), format!("https://in.sumsub.example/websdk/p/{provider_ref}-1"));
    assert!(!format!("{first:?}").contains("websdk"), "the link is a secret: {first:?}");

    let again = pair.client.begin(&request).await.unwrap();
    let StartedCheck::Open { provider_ref: same, url: Some(renewed), .. } = &again else { panic!("{again:?}") };
    assert_eq!((same, renewed == url), (provider_ref, false), "a working link to the same session");
    assert_eq!(pair.remote.applicants().len(), 1);

    pair.remote.review(&request.check.to_string(), "completed", green());
    let over = pair.client.begin(&request).await.unwrap();
    assert_eq!(over, StartedCheck::Decided { provider_ref: provider_ref.clone(), verdict: IdentityVerdict::Approved });
    assert_eq!(pair.remote.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn screening_gets_only_needed_data_and_is_submitted_once() {
    let pair = Pair::new().await;
    let request = request();
    for _ in 0..3 {
        let begun = pair.client.rescreen(&request, &ada()).await.unwrap();
        assert!(matches!(begun, StartedCheck::Open { url: None, look_after: Some(_), .. }), "{begun:?}");
    }
    let applicant = pair.remote.applicant(&request.check.to_string()).unwrap();
    assert_eq!((applicant.level.as_str(), applicant.status.as_str()), (RESCREEN_LEVEL, "pending"));
    let sent = json!({
        "externalUserId": request.check,
        "fixedInfo": { "firstName": "Ada", "lastName": "Lovelace", "dob": "1990-12-10", "country": "GBR" },
        "phone": "+442079460000",
    });
    assert_eq!(applicant.data, sent);
    let sent_off = |requests: Vec<payferry_harness::sumsub::Request>| {
        requests.iter().filter(|request| request.line.ends_with("/status/pending")).count()
    };
    assert_eq!(sent_off(pair.remote.requests()), 1);
    pair.remote.review(&request.check.to_string(), "completed", red(&["SANCTIONS"]));
    let over = pair.client.rescreen(&request, &ada()).await.unwrap();
    assert_eq!(over, StartedCheck::Decided { provider_ref: applicant.id, verdict: rejected(&["sanctions"]) });
    assert_eq!(format!("{:?}", ada()), "IdentitySubject");
    assert_eq!(pair.remote.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn status_query_returns_only_completed_verdicts() {
    let pair = Pair::new().await;
    let (request, reference) = pair.begun().await;
    let id = request.check.to_string();
    assert_eq!(pair.check_status(request, &reference).await, ProviderCheckStatus::InProgress);
    let retry = json!({"reviewAnswer": "RED", "reviewRejectType": "RETRY", "rejectLabels": ["BAD_SELFIE"]});
    for (status, result) in [
        ("pending", Value::Null),
        ("onHold", green()),
        ("awaitingService", green()),
        ("completed", json!({"reviewAnswer": "YELLOW"})),
        ("completed", json!({})),
        // The person must submit a better picture under the same link.
        ("completed", retry.clone()),
    ] {
        pair.remote.review(&id, status, result.clone());
        assert_eq!(pair.check_status(request, &reference).await, ProviderCheckStatus::InProgress, "{status} {result}");
    }
    pair.remote.review(&id, "completed", green());
    assert_eq!(pair.check_status(request, &reference).await, ProviderCheckStatus::Decided(IdentityVerdict::Approved));
    let many: Vec<String> = (0..40).map(|n| format!("LABEL {n}!")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (labels, reasons) in [
        (vec!["FORGERY", "DOCUMENT_TEMPLATE", "FORGERY", " "], vec!["forgery", "document_template"]),
        (vec![], vec!["rejected_by_provider"]),
    ] {
        pair.remote.review(&id, "completed", red(&labels));
        assert_eq!(pair.check_status(request, &reference).await, ProviderCheckStatus::Decided(rejected(&reasons)));
    }
    pair.remote.review(&id, "completed", red(&many));
    let ProviderCheckStatus::Decided(IdentityVerdict::Rejected { reasons }) =
        pair.check_status(request, &reference).await
    else {
        panic!()
    };
    assert_eq!((reasons.len(), reasons[0].as_str()), (16, "label_0_"));
    pair.remote.delete(&id);
    assert_eq!(pair.check_status(request, &reference).await, ProviderCheckStatus::Lapsed);

    // A screening involves no person who could take a better picture.
    let screening = self::request();
    let StartedCheck::Open { provider_ref, .. } = pair.client.rescreen(&screening, &ada()).await.unwrap() else {
        panic!()
    };
    pair.remote.review(&screening.check.to_string(), "completed", retry);
    assert_eq!(
        pair.check_status(screening, &provider_ref).await,
        ProviderCheckStatus::Decided(rejected(&["bad_selfie"]))
    );
}

#[tokio::test]
async fn reads_genuine_callbacks() {
    let pair = Pair::new().await;
    let (request, reference) = pair.begun().await;
    let id = request.check.to_string();
    let fact = |verdict| CallbackFact { check: request.check, provider_ref: reference.clone(), verdict };
    assert_eq!(pair.read(&pair.remote.callback(&id)).unwrap(), [], "nothing is decided");
    pair.remote.review(&id, "completed", green());
    let callback = pair.remote.callback(&id);
    assert_eq!(pair.read(&callback).unwrap(), [fact(IdentityVerdict::Approved)]);
    assert_eq!(pair.read(&callback.clone().by_sha512()).unwrap(), [fact(IdentityVerdict::Approved)]);
    let yesterday = Utc::now() - TimeDelta::hours(25);
    assert_eq!(pair.read(&pair.remote.callback_at(&id, yesterday)).unwrap().len(), 1, "the last of many repetitions");
    pair.remote.review(&id, "completed", red(&["FORGERY"]));
    let callback = pair.remote.callback(&id);
    assert_eq!(pair.read(&callback).unwrap(), [fact(rejected(&["forgery"]))], "without comments about the person");

    let content: Value = serde_json::from_str(&callback.body).unwrap();
    for (field, value) in [
        ("type", json!("applicantReset")),
        ("levelName", json!("another level of the same account")),
        ("sandboxMode", json!(true)),
        ("externalUserId", json!("somebody-elses-user")),
        ("reviewStatus", json!("pending")),
        ("reviewResult", Value::Null),
    ] {
        let mut other = content.clone();
        other[field] = value;
        assert_eq!(pair.read(&sign(&other)).unwrap(), [], "{field}");
    }
}

#[tokio::test]
async fn rejects_forged_and_untimely_callbacks() {
    let pair = Pair::new().await;
    let (request, _) = pair.begun().await;
    let id = request.check.to_string();
    pair.remote.review(&id, "completed", red(&["FORGERY"]));
    let genuine = pair.remote.callback(&id);
    let changed = genuine.body.replace("\"RED\"", "\"GREEN\"");
    assert_ne!(changed, genuine.body);
    let forged = |callback: &Callback| match pair.read(callback) {
        Err(CallbackError::Forged(why)) => why,
        other => panic!("{callback:?}: {other:?}"),
    };
    assert_eq!(forged(&Callback { body: changed, ..genuine.clone() }), "its signature is wrong");
    assert_eq!(forged(&Callback { digest: "00".repeat(32), ..genuine.clone() }), "its signature is wrong");
    let short = genuine.digest[..32].to_owned();
    assert_eq!(forged(&Callback { digest: short, ..genuine.clone() }), "its signature is wrong");
    assert_eq!(forged(&Callback { digest: "zz".to_owned(), ..genuine.clone() }), "its signature is malformed");
    assert_eq!(forged(&Callback { algorithm: "HMAC_SHA512_HEX", ..genuine.clone() }), "its signature is wrong");
    for algorithm in ["HMAC_SHA1_HEX", "NONE", ""] {
        let callback = Callback { algorithm, ..genuine.clone() };
        assert_eq!(forged(&callback), "its signature algorithm is not accepted", "{algorithm}");
    }
    let unsigned = pair.client.read_callback(&HeaderMap::new(), genuine.body.as_bytes(), Clock::default().real_now());
    assert_eq!(unsigned, Err(CallbackError::Forged("it is not signed")));
    for off in [TimeDelta::hours(-49), TimeDelta::minutes(6)] {
        assert_eq!(forged(&pair.remote.callback_at(&id, Utc::now() + off)), "its time is outside the accepted range");
    }

    let content: Value = serde_json::from_str(&genuine.body).unwrap();
    let without = |field: &str| {
        let mut content = content.clone();
        content.as_object_mut().unwrap().remove(field);
        content
    };
    for broken in [
        json!([]),
        json!("what"),
        without("type"),
        without("createdAtMs"),
        without("applicantId"),
        without("externalUserId"),
        json!({"type": "applicantReviewed", "createdAtMs": 7}),
        json!({"type": "applicantReviewed", "createdAtMs": "yesterday"}),
    ] {
        let read = pair.read(&sign(&broken));
        assert!(matches!(read, Err(CallbackError::Unreadable(_))), "{broken}: {read:?}");
    }
}

/// Returns the client's error if the provider gives this answer to every request.
async fn error_with(answer: ResponseTemplate) -> String {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).mount(&server).await;
    let client = Sumsub::new(settings(&server.uri()), Clock::default()).unwrap();
    let request = request();
    let mut said = vec![client.begin(&request).await.unwrap_err().to_string()];
    said.push(client.rescreen(&request, &ada()).await.unwrap_err().to_string());
    for error in &said {
        for secret in [APP_TOKEN, SECRET_KEY, CALLBACK_SECRET, "Lovelace", "127.0.0.1", "hint"] {
            assert!(!error.contains(secret), "{error}");
        }
    }
    assert_eq!(said[0], said[1]);
    said.remove(0)
}

#[tokio::test]
async fn invalid_answers_are_errors_and_decide_nothing() {
    let hint = json!({"description": "a hint"});
    for (status, says) in [
        (500, "HTTP 500"),
        (503, "HTTP 503"),
        (400, "HTTP 400"),
        (302, "HTTP 302"),
        (429, "rate"),
        (401, "refuses the app token"),
        (403, "refuses the app token"),
    ] {
        let error = error_with(ResponseTemplate::new(status).set_body_json(&hint)).await;
        assert!(error.contains(says), "{status}: {error}");
    }
    let of_another = json!({"id": "5cb56e8e0a975a35f333cb83", "externalUserId": CheckId::generate()});
    for body in [json!([]), json!({}), json!({"id": 7}), of_another] {
        let error = error_with(ResponseTemplate::new(201).set_body_json(&body)).await;
        assert!(error.contains("unexpected answer"), "{body}: {error}");
    }
    let huge = " ".repeat(2_000_000);
    assert!(error_with(ResponseTemplate::new(200).set_body_string(huge)).await.contains("unexpected answer"));
}

#[tokio::test]
async fn absent_slow_or_rejecting_provider_is_an_error() {
    let remote = SumsubStandIn::start().await;
    remote.set_delay(Duration::from_mins(2));
    let brief = SumsubSettings { timeout: Duration::from_millis(200), ..settings(remote.url()) };
    let client = Sumsub::new(brief, Clock::default()).unwrap();
    let error = client.begin(&request()).await.unwrap_err().to_string();
    assert_eq!(error, "the Sumsub API did not answer in time");
    let gone = Sumsub::new(settings("http://127.0.0.1:1"), Clock::default()).unwrap();
    assert_eq!(gone.begin(&request()).await.unwrap_err().to_string(), "the Sumsub API cannot be reached");
    let other = SumsubSettings { secret_key: "another".to_owned(), ..settings(remote.url()) };
    let error = Sumsub::new(other, Clock::default()).unwrap().begin(&request()).await.unwrap_err().to_string();
    assert!(error.contains("refuses the app token, its permissions or the signature"), "{error}");
    assert!(remote.refused()[0].contains("signature mismatch"), "{:?}", remote.refused());
    assert_eq!(remote.applicants().len(), 1, "the applicant of the slow request");
}

#[test]
fn secrets_need_a_safe_url_and_are_hidden_in_debug() {
    let refused = |change: &dyn Fn(&mut SumsubSettings)| {
        let mut settings = settings("https://api.sumsub.com");
        change(&mut settings);
        Sumsub::new(settings, Clock::default()).unwrap_err()
    };
    for url in ["http://api.sumsub.com", "https://user:word@api.sumsub.com", "https://api.sumsub.com/?key=1", "what"] {
        assert_eq!(refused(&|settings| url.clone_into(&mut settings.base_url)), SumsubError::BadUrl, "{url}");
    }
    for token in ["", " \n", "two\nlines"] {
        assert_eq!(refused(&|settings| token.clone_into(&mut settings.app_token)), SumsubError::BadToken);
    }
    assert_eq!(refused(&|settings| settings.secret_key = " ".to_owned()), SumsubError::EmptySecret);
    assert_eq!(refused(&|settings| settings.callback_secret.clear()), SumsubError::EmptySecret);
    assert_eq!(refused(&|settings| settings.level.clear()), SumsubError::BadLevels);
    assert_eq!(refused(&|settings| settings.rescreen_level = LEVEL.to_owned()), SumsubError::BadLevels);
    let settings = settings("https://api.sumsub.com");
    let shown = format!("{settings:?} {:?}", Sumsub::new(settings.clone(), Clock::default()).unwrap());
    assert!(shown.contains(LEVEL), "{shown}");
    for secret in [APP_TOKEN, SECRET_KEY, CALLBACK_SECRET] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
