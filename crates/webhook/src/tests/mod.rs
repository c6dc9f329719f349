//! Tests of the sender against real receivers on loopback.
#![allow(clippy::unwrap_used)]

mod draining;
mod logging;
mod parts;
mod receiver;
mod requests;
mod trouble;

use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::{PspId, Timestamp};
use payferry_entities::{Database, deliveries, events, psps};
use payferry_harness::PATIENCE;
use payferry_harness::database::TestDatabase;
use payferry_journal::{DELIVERY_RETRIES_MAX, Journal};
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorRegistry};
use payferry_runtime::seal::Sealer;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use sea_orm::{ActiveModelTrait, ActiveValue, ConnectionTrait, EntityTrait, IntoActiveModel, QueryOrder};
use tokio_util::task::AbortOnDropHandle;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::{ATTEMPT_TIMEOUT, EndpointView, Schedule, UrlPolicy, WebhookConfig, WebhookSender, endpoints, log};

/// Supervisor that ignores its children's failures.
struct IgnoringSupervisor;

#[ractor::async_trait]
impl Actor for IgnoringSupervisor {
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

struct Env {
    database: Database,
    journal: Journal,
    sealer: Sealer,
    sender: WebhookSender,
    registry: ActorRegistry,
    roof: ActorRef<()>,
    clock: Clock,
    _test_database: Arc<TestDatabase>,
    _journal: Option<AbortOnDropHandle<()>>,
}

fn quick() -> WebhookConfig {
    WebhookConfig {
        schedule: Schedule::of([20, 40, 60].map(Duration::from_millis)),
        // Not shortened, so that a busy machine does not look like a slow receiver.
        timeout: ATTEMPT_TIMEOUT,
        url_policy: UrlPolicy::Sandbox,
    }
}

fn short_timeout() -> WebhookConfig {
    WebhookConfig { timeout: Duration::from_millis(400), ..quick() }
}

impl Env {
    async fn new(config: WebhookConfig) -> Self {
        Self::on(Arc::new(TestDatabase::create().await), config, true).await
    }

    /// Opens the database of another `Env`; with `writes` false the journal never commits.
    async fn on(test_database: Arc<TestDatabase>, config: WebhookConfig, writes: bool) -> Self {
        let database = Database::open(test_database.url()).await.unwrap();
        Migrator::up(database.long_timeout(), None).await.unwrap();
        let (journal, task) = Journal::start(database.clone());
        let running = writes.then(|| AbortOnDropHandle::new(tokio::spawn(task.supervise(|_| {}))));
        let (sealer, clock) = (Sealer::new(&[1; 32]), Clock::default());
        let registry = ActorRegistry::default();
        let (roof, _) = Actor::spawn(None, IgnoringSupervisor, ()).await.unwrap();
        let (cell, database_too, sealer_too) = (roof.get_cell(), database.clone(), sealer.clone());
        let sender = WebhookSender::start(
            cell,
            database_too,
            journal.clone(),
            sealer_too,
            clock.clone(),
            registry.clone(),
            config,
        )
        .await;
        Self {
            database,
            journal,
            sealer,
            sender: sender.unwrap(),
            registry,
            roof,
            clock,
            _test_database: test_database,
            _journal: running,
        }
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

    /// Queues `count` events of one payment and returns the delivery ids.
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
                created_at: ActiveValue::Set(self.clock.real_now::<Timestamp>().as_millis()),
                ..Default::default()
            };
            let event = event.insert(self.database.writer()).await.unwrap();
            let (position, at) = (event.position, event.created_at);
            let delivery = waiting(&format!("whd_{payment}_{sequence}"), &id, psp, payment, sequence, position, at);
            ids.push(delivery.into_active_model().insert(self.database.writer()).await.unwrap().id);
        }
        self.sender.nudge(psp);
        ids
    }

    /// Queues `count` events, `each` per payment, in few statements.
    async fn queue_many(&self, psp: PspId, count: usize, each: usize) {
        let now = self.clock.real_now::<Timestamp>().as_millis();
        let (mut made, mut queued) = (Vec::new(), Vec::new());
        for n in 0..count {
            let (payment, sequence) = (format!("pay_{}", n / each), i64::try_from(n % each + 1).unwrap());
            let (id, position) = (format!("evt_{payment}_{sequence}"), i64::try_from(n + 1).unwrap());
            made.push(events::Model {
                position,
                id: id.clone(),
                psp_id: psp.to_string(),
                payment_id: payment.clone(),
                sequence,
                name: "payment.confirmed".to_owned(),
                payload: format!(r#"{{"payment_id":"{payment}","padding":"{}"}}"#, "x".repeat(700)),
                created_at: now,
            });
            queued.push(waiting(&format!("whd_{payment}_{sequence}"), &id, psp, &payment, sequence, position, now));
        }
        let transaction = self.database.begin().await.unwrap();
        for (made, queued) in made.chunks(1_000).zip(queued.chunks(1_000)) {
            let made = made.iter().cloned().map(IntoActiveModel::into_active_model);
            events::Entity::insert_many(made.map(ActiveModelTrait::reset_all)).exec(&transaction).await.unwrap();
            let queued = queued.iter().cloned().map(IntoActiveModel::into_active_model);
            deliveries::Entity::insert_many(queued).exec(&transaction).await.unwrap();
        }
        transaction.commit().await.unwrap();
    }

    /// Queues `count` events, each of its own payment.
    async fn announce_each(&self, psp: PspId, name: &str, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for n in 0..count {
            ids.append(&mut self.announce(psp, &format!("{name}{n}"), 1).await);
        }
        ids
    }

    async fn rows(&self) -> Vec<deliveries::Model> {
        deliveries::Entity::find().order_by_asc(deliveries::Column::Id).all(self.database.reader()).await.unwrap()
    }

    async fn view(&self) -> EndpointView {
        let since = Instant::now();
        loop {
            if let Some((_, Some(view))) = self.sender.observe().await.into_iter().next() {
                return view;
            }
            assert!(since.elapsed() < PATIENCE, "no endpoint returned a view");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn row(&self, id: &str) -> deliveries::Model {
        deliveries::Entity::find_by_id(id).one(self.database.reader()).await.unwrap().unwrap()
    }

    async fn until_attempted(&self, id: &str) -> deliveries::Model {
        let since = Instant::now();
        loop {
            let row = self.row(id).await;
            if row.attempt_count > 0 {
                return row;
            }
            assert!(since.elapsed() < PATIENCE, "not attempted in time: {row:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
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

fn waiting(
    id: &str,
    event: &str,
    psp: PspId,
    payment: &str,
    sequence: i64,
    position: i64,
    at: i64,
) -> deliveries::Model {
    deliveries::Model {
        id: id.to_owned(),
        event_id: event.to_owned(),
        psp_id: psp.to_string(),
        payment_id: payment.to_owned(),
        sequence,
        position,
        status: "queued".to_owned(),
        url: None,
        attempt_count: 0,
        retries_left: DELIVERY_RETRIES_MAX,
        next_attempt_at: Some(at),
        response_code: None,
        response_body: None,
        duration_ms: None,
        error: None,
        created_at: at,
        updated_at: at,
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

fn ids_of(requests: &[Request]) -> Vec<String> {
    requests.iter().map(|request| header(request, "webhook-id").to_owned()).collect()
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers.get(name).unwrap().to_str().unwrap()
}
