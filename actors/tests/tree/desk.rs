//! Verification of customers while the compliance desk, the provider or the whole tree fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_actors::compliance::identity::{
    CallbackFailure, DeskConfig, IdentityProvider, Sumsub, SumsubSettings, link_of,
};
use payferry_actors::compliance::{ListScreener, ScreeningConfig};
use payferry_actors::{System, SystemConfig};
use payferry_domain::customer::{Command, Customer, CustomerKind, DocumentKind, Documents, KycStatus};
use payferry_domain::{CheckId, CustomerId, PspId};
use payferry_entities::{Database, audit_log, checks, customers, psps};
use payferry_harness::database::TestDatabase;
use payferry_harness::sumsub::{
    APP_TOKEN, CALLBACK_SECRET, Callback, LEVEL, RESCREEN_LEVEL, SECRET_KEY, SumsubStandIn, green, red,
};
use payferry_journal::audit::Actor;
use payferry_journal::customers::{NewCustomer, Opened, create, customer_of};
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::ActorKind;
use payferry_runtime::seal::Sealer;
use payferry_webhook::WebhookConfig;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};
use serde_json::json;

const PATIENCE: Duration = Duration::from_mins(1);
const MASTER: [u8; 32] = [9; 32];

/// A tree without chains, and the provider outside it.
struct Site {
    system: System,
    remote: Arc<SumsubStandIn>,
    test_database: Arc<TestDatabase>,
    psp: PspId,
    config: DeskConfig,
}

/// Never polls within a test, and retries quickly.
fn config() -> DeskConfig {
    let brief = Duration::from_millis(50);
    DeskConfig {
        retry_min: brief,
        retry_max: Duration::from_millis(400),
        sweep_interval: brief,
        poll_interval: Duration::from_hours(1),
        ..DeskConfig::default()
    }
}

impl Site {
    async fn new() -> Self {
        Self::with(config()).await
    }

    async fn with(config: DeskConfig) -> Self {
        let test_database = Arc::new(TestDatabase::create().await);
        let remote = Arc::new(SumsubStandIn::start().await);
        let database = Database::open(test_database.url()).await.unwrap();
        Migrator::up(database.patient(), None).await.unwrap();
        let psp = PspId::generate();
        let row = psps::Model {
            id: psp.to_string(),
            name: "Ferry".to_owned(),
            settings: "{}".to_owned(),
            created_at: 0,
            updated_at: 0,
        };
        row.into_active_model().insert(database.writer()).await.unwrap();
        let system = start(database, &remote, &config).await;
        Self { system, remote, test_database, psp, config }
    }

    /// Drops the tree without a clean stop and starts another one over the same database.
    async fn restart(self) -> Self {
        drop(self.system);
        let database = Database::open(self.test_database.url()).await.unwrap();
        let system = start(database, &self.remote, &self.config).await;
        Self { system, ..self }
    }

    fn database(&self) -> &Database {
        self.system.database()
    }

    /// Creates a person who has accepted the terms and submitted all required data.
    async fn ready(&self) -> CustomerId {
        let id = CustomerId::generate();
        let sealer = Sealer::new(&MASTER);
        let particulars = json!({
            "first_name": "Ada", "last_name": "Lovelace", "dob": "1990-12-10", "phone_number": "+442079460000",
            "government_id_number": "QQ123456C",
        });
        let sealed = sealer.seal(&["customers", &id.to_string(), "particulars"], particulars.to_string().as_bytes());
        let new = NewCustomer {
            id,
            psp_id: self.psp,
            kind: CustomerKind::Individual,
            email: "ada@example.com".to_owned(),
            country: "GBR".to_owned(),
            currency: "GBP".to_owned(),
            particulars: sealed,
        };
        let now = self.system.clock().now();
        create(self.database().writer(), &[new.row(now)], &Actor::Service, now).await.unwrap();
        self.change(id, Command::AcceptTerms).await;
        let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
        self.change(id, Command::AddDocuments(documents)).await;
        id
    }

    async fn change(&self, id: CustomerId, command: Command) {
        let mut opened = Opened::find(self.database(), id, Some(self.psp)).await.unwrap();
        opened.apply(&command, &Actor::Service, self.system.clock().now()).await.unwrap();
        opened.commit().await.unwrap();
    }

    /// Requests a verification, as the PSP does.
    async fn request(&self, id: CustomerId) -> CheckId {
        self.change(id, Command::RequestCheck { check: CheckId::generate() }).await;
        self.system.desk().nudge();
        self.customer(id).await.check.unwrap().id
    }

    async fn customer(&self, id: CustomerId) -> Customer {
        let row = customers::Entity::find_by_id(id.to_string()).one(self.database().reader()).await.unwrap().unwrap();
        customer_of(&row).unwrap()
    }

    async fn check(&self, id: CheckId) -> checks::Model {
        checks::Entity::find_by_id(id.to_string()).one(self.database().reader()).await.unwrap().unwrap()
    }

    async fn until(&self, check: CheckId, what: &str, holds: impl Fn(&checks::Model) -> bool) -> checks::Model {
        let since = Instant::now();
        loop {
            let row = self.check(check).await;
            if holds(&row) {
                return row;
            }
            assert!(since.elapsed() < PATIENCE, "never {what}: {row:#?} {:#?}", self.system.observe());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn until_open(&self, check: CheckId) -> checks::Model {
        self.until(check, "open", |row| row.status == "open").await
    }

    async fn until_status(&self, id: CustomerId, status: KycStatus) -> Customer {
        let since = Instant::now();
        loop {
            let customer = self.customer(id).await;
            if customer.kyc_status == status {
                return customer;
            }
            assert!(since.elapsed() < PATIENCE, "never {status}: {customer:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn send(&self, callback: &Callback) -> Result<usize, CallbackFailure> {
        self.system.desk().callback("sumsub", &callback.headers(), callback.body.as_bytes()).await
    }

    /// Makes the provider decide and returns its callback.
    fn decide(&self, check: CheckId, result: serde_json::Value) -> Callback {
        self.remote.review(&check.to_string(), "completed", result);
        self.remote.callback(&check.to_string())
    }

    async fn audit(&self, id: CustomerId) -> Vec<(String, String, String)> {
        let of_customer = audit_log::Entity::find().filter(audit_log::Column::Subject.eq(id.to_string()));
        let rows = of_customer.order_by_asc(audit_log::Column::Number).all(self.database().reader()).await.unwrap();
        rows.into_iter().map(|row| (row.actor_kind, row.actor, row.action)).collect()
    }
}

async fn start(database: Database, remote: &SumsubStandIn, config: &DeskConfig) -> System {
    let clock = Clock::default();
    let settings = SumsubSettings {
        base_url: remote.url().to_owned(),
        app_token: APP_TOKEN.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        callback_secret: CALLBACK_SECRET.to_owned(),
        level: LEVEL.to_owned(),
        rescreen_level: RESCREEN_LEVEL.to_owned(),
        timeout: Duration::from_secs(30),
    };
    let provider: Arc<dyn IdentityProvider> = Arc::new(Sumsub::new(settings, clock.clone()).unwrap());
    let config = SystemConfig {
        database,
        sealer: Sealer::new(&MASTER),
        clock: clock.clone(),
        chains: Vec::new(),
        screener: Arc::new(ListScreener::new("test", "1", [], clock)),
        screening: ScreeningConfig::default(),
        identity: Some(provider),
        desk: config.clone(),
        webhooks: WebhookConfig::default(),
        ceilings: payferry_journal::psps::Ceilings::default(),
        auditors: payferry_actors::auditors::AuditorsConfig::default(),
        shards: 1,
    };
    System::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn customer_is_approved_only_by_a_genuine_callback() {
    let site = Site::new().await;
    let id = site.ready().await;
    let check = site.request(id).await;
    let row = site.until_open(check).await;
    let applicant = site.remote.applicant(&check.to_string()).unwrap();
    assert_eq!((row.provider.as_deref(), row.provider_ref.as_ref()), (Some("sumsub"), Some(&applicant.id)));
    let link = link_of(&row, &Sealer::new(&MASTER)).unwrap();
    assert!(link.starts_with("https://in.sumsub.example/"), "{link}");
    assert!(!row.url.as_ref().unwrap().contains("sumsub.example"), "sealed: {row:?}");
    assert_eq!(site.request(id).await, check, "a repeated request returns the same check");

    let approval = site.decide(check, green());
    let forged = Callback { digest: "00".repeat(32), ..approval.clone() };
    assert!(matches!(site.send(&forged).await, Err(CallbackFailure::Refused(_))));
    let desk = site.system.desk();
    let unknown = desk.callback("didit", &approval.headers(), approval.body.as_bytes()).await;
    assert!(matches!(unknown, Err(CallbackFailure::UnknownProvider)), "{unknown:?}");
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Pending);

    assert_eq!(site.send(&approval).await.unwrap(), 1);
    let approved = site.customer(id).await;
    assert_eq!((approved.kyc_status, approved.check), (KycStatus::Approved, None));
    assert_eq!(site.check(check).await.status, "passed");
    let audit = site.audit(id).await;
    assert_eq!(audit.last().unwrap(), &("provider".to_owned(), "sumsub".to_owned(), "customer.approved".to_owned()));

    // Again, and a rejection that is too late.
    let too_late = site.decide(check, red(&["FORGERY"]));
    for callback in [&approval, &too_late, &approval] {
        assert_eq!(site.send(callback).await.unwrap(), 0);
    }
    assert_eq!(site.customer(id).await, approved);
    assert_eq!(site.audit(id).await, audit);
    assert_eq!(site.remote.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_customer_is_verified_again_and_old_verdicts_are_ignored() {
    let site = Site::new().await;
    let id = site.ready().await;
    let first = site.request(id).await;
    site.until_open(first).await;
    let rejection = site.decide(first, red(&["FORGERY"]));
    assert_eq!(site.send(&rejection).await.unwrap(), 1);
    let customer = site.customer(id).await;
    assert_eq!((customer.kyc_status, customer.rejection_reasons), (KycStatus::Rejected, vec!["forgery".to_owned()]));

    let second = site.request(id).await;
    assert_ne!(second, first);
    site.until_open(second).await;
    assert_eq!(site.remote.applicants().len(), 2);
    let approval_of_first = site.decide(first, green());
    assert_eq!(site.send(&approval_of_first).await.unwrap(), 0);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Pending);
    let approval = site.decide(second, green());
    assert_eq!(site.send(&approval).await.unwrap(), 1);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Approved);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_callback_is_recovered_and_removed_session_restarts() {
    let site = Site::with(DeskConfig { poll_interval: Duration::from_millis(100), ..config() }).await;
    let id = site.ready().await;
    let check = site.request(id).await;
    site.until_open(check).await;
    site.decide(check, green());
    site.until_status(id, KycStatus::Approved).await;

    let other = site.ready().await;
    let check = site.request(other).await;
    site.until_open(check).await;
    site.remote.delete(&check.to_string());
    site.until(check, "lapsed", |row| row.status == "lapsed").await;
    let customer = site.customer(other).await;
    assert_eq!((customer.kyc_status, customer.check), (KycStatus::Pending, None));
    let anew = site.request(other).await;
    assert_ne!(anew, check);
    site.until_open(anew).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_provider_is_retried_and_its_error_shown() {
    let site = Site::new().await;
    site.remote.set_down(true);
    let id = site.ready().await;
    let check = site.request(id).await;
    let row = site.until(check, "tried three times", |row| row.attempts >= 3).await;
    assert_eq!((row.status.as_str(), row.provider_ref.as_ref()), ("queued", None));
    assert_eq!(row.last_error.as_deref(), Some("the Sumsub API answered HTTP 503"));
    let trouble = site.system.desk().trouble().unwrap();
    assert_eq!(trouble.reason, "the Sumsub API answered HTTP 503");
    let backlog = site.system.desk().backlog().await.unwrap();
    assert_eq!((backlog.queued, backlog.open, backlog.overdue), (1, 0, 0));

    site.remote.set_down(false);
    let row = site.until_open(check).await;
    assert_eq!((row.attempts, row.last_error), (0, None));
    assert_eq!(site.system.desk().trouble(), None);
    let backlog = site.system.desk().backlog().await.unwrap();
    assert_eq!((backlog.queued, backlog.open), (0, 1));
    assert_eq!(site.remote.applicants().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unrecorded_sessions_are_found_again() {
    let site = Site::new().await;
    site.remote.set_delay(Duration::from_millis(400));
    let id = site.ready().await;
    let check = site.request(id).await;
    let since = Instant::now();
    for crash in 1..=3 {
        // The provider has created the session and the service has not recorded it.
        let begun = || site.remote.requests().iter().filter(|request| request.line.starts_with("POST/")).count();
        let before = begun();
        while begun() == before {
            assert!(since.elapsed() < PATIENCE, "no session was created");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(site.check(check).await.status, "queued");
        site.system.inject_crash(ActorKind::ComplianceDesk);
        while site.system.observe().restarts.get(&ActorKind::ComplianceDesk) != Some(&crash) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Now the whole tree restarts.
    let site = site.restart().await;
    site.remote.set_delay(Duration::ZERO);
    let row = site.until_open(check).await;
    let applicants = site.remote.applicants();
    assert_eq!(applicants.len(), 1, "one session, regardless of the number of attempts");
    assert_eq!(row.provider_ref.as_ref(), Some(&applicants[0].id));

    // The verdict comes while the tree is down, and again just before another crash.
    let approval = site.decide(check, green());
    let site = site.restart().await;
    assert_eq!(site.send(&approval).await.unwrap(), 1);
    let site = site.restart().await;
    assert_eq!(site.send(&approval).await.unwrap(), 0);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Approved);
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_before_the_session_is_recorded_counts() {
    let site = Site::new().await;
    site.remote.set_delay(Duration::from_millis(500));
    let id = site.ready().await;
    let check = site.request(id).await;
    let since = Instant::now();
    while site.remote.applicant(&check.to_string()).is_none() {
        assert!(since.elapsed() < PATIENCE, "no session was created");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let approval = site.decide(check, green());
    assert_eq!(site.check(check).await.provider_ref, None);
    assert_eq!(site.send(&approval).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Approved);
    assert_eq!(site.check(check).await.status, "passed", "the desk's later answer changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_screened_and_only_the_last_one_counts() {
    let site = Site::new().await;
    let id = site.ready().await;
    let check = site.request(id).await;
    site.until_open(check).await;
    let approval = site.decide(check, green());
    site.send(&approval).await.unwrap();

    let change = async || {
        let check = CheckId::generate();
        site.change(id, Command::ChangePhone { check }).await;
        site.until_open(check).await;
        check
    };
    let (first, second) = (change().await, change().await);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::PendingUpdate);
    assert_eq!(site.check(first).await.status, "superseded");
    let sent = site.remote.applicant(&second.to_string()).unwrap();
    assert_eq!((sent.level.as_str(), sent.status.as_str()), (RESCREEN_LEVEL, "pending"));
    assert_eq!(sent.data["phone"], "+442079460000");
    assert!(!sent.data.to_string().contains("QQ123456C"), "only the data that a screening needs: {}", sent.data);
    let worse = site.decide(first, red(&["SANCTIONS"]));
    assert_eq!(site.send(&worse).await.unwrap(), 0);
    assert_eq!(site.send(&approval).await.unwrap(), 0, "neither does the earlier verification");
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::PendingUpdate);
    let same = site.decide(second, green());
    assert_eq!(site.send(&same).await.unwrap(), 1);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Approved);

    let third = change().await;
    let worse = site.decide(third, red(&["SANCTIONS"]));
    assert_eq!(site.send(&worse).await.unwrap(), 1);
    let customer = site.customer(id).await;
    assert_eq!((customer.kyc_status, customer.rejection_reasons), (KycStatus::Rejected, vec!["sanctions".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_during_a_verification_replaces_it() {
    let site = Site::new().await;
    let id = site.ready().await;
    let verification = site.request(id).await;
    site.until_open(verification).await;
    let screening = CheckId::generate();
    site.change(id, Command::ReplaceWallet { check: screening }).await;
    site.until_open(screening).await;
    let approval = site.decide(verification, green());
    assert_eq!(site.send(&approval).await.unwrap(), 0, "it was about a customer with another wallet");
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::PendingUpdate);
    let passed = site.decide(screening, green());
    assert_eq!(site.send(&passed).await.unwrap(), 1);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Pending, "as before the change");
    let anew = site.request(id).await;
    site.until_open(anew).await;
    let approval = site.decide(anew, green());
    assert_eq!(site.send(&approval).await.unwrap(), 1);
    assert_eq!(site.customer(id).await.kyc_status, KycStatus::Approved);
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_complete_with_bounded_concurrency_while_the_desk_dies() {
    let site = Site::with(DeskConfig { concurrency_max: 3, ..config() }).await;
    site.remote.set_delay(Duration::from_millis(20));
    let mut checks = Vec::new();
    for round in 0..24 {
        let id = site.ready().await;
        checks.push((id, site.request(id).await));
        if round % 6 == 5 {
            site.system.inject_crash(ActorKind::ComplianceDesk);
        }
    }
    for (_, check) in &checks {
        site.until_open(*check).await;
    }
    assert_eq!(site.remote.applicants().len(), checks.len());
    for (id, check) in checks {
        let callback = site.decide(check, green());
        assert_eq!(site.send(&callback).await.unwrap(), 1);
        assert_eq!(site.customer(id).await.kyc_status, KycStatus::Approved);
    }
    assert_eq!(site.remote.refused(), Vec::<String>::new());
}
