//! Outcomes that wait for a write are written together.

use super::*;
use crate::load::IN_FLIGHT_MIN;

/// Sends deliveries while the journal does not run: one outcome waits for its write, and the others for that.
async fn unrecorded() -> (Env, MockServer, Vec<String>) {
    let env = Env::on(Arc::new(TestDatabase::create().await), quick(), false).await;
    let server = receiver(ResponseTemplate::new(200)).await;
    let psp = env.psp(Some(&server.uri())).await;
    let ids = env.announce_each(psp, "pay_", IN_FLIGHT_MIN).await;
    eventually("all are sent", async || (received(&server).await.len() == ids.len()).then_some(())).await;
    (env, server, ids)
}

#[tokio::test]
async fn outcomes_that_arrive_during_a_write_are_written_together() {
    let (env, _server, ids) = unrecorded().await;
    let _journal = env.run_journal();
    for id in &ids {
        assert_eq!(env.until(id, "delivered").await.attempt_count, 1);
    }
    let writes = env.journal.stats().units;
    assert!(writes < ids.len() as u64, "{writes} writes of {} outcomes", ids.len());
}

#[tokio::test]
async fn refused_outcomes_do_not_keep_others_from_being_recorded() {
    let (env, server, mut ids) = unrecorded().await;
    // Attempts reference their delivery, so those of these two can no longer be recorded. At least one of them is in a write
    // with other outcomes.
    let refused = ids.split_off(2);
    for id in &refused {
        deliveries::Entity::delete_by_id(id).exec(env.database.writer()).await.unwrap();
    }
    let _journal = env.run_journal();
    for id in &ids {
        env.until(id, "delivered").await;
    }
    eventually("no attempt is in progress", async || (env.view().await.in_flight == 0).then_some(())).await;
    assert!(refused.iter().all(|id| !env.sender.is_under_way(id)));
    let why = env.view().await.last_failure.clone().unwrap_or_default().to_lowercase();
    assert!(why.contains("foreign key"), "{why}");
    assert_eq!(received(&server).await.len(), ids.len() + refused.len(), "each is sent once");
}

#[tokio::test]
async fn attempts_that_a_crash_leaves_unrecorded_are_repeated() {
    let (env, server, ids) = unrecorded().await;
    let store = Arc::clone(&env.test_database);
    env.sender.cell().kill();
    drop(env);

    let env = Env::on(store, quick(), true).await;
    for id in &ids {
        assert_eq!(env.until(id, "delivered").await.attempt_count, 1, "only one attempt is recorded");
    }
    let sent = ids_of(&received(&server).await);
    assert!(
        ids.iter().all(|id| sent.iter().filter(|event| **event == id.replace("whd", "evt")).count() == 2),
        "{sent:?}"
    );
}
