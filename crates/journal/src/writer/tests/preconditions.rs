//! Failed preconditions, and writes that the database rejects.

use super::*;
use crate::writer::{AppliedTransfer, DELIVERY_RETRIES_MAX, TransfersApplied};
use payferry_entities::deliveries;

#[tokio::test]
async fn a_transition_requires_the_previous_version() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let once = transition(&payment, 1);
    let mut stale = transition(&payment, 1);
    stale.consequences.announcements[0].event.id = "evt_other".to_owned();
    stale.payment.status = "failed".to_owned();
    env.submit(boxed(once)).await.unwrap();
    assert!(matches!(env.submit(boxed(stale)).await, Err(JournalError::Conflict)));

    let rows = env.all::<payments::Entity>().await;
    assert_eq!((rows[0].version, rows[0].status.as_str()), (2, "confirmed"));
    assert_eq!(env.count::<payment_transitions::Entity>().await, 2);
    assert_eq!(env.count::<events::Entity>().await, 1, "nothing of the failed write is stored");
}

#[tokio::test]
async fn a_failed_precondition_does_not_affect_other_writes() {
    let (env, payments) = Env::with_payments([1, 2]).await;
    let running = env.run();
    env.submit(boxed(transition(&payments[0], 1))).await.unwrap();
    stop(running).await;

    let stale = boxed(transition(&payments[0], 0));
    let fresh = boxed(transition(&payments[1], 2));
    let groups_before = env.journal.stats().groups;
    let answers = env.write_queued([stale, fresh, initiation("3", None)]).await;
    assert!(matches!(answers[0], Err(JournalError::Conflict)));
    assert!(answers[1].is_ok() && answers[2].is_ok());
    assert_eq!(env.journal.stats().groups, groups_before + 1, "the others shared one commit");
}

#[tokio::test]
async fn fifty_identical_initiations_create_one_payment() {
    let env = Env::running().await;
    let racing: Vec<_> = (0..50)
        .map(|n| {
            let journal = env.journal.clone();
            tokio::spawn(async move { journal.submit(initiation(&format!("race{n}"), Some("same"))).await })
        })
        .collect();
    let answers = answers(racing).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let taken = answers.iter().filter(|answer| matches!(answer, Err(JournalError::IdempotencyKeyTaken))).count();
    assert_eq!(taken, 49);
    assert_eq!(env.count::<payments::Entity>().await, 1);
    assert_eq!(env.count::<payment_transitions::Entity>().await, 1);
}

#[tokio::test]
async fn an_expired_idempotency_key_can_be_used_again() {
    let env = Env::running().await;
    env.submit(initiation("1", Some("key"))).await.unwrap();
    let JournalWrite::Initiation(mut later) = initiation("2", Some("key")) else { unreachable!() };
    let key = later.idempotency.as_mut().unwrap();
    (key.created_at, key.expires_at, key.response_body) = (2_000, 3_000, "newer".to_owned());
    env.submit(JournalWrite::Initiation(later)).await.unwrap();
    let rows = env.all::<idempotency_keys::Entity>().await;
    assert_eq!((rows.len(), rows[0].response_body.as_str()), (1, "newer"));
}

#[tokio::test]
async fn a_transition_requires_both_preconditions() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    env.submit(initiation("2", Some("key"))).await.unwrap();
    let keyed = |version, key: &str| {
        let mut transition = transition(&payments::Model { version, ..payment.clone() }, 0);
        transition.consequences.idempotency = Some(key_row(key));
        boxed(transition)
    };
    assert!(matches!(env.submit(keyed(1, "key")).await, Err(JournalError::IdempotencyKeyTaken)));
    assert!(matches!(env.submit(keyed(5, "other")).await, Err(JournalError::Conflict)));
    assert_eq!(env.count::<idempotency_keys::Entity>().await, 1, "a failed write uses no key");
    env.submit(keyed(1, "other")).await.unwrap();
}

#[tokio::test]
async fn one_invalid_write_among_two_hundred_fails_alone() {
    let env = Env::new().await;
    let writes = (0..200).map(|n| {
        let JournalWrite::Initiation(mut write) = initiation(&n.to_string(), None) else { unreachable!() };
        if n == 137 {
            write.payment.merchant_id = Some("merch_unknown".to_owned());
        }
        JournalWrite::Initiation(write)
    });
    let answers = env.write_queued(writes).await;
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(_) => assert_ne!(n, 137),
            Err(JournalError::Refused(_)) => assert_eq!(n, 137),
            Err(other) => panic!("{n}: {other}"),
        }
    }
    assert_eq!(env.count::<payments::Entity>().await, 199);
    let stats = env.journal.stats();
    assert_eq!(stats.refused, 1);
    assert!(stats.groups <= 8, "bisection instead of single writes: {} commits", stats.groups);
}

#[tokio::test]
async fn a_value_that_the_database_rejects_fails_only_its_write() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    env.submit(boxed(transition(&payment, 1))).await.unwrap();
    let mut twice = transition(&payments::Model { version: 2, ..payment.clone() }, 1);
    twice.consequences.announcements[0].event.sequence = 100;
    assert!(matches!(env.submit(boxed(twice)).await, Err(JournalError::Refused(_))));
    assert_eq!(env.all::<payments::Entity>().await[0].version, 2);
}

#[tokio::test]
async fn the_feed_keeps_the_order_of_writes_and_announcements() {
    let (env, before) = Env::with_payments(0..20).await;
    assert!(
        env.write_queued(before.iter().rev().map(|payment| boxed(transition(payment, 3))))
            .await
            .iter()
            .all(Result::is_ok)
    );

    let mut events = env.all::<events::Entity>().await;
    events.sort_by_key(|event| event.position);
    let expected: Vec<_> =
        before.iter().rev().flat_map(|payment| (100..103).map(|n| (payment.id.clone(), n))).collect();
    let found: Vec<_> = events.iter().map(|event| (event.payment_id.clone(), event.sequence)).collect();
    assert_eq!(found, expected);
    assert_eq!(events.iter().map(|event| event.position).collect::<Vec<_>>(), (1..=60).collect::<Vec<_>>());

    for delivery in env.all::<deliveries::Entity>().await {
        let event = events.iter().find(|event| event.id == delivery.event_id).unwrap();
        assert_eq!((delivery.position, delivery.sequence), (event.position, event.sequence));
        assert_eq!((delivery.status.as_str(), delivery.retries_left), ("queued", DELIVERY_RETRIES_MAX));
        assert_eq!((delivery.attempt_count, delivery.next_attempt_at), (0, Some(5_000)));
    }
}

#[tokio::test]
async fn a_filtered_event_is_in_the_feed_without_a_delivery() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let mut write = transition(&payment, 2);
    write.consequences.announcements[0].deliveries.clear();
    env.submit(boxed(write)).await.unwrap();
    assert_eq!(env.count::<events::Entity>().await, 2);
    let deliveries = env.all::<deliveries::Entity>().await;
    assert_eq!(deliveries.iter().map(|delivery| delivery.sequence).collect::<Vec<_>>(), [101]);
}

#[tokio::test]
async fn a_delivery_attempt_counts_once() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    env.submit(boxed(transition(&payment, 2))).await.unwrap();
    env.submit(delivery("whd_pay_1_100", 1)).await.unwrap();
    // Another node has recorded the attempt with another outcome; the second delivery is new.
    let [JournalWrite::Deliveries(known), JournalWrite::Deliveries(new)] =
        [delivery("whd_pay_1_100", 1), delivery("whd_pay_1_101", 1)]
    else {
        unreachable!()
    };
    let known = DeliveryOutcome { status: DeliveryStatus::Delivered, next_attempt_at: None, ..known[0].clone() };
    env.submit(JournalWrite::Deliveries([known, new[0].clone()].into())).await.unwrap();
    assert_eq!(env.count::<delivery_attempts::Entity>().await, 2);
    assert!(matches!(env.submit(delivery("whd_unknown", 1)).await, Err(JournalError::Refused(_))));
    let rows = env.all::<deliveries::Entity>().await;
    assert_eq!(rows.iter().map(|row| row.attempt_count).collect::<Vec<_>>(), [1, 1]);
    let row = &rows[0];
    assert_eq!((row.status.as_str(), row.attempt_count, row.retries_left), ("failed", 1, DELIVERY_RETRIES_MAX - 1));
    assert_eq!((row.response_code, row.duration_ms, row.next_attempt_at), (Some(500), Some(12), Some(11_000)));
    assert_eq!(row.url.as_deref(), Some("https://example.com/hook"));
}

#[tokio::test]
async fn a_fact_without_a_change_still_marks_its_transfer() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let mut found = batch(None, "0xa", 1);
    found.transfers = vec![transfer("0x1", &payment, "0xa", 1)];
    env.submit(JournalWrite::ChainBatch(lease(), Box::new(found))).await.unwrap();
    let mark = |revision, version| {
        JournalWrite::TransfersApplied(Box::new(TransfersApplied {
            known_to: None,
            version,
            transfers: vec![AppliedTransfer {
                chain: "base".to_owned(),
                block_hash: "0xa".to_owned(),
                tx_hash: "0x1".to_owned(),
                log_index: 0,
                revision,
            }],
            operations: Vec::new(),
            at: 9_000,
        }))
    };
    env.submit(mark(1, 4)).await.unwrap();
    env.submit(mark(0, 9)).await.unwrap();
    let row = &env.all::<transfers::Entity>().await[0];
    assert_eq!((row.revision, row.applied_revision, row.applied_version), (1, 1, 4));
}

#[tokio::test]
async fn a_fact_is_not_marked_as_known_to_a_payment_that_has_changed() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let known_at = |version| {
        let known_to = Some((payment.id.clone(), version));
        let applied = TransfersApplied { known_to, version, transfers: Vec::new(), operations: Vec::new(), at: 9_000 };
        JournalWrite::TransfersApplied(Box::new(applied))
    };
    assert!(matches!(env.submit(known_at(payment.version + 1)).await, Err(JournalError::Conflict)));
    env.submit(known_at(payment.version)).await.unwrap();
}

#[tokio::test]
async fn a_write_of_a_node_that_lost_its_lease_changes_nothing() {
    let env = Env::running().await;
    let writes = || [JournalWrite::ChainBatch(lease(), Box::new(batch(None, "0xa", 1))), submission(0, &[])];
    let set = async |changed: &str| {
        let sql = format!("UPDATE leases SET {changed} WHERE name = 'chain:base'");
        env.database.writer().execute_unprepared(&sql).await.unwrap();
    };
    for changed in ["epoch = 2", "epoch = 1, owner = NULL", "owner = 'node_test', changed_at = 1"] {
        set(changed).await;
        for write in writes() {
            let lost = env.submit(write).await;
            assert!(matches!(lost, Err(JournalError::LeaseLost)), "{changed}: {lost:?}");
        }
    }
    assert_eq!((env.count::<chain_cursors::Entity>().await, env.count::<chain_txs::Entity>().await), (0, 0));
    set("changed_at = 0").await;
    for write in writes() {
        env.submit(write).await.unwrap();
    }
}
