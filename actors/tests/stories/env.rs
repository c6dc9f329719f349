//! Environment of a story: chains, a database, the service, and the PSP's receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_actors::auditors::AuditorsConfig;
use payferry_actors::chain::{Checkpoint, Killed, Step, wake_on_change};
use payferry_actors::compliance::ScreeningConfig;
use payferry_actors::compliance::identity::ComplianceConfig;
use payferry_actors::{ChainSetup, System, SystemConfig};
use payferry_domain::{Address, Chain, MerchantId, PaymentId, PspId};
use payferry_entities::{Database, merchants, psps};
use payferry_evm::wallet::{OperatorSigner, Vaults};
use payferry_harness::database::TestDatabase;
use payferry_harness::receiver::Receiver;
use payferry_journal::psps::{Ceilings, EventFamilies, PspPolicies};
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_webhook::{Schedule, UrlPolicy, WebhookConfig, endpoints};
use sea_orm::{ActiveModelTrait, IntoActiveModel};

use crate::chains::{OPERATOR, StoryChain};
use crate::judge::StoryScreener;
use crate::waits::PATIENCE;

pub const MASTER: [u8; 32] = [9; 32];
/// Maximum spacing of blocks in an advance, so that it never looks like an outage.
const SPACING_SECS: u64 = 15;
/// Interval between two runs of the auditor.
const AUDITED_EVERY: Duration = Duration::from_millis(100);

pub struct Env {
    pub chains: BTreeMap<Chain, StoryChain>,
    pub judge: Arc<StoryScreener>,
    pub receiver: Receiver,
    pub clock: Clock,
    pub psp: PspId,
    pub merchant: MerchantId,
    /// Event names that the PSP wants.
    pub families: EventFamilies,
    pub settler_kill: Arc<SettlerKill>,
    /// All imbalances that the auditor reported.
    pub imbalances: Mutex<BTreeSet<String>>,
    system: Option<System>,
    /// Direct access for reads, because the service may be down. Writes go through the service's functions.
    database: Database,
    // Dropped after the system.
    test_database: TestDatabase,
}

/// Kills the settler once after a step.
#[derive(Default)]
pub struct SettlerKill {
    next: Mutex<Option<Step>>,
}

impl SettlerKill {
    pub fn after(&self, step: Step) {
        *self.next.lock() = Some(step);
    }
}

impl Checkpoint for SettlerKill {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        let mut next = self.next.lock();
        if *next == Some(step) {
            *next = None;
            return Err(Killed(step));
        }
        Ok(())
    }
}

impl Env {
    /// Creates the environment on these chains, with a PSP with these policies and a receiver.
    pub async fn new(chains: &[Chain], policies: &PspPolicies) -> Self {
        payferry_harness::install_tls();
        let opened = futures::future::join_all(chains.iter().map(|chain| StoryChain::open(*chain)));
        let (opened, test_database) = futures::future::join(opened, TestDatabase::create()).await;
        let database = open(&test_database).await;
        Migrator::up(database.long_timeout(), None).await.unwrap();
        let (psp, merchant) = tenants(&database, policies).await;
        let clock = Clock::default();
        let receiver = Receiver::start().await;
        let sealer = Sealer::new(&MASTER);
        let set = endpoints::set(database.writer(), &sealer, psp, receiver.url(), None, clock.now());
        receiver.verify_with(&set.await.unwrap().1.unwrap().reveal());
        let mut env = Self {
            chains: opened.into_iter().map(|chain| (chain.chain, chain)).collect(),
            judge: Arc::new(StoryScreener::new(clock.clone())),
            receiver,
            clock,
            psp,
            merchant,
            families: policies.event_families,
            settler_kill: Arc::default(),
            imbalances: Mutex::default(),
            system: None,
            database,
            test_database,
        };
        env.start().await;
        env
    }

    /// Starts the service on the current database and chains.
    pub async fn start(&mut self) {
        let database = open(&self.test_database).await;
        let setup = |chain: &StoryChain| ChainSetup {
            spec: chain.spec.clone(),
            client: chain.client(),
            signer: OperatorSigner::from_bytes(&OPERATOR).unwrap(),
            wake_ups: Some(wake_on_change(chain.devchain.heads())),
            checkpoint: self.settler_kill.clone(),
        };
        let brief = Duration::from_millis(100);
        let config = SystemConfig {
            database,
            sealer: Sealer::new(&MASTER),
            clock: self.clock.clone(),
            chains: self.chains.values().map(setup).collect(),
            screener: self.judge.clone(),
            screening: ScreeningConfig {
                retry_min: brief,
                retry_max: brief,
                review_interval: brief,
                ..ScreeningConfig::default()
            },
            identity: None,
            compliance: ComplianceConfig::default(),
            webhooks: WebhookConfig {
                schedule: Schedule::of([brief, brief * 2, brief * 3]),
                url_policy: UrlPolicy::Sandbox,
                ..WebhookConfig::default()
            },
            ceilings: Ceilings::default(),
            // The auditor runs constantly, so a reported imbalance is an error at any time.
            auditors: AuditorsConfig { ledger_interval: AUDITED_EVERY, vaults_interval: None, treasury_kept: false },
            shards: 2,
        };
        self.system = Some(System::start(config).await.unwrap());
        self.until_looked_at().await;
    }

    /// Stops the service: gracefully, or as in a crash.
    pub async fn stop(&mut self, gently: bool) {
        self.record_imbalances();
        let system = self.system.take().expect("the service runs");
        if gently {
            system.stop().await;
        }
    }

    /// Records the auditor's current imbalances, because they may disappear later.
    pub fn record_imbalances(&self) {
        let Some(system) = &self.system else { return };
        for imbalance in system.ledger().imbalances {
            let subject = imbalance.subject.as_deref().unwrap_or_default();
            self.imbalances.lock().insert(format!("{subject} {}", imbalance.words(None)));
        }
    }

    pub fn system(&self) -> &System {
        self.system.as_ref().expect("the service runs")
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    pub fn vault_of(&self, payment: PaymentId) -> Address {
        self.vaults().of_payment(payment)
    }

    pub fn psp_vault(&self) -> Address {
        self.vaults().of_psp(self.psp)
    }

    fn vaults(&self) -> Vaults {
        // The contract has the same address on every chain.
        Vaults::new(self.chains.values().next().unwrap().spec.contract)
    }

    /// Mines on every chain.
    pub async fn mine(&self, blocks: u64) {
        for chain in self.chains.values() {
            chain.mine(blocks).await;
        }
    }

    /// Advances time for the chains and the service, with blocks that are close enough together.
    pub async fn advance(&self, secs: u64) {
        for chain in self.chains.values() {
            chain.devchain.advance_time(secs, SPACING_SECS).await.unwrap();
        }
        self.clock.advance_secs(secs.try_into().unwrap());
    }

    /// Advances time while no chain mines a block.
    pub async fn stall_chains(&self, secs: u64) {
        for chain in self.chains.values() {
            chain.devchain.jump_time(secs).await.unwrap();
        }
        self.clock.advance_secs(secs.try_into().unwrap());
    }
}

/// Opens the database, with retries because a shared machine may stall for seconds.
async fn open(test_database: &TestDatabase) -> Database {
    let since = Instant::now();
    loop {
        match Database::open(test_database.url()).await {
            Ok(database) => return database,
            Err(error) => assert!(since.elapsed() < PATIENCE, "could not open the database: {error}"),
        }
    }
}

async fn tenants(database: &Database, policies: &PspPolicies) -> (PspId, MerchantId) {
    let (psp, merchant) = (PspId::generate(), MerchantId::generate());
    let row = psps::Model {
        id: psp.to_string(),
        name: "Ferry".to_owned(),
        settings: serde_json::to_string(policies).unwrap(),
        created_at: 0,
        updated_at: 0,
    };
    row.into_active_model().insert(database.writer()).await.unwrap();
    let row = merchants::Model {
        id: merchant.to_string(),
        psp_id: psp.to_string(),
        external_id: "m".to_owned(),
        name: "Shop".to_owned(),
        email: "shop@example.com".to_owned(),
        business_id: "b".to_owned(),
        created_at: 0,
        updated_at: 0,
    };
    row.into_active_model().insert(database.writer()).await.unwrap();
    (psp, merchant)
}
