//! Parts of an attempt and of the configuration, each alone.

use super::*;
use crate::RESPONSE_KEPT_BYTES;
use crate::delivery::{
    HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, Outcome, Secret, parse_retry_after, signature_header, text_of,
};
use crate::endpoints::{load, rotate, secrets, set};

#[test]
fn parses_both_formats_of_retry_after() {
    assert_eq!(parse_retry_after(" 120 "), Some(Duration::from_mins(2)));
    let at = chrono::Utc::now() + chrono::TimeDelta::seconds(90);
    let asked = parse_retry_after(&at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap();
    assert!((88..=90).contains(&asked.as_secs()), "{asked:?}");
    for nothing in ["Wed, 21 Oct 2015 07:28:00 GMT", "-5", "soon", ""] {
        assert_eq!(parse_retry_after(nothing), None, "{nothing}");
    }
}

#[test]
fn kept_response_body_is_storable_and_bounded() {
    assert_eq!(text_of("a\0b".as_bytes()), "a\u{fffd}b");
    assert_eq!(text_of(&vec![0; RESPONSE_KEPT_BYTES]).len(), RESPONSE_KEPT_BYTES - 1, "three bytes each");
    let cut = "ü".repeat(RESPONSE_KEPT_BYTES);
    assert!(text_of(&cut.as_bytes()[..RESPONSE_KEPT_BYTES - 1]).len() <= RESPONSE_KEPT_BYTES);
}

#[test]
fn only_receiver_failures_count_as_strain() {
    let answered = |code| Outcome { response_code: Some(code), ..Outcome::default() };
    assert!([429, 500, 503].into_iter().all(|code| answered(code).is_strained()));
    assert!([200, 302, 400, 404, 410].into_iter().all(|code| !answered(code).is_strained()));
    assert!(Outcome::default().is_strained());
    assert_eq!(answered(404).failure().as_deref(), Some("HTTP 404"));
    assert_eq!(answered(204).failure(), None);
}

#[test]
fn independent_verifier_accepts_exactly_both_secrets_of_a_rotation() {
    let (new, old, other) = (Secret::generate(), Secret::generate(), Secret::generate());
    let now = chrono::Utc::now().timestamp();
    let body = r#"{"event":"payment.settled","text":"ünï"}"#;
    let mut headers = http::HeaderMap::new();
    headers.insert(HEADER_ID, "evt_1".parse().unwrap());
    headers.insert(HEADER_TIMESTAMP, now.to_string().parse().unwrap());
    let signature = signature_header(&[new.clone(), old.clone()], "evt_1", now, body);
    headers.insert(HEADER_SIGNATURE, signature.parse().unwrap());
    let verifies = |secret: &Secret, body: &str| {
        standardwebhooks::Webhook::new(&secret.reveal()).unwrap().verify(body.as_bytes(), &headers).is_ok()
    };
    assert!(verifies(&new, body) && verifies(&old, body));
    assert!(!verifies(&other, body));
    assert!(!verifies(&new, "{}"));
}

#[test]
fn secret_round_trips_and_is_hidden_in_debug() {
    let secret = Secret::generate();
    assert_eq!(Secret::parse(&secret.reveal()).unwrap().reveal(), secret.reveal());
    assert!(secret.reveal().starts_with("whsec_"));
    assert_eq!(format!("{secret:?}"), "Secret");
    assert!(Secret::parse("whsec_!").is_err() && Secret::parse("sk_test").is_err());
}

/// Longer than the other change takes to reach the row. On a slower machine the test proves less but does not fail.
const HEAD_START: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_do_not_undo_each_other() {
    const SECOND: &str = "https://two.example/";
    let env = Env::new(quick()).await;
    let (psp, now) = (env.psp(None).await, Timestamp(1_000));
    let (database, sealer) = (&env.database, &env.sealer);
    let (_, made) = set(database.writer(), sealer, psp, "https://one.example/", None, now).await.unwrap();

    let rotating = database.begin().await.unwrap();
    let (_, rotated) = rotate(&rotating, sealer, psp, EndpointId::first_of(psp), now).await.unwrap().unwrap();
    let others = [false, true].map(|rotates| {
        let (database, sealer) = (database.clone(), sealer.clone());
        tokio::spawn(async move {
            let transaction = database.begin().await.unwrap();
            let secret = if rotates {
                Some(rotate(&transaction, &sealer, psp, EndpointId::first_of(psp), now).await.unwrap().unwrap().1)
            } else {
                set(&transaction, &sealer, psp, SECOND, None, now).await.unwrap().1
            };
            transaction.commit().await.unwrap();
            secret
        })
    });
    tokio::time::sleep(HEAD_START).await;
    rotating.commit().await.unwrap();
    let [set_anew, rotated_again] = others;
    assert!(set_anew.await.unwrap().is_none(), "the secret is not replaced");
    let newest = rotated_again.await.unwrap().unwrap();

    let endpoint = load(database.reader(), psp, EndpointId::first_of(psp)).await.unwrap().unwrap();
    let signing: Vec<_> = secrets(sealer, &endpoint, now).unwrap().iter().map(Secret::reveal).collect();
    assert_eq!(signing, [newest.reveal(), rotated.reveal()], "not {}", made.unwrap().reveal());
    assert_eq!(endpoint.url, SECOND);
}
