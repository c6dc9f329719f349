//! Failing receivers and failing actors.

use super::receiver::{Answer, Receiver};
use super::*;
use crate::{BreakerState, NO_URL, OPEN_MIN, RESPONSE_KEPT_BYTES, STOP_PATIENCE, TRIP_AFTER, queue};

#[tokio::test]
async fn exhausts_after_four_attempts_and_can_be_redelivered() {
    let (env, server, psp) =
        Env::with_receiver(quick(), ResponseTemplate::new(500).set_body_string("x".repeat(5_000))).await;
    env.announce(psp, "pay_1", 1).await;
    let row = env.until("whd_pay_1_1", "exhausted").await;
    assert_eq!((row.attempt_count, row.response_code, row.retries_left), (4, Some(500), 0));
    assert_eq!(row.response_body.unwrap().len(), RESPONSE_KEPT_BYTES);
    assert_eq!(ids_of(&received(&server).await), ["evt_pay_1_1"; 4]);
    let (total, stuck) =
        log::undelivered(&env.database, psp, log::Slice { after: None, limit: 50, offset: 0 }).await.unwrap();
    assert_eq!((total, stuck[0].attempts.len()), (1, 4));

    server.reset().await;
    accept_all(&server).await;
    let now = env.clock.real_now();
    assert!(log::redeliver(env.database.writer(), psp, "whd_pay_1_1", now).await.unwrap());
    assert!(!log::redeliver(env.database.writer(), PspId::generate(), "whd_pay_1_1", now).await.unwrap());
    env.sender.refresh(psp);
    let row = env.until("whd_pay_1_1", "delivered").await;
    assert_eq!(row.attempt_count, 5);
}

#[tokio::test]
async fn panicked_endpoint_restarts_and_delivers() {
    let (env, _server, psp) =
        Env::with_receiver(quick(), ResponseTemplate::new(200).set_delay(Duration::from_millis(50))).await;
    for n in 0..20 {
        env.announce(psp, &format!("pay_{n}"), 2).await;
    }
    env.sender.panic_endpoint(psp);
    for n in 0..20 {
        env.until(&format!("whd_pay_{n}_2"), "delivered").await;
    }
    assert_eq!(env.registry.restarts()[&ActorKind::Endpoint], 1);
    assert!(
        (0..20).all(|n| !env.sender.is_under_way(&format!("whd_pay_{n}_1"))),
        "no delivery is still marked as in progress"
    );
    env.roof.stop(None);
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let env = Env::new(quick()).await;
    let server = recovering(ResponseTemplate::new(429).insert_header("retry-after", "1")).await;
    let psp = env.psp(Some(&server.uri())).await;
    let since = Instant::now();
    env.announce(psp, "pay_1", 1).await;
    let row = env.until("whd_pay_1_1", "delivered").await;
    assert_eq!(row.attempt_count, 2);
    assert!(since.elapsed() >= Duration::from_secs(1), "the schedule alone would wait 20 ms");
}

#[tokio::test]
async fn unrecorded_attempt_is_sent_again_under_the_same_id() {
    let store = Arc::new(TestDatabase::create().await);
    let server = receiver(ResponseTemplate::new(200)).await;
    let env = Env::on(store.clone(), quick(), false).await;
    let psp = env.psp(Some(&server.uri())).await;
    env.announce(psp, "pay_1", 2).await;
    eventually("a request arrives", async || (!received(&server).await.is_empty()).then_some(())).await;
    assert!(env.sender.is_under_way("whd_pay_1_1"), "it does not end before it is recorded");
    env.sender.cell().kill();
    drop(env);

    let env = Env::on(store, quick(), true).await;
    let row = env.until("whd_pay_1_1", "delivered").await;
    assert_eq!(row.attempt_count, 1, "the attempt before the crash is not recorded");
    env.until("whd_pay_1_2", "delivered").await;
    assert_eq!(ids_of(&received(&server).await), ["evt_pay_1_1", "evt_pay_1_1", "evt_pay_1_2"]);
}

#[tokio::test]
async fn stop_lets_attempts_end_and_keeps_the_rest_queued() {
    let (env, _server, psp) =
        Env::with_receiver(quick(), ResponseTemplate::new(200).set_delay(Duration::from_millis(300))).await;
    env.announce(psp, "pay_1", 2).await;
    env.until_under_way("whd_pay_1_1").await;
    let since = Instant::now();
    env.sender.cell().drain_and_wait(Some(STOP_PATIENCE + Duration::from_millis(500))).await.unwrap();
    println!("stopped within {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(3));
    assert_eq!(env.row("whd_pay_1_1").await.status.as_str(), "delivered");
    let second = env.row("whd_pay_1_2").await;
    assert_eq!((second.status.as_str(), second.attempt_count), ("queued", 0));
    assert!(!env.sender.is_under_way("whd_pay_1_1"));
}

#[tokio::test]
async fn events_of_one_payment_do_not_open_the_breaker() {
    let (env, _server, psp) = Env::with_receiver(quick(), ResponseTemplate::new(500)).await;
    for id in env.announce(psp, "pay_1", 4).await {
        assert_eq!(env.until(&id, "exhausted").await.attempt_count, 4);
    }
    assert_eq!(env.view().await.breaker, BreakerState::Closed);
}

#[tokio::test]
async fn open_breaker_sends_single_probes_and_exhausts_nothing() {
    // The retries are due long before the probe, but after all first attempts.
    let schedule = Schedule::of([Duration::from_millis(800); 3]);
    let env = Env::new(WebhookConfig { schedule, ..quick() }).await;
    let server = receiver(ResponseTemplate::new(503)).await;
    let psp = env.psp(None).await;
    let ids = env.announce_each(psp, "pay_", 30).await;
    env.point(psp, &server.uri()).await;
    env.view_when("open", |view| view.breaker == BreakerState::Open && view.in_flight == 0).await;
    assert_eq!(env.sender.breakers_open(), 1);
    let backlog = queue::backlog(&env.database).await.unwrap();
    assert_eq!(backlog.queued + backlog.failed, 30, "{backlog:?}");
    assert!(backlog.failed >= 10 && backlog.due_first_at().is_some(), "{backlog:?}");
    let (before, attempts) = (env.rows().await, received(&server).await.len());
    assert!(attempts < usize::try_from(TRIP_AFTER).unwrap() + 10, "{attempts}");
    // All retries are long due, but only one probe goes out before the second one.
    tokio::time::sleep(OPEN_MIN + Duration::from_millis(500)).await;
    assert_eq!(received(&server).await.len(), attempts + 1);
    // The outcome is recorded slightly after the receiver sees the request.
    let tried = |rows: &[deliveries::Model]| rows.iter().map(|row| row.attempt_count).sum::<i64>();
    let recorded = async || Some(env.rows().await).filter(|rows| tried(rows) != tried(&before));
    let after = eventually("the probe is recorded", recorded).await;
    let probed = before.iter().zip(&after).find(|(before, after)| before.attempt_count != after.attempt_count);
    let (before, probed) = probed.unwrap();
    assert_eq!(
        (probed.status.as_str(), probed.retries_left),
        ("failed", before.retries_left),
        "the probe took no retry"
    );
    assert!(after.iter().all(|row| ["queued", "failed"].contains(&row.status.as_str())));
    assert_eq!(env.view().await.last_failure.as_deref(), Some("HTTP 503"));

    server.reset().await;
    accept_all(&server).await;
    for id in &ids {
        env.until(id, "delivered").await;
    }
    assert_eq!(queue::backlog(&env.database).await.unwrap(), queue::Backlog::default());
    assert_eq!(env.view().await.breaker, BreakerState::Closed);
    assert_eq!(env.sender.breakers_open(), 0);
}

#[tokio::test]
async fn delivery_with_refused_outcome_is_suspended_alone() {
    let env = Env::new(quick()).await;
    let receiver = Receiver::start(|_, _| Answer::status(200).after(Duration::from_millis(150))).await;
    let psp = env.psp(Some(&receiver.url())).await;
    env.announce(psp, "pay_1", 2).await;
    eventually("a request arrives", async || (!receiver.arrivals().is_empty()).then_some(())).await;
    // Attempts reference their delivery, so attempts of this one can no longer be recorded.
    deliveries::Entity::delete_by_id("whd_pay_1_1").exec(env.database.writer()).await.unwrap();
    env.until("whd_pay_1_2", "delivered").await;
    assert_eq!(receiver.ids(), ["evt_pay_1_1", "evt_pay_1_2"]);
    assert!(!env.sender.is_under_way("whd_pay_1_1"));
}

#[tokio::test]
async fn busy_endpoint_is_listed_without_a_view() {
    let env = Env::new(quick()).await;
    let psp = env.psp(None).await;
    env.announce(psp, "pay_1", 1).await;
    env.view_when("shows what it waits for", |view| view.held_by == Some(NO_URL)).await;
    env.sender.stall_endpoint(psp, Duration::from_secs(4));
    let since = Instant::now();
    let (all, one) = tokio::join!(env.sender.observe(), env.sender.observe_one(psp));
    assert!(matches!(&all[..], [(id, None)] if *id == psp), "{all:?}");
    assert!(matches!(one, Some((id, None)) if id == psp), "{one:?}");
    assert!(since.elapsed() < Duration::from_secs(3), "both are awaited concurrently, and not for long");
    assert!(env.sender.observe_one(PspId::generate()).await.is_none(), "it does not run");
    assert_eq!(env.view().await.psp_id, psp, "it answers again");
}
