//! Content of requests, and allowed destinations.

use tokio::net::TcpListener;

use super::receiver::{Answer, Receiver};
use super::*;
use crate::{RESPONSE_KEPT_BYTES, delivery};

#[tokio::test]
async fn delivery_is_signed_logged_and_sent_in_order() {
    let env = Env::new(quick()).await;
    let server = receiver(ResponseTemplate::new(204)).await;
    let psp = env.psp(None).await;
    let now = env.clock.real_now();
    let (_, secret) = endpoints::set(env.database.writer(), &env.sealer, psp, &server.uri(), None, now).await.unwrap();
    let verifier = standardwebhooks::Webhook::new(&secret.unwrap().reveal()).unwrap();
    let ids = env.announce(psp, "pay_1", 5).await;
    for id in &ids {
        let row = env.until(id, "delivered").await;
        assert_eq!((row.attempt_count, row.response_code, row.next_attempt_at), (1, Some(204), None));
    }
    let requests = received(&server).await;
    for (index, request) in requests.iter().enumerate() {
        verifier.verify(&request.body, &request.headers).unwrap();
        assert_eq!(header(request, "webhook-id"), format!("evt_pay_1_{}", index + 1), "first attempts in order");
        assert!(header(request, "user-agent").starts_with("Payferry/"));
    }
    let entries =
        async |psp| log::deliveries_of(&env.database, psp, "pay_1", log::Slice::ALL_OF_A_PAYMENT).await.unwrap().1;
    let log = entries(psp).await;
    assert_eq!(log.iter().map(|entry| entry.attempts.len()).collect::<Vec<_>>(), [1; 5]);
    assert!(entries(PspId::generate()).await.is_empty());
}

#[tokio::test]
async fn journal_notifies_the_endpoint_of_new_events() {
    let env = Env::new(quick()).await;
    // No delivery is open, so no sweep finds this PSP.
    let psp = env.psp(None).await;
    assert!(env.sender.observe().await.is_empty());
    env.journal.announce(&psp.to_string());
    assert_eq!(env.view().await.psp_id, psp, "the endpoint was started");
}

#[tokio::test]
async fn both_secrets_sign_during_a_rotation() {
    let env = Env::new(quick()).await;
    let server = receiver(ResponseTemplate::new(200)).await;
    let psp = env.psp(None).await;
    let now = env.clock.real_now();
    let database = env.database.writer();
    let (_, old) = endpoints::set(database, &env.sealer, psp, &server.uri(), None, now).await.unwrap();
    let (row, new) =
        endpoints::rotate(database, &env.sealer, psp, EndpointId::first_of(psp), now).await.unwrap().unwrap();
    env.announce(psp, "pay_1", 1).await;
    env.until("whd_pay_1_1", "delivered").await;
    let request = received(&server).await.remove(0);
    for secret in [old.unwrap(), new] {
        let verifier = standardwebhooks::Webhook::new(&secret.reveal()).unwrap();
        verifier.verify(&request.body, &request.headers).unwrap();
    }
    let later = now.plus_secs(endpoints::ROTATION_OVERLAP_SECS);
    assert_eq!(endpoints::secrets(&env.sealer, &row, later).unwrap().len(), 1);
    assert!(!format!("{row:?}").contains("whsec_"), "secrets are stored sealed");
}

#[tokio::test]
async fn redirect_fails_the_attempt_and_is_not_followed() {
    let env = Env::new(quick()).await;
    let elsewhere = receiver(ResponseTemplate::new(200)).await;
    let server = receiver(ResponseTemplate::new(302).insert_header("location", elsewhere.uri().as_str())).await;
    let psp = env.psp(Some(&server.uri())).await;
    env.announce(psp, "pay_1", 1).await;
    let row = env.until("whd_pay_1_1", "exhausted").await;
    assert_eq!(row.response_code, Some(302));
    assert!(received(&elsewhere).await.is_empty());
}

#[tokio::test]
async fn test_event_is_signed_and_answered_immediately() {
    let (env, server, psp) = Env::with_receiver(quick(), ResponseTemplate::new(200).set_body_string("thanks")).await;
    let outcome = env.sender.test(psp, EndpointId::first_of(psp)).await.unwrap();
    assert!(outcome.delivered);
    assert_eq!((outcome.response_code, outcome.response_body.as_deref()), (Some(200), Some("thanks")));
    let body: serde_json::Value = received(&server).await[0].body_json().unwrap();
    assert_eq!((&body["event"], &body["payment_id"]), (&"webhook.test".into(), &"pay_test".into()));
    let nobody = PspId::generate();
    assert!(env.sender.test(nobody, EndpointId::first_of(nobody)).await.is_err());
}

#[test]
fn defaults_match_the_interface() {
    let config = WebhookConfig::default();
    assert_eq!((config.timeout, config.url_policy), (Duration::from_secs(5), UrlPolicy::Production));
    assert_eq!(ATTEMPT_TIMEOUT, Duration::from_secs(5));
}

#[tokio::test]
async fn status_acknowledges_and_only_part_of_the_body_is_read() {
    let env = Env::new(short_timeout()).await;
    let stalls = Receiver::start(|_, _| Answer::stalling(200)).await;
    let psp = env.psp(Some(&stalls.url())).await;
    env.announce(psp, "pay_1", 1).await;
    let row = env.until("whd_pay_1_1", "delivered").await;
    assert_eq!((row.attempt_count, row.response_code), (1, Some(200)));

    let endless = Receiver::start(|_, _| Answer::endless(200)).await;
    let psp = env.psp(Some(&endless.url())).await;
    env.announce(psp, "pay_2", 1).await;
    let row = env.until("whd_pay_2_1", "delivered").await;
    assert_eq!(row.response_body.unwrap().len(), RESPONSE_KEPT_BYTES);
    assert!(row.duration_ms.unwrap() < 400);
}

#[tokio::test]
async fn connections_are_reused() {
    let env = Env::new(quick()).await;
    let receiver = Receiver::start(|_, _| Answer::status(200)).await;
    let psp = env.psp(Some(&receiver.url())).await;
    let ids = env.announce(psp, "pay_1", 20).await;
    env.until(ids.last().unwrap(), "delivered").await;
    assert_eq!((receiver.arrivals().len(), receiver.connections()), (20, 1));
}

#[tokio::test]
async fn production_never_connects_to_internal_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let schedule = Schedule::of([Duration::from_millis(5); 3]);
    let env = Env::new(WebhookConfig { schedule, ..WebhookConfig::default() }).await;
    // Stored as if set under another policy: the check at the setting is not the only one.
    let psp = env.psp(Some(&format!("https://127.0.0.1:{port}/"))).await;
    env.announce(psp, "pay_1", 1).await;
    let row = env.until("whd_pay_1_1", "exhausted").await;
    assert_eq!(row.error.as_deref(), Some("the URL is refused: it must use a public address"));

    // A name of this machine that passes the textual URL check: the resolver stops it.
    let client = delivery::client(&WebhookConfig::default()).unwrap();
    let error = client.get(format!("https://localhost:{port}/")).send().await.unwrap_err();
    assert!(format!("{error:?}").contains("no public address"), "{error:?}");
    let connected = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(connected.is_err(), "nothing connected");
}
