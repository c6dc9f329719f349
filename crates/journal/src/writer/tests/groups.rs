//! Groups, queues, closing, and panics.

use futures::FutureExt;
use parking_lot::Mutex;
use sea_orm::ConnectionTrait;

use super::*;
use crate::writer::queue::{GROUP_LINGER, can_wait};
use crate::writer::{CommitSubscriptions, GROUP_INITIATIONS_MIN, GROUP_UNITS_MAX, INITIATIONS_QUEUED_MAX};

#[tokio::test]
async fn a_group_has_a_maximum_size() {
    let env = Env::new().await;
    assert!(
        env.write_queued((0..GROUP_UNITS_MAX * 2 + 10).map(|n| initiation(&n.to_string(), None)))
            .await
            .iter()
            .all(Result::is_ok)
    );
    let stats = env.journal.stats();
    assert_eq!((stats.groups, stats.group_units_max), (3, GROUP_UNITS_MAX));
    assert_eq!(stats.units, (GROUP_UNITS_MAX * 2 + 10) as u64);
    assert!(stats.commit_time_us >= stats.commit_time_us_max && stats.commit_time_us_max > 0);
}

#[tokio::test]
async fn transitions_precede_initiations_which_get_a_share() {
    let env = Env::new().await;
    let running = env.run();
    let mut before = Vec::new();
    for n in 0..GROUP_UNITS_MAX + 40 {
        before.push(env.queue([initiation(&format!("old{n}"), None)]).await.remove(0));
    }
    assert!(answers(before).await.iter().all(Result::is_ok));
    stop(running).await;

    let new = env.queue((0..100).map(|n| initiation(&format!("new{n}"), None))).await;
    let moved =
        env.queue((0..GROUP_UNITS_MAX + 40).map(|n| boxed(transition(&payment_row(&format!("old{n}")), 0)))).await;
    env.fault(Fault::AnswerLost);
    env.run();
    // The first group is identified by its result.
    let (new, moved) = (answers(new).await, answers(moved).await);
    let first_of = |flags: Vec<bool>| {
        let first = flags.iter().take_while(|flag| **flag).count();
        assert!(flags[first..].iter().all(|flag| !flag), "results are in order");
        first
    };
    assert_eq!(first_of(unknown(&moved)), GROUP_UNITS_MAX - GROUP_INITIATIONS_MIN);
    assert_eq!(first_of(unknown(&new)), GROUP_INITIATIONS_MIN);
    assert_eq!(env.count::<payments::Entity>().await, (GROUP_UNITS_MAX + 140) as u64);
}

/// Returns for each result if the outcome is unknown.
fn unknown(answers: &[Result<Receipt, JournalError>]) -> Vec<bool> {
    answers.iter().map(|answer| matches!(answer, Err(JournalError::Unknown(_)))).collect()
}

/// Writes three transitions without announcements and several with. Returns which of them were in the first group.
async fn in_the_first_group(announcing: usize, expected: usize) -> (Vec<bool>, Vec<bool>) {
    let (env, payments) = Env::with_payments(0..3 + announcing).await;
    let (silent, announced) = payments.split_at(3);
    let silent = env.queue(silent.iter().map(|payment| boxed(transition(payment, 0)))).await;
    let announced = env.queue(announced.iter().map(|payment| boxed(transition(payment, 1)))).await;
    env.journal.expect_announcements(expected);
    env.fault(Fault::AnswerLost);
    env.run();
    let flags = (unknown(&answers(silent).await), unknown(&answers(announced).await));
    let rows = env.all::<payments::Entity>().await;
    assert!(rows.iter().all(|row| row.version == 2), "every write is committed, in any group");
    flags
}

#[tokio::test]
async fn announced_transitions_precede_writes_without_waiting_callers() {
    let all = |flag, count| vec![flag; count];
    assert_eq!(in_the_first_group(5, 5).await, (all(false, 3), all(true, 5)));
    assert_eq!(in_the_first_group(5, 60).await, (all(false, 3), all(true, 5)), "fewer arrive than announced");
    assert_eq!(in_the_first_group(5, 1).await, (all(true, 3), all(true, 5)), "a single one gets no separate group");
    assert_eq!(in_the_first_group(0, 60).await, (all(true, 3), all(true, 0)), "none arrives");
}

#[tokio::test]
async fn writes_without_waiting_callers_wait_for_others() {
    let (env, payments) = Env::with_payments(0..4).await;
    env.run();
    let groups_before = env.journal.stats().groups;
    let quiet = env.queue([boxed(transition(&payments[0], 0))]).await;
    env.submit(boxed(transition(&payments[1], 1))).await.unwrap();
    assert!(answers(quiet).await.iter().all(Result::is_ok));
    assert_eq!(env.journal.stats().groups, groups_before + 1, "an announcement takes the other write along");

    let begun = std::time::Instant::now();
    env.submit(boxed(transition(&payments[2], 0))).await.unwrap();
    assert!(begun.elapsed() >= GROUP_LINGER, "alone it waits for others");

    let urgent = JournalTransition { is_urgent: true, ..transition(&payments[3], 0) };
    assert!(!can_wait(&boxed(urgent)) && can_wait(&boxed(transition(&payments[3], 0))));
    let JournalWrite::Deliveries(quiet) = delivery("whd_1", 1) else { unreachable!() };
    let urgent = DeliveryOutcome { is_urgent: true, ..quiet[0].clone() };
    assert!(!can_wait(&JournalWrite::Deliveries([quiet[0].clone(), urgent].into())));
    assert!(can_wait(&JournalWrite::Deliveries(quiet)));
    assert_eq!(env.journal.stats().groups, groups_before + 2);
}

#[tokio::test]
async fn closing_does_not_wait_for_other_writes() {
    let (env, payments) = Env::with_payments([1]).await;
    let quiet = env.queue([boxed(transition(&payments[0], 0))]).await;
    let running = env.run();
    env.journal.close().await;
    running.await.unwrap();
    assert!(answers(quiet).await.iter().all(Result::is_ok));
    assert_eq!(env.all::<payments::Entity>().await[0].version, 2);
}

#[tokio::test]
async fn the_webhook_sender_is_notified_before_the_results() {
    let (env, payments) = Env::with_payments(1..=3).await;
    let notified: Arc<Mutex<Vec<String>>> = Arc::default();
    let ear = Arc::clone(&notified);
    env.journal.on_announced(move |psp_id| ear.lock().push(psp_id.to_owned()));
    let outdated = payments::Model { version: 7, ..payments[2].clone() };
    let (silent, lost) = (transition(&payments[2], 0), transition(&outdated, 1));
    let both = payments[..2].iter().map(|payment| boxed(transition(payment, 2)));
    assert!(env.write_queued(both).await.iter().all(Result::is_ok));
    assert_eq!(*notified.lock(), [payments[0].psp_id.clone()], "a PSP is reported once per commit");
    env.submit(boxed(silent)).await.unwrap();
    assert!(matches!(env.submit(boxed(lost)).await, Err(JournalError::Conflict)));
    assert_eq!(notified.lock().len(), 1, "nothing was announced");
    env.fault(Fault::AnswerLost);
    let doubted = payments::Model { version: 2, ..payments[0].clone() };
    assert!(matches!(env.submit(boxed(transition(&doubted, 1))).await, Err(JournalError::Unknown(_))));
    assert_eq!(notified.lock().len(), 2, "it may have been committed");
}

#[tokio::test]
async fn writes_of_one_payment_use_separate_groups_in_order() {
    let (env, payments) = Env::with_payments([1]).await;
    let groups_before = env.journal.stats().groups;
    let chain = (1..=5).map(|version| boxed(transition(&payments::Model { version, ..payments[0].clone() }, 1)));
    assert!(env.write_queued(chain).await.iter().all(Result::is_ok));
    assert_eq!(env.all::<payments::Entity>().await[0].version, 6);
    assert_eq!(env.journal.stats().groups, groups_before + 5);
}

#[tokio::test]
async fn a_full_queue_rejects_new_payments_and_delays_transitions() {
    let env = Env::new().await;
    let submitting = env.queue((0..INITIATIONS_QUEUED_MAX).map(|n| initiation(&n.to_string(), None))).await;
    assert_eq!(env.journal.stats().initiations_queued, INITIATIONS_QUEUED_MAX);
    assert!(matches!(env.submit(initiation("more", None)).await, Err(JournalError::Busy)));
    let waiting = env.queue([boxed(transition(&payment_row("none"), 0))]).await;
    env.run();
    assert!(answers(submitting).await.iter().all(Result::is_ok));
    assert!(matches!(answers(waiting).await[0], Err(JournalError::Conflict)));
    env.submit(initiation("more", None)).await.unwrap();
}

#[tokio::test]
async fn closing_commits_the_queue_and_rejects_new_writes() {
    let env = Env::new().await;
    let submitting = env.queue((0..600).map(|n| initiation(&n.to_string(), None))).await;
    let running = env.run();
    env.journal.close().await;
    running.await.unwrap();
    assert!(matches!(env.submit(initiation("late", None)).await, Err(JournalError::Unavailable(_))));
    let late = env.submit(boxed(transition(&payment_row("1"), 0))).await;
    assert!(matches!(late, Err(JournalError::Unavailable(_))));
    assert!(answers(submitting).await.iter().all(Result::is_ok));
    env.journal.close().await;

    // Everything is in the database.
    let Env { database, test_database, .. } = env;
    database.close().await.unwrap();
    let reopened = Database::open(test_database.url()).await.unwrap();
    assert_eq!(payments::Entity::find().count(reopened.reader()).await.unwrap(), 600);
    let (journal, task) = Journal::start(reopened);
    tokio::spawn(task.run());
    journal.submit(boxed(transition(&payment_row("0"), 1))).await.unwrap();
}

#[tokio::test]
async fn a_panic_loses_only_the_results_of_the_current_group() {
    for fault in [Fault::Panic, Fault::PanicInTransaction] {
        let env = Env::new().await;
        let submitting = env.queue((0..GROUP_UNITS_MAX + 50).map(|n| initiation(&n.to_string(), None))).await;
        env.fault(fault);
        let reasons = Arc::new(Mutex::new(Vec::new()));
        let notified = Arc::clone(&reasons);
        tokio::spawn(env.task.clone().supervise(move |reason| notified.lock().push(reason.to_owned())));
        let answers = answers(submitting).await;
        let unknown = unknown(&answers).into_iter().filter(|is_unknown| *is_unknown).count();
        assert_eq!(unknown, GROUP_UNITS_MAX, "{fault:?}");
        assert!(answers[GROUP_UNITS_MAX..].iter().all(Result::is_ok), "queued writes are committed after the restart");
        assert_eq!(env.count::<payments::Entity>().await, 50);
        // The handle still works, and the writes with unknown results can be submitted again.
        env.submit(initiation("0", None)).await.unwrap();
        assert_eq!(env.journal.stats().panics, 1);
        assert!(reasons.lock()[0].starts_with("injected fault"));
    }
}

#[tokio::test]
async fn a_lost_commit_response_is_unknown_not_failed() {
    let env = Env::running().await;
    env.fault(Fault::AnswerLost);
    assert!(matches!(env.submit(initiation("1", None)).await, Err(JournalError::Unknown(_))));
    assert_eq!(env.count::<payments::Entity>().await, 1);
}

#[tokio::test]
async fn a_short_database_outage_is_retried() {
    let env = Env::running().await;
    env.fault(Fault::Contention);
    env.fault(Fault::Away);
    env.submit(initiation("1", None)).await.unwrap();
    assert_eq!(env.journal.stats().retries, 2);
    for _ in 0..3 {
        env.fault(Fault::Away);
    }
    assert!(env.journal.is_writing());
    assert!(matches!(env.submit(initiation("2", None)).await, Err(JournalError::Unavailable(_))));
    assert!(!env.journal.is_writing());
    let commit_blocker = env.journal.commit_blocker().unwrap();
    assert_eq!(commit_blocker.why, "the connection to it failed");
    env.fault(Fault::Contention);
    for _ in 0..3 {
        env.fault(Fault::Away);
    }
    assert!(matches!(env.submit(initiation("2", None)).await, Err(JournalError::Unavailable(_))));
    assert_eq!(env.journal.commit_blocker().unwrap().since, commit_blocker.since, "the outage has lasted since then");
    assert_eq!(env.count::<payments::Entity>().await, 1);
    env.submit(initiation("2", None)).await.unwrap();
    assert!(env.journal.is_writing() && env.journal.commit_blocker().is_none());
}

#[tokio::test]
async fn another_writer_only_delays() {
    let env = Env::running().await;
    let held = env.test_database.lock(Lock::Writes).await;
    let submitting = env.queue([initiation("1", None)]).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!submitting[0].is_finished());
    held.release().await;
    assert!(answers(submitting).await[0].is_ok());
}

#[tokio::test]
async fn a_transaction_ended_by_the_database_does_not_affect_later_ones() {
    let env = Env::running().await;
    // Like SQLite when the disk is full; the driver does not notice.
    let ended = env.database.begin().await.unwrap();
    ended.execute_unprepared("ROLLBACK").await.unwrap();
    drop(ended);
    let payment = env.payment("1").await;
    let stale = payments::Model { version: 7, ..payment.clone() };
    assert!(matches!(env.submit(boxed(transition(&stale, 0))).await, Err(JournalError::Conflict)));
    env.submit(boxed(transition(&payment, 1))).await.unwrap();
    assert_eq!(env.all::<payments::Entity>().await[0].version, 2, "acknowledged writes are committed");
}

#[tokio::test]
async fn a_write_is_committed_even_if_the_caller_stops_waiting() {
    let env = Env::new().await;
    let submitting = env.queue([initiation("1", None)]).await;
    submitting[0].abort();
    env.run();
    env.submit(initiation("2", None)).await.unwrap();
    assert_eq!(env.count::<payments::Entity>().await, 2);
}

#[tokio::test]
async fn texts_and_numbers_round_trip() {
    let env = Env::running().await;
    let odd = "\u{1}\t\"quote\" \\back\\u0041 'single' {\"json\": [1, 2.50, true, null]} 𝄞 ﷽ e\u{301} \u{202e}rtl \
               \u{fffd}\u{feff} \r\n 123 ";
    for (n, text) in
        [odd, "", "{}", "[1,2]", "true", "null", "1e400", "9223372036854775808", "\"x\""].iter().enumerate()
    {
        let JournalWrite::Initiation(mut write) = initiation(&n.to_string(), None) else { unreachable!() };
        write.payment.state = (*text).to_owned();
        write.payment.reference = Some((*text).to_owned());
        write.payment.amount = i64::MAX - 1;
        write.payment.amount_received = i64::MAX;
        write.payment.updated_at = i64::MIN;
        write.payment.live = n % 2 == 0;
        write.payment.attention = (n % 2 == 0).then(|| "IN_REVIEW".to_owned());
        write.payment.expires_at = 9_007_199_254_740_993;
        write.transition.events = format!("[{text}]");
        let written = write.payment.clone();
        env.submit(JournalWrite::Initiation(write)).await.unwrap();
        let read = payments::Entity::find_by_id(&written.id).one(env.database.reader()).await.unwrap().unwrap();
        assert_eq!(read, written);

        let mut next = transition(&written, 1);
        next.payment.state = format!("{text}{text}");
        next.payment.live = n % 2 == 1;
        next.payment.attention = (n % 2 == 1).then(|| "FUNDS_BLOCKED".to_owned());
        next.consequences.announcements[0].event.payload = (*text).to_owned();
        let expected = next.payment.clone();
        env.submit(boxed(next)).await.unwrap();
        let read = payments::Entity::find_by_id(&written.id).one(env.database.reader()).await.unwrap().unwrap();
        assert_eq!(read, expected);
        let events = env.all::<events::Entity>().await;
        assert_eq!(events[n].payload, *text);
    }
}

#[tokio::test]
async fn each_subscriber_is_woken_once_and_subjects_are_removed() {
    let wakes = Arc::new(CommitSubscriptions::default());
    let subjects = |wakes: &CommitSubscriptions| wakes.subjects.load(std::sync::atomic::Ordering::SeqCst);
    let (mut one, mut two) = (wakes.subscribe("pay_1".to_owned()), wakes.subscribe("pay_1".to_owned()));
    let mut other = wakes.subscribe("pay_2".to_owned());
    assert_eq!(subjects(&wakes), 2);
    wakes.wake("pay_1");
    wakes.wake("pay_1");
    wakes.wake("pay_3");
    one.woken().await;
    two.woken().await;
    assert!(one.woken().now_or_never().is_none(), "two commits lead to one wake-up");
    assert!(other.woken().now_or_never().is_none());
    drop(one);
    wakes.wake("pay_1");
    two.woken().await;
    drop((two, other));
    assert_eq!((subjects(&wakes), wakes.by_subject.len()), (0, 0));
}
