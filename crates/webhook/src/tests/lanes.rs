//! Several endpoints of one PSP.

use payferry_domain::webhook::RetrySchedule;
use payferry_entities::EndpointStatus;

use super::receiver::{Answer, Receiver};
use super::*;
use crate::endpoints::Change;

impl Env {
    /// Adds an endpoint to the PSP.
    async fn endpoint(&self, psp: PspId, url: &str, change: Change) -> EndpointId {
        let (change, now) = (Change { url: Some(url.to_owned()), ..change }, self.clock.real_now());
        let transaction = self.database.begin().await.unwrap();
        let created = endpoints::create(&transaction, &self.sealer, psp, change, now).await.unwrap();
        transaction.commit().await.unwrap();
        self.sender.refresh(psp);
        created.unwrap().0.id.parse().unwrap()
    }

    async fn change(&self, psp: PspId, id: EndpointId, change: Change) {
        let now = self.clock.real_now();
        endpoints::update(self.database.writer(), psp, id, change, now).await.unwrap().unwrap();
        self.sender.refresh(psp);
    }

    /// Queues one event for each of these endpoints; `None` is the first. Returns the delivery ids.
    async fn announce_to(&self, psp: PspId, payment: &str, to: &[Option<EndpointId>]) -> Vec<String> {
        let (event, delivery) = Self::queued(psp, payment, 1, 0, "", self.clock.real_now());
        let mut event = event.into_active_model().reset_all();
        event.position = ActiveValue::NotSet;
        let position = event.insert(self.database.writer()).await.unwrap().position;
        let mut ids = Vec::new();
        for (n, endpoint) in to.iter().enumerate() {
            let (id, endpoint_id) = (format!("whd_{payment}_{n}"), endpoint.map(|id| id.to_string()));
            let delivery = deliveries::Model { id: id.clone(), endpoint_id, position, ..delivery.clone() };
            delivery.into_active_model().insert(self.database.writer()).await.unwrap();
            ids.push(id);
        }
        self.sender.nudge(psp);
        ids
    }

    async fn status_is(&self, ids: &[String], status: &str) {
        for id in ids {
            self.row_when(id, status, |row| row.status.as_str() == status).await;
        }
    }
}

fn disabled() -> Change {
    Change { status: Some(EndpointStatus::Disabled), ..Change::default() }
}

fn enabled() -> Change {
    Change { status: Some(EndpointStatus::Enabled), ..Change::default() }
}

#[tokio::test]
async fn failing_endpoint_delays_no_other() {
    let env = Env::new(quick()).await;
    let broken = Receiver::start(|_, _| Answer::status(500)).await;
    let sound = Receiver::start(|_, _| Answer::status(200)).await;
    let psp = env.psp(Some(&broken.url())).await;
    let second = env.endpoint(psp, &sound.url(), Change::default()).await;
    let (mut to_first, mut to_second) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let ids = env.announce_to(psp, &format!("p{n}"), &[None, Some(second)]).await;
        to_first.push(ids[0].clone());
        to_second.push(ids[1].clone());
    }
    env.status_is(&to_second, "delivered").await;
    let view = env.view_when("has an open breaker", |view| view.breaker != BreakerState::Closed).await;
    assert_eq!(view.endpoints[&second].breaker, BreakerState::Closed);
    assert_eq!(view.endpoints[&second].failures, 0);
    assert_eq!(sound.ids().len(), 40, "each event arrives once");
    let open = env.sender.breakers_open();
    assert_eq!(open, 1, "only the first endpoint's");
    let rows = env.rows().await;
    assert!(to_first.iter().all(|id| rows.iter().any(|row| row.id == *id && row.status.as_str() != "delivered")));
}

#[tokio::test]
async fn deliveries_to_a_disabled_endpoint_wait() {
    let env = Env::new(quick()).await;
    let (first, second) =
        (Receiver::start(|_, _| Answer::status(200)).await, Receiver::start(|_, _| Answer::status(200)).await);
    let psp = env.psp(Some(&first.url())).await;
    let other = env.endpoint(psp, &second.url(), disabled()).await;
    let ids = env.announce_to(psp, "p", &[None, Some(other)]).await;
    env.status_is(&ids[..1], "delivered").await;
    let view = env.view_when("is held", |view| view.endpoints.get(&other).is_some_and(|it| it.held_by.is_some())).await;
    assert_eq!((view.endpoints[&other].held_by, view.held_by), (Some("the endpoint is disabled"), None));
    assert_eq!((env.row(&ids[1]).await.status.as_str(), second.ids().len()), ("queued", 0));
    env.change(psp, other, enabled()).await;
    env.status_is(&ids, "delivered").await;
}

#[tokio::test]
async fn deleting_an_endpoint_cancels_its_open_deliveries_only() {
    let env = Env::new(quick()).await;
    let (first, second) =
        (Receiver::start(|_, _| Answer::status(200)).await, Receiver::start(|_, _| Answer::status(200)).await);
    let psp = env.psp(Some(&first.url())).await;
    let other = env.endpoint(psp, &second.url(), Change::default()).await;
    let before = env.announce_to(psp, "before", &[None, Some(other)]).await;
    env.status_is(&before, "delivered").await;
    env.change(psp, other, disabled()).await;
    env.view_when("is held", |view| view.endpoints.get(&other).is_some_and(|it| it.held_by.is_some())).await;
    let mut open = Vec::new();
    for n in 0..1_200 {
        open.extend(env.announce_to(psp, &format!("p{n}"), &[Some(other)]).await);
    }
    endpoints::delete(env.database.writer(), psp, other, env.clock.real_now()).await.unwrap().unwrap();
    env.sender.refresh(psp);
    env.status_is(&open, "cancelled").await;
    assert_eq!(env.row(&before[1]).await.status.as_str(), "delivered");
    assert_eq!(second.ids().len(), 1, "only the event from before");
    // A delivery that another node queues a moment later is cancelled, too.
    let late = env.announce_to(psp, "late", &[None, Some(other)]).await;
    env.status_is(&late[1..], "cancelled").await;
    env.status_is(&late[..1], "delivered").await;
    // Cancelled deliveries cannot be sent again.
    let now = env.clock.real_now();
    assert!(!log::redeliver(env.database.writer(), psp, &open[0], now).await.unwrap());
    assert!(log::redeliver(env.database.writer(), psp, &before[0], now).await.unwrap());
}

#[tokio::test]
async fn the_first_endpoint_can_be_deleted_and_set_again() {
    let env = Env::new(quick()).await;
    let receiver = Receiver::start(|_, _| Answer::status(200)).await;
    let psp = env.psp(Some(&receiver.url())).await;
    let first = EndpointId::first_of(psp);
    env.change(psp, first, disabled()).await;
    env.view_when("is held", |view| view.held_by.is_some()).await;
    let open = env.announce_to(psp, "open", &[None]).await;
    endpoints::delete(env.database.writer(), psp, first, env.clock.real_now()).await.unwrap().unwrap();
    env.sender.refresh(psp);
    env.status_is(&open, "cancelled").await;
    assert!(endpoints::load(env.database.reader(), psp, first).await.unwrap().is_none());
    env.point(psp, &receiver.url()).await;
    let next = env.announce_to(psp, "next", &[None]).await;
    env.status_is(&next, "delivered").await;
    assert_eq!(env.row(&open[0]).await.status.as_str(), "cancelled");
}

#[tokio::test]
async fn row_of_a_deleted_endpoint_is_removed() {
    let env = Env::new(quick()).await;
    let receiver = Receiver::start(|_, _| Answer::status(200)).await;
    let psp = env.psp(Some(&receiver.url())).await;
    let other = env.endpoint(psp, &receiver.url(), Change::default()).await;
    let long_ago = env.clock.real_now::<Timestamp>().plus_secs(-60);
    endpoints::delete(env.database.writer(), psp, other, long_ago).await.unwrap().unwrap();
    env.sender.refresh(psp);
    let is_gone = async || {
        let left = endpoints::load_all(env.database.reader(), psp).await.unwrap();
        (left.len() == 1).then_some(())
    };
    eventually("the row is removed", is_gone).await;
}

#[tokio::test]
async fn extended_schedule_continues_after_the_default_one() {
    let env = Env::new(quick()).await;
    let receiver = Receiver::start(|_, _| Answer::status(503)).await;
    let psp = env.psp(Some(&receiver.url())).await;
    let extended = Change { schedule: Some(RetrySchedule::Extended), ..Change::default() };
    let other = env.endpoint(psp, &receiver.url(), extended).await;
    let ids = env.announce_to(psp, "p", &[None, Some(other)]).await;
    env.status_is(&ids[..1], "exhausted").await;
    let waiting = env.row_when(&ids[1], "failed", |row| row.status.as_str() == "failed").await;
    let delay = waiting.next_attempt_at.unwrap() - env.clock.real_now::<Timestamp>().as_millis();
    assert!(delay > 3_000, "the first delay of the extended schedule is 5 s: {delay}");
}

#[tokio::test]
async fn a_psp_has_a_bounded_number_of_endpoints() {
    let env = Env::new(quick()).await;
    let psp = env.psp(None).await;
    let mut ids = Vec::new();
    for _ in 0..endpoints::ENDPOINTS_MAX {
        ids.push(env.endpoint(psp, "https://psp.example/", Change::default()).await);
    }
    assert_eq!(ids[0], EndpointId::first_of(psp), "the first one is that of `set_webhook`");
    let another = || Change { url: Some("https://psp.example/".to_owned()), ..Change::default() };
    let now = env.clock.real_now();
    let refused = endpoints::create(env.database.writer(), &env.sealer, psp, another(), now).await.unwrap();
    assert!(refused.is_none());
    endpoints::delete(env.database.writer(), psp, ids[3], now).await.unwrap().unwrap();
    let created = endpoints::create(env.database.writer(), &env.sealer, psp, another(), now).await.unwrap();
    assert!(created.is_some(), "a deleted one does not count");
}

#[tokio::test]
async fn restarted_actor_continues_every_endpoint() {
    let env = Env::new(quick()).await;
    let slow = |_, _| Answer::status(200).after(Duration::from_millis(20));
    let (first, second) = (Receiver::start(slow).await, Receiver::start(slow).await);
    let psp = env.psp(Some(&first.url())).await;
    let other = env.endpoint(psp, &second.url(), Change::default()).await;
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.extend(env.announce_to(psp, &format!("p{n}"), &[None, Some(other)]).await);
        if n % 20 == 10 {
            env.sender.panic_endpoint(psp);
        }
    }
    env.status_is(&ids, "delivered").await;
    for receiver in [first, second] {
        let distinct: std::collections::BTreeSet<_> = receiver.ids().into_iter().collect();
        assert_eq!(distinct.len(), 60);
    }
}

/// Two nodes drain the same queues: each delivery arrives at its endpoint, and is recorded once.
#[tokio::test]
async fn two_nodes_deliver_to_every_endpoint() {
    let test_database = Arc::new(TestDatabase::create().await);
    let env = Env::on(Arc::clone(&test_database), quick(), true).await;
    let (first, second) =
        (Receiver::start(|_, _| Answer::status(200)).await, Receiver::start(|_, _| Answer::status(200)).await);
    let psp = env.psp(Some(&first.url())).await;
    let other = env.endpoint(psp, &second.url(), Change::default()).await;
    let node = Env::on(test_database, quick(), true).await;
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.extend(env.announce_to(psp, &format!("p{n}"), &[None, Some(other)]).await);
        node.sender.nudge(psp);
    }
    env.status_is(&ids, "delivered").await;
    for (receiver, lane) in [(first, 0), (second, 1)] {
        let distinct: std::collections::BTreeSet<_> = receiver.ids().into_iter().collect();
        assert_eq!(distinct.len(), 60);
        let of_lane = env.rows().await.into_iter().filter(|row| row.id.ends_with(&format!("_{lane}")));
        assert!(of_lane.clone().count() == 60 && of_lane.into_iter().all(|row| row.attempt_count == 1));
    }
}
