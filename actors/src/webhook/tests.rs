//! The sender against real receivers on loopback.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::PspId;
use payferry_entities::{Database, deliveries, events, psps};
use payferry_migration::{Migrator, MigratorTrait};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use sea_orm::{ActiveModelTrait, ActiveValue, EntityTrait, IntoActiveModel};
use tokio_util::task::AbortOnDropHandle;
use wiremock::matchers::{any, body_string_contains};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::{Schedule, UrlPolicy, WebhookConfig, WebhookSender, endpoints, log};
use crate::clock::Clock;
use crate::journal::{DELIVERY_RETRIES_MAX, Journal};
use crate::observe::{ActorKind, SupervisionLog};
use crate::seal::Sealer;

const PATIENCE: Duration = Duration::from_secs(30);

/// A supervisor that lets its children be.
struct Roof;

#[ractor::async_trait]
impl Actor for Roof {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        _: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

struct World {
    database: Database,
    sealer: Sealer,
    sender: WebhookSender,
    log: Arc<SupervisionLog>,
    roof: ActorRef<()>,
    clock: Clock,
    _folder: tempfile::TempDir,
    _journal: AbortOnDropHandle<()>,
}

fn quick() -> WebhookConfig {
    WebhookConfig {
        schedule: Schedule::of([20, 40, 60].map(Duration::from_millis)),
        timeout: Duration::from_millis(400),
        url_policy: UrlPolicy::Sandbox,
    }
}

impl World {
    async fn new(config: WebhookConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("w.db").display());
        let database = Database::open(&url).await.unwrap();
        Migrator::up(database.writer(), None).await.unwrap();
        let (journal, task) = Journal::start(database.clone());
        let running = AbortOnDropHandle::new(tokio::spawn(task.supervise(|_| {})));
        let (sealer, clock) = (Sealer::new(&[1; 32]), Clock::default());
        let log = Arc::new(SupervisionLog::default());
        let (roof, _) = Actor::spawn(None, Roof, ()).await.unwrap();
        let sender = WebhookSender::start(
            roof.get_cell(),
            database.clone(),
            journal,
            sealer.clone(),
            clock.clone(),
            log.clone(),
            config,
        )
        .await
        .unwrap();
        Self { database, sealer, sender, log, roof, clock, _folder: folder, _journal: running }
    }

    async fn psp(&self, url: Option<&str>) -> PspId {
        let psp = PspId::generate();
        let row = psps::Model {
            id: psp.to_string(),
            name: "p".to_owned(),
            settings: "{}".to_owned(),
            created_at: 0,
            updated_at: 0,
        };
        row.into_active_model().insert(self.database.writer()).await.unwrap();
        if let Some(url) = url {
            self.point(psp, url).await;
        }
        psp
    }

    async fn point(&self, psp: PspId, url: &str) {
        endpoints::set(self.database.writer(), &self.sealer, psp, url, None, self.clock.real_now()).await.unwrap();
        self.sender.refresh(psp);
    }

    /// Queues `count` events of one payment; answers the deliveries' ids.
    async fn announce(&self, psp: PspId, payment: &str, count: i64) -> Vec<String> {
        let mut ids = Vec::new();
        for sequence in 1..=count {
            let id = format!("evt_{payment}_{sequence}");
            let event = events::ActiveModel {
                id: ActiveValue::Set(id.clone()),
                psp_id: ActiveValue::Set(psp.to_string()),
                payment_id: ActiveValue::Set(payment.to_owned()),
                sequence: ActiveValue::Set(sequence),
                name: ActiveValue::Set("payment.confirmed".to_owned()),
                payload: ActiveValue::Set(format!(r#"{{"payment_id":"{payment}","sequence":{sequence}}}"#)),
                created_at: ActiveValue::Set(self.clock.real_now().as_millis()),
                ..Default::default()
            };
            let event = event.insert(self.database.writer()).await.unwrap();
            let delivery = deliveries::Model {
                id: format!("whd_{payment}_{sequence}"),
                event_id: id,
                psp_id: psp.to_string(),
                payment_id: payment.to_owned(),
                sequence,
                position: event.position,
                status: "queued".to_owned(),
                url: None,
                attempt_count: 0,
                retries_left: DELIVERY_RETRIES_MAX,
                next_attempt_at: Some(event.created_at),
                response_code: None,
                response_body: None,
                duration_ms: None,
                error: None,
                created_at: event.created_at,
                updated_at: event.created_at,
            };
            ids.push(delivery.into_active_model().insert(self.database.writer()).await.unwrap().id);
        }
        self.sender.nudge(psp);
        ids
    }

    async fn row(&self, id: &str) -> deliveries::Model {
        deliveries::Entity::find_by_id(id).one(self.database.reader()).await.unwrap().unwrap()
    }

    async fn until(&self, id: &str, status: &str) -> deliveries::Model {
        let since = Instant::now();
        loop {
            let row = self.row(id).await;
            if row.status == status {
                return row;
            }
            assert!(since.elapsed() < PATIENCE, "never {status}: {row:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn receiver(answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).mount(&server).await;
    server
}

async fn received(server: &MockServer) -> Vec<Request> {
    server.received_requests().await.unwrap()
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers.get(name).unwrap().to_str().unwrap()
}

#[tokio::test]
async fn a_delivery_is_signed_logged_and_sent_in_order() {
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(204)).await;
    let psp = world.psp(None).await;
    let now = world.clock.real_now();
    let (_, secret) =
        endpoints::set(world.database.writer(), &world.sealer, psp, &server.uri(), None, now).await.unwrap();
    let verifier = standardwebhooks::Webhook::new(&secret.unwrap().reveal()).unwrap();
    let ids = world.announce(psp, "pay_1", 5).await;
    for id in &ids {
        let row = world.until(id, "delivered").await;
        assert_eq!((row.attempt_count, row.response_code, row.next_attempt_at), (1, Some(204), None));
    }
    let requests = received(&server).await;
    for (index, request) in requests.iter().enumerate() {
        verifier.verify(&request.body, &request.headers).unwrap();
        assert_eq!(header(request, "webhook-id"), format!("evt_pay_1_{}", index + 1), "first attempts in order");
        assert!(header(request, "user-agent").starts_with("Payferry/"));
    }
    let log = log::deliveries_of(&world.database, psp, "pay_1").await.unwrap();
    assert_eq!(log.iter().map(|entry| entry.attempts.len()).collect::<Vec<_>>(), [1; 5]);
    assert!(log::deliveries_of(&world.database, PspId::generate(), "pay_1").await.unwrap().is_empty());
}

#[tokio::test]
async fn both_secrets_sign_during_a_rotation() {
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(200)).await;
    let psp = world.psp(None).await;
    let now = world.clock.real_now();
    let database = world.database.writer();
    let (_, old) = endpoints::set(database, &world.sealer, psp, &server.uri(), None, now).await.unwrap();
    let (row, new) = endpoints::rotate(database, &world.sealer, psp, now).await.unwrap().unwrap();
    world.announce(psp, "pay_1", 1).await;
    world.until("whd_pay_1_1", "delivered").await;
    let request = received(&server).await.remove(0);
    for secret in [old.unwrap(), new] {
        let verifier = standardwebhooks::Webhook::new(&secret.reveal()).unwrap();
        verifier.verify(&request.body, &request.headers).unwrap();
    }
    let later = now.plus_secs(endpoints::ROTATION_OVERLAP_SECS);
    assert_eq!(endpoints::secrets(&world.sealer, &row, later).unwrap().len(), 1);
    assert!(!format!("{row:?}").contains("whsec_"), "secrets are stored sealed");
}

#[tokio::test]
async fn a_receiver_that_answers_500_gets_four_attempts_with_one_id_and_then_it_is_exhausted_and_can_be_redelivered() {
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(500).set_body_string("x".repeat(5_000))).await;
    let psp = world.psp(Some(&server.uri())).await;
    world.announce(psp, "pay_1", 1).await;
    let row = world.until("whd_pay_1_1", "exhausted").await;
    assert_eq!((row.attempt_count, row.response_code, row.retries_left), (4, Some(500), 0));
    assert_eq!(row.response_body.unwrap().len(), super::RESPONSE_KEPT_BYTES);
    let ids: Vec<_> = received(&server).await.iter().map(|r| header(r, "webhook-id").to_owned()).collect();
    assert_eq!(ids, ["evt_pay_1_1"; 4]);
    let (total, stuck) = log::undelivered(&world.database, psp, 50, 0).await.unwrap();
    assert_eq!((total, stuck[0].attempts.len()), (1, 4));

    server.reset().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    let now = world.clock.real_now();
    assert!(log::redeliver(world.database.writer(), psp, "whd_pay_1_1", now).await.unwrap());
    assert!(!log::redeliver(world.database.writer(), PspId::generate(), "whd_pay_1_1", now).await.unwrap());
    world.sender.refresh(psp);
    let row = world.until("whd_pay_1_1", "delivered").await;
    assert_eq!(row.attempt_count, 5);
}

#[tokio::test]
async fn a_retry_holds_no_later_event_back() {
    let slow = Schedule::of([Duration::from_secs(2); 3]);
    let world = World::new(WebhookConfig { schedule: slow, ..quick() }).await;
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(500)).up_to_n_times(1).mount(&server).await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    let psp = world.psp(Some(&server.uri())).await;
    world.announce(psp, "pay_1", 3).await;
    world.until("whd_pay_1_3", "delivered").await;
    assert_eq!(world.row("whd_pay_1_1").await.status, "failed");
    world.until("whd_pay_1_1", "delivered").await;
    let order: Vec<_> = received(&server).await.iter().map(|r| header(r, "webhook-id").to_owned()).collect();
    assert_eq!(order, ["evt_pay_1_1", "evt_pay_1_2", "evt_pay_1_3", "evt_pay_1_1"]);
}

#[tokio::test]
async fn a_redirect_is_a_failed_attempt_and_is_not_followed() {
    let world = World::new(quick()).await;
    let elsewhere = receiver(ResponseTemplate::new(200)).await;
    let server = receiver(ResponseTemplate::new(302).insert_header("location", elsewhere.uri().as_str())).await;
    let psp = world.psp(Some(&server.uri())).await;
    world.announce(psp, "pay_1", 1).await;
    let row = world.until("whd_pay_1_1", "exhausted").await;
    assert_eq!(row.response_code, Some(302));
    assert!(received(&elsewhere).await.is_empty());
}

#[tokio::test]
async fn slow_and_dead_receivers_do_not_delay_another_psp() {
    let world = World::new(quick()).await;
    let slow = receiver(ResponseTemplate::new(200).set_delay(Duration::from_secs(3))).await;
    let good = receiver(ResponseTemplate::new(200)).await;
    let (tardy, dead) = (world.psp(Some(&slow.uri())).await, world.psp(Some("http://127.0.0.1:9/")).await);
    let psp = world.psp(Some(&good.uri())).await;
    for n in 0..20 {
        world.announce(tardy, &format!("pay_slow{n}"), 1).await;
        world.announce(dead, &format!("pay_dead{n}"), 1).await;
    }
    let since = Instant::now();
    world.announce(psp, "pay_good", 1).await;
    world.until("whd_pay_good_1", "delivered").await;
    println!("delivered beside a slow and a dead receiver within {:?}", since.elapsed());
    // The slow one's attempts last 400 ms each and come four at a time: twenty of them are far from through.
    assert!(world.row("whd_pay_slow19_1").await.attempt_count == 0, "the other PSP did not wait for the slow one");
    let row = world.until("whd_pay_slow0_1", "failed").await;
    assert_eq!((row.response_code, row.error.as_deref()), (None, Some("no answer in time")));
    let row = world.until("whd_pay_dead0_1", "failed").await;
    assert!(row.error.unwrap().starts_with("could not connect"));
}

#[tokio::test]
async fn a_broken_endpoint_is_left_alone_and_nothing_is_lost() {
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(503)).await;
    let psp = world.psp(Some(&server.uri())).await;
    for n in 0..30 {
        world.announce(psp, &format!("pay_{n}"), 1).await;
    }
    let since = Instant::now();
    while !world.sender.observe().await.first().is_some_and(|view| view.broken) {
        assert!(since.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.reset().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    for n in 0..30 {
        world.until(&format!("whd_pay_{n}_1"), "delivered").await;
    }
}

#[tokio::test]
async fn events_wait_for_a_url() {
    let world = World::new(quick()).await;
    let psp = world.psp(None).await;
    world.announce(psp, "pay_1", 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.row("whd_pay_1_1").await.attempt_count, 0);
    let server = receiver(ResponseTemplate::new(200)).await;
    world.point(psp, &server.uri()).await;
    world.until("whd_pay_1_2", "delivered").await;
}

#[tokio::test]
async fn an_endpoint_that_panics_is_restarted_and_delivers() {
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(200).set_delay(Duration::from_millis(50))).await;
    let psp = world.psp(Some(&server.uri())).await;
    for n in 0..20 {
        world.announce(psp, &format!("pay_{n}"), 2).await;
    }
    world.sender.panic_endpoint(psp);
    for n in 0..20 {
        world.until(&format!("whd_pay_{n}_2"), "delivered").await;
    }
    assert_eq!(world.log.restarts()[&ActorKind::Endpoint], 1);
    world.roof.stop(None);
}

#[tokio::test]
async fn a_test_is_signed_and_answered_at_once() {
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(200).set_body_string("thanks")).await;
    let psp = world.psp(Some(&server.uri())).await;
    let outcome = world.sender.test(psp).await.unwrap();
    assert!(outcome.delivered);
    assert_eq!((outcome.response_code, outcome.response_body.as_deref()), (Some(200), Some("thanks")));
    let body: serde_json::Value = received(&server).await[0].body_json().unwrap();
    assert_eq!((&body["event"], &body["payment_id"]), (&"webhook.test".into(), &"pay_test".into()));
    assert!(world.sender.test(PspId::generate()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_drained_in_pages() {
    const BACKLOG: usize = 1_000;
    let world = World::new(quick()).await;
    let server = receiver(ResponseTemplate::new(200)).await;
    let psp = world.psp(None).await;
    for n in 0..BACKLOG / 4 {
        world.announce(psp, &format!("pay_{n}"), 4).await;
    }
    let since = Instant::now();
    world.point(psp, &server.uri()).await;
    for n in 0..BACKLOG / 4 {
        world.until(&format!("whd_pay_{n}_4"), "delivered").await;
    }
    let requests = received(&server).await;
    assert_eq!(requests.len(), BACKLOG, "each was sent once");
    #[allow(clippy::cast_precision_loss)]
    let rate = BACKLOG as f64 / since.elapsed().as_secs_f64();
    println!("{rate:.0} deliveries/s of a backlog of {BACKLOG} in a debug build");
}

#[tokio::test]
async fn a_redelivery_does_not_let_later_events_overtake_a_first_attempt() {
    let world = World::new(quick()).await;
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_millis(300));
    Mock::given(body_string_contains("\"sequence\":2")).respond_with(slow).mount(&server).await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    let psp = world.psp(None).await;
    let ids = world.announce(psp, "pay_1", 3).await;
    let mut old = world.row(&ids[0]).await.into_active_model();
    old.status = ActiveValue::Set("exhausted".to_owned());
    old.attempt_count = ActiveValue::Set(4);
    old.update(world.database.writer()).await.unwrap();
    world.point(psp, &server.uri()).await;
    while !world.sender.is_under_way(&ids[1]) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(log::redeliver(world.database.writer(), psp, &ids[0], world.clock.real_now()).await.unwrap());
    world.sender.refresh(psp);
    world.until(&ids[0], "delivered").await;
    world.until(&ids[2], "delivered").await;
    assert_eq!(world.row(&ids[1]).await.status, "delivered", "the third went out before the second was answered");
}
