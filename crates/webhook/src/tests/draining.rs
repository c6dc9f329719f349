//! Queue: order, several PSPs, backlogs.

use payferry_harness::database::query_plan;
use sea_orm::Statement;
use wiremock::matchers::body_string_contains;

use super::receiver::{Answer, Receiver};
use super::*;
use crate::{IN_FLIGHT_MAX, endpoint, queue};

#[tokio::test]
async fn retry_does_not_block_later_events() {
    let slow = Schedule::of([Duration::from_secs(2); 3]);
    let env = Env::new(WebhookConfig { schedule: slow, ..quick() }).await;
    let server = recovering(ResponseTemplate::new(500)).await;
    let psp = env.psp(Some(&server.uri())).await;
    env.announce(psp, "pay_1", 3).await;
    env.until("whd_pay_1_3", "delivered").await;
    assert_eq!(env.row("whd_pay_1_1").await.status.as_str(), "failed");
    env.until("whd_pay_1_1", "delivered").await;
    assert_eq!(ids_of(&received(&server).await), ["evt_pay_1_1", "evt_pay_1_2", "evt_pay_1_3", "evt_pay_1_1"]);
}

#[tokio::test]
async fn slow_and_dead_receivers_do_not_delay_other_psps() {
    let env = Env::new(short_timeout()).await;
    let slow = receiver(ResponseTemplate::new(200).set_delay(Duration::from_secs(3))).await;
    let good = receiver(ResponseTemplate::new(200)).await;
    let (tardy, dead) = (env.psp(Some(&slow.uri())).await, env.psp(Some("http://127.0.0.1:9/")).await);
    let psp = env.psp(Some(&good.uri())).await;
    for n in 0..20 {
        env.announce(tardy, &format!("pay_slow{n}"), 1).await;
        env.announce(dead, &format!("pay_dead{n}"), 1).await;
    }
    let since = Instant::now();
    env.announce(psp, "pay_good", 1).await;
    env.until("whd_pay_good_1", "delivered").await;
    println!("delivered next to a slow and a dead receiver within {:?}", since.elapsed());
    // Attempts at the slow receiver last 400 ms each, four at a time: twenty deliveries are far from finished.
    assert!(env.row("whd_pay_slow19_1").await.attempt_count == 0, "the other PSP did not wait for the slow one");
    let row = env.until_attempted("whd_pay_slow0_1").await;
    assert_eq!((row.response_code, row.error.as_deref()), (None, Some("no answer in time")));
    let row = env.until_attempted("whd_pay_dead0_1").await;
    assert!(row.error.unwrap().starts_with("could not connect"));
}

#[tokio::test]
async fn events_wait_for_a_url() {
    let env = Env::new(quick()).await;
    let psp = env.psp(None).await;
    env.announce(psp, "pay_1", 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(env.row("whd_pay_1_1").await.attempt_count, 0);
    let server = receiver(ResponseTemplate::new(200)).await;
    env.point(psp, &server.uri()).await;
    env.until("whd_pay_1_2", "delivered").await;
}

#[tokio::test]
async fn rows_of_a_page_are_read_once() {
    const DELIVERIES: usize = 120;
    const READS_MAX: u64 = 30;
    let env = Env::new(quick()).await;
    let server = receiver(ResponseTemplate::new(200)).await;
    let psp = env.psp(None).await;
    env.queue_many(psp, DELIVERIES, 1).await;
    let reads =
        || env.database.counts().into_iter().filter(|counts| counts.pool == "reader").map(|of| of.statements).sum();
    let before: u64 = reads();
    env.point(psp, &server.uri()).await;
    while received(&server).await.len() < DELIVERIES {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Without the rows of the page, each delivery that waited for a free slot would be read once more.
    let read = reads() - before;
    assert!(read < READS_MAX, "{read} reads for {DELIVERIES} deliveries");
}

#[tokio::test]
async fn first_attempts_of_a_payment_are_serial_and_in_order() {
    const PAYMENTS: usize = 40;
    const DELAY: Duration = Duration::from_millis(10);
    let env = Env::new(quick()).await;
    // Every seventh event fails at its first arrival; its retry may come at any time.
    let fails = |nth: usize, is_again: bool| !is_again && nth.is_multiple_of(7);
    let status = move |nth, is_again| if fails(nth, is_again) { 500 } else { 200 };
    let receiver = Receiver::start(move |nth, is_again| Answer::status(status(nth, is_again)).after(DELAY)).await;
    let psp = env.psp(None).await;
    for n in 0..PAYMENTS {
        env.announce(psp, &format!("pay_{n}"), 4).await;
    }
    env.point(psp, &receiver.url()).await;
    for n in 0..PAYMENTS {
        for sequence in 1..=4 {
            env.until(&format!("whd_pay_{n}_{sequence}"), "delivered").await;
        }
    }
    let arrivals = receiver.arrivals();
    for n in 0..PAYMENTS {
        let first = |sequence: usize| {
            let id = format!("evt_pay_{n}_{sequence}");
            arrivals.iter().find(|arrival| arrival.id == id).unwrap().at
        };
        for sequence in 1..4 {
            assert!(first(sequence + 1) >= first(sequence) + DELAY, "payment {n}, sequence {sequence}");
        }
    }
}

#[tokio::test]
async fn queue_queries_use_their_indexes() {
    let env = Env::on(Arc::new(TestDatabase::sqlite()), quick(), true).await;
    // Any other index would scan everything that was ever delivered.
    for (sql, values, index) in [
        (queue::PSPS_WITH_OPEN.to_owned(), 0, "deliveries_psp_id_status_next_attempt_at (psp_id=? AND status=?)"),
        (queue::FIRST_ATTEMPTS.to_owned(), 3, "deliveries_queued (<expr>=? AND position>?)"),
        (queue::RETRIES_DUE.to_owned(), 3, "deliveries_retries (<expr>=? AND next_attempt_at<?)"),
        (queue::NEXT_RETRY.to_owned(), 2, "deliveries_retries (<expr>=? AND next_attempt_at>?)"),
        (queue::due_sql(1), 1, "sqlite_autoindex_deliveries_1 (id=?)"),
        (queue::due_sql(2), 2, "sqlite_autoindex_deliveries_1 (id=?)"),
    ] {
        let values: Vec<sea_orm::Value> = [1.into(), 2.into(), 3.into()].into_iter().take(values).collect();
        let query = Statement::from_sql_and_values(env.database.backend(), sql.as_str(), values);
        let plan = query_plan(env.database.reader(), query).await;
        let read = |step: &&String| step.contains(" d ") || step.contains("deliveries");
        assert!(plan.iter().any(|step| read(&step)), "{plan:?}");
        for step in plan.iter().filter(read) {
            assert!(step.starts_with("SEARCH") && step.ends_with(index), "{sql}: {plan:?}");
        }
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {plan:?}");
    }
}

#[tokio::test]
async fn backlog_is_counted_in_the_queues_alone() {
    let env = Env::on(Arc::new(TestDatabase::sqlite()), quick(), true).await;
    let query = Statement::from_sql_and_values(env.database.backend(), queue::backlog_sql(), [1.into()]);
    let plan = query_plan(env.database.reader(), query).await;
    let of_deliveries: Vec<_> = plan.iter().filter(|step| step.contains(" d ")).collect();
    assert_eq!(of_deliveries.len(), 4, "{plan:?}");
    for step in of_deliveries {
        assert!(step.starts_with("SEARCH") && step.contains("(<expr>=?"), "{plan:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_is_drained_page_by_page() {
    const BACKLOG: usize = 5_000;
    let env = Env::new(quick()).await;
    let receiver = Receiver::start(|_, _| Answer::status(200)).await;
    let psp = env.psp(None).await;
    env.queue_many(psp, BACKLOG, 4).await;
    let since = Instant::now();
    env.point(psp, &receiver.url()).await;
    let (mut read_ahead_most, mut in_flight_most) = (0, 0);
    loop {
        let view = env.view().await;
        read_ahead_most = read_ahead_most.max(view.read_ahead);
        in_flight_most = in_flight_most.max(view.in_flight);
        if view.in_flight == 0 && queue::backlog(&env.database).await.unwrap().queued == 0 {
            break;
        }
        assert!(since.elapsed() < PATIENCE * 4, "{view:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = since.elapsed();
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = BACKLOG as f64 / took.as_secs_f64();
    println!("{BACKLOG} queued deliveries in {took:.2?}: {rate:.0}/s, at most {in_flight_most} at once");
    println!("at most {read_ahead_most} rows read ahead");
    let odd = env.rows().await.into_iter().find(|row| row.status.as_str() != "delivered" || row.attempt_count != 1);
    assert_eq!(odd, None);
    assert_eq!(receiver.arrivals().len(), BACKLOG, "each was sent once");
    assert!(read_ahead_most <= endpoint::WINDOW_MAX + queue::PAGE);
    assert!(in_flight_most <= IN_FLIGHT_MAX);
}

#[tokio::test]
async fn redelivery_keeps_the_order_of_first_attempts() {
    let env = Env::new(quick()).await;
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_millis(300));
    Mock::given(body_string_contains("\"sequence\":2")).respond_with(slow).mount(&server).await;
    accept_all(&server).await;
    let psp = env.psp(None).await;
    let ids = env.announce(psp, "pay_1", 3).await;
    let mut old = env.row(&ids[0]).await.into_active_model();
    old.status = ActiveValue::Set(DeliveryStatus::Exhausted);
    old.attempt_count = ActiveValue::Set(4);
    old.update(env.database.writer()).await.unwrap();
    env.point(psp, &server.uri()).await;
    env.until_under_way(&ids[1]).await;
    assert!(log::redeliver(env.database.writer(), psp, &ids[0], env.clock.real_now()).await.unwrap());
    env.sender.refresh(psp);
    env.until(&ids[0], "delivered").await;
    env.until(&ids[2], "delivered").await;
    assert_eq!(
        env.row(&ids[1]).await.status.as_str(),
        "delivered",
        "the third event was sent before the second was answered"
    );
}
