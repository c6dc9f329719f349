//! Starts the tree, in the order in which its parts need each other.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use payferry_entities::Database;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tokio_util::task::AbortOnDropHandle;

use super::{Inner, System};
use crate::chain::{ChainClient, ChainSpec, Checkpoint, Settler, SettlerArgs, WakeUps, Watcher, WatcherArgs};
use crate::chains::Chains;
use crate::clock::Clock;
use crate::compliance::{KytScreener, Screening, ScreeningConfig};
use crate::inbox::PaymentInbox;
use crate::journal::{Journal, JournalTask};
use crate::observe::{ActorKind, SupervisionLog};
use crate::payment::{Router, Services, Shard, ShardMessage};
use crate::psps::PspDirectory;
use crate::seal::Sealer;
use crate::supervise::{Child, Root, RootMessage, Start};
use crate::wallet::OperatorSigner;
use crate::webhook::{WebhookConfig, WebhookSender};

/// What a tree is started with.
pub struct SystemConfig {
    /// Migrated.
    pub database: Database,
    /// Seals secrets.
    pub sealer: Sealer,
    /// The service's time.
    pub clock: Clock,
    /// Chains that passed their checks.
    pub chains: Vec<ChainSetup>,
    /// The KYT provider.
    pub screener: Arc<dyn KytScreener>,
    /// Limits of screening.
    pub screening: ScreeningConfig,
    /// Limits and schedule of webhooks.
    pub webhooks: WebhookConfig,
    /// Shard supervisors; must divide 256.
    pub shards: usize,
}

/// One chain to run.
pub struct ChainSetup {
    /// What is configured of it.
    pub spec: ChainSpec,
    /// Its endpoints.
    pub client: ChainClient,
    /// The account that pays for gas.
    pub signer: OperatorSigner,
    /// Says when there may be a new head, where the endpoint can do that; polling goes on all the same.
    pub wake_ups: Option<WakeUps>,
    /// Between any two steps of a settlement; [`NoCheckpoint`](crate::chain::NoCheckpoint) save in tests.
    pub checkpoint: Arc<dyn Checkpoint>,
}

/// Why a tree did not start.
#[derive(Debug, thiserror::Error)]
#[error("the {what} did not start: {reason}")]
pub struct StartError {
    what: String,
    reason: String,
}

impl System {
    /// Starts the tree: journal, webhook sender, screening, settlers, shards with their live payments, watchers last,
    /// so that nothing is told to payments before there is somebody to tell.
    pub async fn start(config: SystemConfig) -> Result<Self, StartError> {
        let SystemConfig { database, sealer, clock, chains: setups, screener, screening, webhooks, shards } = config;
        crate::chain::metrics::describe();
        let log = Arc::new(SupervisionLog::default());
        let root = Root { log: log.clone(), clock: clock.clone() };
        let (root, _) = Actor::spawn(None, root, ()).await.map_err(failed("root"))?;
        let (journal, task) = Journal::start(database.clone());
        let writing = write(task, log.clone(), clock.clone());
        let services = Arc::new(Services {
            psps: PspDirectory::new(database.clone()),
            router: Arc::new(Router::new(shards)),
            chains: Arc::new(Chains::new(setups.iter().map(|setup| setup.spec.clone()).collect())),
            screening: RwLock::default(),
            webhooks: RwLock::default(),
            rehydrated: AtomicUsize::new(0),
            database,
            journal,
            clock,
            log,
        });
        let system = Self { inner: Arc::new(Inner { services, sealer, root, _writing: writing }) };
        system.start_webhooks(webhooks).await?;
        system.start_screening(screening, screener).await?;
        for setup in &setups {
            system.start_settler(setup).await?;
        }
        for index in 0..shards {
            system.start_shard(index).await?;
        }
        for setup in setups {
            system.start_watcher(setup).await?;
        }
        Ok(system)
    }

    async fn start_webhooks(&self, config: WebhookConfig) -> Result<(), StartError> {
        let (services, sealer) = (self.inner.services.clone(), self.inner.sealer.clone());
        self.adopt(ActorKind::WebhookSender, "webhook sender", move |root| {
            let (services, sealer, config) = (services.clone(), sealer.clone(), config.clone());
            async move {
                let (database, journal, clock) =
                    (services.database.clone(), services.journal.clone(), services.clock.clone());
                let log = services.log.clone();
                let sender = WebhookSender::start(root, database, journal, sealer, clock, log, config).await?;
                let cell = sender.cell();
                *services.webhooks.write() = Some(sender);
                Ok(cell)
            }
            .boxed()
        })
        .await
    }

    async fn start_screening(&self, config: ScreeningConfig, screener: Arc<dyn KytScreener>) -> Result<(), StartError> {
        let services = self.inner.services.clone();
        self.adopt(ActorKind::Screening, "screening", move |root| {
            let (services, config, screener) = (services.clone(), config.clone(), screener.clone());
            async move {
                let inbox: Arc<dyn PaymentInbox> = services.router.clone();
                let screening = Screening::start(root, config, screener, inbox, services.clock.clone()).await?;
                let cell = screening.cell();
                let restarted = services.screening.write().replace(screening).is_some();
                if restarted {
                    services.router.resume_all();
                }
                Ok(cell)
            }
            .boxed()
        })
        .await
    }

    async fn start_settler(&self, setup: &ChainSetup) -> Result<(), StartError> {
        let services = &self.inner.services;
        let chain = setup.spec.chain;
        let handle = services.chains.settler(chain).cloned().unwrap_or_default();
        let args = SettlerArgs {
            spec: Arc::new(setup.spec.clone()),
            client: setup.client.clone(),
            database: services.database.clone(),
            journal: services.journal.clone(),
            watchlist: services.chains.watchlist().clone(),
            inbox: services.router.clone(),
            clock: services.clock.clone(),
            settle_signer: setup.signer.clone(),
            send_signer: setup.signer.clone(),
            handle,
            checkpoint: setup.checkpoint.clone(),
        };
        self.adopt(ActorKind::Settler, chain.as_str(), move |root| {
            let args = args.clone();
            async move {
                let (settler, _) = Actor::spawn_linked(None, Settler, args, root).await?;
                Ok(settler.get_cell())
            }
            .boxed()
        })
        .await
    }

    async fn start_watcher(&self, setup: ChainSetup) -> Result<(), StartError> {
        let services = &self.inner.services;
        let args = WatcherArgs {
            spec: Arc::new(setup.spec),
            client: setup.client,
            database: services.database.clone(),
            journal: services.journal.clone(),
            watchlist: services.chains.watchlist().clone(),
            inbox: services.router.clone(),
            clock: services.clock.clone(),
            wake_ups: setup.wake_ups,
        };
        let chain = args.spec.chain;
        self.adopt(ActorKind::Watcher, chain.as_str(), move |root| {
            let args = args.clone();
            async move {
                let (watcher, _) = Actor::spawn_linked(None, Watcher, args, root).await?;
                Ok(watcher.get_cell())
            }
            .boxed()
        })
        .await
    }

    async fn start_shard(&self, index: usize) -> Result<(), StartError> {
        let services = self.inner.services.clone();
        self.adopt(ActorKind::Shard, &index.to_string(), move |root| {
            let services = services.clone();
            async move {
                let (shard, _): (ActorRef<ShardMessage>, _) =
                    Actor::spawn_linked(None, Shard::new(services, index), (), root).await?;
                Ok(shard.get_cell())
            }
            .boxed()
        })
        .await
    }

    async fn adopt<F>(&self, kind: ActorKind, name: &str, start: F) -> Result<(), StartError>
    where
        F: Fn(ActorCell) -> BoxFuture<'static, Result<ActorCell, ActorProcessingErr>> + Send + Sync + 'static,
    {
        let start: Start = Arc::new(start);
        let child = Child { kind, name: name.to_owned(), start };
        let failed = |reason: String| StartError { what: format!("{} {name}", kind.as_str()), reason };
        match ractor::call!(self.inner.root, |reply| RootMessage::Adopt(child, reply)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(failed(reason)),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Runs the journal's task, and again when it panics; its queues outlive it.
fn write(task: JournalTask, log: Arc<SupervisionLog>, clock: Clock) -> AbortOnDropHandle<()> {
    let panicked =
        move |reason: &str| log.restarted(clock.real_now(), ActorKind::Journal, "journal".to_owned(), reason);
    AbortOnDropHandle::new(tokio::spawn(task.supervise(panicked)))
}

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> StartError + '_ {
    move |error| StartError { what: what.to_owned(), reason: error.to_string() }
}
