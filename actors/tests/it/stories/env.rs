//! Environment of a story: the service, whose chains mine on request, and the PSP's receiver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use payferry_actors::SystemConfig;
use payferry_devchain::Mining;
use payferry_domain::Chain;
use payferry_evm::ChainSpec;
use payferry_harness::receiver::Receiver;
use payferry_journal::psps::PspPolicies;
use payferry_runtime::clock::Clock;
use payferry_webhook::{Schedule, UrlPolicy, endpoints};

use crate::env::{self, Options, SettlerKill, TestScreener};

/// Maximum spacing of blocks in an advance, so that it never looks like an outage.
const SPACING_SECS: u64 = 15;
/// Interval between two runs of the auditor.
const AUDITED_EVERY: Duration = Duration::from_millis(100);

#[derive(derive_more::Deref, derive_more::DerefMut)]
pub struct Env {
    #[deref]
    #[deref_mut]
    service: env::Env,
    pub judge: Arc<TestScreener>,
    pub receiver: Receiver,
    pub settler_kill: Arc<SettlerKill>,
    /// All imbalances that the auditor reported.
    pub imbalances: Mutex<BTreeSet<String>>,
}

impl Env {
    /// Creates the environment on these chains, with a PSP with these policies and a receiver.
    pub async fn new(chains: &[Chain], policies: &PspPolicies) -> Self {
        let (clock, brief) = (Clock::default(), Duration::from_millis(100));
        let judge = Arc::new(TestScreener::new(clock.clone()));
        let settler_kill: Arc<SettlerKill> = Arc::default();
        let reads_often = |spec: &mut ChainSpec| {
            spec.poll_interval = Duration::from_millis(100);
            spec.batch_window = Duration::from_millis(20);
        };
        let options = Options {
            chains: chains.to_vec(),
            mining: Mining::OnDemand,
            timeout: Duration::from_secs(2),
            checkpoint: settler_kill.clone(),
            policies: policies.clone(),
            clock,
            ..Options::default()
        };
        let screener = judge.clone();
        let configure = move |config: &mut SystemConfig| {
            config.screener = screener.clone();
            let screening = &mut config.screening;
            (screening.retry_min, screening.retry_max, screening.review_interval) = (brief, brief, brief);
            config.webhooks.schedule = Schedule::of([brief, brief * 2, brief * 3]);
            config.webhooks.url_policy = UrlPolicy::Sandbox;
            // The auditor runs constantly, so a reported imbalance is an error at any time.
            (config.auditors.ledger_interval, config.auditors.vaults_interval) = (AUDITED_EVERY, None);
            config.auditors.treasury_kept = false;
            config.shards = 2;
        };
        let service = env::Env::with(options.tweaked(reads_often).configured(configure)).await;
        let receiver = Receiver::start().await;
        let (writer, now) = (service.system().database().writer(), service.clock().now());
        let sealer = service.system().sealer();
        let set = endpoints::set(writer, sealer, service.psp, receiver.url(), None, now).await;
        receiver.verify_with(&set.unwrap().1.unwrap().reveal());
        Self { service, judge, receiver, settler_kill, imbalances: Mutex::default() }
    }

    /// Starts the service on the current database and chains.
    pub async fn start(&mut self) {
        self.start_blindly().await;
        self.until_looked_at().await;
    }

    /// Stops the service: gracefully, or as in a crash.
    pub async fn stop(&mut self, gently: bool) {
        self.record_imbalances();
        self.service.stop(gently).await;
    }

    /// Records the auditor's current imbalances, because they may disappear later.
    pub fn record_imbalances(&self) {
        let Some(system) = self.runs() else { return };
        for imbalance in system.ledger().imbalances {
            let subject = imbalance.subject.as_deref().unwrap_or_default();
            self.imbalances.lock().insert(format!("{subject} {}", imbalance.words(None)));
        }
    }

    /// Advances time for the chains and the service, with blocks that are close enough together.
    pub async fn advance(&self, secs: u64) {
        for chain in self.chains.values() {
            chain.devchain.advance_time(secs, SPACING_SECS).await.unwrap();
        }
        self.clock().advance_secs(secs.try_into().unwrap());
    }

    /// Advances time while no chain mines a block.
    pub async fn stall_chains(&self, secs: u64) {
        for chain in self.chains.values() {
            chain.devchain.jump_time(secs).await.unwrap();
        }
        self.clock().advance_secs(secs.try_into().unwrap());
    }
}
