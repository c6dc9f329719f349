//! Delivery log and redelivery.

use payferry_domain::Timestamp;
use payferry_entities::{DeliveryStatus, delivery_attempts};
use payferry_journal::webhooks::log::{ATTEMPTS_LISTED_MAX, REDELIVERED_MAX};

use super::*;

#[tokio::test]
async fn redelivery_selects_by_event_and_by_time() {
    let env = Env::new(quick()).await;
    let (psp, other) = (env.psp(None).await, env.psp(None).await);
    let ids = env.announce_each(psp, "pay_", 3).await;
    env.announce(other, "pay_other", 1).await;
    for id in ids.iter().map(String::as_str).chain(["whd_pay_other_1"]) {
        let row = deliveries::ActiveModel {
            id: ActiveValue::Unchanged(id.to_owned()),
            status: ActiveValue::Set(DeliveryStatus::Exhausted),
            attempt_count: ActiveValue::Set(4),
            retries_left: ActiveValue::Set(0),
            ..Default::default()
        };
        row.update(env.database.writer()).await.unwrap();
    }
    let now = env.clock.real_now();
    let redeliver = async |from: Timestamp, to: Timestamp, patterns: &[&str]| {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        let chosen = log::choose(&env.database, psp, from, to, &patterns, None).await.unwrap();
        assert_eq!(chosen.continue_from, None);
        log::redeliver_all(env.database.writer(), psp, &chosen.delivery_ids, now).await.unwrap()
    };
    assert_eq!(redeliver(Timestamp(0), Timestamp(1), &[]).await, 0, "another time");
    assert_eq!(redeliver(Timestamp(0), now.plus_secs(1), &["payin.*", "refund.sent"]).await, 0, "other events");
    assert!(env.rows().await.iter().all(|row| row.status.as_str() == "exhausted"));
    assert_eq!(log::redeliver_all(env.database.writer(), other, &ids, now).await.unwrap(), 0, "not theirs");
    assert_eq!(redeliver(Timestamp(0), now.plus_secs(1), &["payment.*"]).await, 3);
    for id in &ids {
        let row = env.row(id).await;
        assert_eq!((row.status.as_str(), row.attempt_count, row.retries_left), ("queued", 4, DELIVERY_RETRIES_MAX));
    }
    assert_eq!(env.row("whd_pay_other_1").await.status.as_str(), "exhausted", "another PSP's");
    let slice = log::Slice { after: None, limit: 2, offset: 2 };
    let (total, page) = log::undelivered(&env.database, psp, slice).await.unwrap();
    assert_eq!((total, page.len()), (3, 1));
    assert_eq!(page[0].delivery.id, ids[2]);
}

#[tokio::test]
async fn delivered_events_can_be_redelivered() {
    let (env, server, psp) = Env::with_receiver(quick(), ResponseTemplate::new(200)).await;
    env.announce(psp, "pay_1", 1).await;
    env.until("whd_pay_1_1", "delivered").await;
    assert!(log::redeliver(env.database.writer(), psp, "whd_pay_1_1", env.clock.real_now()).await.unwrap());
    env.sender.refresh(psp);
    env.row_when("whd_pay_1_1", "attempted twice", |row| row.attempt_count >= 2).await;
    let entry = log::delivery(&env.database, psp, "whd_pay_1_1").await.unwrap().unwrap();
    assert_eq!(entry.attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ids_of(&received(&server).await), ["evt_pay_1_1"; 2]);
}

#[tokio::test]
async fn lists_only_the_latest_of_many_attempts() {
    let env = Env::new(quick()).await;
    let psp = env.psp(None).await;
    env.announce(psp, "pay_1", 1).await;
    let made = ATTEMPTS_LISTED_MAX + 7;
    for number in 1..=made {
        let attempt = delivery_attempts::Model {
            delivery_id: "whd_pay_1_1".to_owned(),
            number,
            at: number,
            url: "http://127.0.0.1:9/".to_owned(),
            duration_ms: 1,
            ..delivery_attempts::Model::default()
        };
        attempt.into_active_model().insert(env.database.writer()).await.unwrap();
    }
    let row = deliveries::ActiveModel {
        id: ActiveValue::Unchanged("whd_pay_1_1".to_owned()),
        attempt_count: ActiveValue::Set(made),
        ..Default::default()
    };
    row.update(env.database.writer()).await.unwrap();
    let entry =
        log::deliveries_of(&env.database, psp, "pay_1", log::Slice::ALL_OF_A_PAYMENT).await.unwrap().1.remove(0);
    assert_eq!(i64::try_from(entry.attempts.len()).unwrap(), ATTEMPTS_LISTED_MAX);
    assert_eq!((entry.attempts[0].number, entry.attempts.last().unwrap().number), (8, made));
}

#[tokio::test]
async fn large_ranges_are_chosen_in_parts() {
    let env = Env::new(quick()).await;
    let psp = env.psp(None).await;
    env.queue_many(psp, REDELIVERED_MAX + 1, 4).await;
    // Ten per millisecond; the last row that fits shares its millisecond with one more.
    let spread = "UPDATE events SET created_at = created_at + position / 10";
    env.database.writer().execute_unprepared(spread).await.unwrap();
    let (now, all) = (env.clock.real_now::<Timestamp>().plus_secs(5), Timestamp(0));
    let chosen = log::choose(&env.database, psp, all, now, &[], None).await.unwrap();
    assert_eq!(chosen.delivery_ids.len(), REDELIVERED_MAX - 1);
    let next = chosen.continue_from.expect("two more remain");
    let rest = log::choose(&env.database, psp, next, now, &[], None).await.unwrap();
    assert_eq!((rest.delivery_ids.len(), rest.continue_from), (2, None));
    assert!(rest.delivery_ids.iter().all(|id| !chosen.delivery_ids.contains(id)));
    let since = Instant::now();
    let transaction = env.database.begin().await.unwrap();
    let count = log::redeliver_all(&transaction, psp, &chosen.delivery_ids, now).await.unwrap();
    transaction.commit().await.unwrap();
    println!("{count} deliveries queued again within {:?}", since.elapsed());
    assert_eq!(usize::try_from(count).unwrap(), REDELIVERED_MAX - 1);
}

#[tokio::test]
async fn a_millisecond_above_the_limit_is_chosen_whole() {
    let env = Env::new(quick()).await;
    let psp = env.psp(None).await;
    env.queue_many(psp, REDELIVERED_MAX + 1, 4).await;
    let now = env.clock.real_now::<Timestamp>().plus_secs(1);
    let chosen = log::choose(&env.database, psp, Timestamp(0), now, &[], None).await.unwrap();
    assert_eq!(chosen.delivery_ids.len(), REDELIVERED_MAX + 1);
    let next = chosen.continue_from.expect("later rows remain");
    let rest = log::choose(&env.database, psp, next, now, &[], None).await.unwrap();
    assert_eq!((rest.delivery_ids, rest.continue_from), (vec![], None));
}
