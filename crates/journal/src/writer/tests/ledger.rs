//! Funds of PSPs: postings and reservations.

use payferry_entities::{balances, sendings, sends_per_day};

use super::*;
use crate::writer::{OutboundChange, Reserve};

/// Creates a payment whose settlement credits this amount to its PSP.
async fn credited(env: &Env, name: &str, amount: i64) {
    let payment = env.payment(name).await;
    let mut settled = transition(&payment, 0);
    let credit = ledger_postings::Model { amount, credit: "psp".to_owned(), ..posting(&settled.payment) };
    settled.consequences.postings =
        vec![ledger_postings::Model { debit: "payment".to_owned(), kind: "settled".to_owned(), ..credit }];
    env.submit(boxed(settled)).await.unwrap();
}

/// Returns a withdrawal of this amount, with this daily limit.
fn withdrawal(name: &str, amount: i64, amount_max: i64) -> JournalWrite {
    let id = format!("wd_{name}");
    let reserved = ledger_postings::Model {
        subject: id.clone(),
        kind: "reserved".to_owned(),
        debit: "psp".to_owned(),
        credit: "in_flight".to_owned(),
        amount,
        ..posting(&payment_row(name))
    };
    JournalWrite::OutboundTransfer(Box::new(OutboundChange {
        outbound: sendings::Model {
            id: id.clone(),
            psp_id: "psp_1".to_owned(),
            kind: "withdrawal".to_owned(),
            chain: "base".to_owned(),
            token: "USDC".to_owned(),
            amount,
            recipient: "0xwallet".to_owned(),
            version: 1,
            status: "pending".to_owned(),
            live: true,
            created_at: 5_000,
            updated_at: 5_000,
            state: "{}".to_owned(),
            ..sendings::Model::default()
        },
        transition: payferry_entities::sending_transitions::Model {
            sending_id: id,
            version: 1,
            at: 5_000,
            events: "[]".to_owned(),
        },
        consequences: Consequences {
            postings: vec![reserved],
            reserve: Some(Reserve {
                psp_id: "psp_1".to_owned(),
                chain: "base".to_owned(),
                token_address: "0xusdc".to_owned(),
                amount,
                token: "USDC".to_owned(),
                day: 3,
                day_amount: amount,
                day_amount_max: amount_max,
            }),
            ..Consequences::default()
        },
    }))
}

async fn balance(env: &Env) -> (i64, i64) {
    let rows = env.all::<balances::Entity>().await;
    assert_eq!(rows.len(), 1);
    (rows[0].available, rows[0].reserved)
}

#[tokio::test]
async fn only_one_of_many_withdrawals_of_the_whole_balance_succeeds() {
    let env = Env::running().await;
    credited(&env, "1", 40).await;
    credited(&env, "2", 60).await;
    assert_eq!(balance(&env).await, (100, 0));
    let asked: Vec<_> = (0..100).map(|n| env.submit(withdrawal(&n.to_string(), 100, i64::MAX))).collect();
    let answers = futures::future::join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(JournalError::InsufficientBalance))));
    assert_eq!(balance(&env).await, (0, 100));
    assert_eq!(env.all::<sendings::Entity>().await.len(), 1);
    assert_eq!(env.all::<ledger_postings::Entity>().await.len(), 3, "rejected withdrawals post nothing");
    assert_eq!(env.all::<sends_per_day::Entity>().await[0].amount, 100);
}

/// Submits orders before the journal runs, so that they are written together, with a fault for each attempt.
async fn together(faults: &[Fault], orders: Vec<JournalWrite>) -> (Env, Vec<Result<Receipt, JournalError>>, u64) {
    let env = Env::new().await;
    let running = env.run();
    for name in ["1", "2"] {
        credited(&env, name, 50).await;
    }
    stop(running).await;
    let groups = env.journal.stats().groups;
    let asked = env.queue(orders).await;
    for fault in faults {
        env.fault(*fault);
    }
    env.run();
    let answers = answers(asked).await;
    let commits = env.journal.stats().groups - groups;
    (env, answers, commits)
}

#[tokio::test]
async fn orders_of_one_psp_share_a_group_and_see_the_remaining_balance() {
    // The third order exceeds the remaining balance, the fourth does not.
    let orders = [60, 30, 20, 10].iter().enumerate().map(|(n, amount)| withdrawal(&n.to_string(), *amount, i64::MAX));
    let (env, answers, commits) = together(&[], orders.collect()).await;
    let passed: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(passed, [true, true, false, true], "{answers:?}");
    assert!(matches!(answers[2], Err(JournalError::InsufficientBalance)), "{:?}", answers[2]);
    assert_eq!((balance(&env).await, commits), ((0, 100), 1));
    assert_eq!(env.all::<sends_per_day::Entity>().await[0].amount, 100);
}

#[tokio::test]
async fn an_order_above_the_daily_limit_releases_its_funds() {
    let above = |name| withdrawal(name, 90, 90);
    let orders = vec![withdrawal("0", 10, 100), above("1"), above("2"), withdrawal("3", 90, 100)];
    let (env, answers, commits) = together(&[], orders).await;
    assert!(answers[0].is_ok() && answers[3].is_ok(), "{answers:?}");
    assert!(answers[1..3].iter().all(|answer| matches!(answer, Err(JournalError::AboveDailyLimit))), "{answers:?}");
    assert_eq!((balance(&env).await, commits), ((0, 100), 1));
    assert_eq!(env.all::<sends_per_day::Entity>().await[0].amount, 100);
}

#[tokio::test]
async fn an_invalid_order_releases_its_funds() {
    let env = Env::new().await;
    let running = env.run();
    credited(&env, "1", 100).await;
    env.submit(withdrawal("0", 10, i64::MAX)).await.unwrap();
    stop(running).await;
    // The first order already exists, so the database rejects it.
    let answers = env.write_queued([withdrawal("0", 90, i64::MAX), withdrawal("1", 90, i64::MAX)]).await;
    assert!(matches!(answers[0], Err(JournalError::Refused(_))), "{answers:?}");
    assert!(answers[1].is_ok(), "{answers:?}");
    assert_eq!(balance(&env).await, (0, 100));
}

#[tokio::test]
async fn a_conflicting_order_releases_its_funds() {
    let orders = vec![withdrawal("0", 90, i64::MAX), withdrawal("1", 90, i64::MAX)];
    let (env, answers, _) = together(&[Fault::Nothing, Fault::FirstOvertaken], orders).await;
    assert!(matches!(answers[0], Err(JournalError::Conflict)), "{answers:?}");
    assert!(answers[1].is_ok(), "{answers:?}");
    assert_eq!(balance(&env).await, (10, 90));
}

#[tokio::test]
async fn no_order_is_rejected_for_a_reservation_that_is_not_committed() {
    let orders = vec![withdrawal("0", 90, i64::MAX), withdrawal("1", 90, i64::MAX)];
    let (env, answers, commits) = together(&[Fault::Nothing, Fault::Away, Fault::Away, Fault::Away], orders).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(JournalError::Unavailable(_)))), "{answers:?}");
    assert_eq!((balance(&env).await, commits), ((100, 0), 0));
}

#[tokio::test]
async fn many_orders_of_one_psp_are_written_in_order() {
    let orders = (0..100).map(|n| withdrawal(&n.to_string(), 2, i64::MAX)).collect();
    let (env, answers, commits) = together(&[], orders).await;
    let passed: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert!(passed[..50].iter().all(|passed| *passed) && !passed[50..].iter().any(|passed| *passed), "{passed:?}");
    assert_eq!((balance(&env).await, commits), ((0, 100), 2), "32 of them, then 18; the rest is rejected");
}

#[tokio::test]
async fn reservations_of_a_day_do_not_exceed_its_limit() {
    let env = Env::running().await;
    credited(&env, "1", 100).await;
    env.submit(withdrawal("1", 40, 70)).await.unwrap();
    let refused = env.submit(withdrawal("2", 31, 70)).await;
    assert!(matches!(refused, Err(JournalError::AboveDailyLimit)), "{refused:?}");
    assert_eq!(balance(&env).await, (60, 40));
    env.submit(withdrawal("3", 30, 70)).await.unwrap();
    assert_eq!(balance(&env).await, (30, 70));
    // The next day starts at zero.
    let JournalWrite::OutboundTransfer(mut tomorrow) = withdrawal("4", 20, 70) else { unreachable!() };
    tomorrow.consequences.reserve.as_mut().unwrap().day += 1;
    env.submit(JournalWrite::OutboundTransfer(tomorrow)).await.unwrap();
    assert_eq!(balance(&env).await, (10, 90));
}

#[tokio::test]
async fn the_database_rejects_a_posting_without_amount_or_movement() {
    let env = Env::running().await;
    credited(&env, "1", 10).await;
    let written = env.all::<ledger_postings::Entity>().await.remove(0);
    let sound =
        ledger_postings::Model { position: written.position + 1_000, subject: "pay_other".to_owned(), ..written };
    let insert = async |row: &ledger_postings::Model| {
        let insert = ledger_postings::Entity::insert(row.clone().into_active_model());
        insert.exec_without_returning(env.database.writer()).await
    };
    for wrong in [
        ledger_postings::Model { credit: sound.debit.clone(), ..sound.clone() },
        ledger_postings::Model { amount: 0, ..sound.clone() },
        ledger_postings::Model { amount: -10, ..sound.clone() },
    ] {
        let refused = insert(&wrong).await.unwrap_err().to_string();
        assert!(refused.to_lowercase().contains("check constraint"), "{wrong:?}: {refused}");
    }
    insert(&sound).await.unwrap();
    assert_eq!(env.count::<ledger_postings::Entity>().await, 2);
}

#[tokio::test]
async fn postings_cannot_be_changed() {
    let env = Env::running().await;
    credited(&env, "1", 10).await;
    for change in ["UPDATE ledger_postings SET amount = 1", "DELETE FROM ledger_postings"] {
        let refused = env.database.writer().execute_unprepared(change).await.unwrap_err().to_string();
        assert!(refused.contains("append-only"), "{refused}");
    }
    // SQLite has no TRUNCATE; it uses the DELETE above.
    if !env.is_sqlite() {
        let emptied = env.database.writer().execute_unprepared("TRUNCATE ledger_postings").await;
        let refused = emptied.unwrap_err().to_string();
        assert!(refused.contains("append-only"), "{refused}");
    }
    assert_eq!(env.all::<ledger_postings::Entity>().await[0].amount, 10);
}
