//! Verification of customers while the compliance service, the provider or the whole tree fails.

use std::sync::Arc;
use std::time::Duration;

use payferry_actors::compliance::identity::{
    CallbackFailure, ComplianceConfig, IdentityProvider, Sumsub, SumsubSettings, link_of,
};
use payferry_domain::customer::{Command, Customer, DocumentKind, Documents, KycStatus};
use payferry_domain::{CheckId, CustomerId};
use payferry_entities::{Database, audit_log, checks, customers};
use payferry_harness::sumsub::{
    APP_TOKEN, CALLBACK_SECRET, Callback, LEVEL, RESCREEN_LEVEL, SECRET_KEY, SumsubStandIn, green, red,
};
use payferry_journal::customers::customer_of;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::ActorKind;
use payferry_runtime::seal::Sealer;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;

use crate::env::{Env, MASTER, Options, until_some};

/// A tree without chains, and the provider outside it.
struct Fixture {
    env: Env,
    remote: SumsubStandIn,
}

/// Never polls within a test, and retries quickly.
fn config() -> ComplianceConfig {
    let brief = Duration::from_millis(50);
    ComplianceConfig {
        retry_min: brief,
        retry_max: Duration::from_millis(400),
        sweep_interval: brief,
        poll_interval: Duration::from_hours(1),
        ..ComplianceConfig::default()
    }
}

impl Fixture {
    async fn new() -> Self {
        Self::with(config()).await
    }

    async fn with(compliance: ComplianceConfig) -> Self {
        let remote = SumsubStandIn::start().await;
        let settings = SumsubSettings {
            base_url: remote.url().to_owned(),
            app_token: APP_TOKEN.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            callback_secret: CALLBACK_SECRET.to_owned(),
            level: LEVEL.to_owned(),
            rescreen_level: RESCREEN_LEVEL.to_owned(),
            timeout: Duration::from_secs(30),
        };
        let clock = Clock::default();
        let identity: Arc<dyn IdentityProvider> = Arc::new(Sumsub::new(settings, clock.clone()).unwrap());
        let options = Options { chains: Vec::new(), clock, ..Options::default() }.configured(move |config| {
            config.identity = Some(identity.clone());
            config.compliance = compliance.clone();
            config.shards = 1;
        });
        Self { env: Env::with(options).await, remote }
    }

    fn database(&self) -> &Database {
        self.env.system().database()
    }

    /// Creates a person who has accepted the terms and submitted all required data.
    async fn ready(&self) -> CustomerId {
        let particulars = json!({
            "first_name": "Ada", "last_name": "Lovelace", "dob": "1990-12-10", "phone_number": "+442079460000",
            "government_id_number": "QQ123456C",
        });
        let id = self.env.create_customer("ada@example.com", &particulars).await;
        let documents = Documents::NONE.with(DocumentKind::ProofOfResidentialAddress);
        self.env.change_customer(id, Command::AddDocuments(documents)).await;
        id
    }

    /// Requests a verification, as the PSP does.
    async fn request(&self, id: CustomerId) -> CheckId {
        self.env.change_customer(id, Command::RequestCheck(CheckId::generate())).await;
        self.env.system().compliance().nudge();
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
        let loaded = async || Some(self.check(check).await).filter(&holds);
        until_some(what, loaded, async || format!("{:#?}", self.check(check).await)).await
    }

    async fn until_open(&self, check: CheckId) -> checks::Model {
        self.until(check, "open", |row| row.status.as_str() == "open").await
    }

    async fn until_status(&self, id: CustomerId, status: KycStatus) {
        let loaded = async || (self.customer(id).await.kyc_status == status).then_some(());
        until_some(&status.to_string(), loaded, async || format!("{:#?}", self.customer(id).await)).await;
    }

    async fn assert_status(&self, id: CustomerId, status: KycStatus) {
        assert_eq!(self.customer(id).await.kyc_status, status);
    }

    /// Requests a verification of a new person, and waits until the provider has it.
    async fn opened(&self) -> (CustomerId, CheckId) {
        let id = self.ready().await;
        let check = self.request(id).await;
        self.until_open(check).await;
        (id, check)
    }

    /// Sends the callback; it decides so many checks.
    async fn sends(&self, callback: &Callback, checks: usize) {
        assert_eq!(self.send(callback).await.unwrap(), checks);
    }

    /// Makes the provider decide, and sends its callback.
    async fn decides(&self, check: CheckId, result: serde_json::Value, checks: usize) -> Callback {
        let callback = self.decide(check, result);
        self.sends(&callback, checks).await;
        callback
    }

    async fn send(&self, callback: &Callback) -> Result<usize, CallbackFailure> {
        self.env.system().compliance().callback("sumsub", &callback.headers(), callback.body.as_bytes()).await
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

#[tokio::test(flavor = "multi_thread")]
async fn customer_is_approved_only_by_a_genuine_callback() {
    let fixture = Fixture::new().await;
    let id = fixture.ready().await;
    let check = fixture.request(id).await;
    let row = fixture.until_open(check).await;
    let applicant = fixture.remote.applicant(&check.to_string()).unwrap();
    assert_eq!((row.provider.as_deref(), row.provider_ref.as_ref()), (Some("sumsub"), Some(&applicant.id)));
    let link = link_of(&row, &Sealer::new(&MASTER)).unwrap();
    assert!(link.starts_with("https://in.sumsub.example/"), "{link}");
    assert!(!row.url.as_ref().unwrap().contains("sumsub.example"), "sealed: {row:?}");
    assert_eq!(fixture.request(id).await, check, "a repeated request returns the same check");

    let approval = fixture.decide(check, green());
    let forged = Callback { digest: "00".repeat(32), ..approval.clone() };
    assert!(matches!(fixture.send(&forged).await, Err(CallbackFailure::Refused(_))));
    let compliance = fixture.env.system().compliance();
    let unknown = compliance.callback("didit", &approval.headers(), approval.body.as_bytes()).await;
    assert!(matches!(unknown, Err(CallbackFailure::UnknownProvider)), "{unknown:?}");
    fixture.assert_status(id, KycStatus::Pending).await;

    fixture.sends(&approval, 1).await;
    let approved = fixture.customer(id).await;
    assert_eq!((approved.kyc_status, approved.check), (KycStatus::Approved, None));
    assert_eq!(fixture.check(check).await.status.as_str(), "passed");
    let audit = fixture.audit(id).await;
    assert_eq!(audit.last().unwrap(), &("provider".to_owned(), "sumsub".to_owned(), "customer.approved".to_owned()));

    // Again, and a rejection that is too late.
    let too_late = fixture.decide(check, red(&["FORGERY"]));
    for callback in [&approval, &too_late, &approval] {
        fixture.sends(callback, 0).await;
    }
    assert_eq!(fixture.customer(id).await, approved);
    assert_eq!(fixture.audit(id).await, audit);
    assert_eq!(fixture.remote.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_customer_is_verified_again_and_old_verdicts_are_ignored() {
    let fixture = Fixture::new().await;
    let (id, first) = fixture.opened().await;
    fixture.decides(first, red(&["FORGERY"]), 1).await;
    let customer = fixture.customer(id).await;
    assert_eq!((customer.kyc_status, customer.rejection_reasons), (KycStatus::Rejected, vec!["forgery".to_owned()]));

    let second = fixture.request(id).await;
    assert_ne!(second, first);
    fixture.until_open(second).await;
    assert_eq!(fixture.remote.applicants().len(), 2);
    fixture.decides(first, green(), 0).await;
    fixture.assert_status(id, KycStatus::Pending).await;
    fixture.decides(second, green(), 1).await;
    fixture.assert_status(id, KycStatus::Approved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_callback_is_recovered_and_removed_session_restarts() {
    let fixture = Fixture::with(ComplianceConfig { poll_interval: Duration::from_millis(100), ..config() }).await;
    let (id, check) = fixture.opened().await;
    fixture.decide(check, green());
    fixture.until_status(id, KycStatus::Approved).await;

    let (other, check) = fixture.opened().await;
    fixture.remote.delete(&check.to_string());
    fixture.until(check, "lapsed", |row| row.status.as_str() == "lapsed").await;
    let customer = fixture.customer(other).await;
    assert_eq!((customer.kyc_status, customer.check), (KycStatus::Pending, None));
    let anew = fixture.request(other).await;
    assert_ne!(anew, check);
    fixture.until_open(anew).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_provider_is_retried_and_its_error_shown() {
    let fixture = Fixture::new().await;
    fixture.remote.set_down(true);
    let id = fixture.ready().await;
    let check = fixture.request(id).await;
    let row = fixture.until(check, "tried three times", |row| row.attempts >= 3).await;
    assert_eq!((row.status.as_str(), row.provider_ref.as_ref()), ("queued", None));
    assert_eq!(row.last_error.as_deref(), Some("the Sumsub API answered HTTP 503"));
    let outage = fixture.env.system().compliance().outage().unwrap();
    assert_eq!(outage.reason, "the Sumsub API answered HTTP 503");
    let backlog = fixture.env.system().compliance().backlog().await.unwrap();
    assert_eq!((backlog.queued, backlog.open, backlog.overdue), (1, 0, 0));

    fixture.remote.set_down(false);
    let row = fixture.until_open(check).await;
    assert_eq!((row.attempts, row.last_error), (0, None));
    assert_eq!(fixture.env.system().compliance().outage(), None);
    let backlog = fixture.env.system().compliance().backlog().await.unwrap();
    assert_eq!((backlog.queued, backlog.open), (0, 1));
    assert_eq!(fixture.remote.applicants().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unrecorded_sessions_are_found_again() {
    let mut fixture = Fixture::new().await;
    fixture.remote.set_delay(Duration::from_millis(400));
    let id = fixture.ready().await;
    let check = fixture.request(id).await;
    for crash in 1..=3 {
        // The provider has created the session and the service has not recorded it.
        let begun = || fixture.remote.requests().iter().filter(|request| request.line.starts_with("POST/")).count();
        let before = begun();
        fixture.env.until("a session was created", async || begun() != before).await;
        assert_eq!(fixture.check(check).await.status.as_str(), "queued");
        fixture.env.system().inject_crash(ActorKind::ComplianceService);
        fixture.env.until_restarts(ActorKind::ComplianceService, crash).await;
    }
    // Now the whole tree restarts.
    fixture.env.restart(false).await;
    fixture.remote.set_delay(Duration::ZERO);
    let row = fixture.until_open(check).await;
    let applicants = fixture.remote.applicants();
    assert_eq!(applicants.len(), 1, "one session, regardless of the number of attempts");
    assert_eq!(row.provider_ref.as_ref(), Some(&applicants[0].id));

    // The verdict comes while the tree is down, and again just before another crash.
    let approval = fixture.decide(check, green());
    fixture.env.restart(false).await;
    fixture.sends(&approval, 1).await;
    fixture.env.restart(false).await;
    fixture.sends(&approval, 0).await;
    fixture.assert_status(id, KycStatus::Approved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_before_the_session_is_recorded_counts() {
    let fixture = Fixture::new().await;
    fixture.remote.set_delay(Duration::from_millis(500));
    let id = fixture.ready().await;
    let check = fixture.request(id).await;
    let created = async || fixture.remote.applicant(&check.to_string()).is_some();
    fixture.env.until("a session was created", created).await;
    let approval = fixture.decide(check, green());
    assert_eq!(fixture.check(check).await.provider_ref, None);
    fixture.sends(&approval, 1).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    fixture.assert_status(id, KycStatus::Approved).await;
    assert_eq!(fixture.check(check).await.status.as_str(), "passed", "the provider's later answer changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_screened_and_only_the_last_one_counts() {
    let fixture = Fixture::new().await;
    let (id, check) = fixture.opened().await;
    let approval = fixture.decide(check, green());
    fixture.send(&approval).await.unwrap();

    let change = async || {
        let check = CheckId::generate();
        fixture.env.change_customer(id, Command::ChangePhone(check)).await;
        fixture.until_open(check).await;
        check
    };
    let (first, second) = (change().await, change().await);
    fixture.assert_status(id, KycStatus::PendingUpdate).await;
    assert_eq!(fixture.check(first).await.status.as_str(), "superseded");
    let sent = fixture.remote.applicant(&second.to_string()).unwrap();
    assert_eq!((sent.level.as_str(), sent.status.as_str()), (RESCREEN_LEVEL, "pending"));
    assert_eq!(sent.data["phone"], "+442079460000");
    assert!(!sent.data.to_string().contains("QQ123456C"), "only the data that a screening needs: {}", sent.data);
    fixture.decides(first, red(&["SANCTIONS"]), 0).await;
    assert_eq!(fixture.send(&approval).await.unwrap(), 0, "neither does the earlier verification");
    fixture.assert_status(id, KycStatus::PendingUpdate).await;
    fixture.decides(second, green(), 1).await;
    fixture.assert_status(id, KycStatus::Approved).await;

    let third = change().await;
    fixture.decides(third, red(&["SANCTIONS"]), 1).await;
    let customer = fixture.customer(id).await;
    assert_eq!((customer.kyc_status, customer.rejection_reasons), (KycStatus::Rejected, vec!["sanctions".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_during_a_verification_replaces_it() {
    let fixture = Fixture::new().await;
    let (id, verification) = fixture.opened().await;
    let screening = CheckId::generate();
    fixture.env.change_customer(id, Command::ReplaceWallet(screening)).await;
    fixture.until_open(screening).await;
    let approval = fixture.decide(verification, green());
    assert_eq!(fixture.send(&approval).await.unwrap(), 0, "it was about a customer with another wallet");
    fixture.assert_status(id, KycStatus::PendingUpdate).await;
    fixture.decides(screening, green(), 1).await;
    assert_eq!(fixture.customer(id).await.kyc_status, KycStatus::Pending, "as before the change");
    let anew = fixture.request(id).await;
    fixture.until_open(anew).await;
    fixture.decides(anew, green(), 1).await;
    fixture.assert_status(id, KycStatus::Approved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_complete_with_bounded_concurrency_while_the_service_dies() {
    let fixture = Fixture::with(ComplianceConfig { concurrency_max: 3, ..config() }).await;
    fixture.remote.set_delay(Duration::from_millis(20));
    let mut checks = Vec::new();
    for round in 0..24 {
        let id = fixture.ready().await;
        checks.push((id, fixture.request(id).await));
        if round % 6 == 5 {
            fixture.env.system().inject_crash(ActorKind::ComplianceService);
        }
    }
    for (_, check) in &checks {
        fixture.until_open(*check).await;
    }
    assert_eq!(fixture.remote.applicants().len(), checks.len());
    for (id, check) in checks {
        let callback = fixture.decide(check, green());
        fixture.sends(&callback, 1).await;
        fixture.assert_status(id, KycStatus::Approved).await;
    }
    assert_eq!(fixture.remote.refused(), Vec::<String>::new());
}
