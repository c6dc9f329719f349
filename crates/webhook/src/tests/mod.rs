//! Tests of the sender against real receivers on loopback.

mod draining;
mod failures;
mod lanes;
mod logging;
mod parts;
mod receiver;
mod recording;
mod requests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::{EndpointId, PspId, Timestamp};
use payferry_entities::{Database, DeliveryStatus, deliveries, events, psps};
use payferry_harness::PATIENCE;
use payferry_harness::database::TestDatabase;
use payferry_journal::{DELIVERY_RETRIES_MAX, Journal, JournalTask};
use payferry_nodes::{Node, NodeConfig};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorRegistry, Mailbox, ROOT_NAME};
use payferry_runtime::seal::Sealer;
use payferry_runtime::supervise::{Root, RootMessage};
use sea_orm::{ActiveModelTrait, ActiveValue, ConnectionTrait, EntityTrait, IntoActiveModel, QueryOrder};
use tokio_util::task::AbortOnDropHandle;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::{
    ATTEMPT_TIMEOUT, BreakerState, EndpointView, Schedule, UrlPolicy, WebhookConfig, WebhookSender, endpoints, log,
};

struct Env {
    database: Database,
    journal: Journal,
    sealer: Sealer,
    sender: WebhookSender,
    registry: ActorRegistry,
    roof: Mailbox<RootMessage>,
    clock: Clock,
    test_database: Arc<TestDatabase>,
    task: JournalTask,
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

    /// Starts a receiver with this answer too, and a PSP that delivers to it.
    async fn with_receiver(config: WebhookConfig, answer: ResponseTemplate) -> (Self, MockServer, PspId) {
        let (env, server) = (Self::new(config).await, receiver(answer).await);
        let psp = env.psp(Some(&server.uri())).await;
        (env, server, psp)
    }

    /// Opens the database of another `Env`; with `writes` false the journal does not run.
    async fn on(test_database: Arc<TestDatabase>, config: WebhookConfig, writes: bool) -> Self {
        let database = Database::open(test_database.url()).await.unwrap();
        let (journal, task) = Journal::start(database.clone());
        let running = writes.then(|| AbortOnDropHandle::new(tokio::spawn(task.clone().supervise(|_| {}))));
        let (sealer, clock) = (Sealer::new(&[1; 32]), Clock::default());
        let registry = ActorRegistry::default();
        let root = Root { registry: registry.clone() };
        let roof = registry.spawn(ROOT_NAME, root, (), None).await.unwrap();
        let (cell, stores) = (roof.get_cell(), (database.clone(), journal.clone(), sealer.clone()));
        let (sender_clock, sender_registry) = (clock.clone(), registry.clone());
        let node = Node::join(database.clone(), NodeConfig::alone([])).await.unwrap();
        let (database_of_sender, journal_of_sender, sealer_of_sender) = stores;
        let sender = WebhookSender::start(
            cell,
            database_of_sender,
            journal_of_sender,
            node,
            sealer_of_sender,
            sender_clock,
            sender_registry,
            config,
        )
        .await
        .unwrap();
        Self { database, journal, sealer, sender, registry, roof, clock, test_database, task, _journal: running }
    }

    /// Starts the journal of an `Env` that did not.
    fn run_journal(&self) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(self.task.clone().supervise(|_| {})))
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
            let (event, delivery) = Self::queued(psp, payment, sequence, 0, "", self.clock.real_now());
            let mut event = event.into_active_model().reset_all();
            event.position = ActiveValue::NotSet;
            let position = event.insert(self.database.writer()).await.unwrap().position;
            let delivery = deliveries::Model { position, ..delivery };
            ids.push(delivery.into_active_model().insert(self.database.writer()).await.unwrap().id);
        }
        self.sender.nudge(psp);
        ids
    }

    /// Queues `count` events, `each` per payment, in few statements.
    async fn queue_many(&self, psp: PspId, count: usize, each: usize) {
        let (now, padding) = (self.clock.real_now(), "x".repeat(700));
        let row = |n: usize| {
            let (sequence, position) = (i64::try_from(n % each + 1).unwrap(), i64::try_from(n + 1).unwrap());
            Self::queued(psp, &format!("pay_{}", n / each), sequence, position, &padding, now)
        };
        let (made, queued): (Vec<_>, Vec<_>) = (0..count).map(row).unzip();
        let transaction = self.database.begin().await.unwrap();
        for (made, queued) in made.chunks(1_000).zip(queued.chunks(1_000)) {
            let made = made.iter().cloned().map(IntoActiveModel::into_active_model);
            events::Entity::insert_many(made.map(ActiveModelTrait::reset_all)).exec(&transaction).await.unwrap();
            let queued = queued.iter().cloned().map(IntoActiveModel::into_active_model);
            deliveries::Entity::insert_many(queued).exec(&transaction).await.unwrap();
        }
        transaction.commit().await.unwrap();
    }

    /// Rows of an event and of its delivery.
    fn queued(
        psp: PspId,
        payment: &str,
        sequence: i64,
        position: i64,
        padding: &str,
        at: Timestamp,
    ) -> (events::Model, deliveries::Model) {
        let (event_id, now) = (format!("evt_{payment}_{sequence}"), at.as_millis());
        let event = events::Model {
            position,
            id: event_id.clone(),
            psp_id: psp.to_string(),
            payment_id: payment.to_owned(),
            sequence,
            name: "payment.confirmed".to_owned(),
            payload: format!(r#"{{"payment_id":"{payment}","sequence":{sequence},"padding":"{padding}"}}"#),
            traceparent: None,
            created_at: now,
        };
        let delivery = deliveries::Model {
            id: format!("whd_{payment}_{sequence}"),
            event_id,
            psp_id: psp.to_string(),
            payment_id: payment.to_owned(),
            sequence,
            position,
            status: DeliveryStatus::Queued,
            retries_left: DELIVERY_RETRIES_MAX,
            next_attempt_at: Some(now),
            created_at: now,
            updated_at: now,
            ..deliveries::Model::default()
        };
        (event, delivery)
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
        self.view_when("returns a view", |_| true).await
    }

    /// Waits for a view of the first endpoint with this property.
    async fn view_when(&self, what: &str, wanted: impl Fn(&EndpointView) -> bool) -> EndpointView {
        let view = async || self.sender.observe().await.into_iter().next()?.1.filter(&wanted);
        eventually(&format!("an endpoint {what}"), view).await
    }

    async fn row(&self, id: &str) -> deliveries::Model {
        deliveries::Entity::find_by_id(id).one(self.database.reader()).await.unwrap().unwrap()
    }

    async fn row_when(&self, id: &str, what: &str, wanted: impl Fn(&deliveries::Model) -> bool) -> deliveries::Model {
        let row = async || Some(self.row(id).await).filter(&wanted);
        eventually(&format!("{id} is {what}"), row).await
    }

    async fn until_attempted(&self, id: &str) -> deliveries::Model {
        self.row_when(id, "attempted", |row| row.attempt_count > 0).await
    }

    async fn until(&self, id: &str, status: &str) -> deliveries::Model {
        self.row_when(id, status, |row| row.status.as_str() == status).await
    }

    async fn until_under_way(&self, id: &str) {
        eventually(&format!("{id} is under way"), async || self.sender.is_under_way(id).then_some(())).await;
    }
}

/// Waits until `look` returns a value.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn receiver(answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).mount(&server).await;
    server
}

/// Starts a receiver that gives this answer once, and accepts everything afterwards.
async fn recovering(first: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(first).up_to_n_times(1).mount(&server).await;
    accept_all(&server).await;
    server
}

async fn accept_all(server: &MockServer) {
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(server).await;
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
