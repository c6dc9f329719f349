//! Starts the tree, in the order of its dependencies.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use payferry_entities::Database;
use payferry_evm::wallet::OperatorSigner;
use payferry_evm::{ChainClient, ChainSpec};
use payferry_journal::psps::{Ceilings, PspDirectory};
use payferry_journal::{Journal, JournalTask};
use payferry_nodes::{Job, Lease, LeaseName, Node, NodeConfig};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorKind, ActorRegistry, ActorResult, Behaviour, Cause, ROOT_NAME};
use payferry_runtime::seal::Sealer;
use payferry_runtime::supervise::{Child, Root, RootMessage};
use payferry_webhook::{WebhookConfig, WebhookSender};
use ractor::ActorCell;
use tokio_util::task::AbortOnDropHandle;

use super::leases::{Holder, Leased};
use super::refresh::refresh;
use super::{Inner, Parts, System, wallets};
use crate::admission::Admission;
use crate::aggregate::{Aggregate, Aggregates, Services, Supervisor, SupervisorMessage};
use crate::announcer::{self, Announcer};
use crate::auditors::AuditorsConfig;
use crate::chain::{ChainContext, Checkpoint, HeadSignals, Settler, SettlerArgs, Watcher, WatcherArgs};
use crate::chains::Chains;
use crate::compliance::identity::{self, ComplianceConfig, ComplianceService, IdentityProvider};
use crate::compliance::{KytScreener, PlainAccounts, Screening, ScreeningConfig, SenderKind};
use crate::ledger::check::{self, Findings, LedgerAuditor};
use crate::observe::{TreeMetrics, incidents};
use crate::pauses::Pauses;
use crate::payment::{Inbox, PaymentServices};
use crate::reconcile;
use crate::reconcile::watch::{self, VaultAuditor, VaultFindings};

/// Configuration of a tree.
pub struct SystemConfig {
    /// The migrated database.
    pub database: Database,
    /// Configuration of this node, without its chains.
    pub node: NodeConfig,
    /// Encrypts secrets.
    pub sealer: Sealer,
    /// The service's clock.
    pub clock: Clock,
    /// Chains that passed their checks.
    pub chains: Vec<ChainSetup>,
    /// The KYT provider.
    pub screener: Arc<dyn KytScreener>,
    /// Limits of screening.
    pub screening: ScreeningConfig,
    /// Provider of identity verification; without one, customers are not verified, and their checks wait.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    /// Limits of the compliance service.
    pub compliance: ComplianceConfig,
    /// Limits and schedule of webhooks.
    pub webhooks: WebhookConfig,
    /// Send limits of PSPs, unless the operator has set others for a PSP.
    pub ceilings: Ceilings,
    /// Intervals of the auditors.
    pub auditors: AuditorsConfig,
    /// Number of shard supervisors; must divide 256.
    pub shards: usize,
}

/// Setup of one chain.
#[derive(Clone)]
pub struct ChainSetup {
    /// Configuration of the chain.
    pub spec: ChainSpec,
    /// Its endpoints.
    pub client: ChainClient,
    /// Signs settlements, and pays for their gas.
    pub settler: OperatorSigner,
    /// Signs outbound transfers, and pays for their gas.
    pub sender: OperatorSigner,
    /// Signals of new heads, where the endpoint supports them. Polling continues regardless.
    pub wake_ups: Option<HeadSignals>,
    /// Checkpoint between the steps of a settlement; [`NoCheckpoint`](crate::chain::NoCheckpoint) except in tests.
    pub checkpoint: Arc<dyn Checkpoint>,
}

/// Error of starting a tree.
#[derive(Debug, thiserror::Error)]
#[error("the {what} did not start: {reason}")]
pub struct StartError {
    what: String,
    reason: String,
}

impl System {
    /// Starts the tree: journal, webhook sender, screening, compliance service, settlers, shards with their live
    /// payments. Watchers come last, so that payments can be reached before the first notification. Boxed: a caller in
    /// another crate would otherwise compile every actor again.
    pub fn start(config: SystemConfig) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::start_tree(config))
    }

    async fn start_tree(config: SystemConfig) -> Result<Self, StartError> {
        let SystemConfig { database, sealer, clock, chains: setups, auditors, shards, .. } = config;
        payferry_evm::metrics::describe();
        crate::chain::metrics::describe();
        for setup in &setups {
            crate::chain::metrics::register(setup.spec.chain, setup.client.endpoints_len());
        }
        crate::admission::describe();
        crate::aggregate::metrics::describe();
        check::describe();
        reconcile::describe();
        let chains_of_node = setups.iter().map(|setup| setup.spec.chain).collect();
        let node = Node::join(database.clone(), NodeConfig { chains: chains_of_node, ..config.node });
        let node = node.await.map_err(failed("node"))?;
        let registry = TreeMetrics::load(clock.clone(), database.clone(), node.is_shared());
        let registry = registry.await.map_err(failed("quarantine"))?;
        registry.tally().doubt();
        let own_name = if node.is_shared() { node.name().to_owned() } else { String::new() };
        let stored =
            incidents::restore(&database, &own_name, registry.log()).await.map_err(failed("supervision log"))?;
        let logging = tokio::spawn(incidents::keep(database.clone(), own_name, registry.clone(), stored));
        let root = registry
            .spawn(ROOT_NAME, Root { registry: ActorRegistry::clone(&registry) }, (), None)
            .await
            .map_err(failed("root"))?;
        let (journal, task) =
            Journal::start_with(database.for_journal(), ActorRegistry::clone(&registry), registry.tally().clone());
        let writing = write(task, ActorRegistry::clone(&registry));
        let services = Arc::new(Services {
            pauses: Pauses::new(database.clone()),
            psps: PspDirectory::new(database.clone(), config.ceilings),
            chains: Arc::new(Chains::new(setups.iter().map(|setup| setup.spec.clone()).collect())),
            screening: RwLock::default(),
            webhooks: RwLock::default(),
            database,
            journal,
            node: node.clone(),
            clock,
            registry,
        });
        let own = PaymentServices::new(services.database.clone());
        let payments = Aggregates::new(services.clone(), shards, own);
        let outbound = Aggregates::new(services.clone(), 1, ());
        let inbox = Arc::new(Inbox { payments: payments.clone(), outbound: outbound.clone() });
        // Before the settlers: pauses outlast a restart.
        services.pauses.refresh(&services.chains).await.map_err(failed("pauses"))?;
        let following = services.pauses.follow(services.chains.clone());
        let keeping = wallets::keep(services.clone());
        let clients = setups.iter().map(|setup| (setup.spec.chain, setup.client.clone()));
        let accounts = PlainAccounts::new(clients);
        let admission = Arc::<Admission>::default();
        let sampling = admission.clone().sample(services.clone());
        let parts = Arc::new(Parts {
            services,
            payments,
            outbound,
            compliance: RwLock::default(),
            ledger: Findings::default(),
            vaults: VaultFindings::default(),
            accounts: accounts.clone(),
            admission,
        });
        let clients = setups.iter().map(|setup| (setup.spec.clone(), setup.client.clone())).collect();
        let leased = Leased { chains: setups, clients: Arc::new(clients), auditors };
        let inner = Inner {
            leased,
            _sampling: AbortOnDropHandle::new(tokio::spawn(sampling)),
            _refreshing: refresh(parts.clone()),
            parts,
            inbox,
            sealer,
            root,
            _writing: writing,
            _logging: AbortOnDropHandle::new(logging),
            _keeping: keeping,
            _following: following,
            followers: Mutex::default(),
        };
        let system = Self { inner: Arc::new(inner) };
        system.start_webhooks(config.webhooks).await?;
        let screener = Arc::new(SenderKind::new(config.screener, accounts));
        system.start_screening(config.screening, screener).await?;
        system.start_compliance(config.compliance, config.identity).await?;
        system.start_supervisor(system.outbound(), 0, "outbound supervisor").await?;
        // A node that runs alone holds all leases already; the others get theirs below.
        let leases = node.leases().all();
        system.start_settlers(&leases).await?;
        for index in 0..shards {
            system.start_supervisor(system.payments(), index, &index.to_string()).await?;
        }
        // While the shards read their payments, and before the watchers: from now on no wallet of a live payment is missing. That
        // of a payment that ends meanwhile may stay, which is harmless.
        wallets::watch_live(system.services()).await;
        system.start_watchers(&leases).await?;
        system.start_jobs(&leases).await?;
        if node.is_shared() {
            system.share();
            node.follow(Arc::new(Holder::of(&system))).await;
        }
        Ok(system)
    }

    async fn start_webhooks(&self, config: WebhookConfig) -> Result<(), StartError> {
        let context = (self.services().clone(), self.inner.sealer.clone(), config);
        let start = |root, (services, sealer, config): (Arc<Services>, _, _)| async move {
            let (database, journal, clock) =
                (services.database.clone(), services.journal.clone(), services.clock.clone());
            let registry = ActorRegistry::clone(&services.registry);
            let node = services.node.clone();
            let sender = WebhookSender::start(root, database, journal, node, sealer, clock, registry, config).await?;
            let cell = sender.cell();
            *services.webhooks.write() = Some(sender);
            Ok(cell)
        };
        self.adopt(ActorKind::WebhookSender, "webhook sender", context, start, || ()).await
    }

    async fn start_screening(&self, config: ScreeningConfig, screener: Arc<dyn KytScreener>) -> Result<(), StartError> {
        let context = (self.inner.parts.clone(), self.inner.inbox.clone(), config, screener);
        let start = |root, (parts, inbox, config, screener): (Arc<Parts>, Arc<Inbox>, _, _)| async move {
            let Parts { services, payments, outbound, .. } = &*parts;
            let clock = services.clock.clone();
            let screening = Screening::start(root, config, screener, inbox, clock, &services.registry).await?;
            let cell = screening.cell();
            let restarted = services.screening.write().replace(screening).is_some();
            if restarted {
                payments.each_supervisor(|| SupervisorMessage::ResumeAll);
                outbound.each_supervisor(|| SupervisorMessage::ResumeAll);
            }
            Ok(cell)
        };
        self.adopt(ActorKind::Screening, "screening", context, start, || ()).await
    }

    async fn start_compliance(
        &self,
        config: ComplianceConfig,
        provider: Option<Arc<dyn IdentityProvider>>,
    ) -> Result<(), StartError> {
        let context = (self.inner.parts.clone(), self.inner.sealer.clone(), config, provider);
        let start = |root, (parts, sealer, config, provider): (Arc<Parts>, _, _, _)| async move {
            let Services { database, clock, registry, node, .. } = &*parts.services;
            let (database, clock, registry) = (database.clone(), clock.clone(), registry.clone());
            let leases = node.leases().clone();
            let compliance =
                ComplianceService::start(root, config, provider, database, sealer, clock, registry, leases).await?;
            let cell = compliance.cell();
            *parts.compliance.write() = Some(compliance);
            Ok(cell)
        };
        self.adopt(ActorKind::ComplianceService, identity::NAME, context, start, || ()).await
    }

    /// Starts the settlers of the chains among these leases.
    pub(super) async fn start_settlers(&self, leases: &[Lease]) -> Result<(), StartError> {
        for (setup, lease) in self.chains_among(leases) {
            let chain = setup.spec.chain;
            let args = SettlerArgs {
                context: self.context_of(setup),
                lease: lease.clone(),
                settle_signer: setup.settler.clone(),
                send_signer: setup.sender.clone(),
                handle: self.chains().settler(chain).cloned().unwrap_or_default(),
                checkpoint: setup.checkpoint.clone(),
            };
            self.keep(chain.as_str(), Settler, args, || ()).await?;
        }
        Ok(())
    }

    /// Starts the watchers of the chains among these leases.
    pub(super) async fn start_watchers(&self, leases: &[Lease]) -> Result<(), StartError> {
        for (setup, lease) in self.chains_among(leases) {
            let (context, lease, wake_ups) = (self.context_of(setup), lease.clone(), setup.wake_ups.clone());
            let args = WatcherArgs { context, lease, wake_ups };
            self.keep(setup.spec.chain.as_str(), Watcher, args, || ()).await?;
        }
        Ok(())
    }

    /// Starts the actors of the jobs among these leases.
    pub(super) async fn start_jobs(&self, leases: &[Lease]) -> Result<(), StartError> {
        let Parts { services, ledger, vaults, .. } = &*self.inner.parts;
        let Leased { clients, auditors, .. } = &self.inner.leased;
        let (database, clock) = (services.database.clone(), services.clock.clone());
        for lease in leases {
            match lease.name() {
                LeaseName::Job(Job::Announcer) => {
                    self.keep(announcer::NAME, Announcer { services: services.clone() }, (), || ()).await?;
                }
                LeaseName::Job(Job::Ledger) => {
                    let (findings, interval) = (ledger.clone(), auditors.ledger_interval);
                    let auditor =
                        LedgerAuditor { database: database.clone(), clock: clock.clone(), findings, interval };
                    self.keep(check::NAME, auditor, (), || ()).await?;
                }
                LeaseName::Job(Job::Vaults) => {
                    let Some(interval) = auditors.vaults_interval else { continue };
                    let (findings, treasury_kept) = (vaults.clone(), auditors.treasury_kept);
                    let (database, clock, chains) = (database.clone(), clock.clone(), clients.clone());
                    let auditor = VaultAuditor { database, clock, findings, chains, interval, treasury_kept };
                    self.keep(watch::NAME, auditor, (), || ()).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn chains_among<'a>(&'a self, leases: &'a [Lease]) -> impl Iterator<Item = (&'a ChainSetup, &'a Lease)> {
        let of = |lease: &Lease, setup: &ChainSetup| lease.name() == LeaseName::Chain(setup.spec.chain);
        let setups = self.inner.leased.chains.iter();
        setups.filter_map(move |setup| Some((setup, leases.iter().find(|lease| of(lease, setup))?)))
    }

    pub(super) fn context_of(&self, setup: &ChainSetup) -> ChainContext {
        let Services { database, journal, chains, clock, .. } = &**self.services();
        ChainContext {
            spec: Arc::new(setup.spec.clone()),
            client: setup.client.clone(),
            database: database.clone(),
            journal: journal.clone(),
            watchlist: chains.watchlist().clone(),
            inbox: self.inner.inbox.clone(),
            clock: clock.clone(),
        }
    }

    /// Starts the supervisor of a shard of aggregates.
    async fn start_supervisor<A: Aggregate>(
        &self,
        aggregates: &Arc<Aggregates<A>>,
        index: usize,
        name: &str,
    ) -> Result<(), StartError> {
        let died = aggregates.clone();
        let supervisor = Supervisor { aggregates: aggregates.clone(), index };
        self.keep(name, supervisor, (), move || died.set_supervisor(index, None)).await
    }

    /// Starts an actor, and keeps it running. `forget` cleans up when it has failed.
    async fn keep<B>(
        &self,
        name: &str,
        behaviour: B,
        args: B::Arguments,
        forget: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), StartError>
    where
        B: Behaviour + Clone,
        B::Arguments: Clone + Sync,
    {
        let context = (ActorRegistry::clone(self.registry()), name.to_owned(), behaviour, args);
        let start = |root, (registry, name, behaviour, args): (ActorRegistry, String, B, _)| async move {
            Ok(registry.spawn(&name, behaviour, args, Some(root)).await?.get_cell())
        };
        self.adopt(B::KIND, name, context, start, forget).await
    }

    /// Has the root keep an actor running. `start` gets a clone of the context at each start.
    async fn adopt<C, F>(
        &self,
        kind: ActorKind,
        name: &str,
        context: C,
        start: impl Fn(ActorCell, C) -> F + Send + Sync + 'static,
        forget: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), StartError>
    where
        C: Clone + Send + Sync + 'static,
        F: Future<Output = ActorResult<ActorCell>> + Send + 'static,
    {
        let start = Arc::new(move |root| start(root, context.clone()).boxed());
        let child = Child { kind, name: name.to_owned(), start, forget: Arc::new(forget) };
        let failed = |reason: String| StartError { what: format!("{} {name}", kind.as_str()), reason };
        match ractor::call!(self.inner.root, |reply| RootMessage::Adopt(child, reply)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(failed(reason)),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Runs the journal's task, and restarts it after a panic; its queues outlive it.
fn write(task: JournalTask, registry: ActorRegistry) -> AbortOnDropHandle<()> {
    let panicked =
        move |reason: &str| registry.restarted(ActorKind::Journal, payferry_journal::NAME, Cause::Panic, reason);
    AbortOnDropHandle::new(tokio::spawn(task.supervise(panicked)))
}

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> StartError + '_ {
    move |error| StartError { what: what.to_owned(), reason: error.to_string() }
}
