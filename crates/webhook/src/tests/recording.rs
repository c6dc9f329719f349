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
async fn refused_outcome_does_not_keep_others_from_being_recorded() {
    let (env, server, mut ids) = unrecorded().await;
    // Attempts reference their delivery, so those of this one can no longer be recorded.
    let refused = ids.remove(2);
    deliveries::Entity::delete_by_id(&refused).exec(env.database.writer()).await.unwrap();
    let _journal = env.run_journal();
    for id in &ids {
        env.until(id, "delivered").await;
    }
    eventually("no attempt is in progress", async || (env.view().await.in_flight == 0).then_some(())).await;
    assert!(!env.sender.is_under_way(&refused));
    let why = env.view().await.last_failure.clone().unwrap_or_default().to_lowercase();
    assert!(why.contains("foreign key"), "{why}");
    assert_eq!(received(&server).await.len(), ids.len() + 1, "each is sent once");
}
