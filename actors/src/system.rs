//! One running tree: started over a database, reached through a handle, stopped in order.
//!
//! Nothing here is global: a test starts as many as it likes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::RwLock;
use payferry_domain::payment::{self, ChainCandidate, ChainChoice, Command, Payment, Rejection, Terms};
use payferry_domain::{Amount, Chain, CustomerId, MerchantId, PaymentId, PspId, Token};
use payferry_entities::Database;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use crate::chain::{
    ChainClient, ChainSpec, ChainView, Checkpoint, Settler, SettlerArgs, WakeUps, Watcher, WatcherArgs,
};
use crate::chains::Chains;
use crate::clock::Clock;
use crate::compliance::{KytScreener, Screening, ScreeningConfig};
use crate::inbox::PaymentInbox;
use crate::journal::{Journal, JournalError, JournalTask, Unit};
use crate::observe::{ActorKind, Incident, Quarantine, SupervisionLog};
use crate::payment::{
    AnswerRow, Ask, CommandFailure, Message, PaymentView, Router, Services, Shard, ShardMessage, store,
};
use crate::psps::{PspDirectory, PspError};
use crate::seal::Sealer;
use crate::supervise::{Child, Root, RootMessage, Start};
use crate::wallet::{OperatorSigner, Vaults};
use crate::webhook::{WebhookConfig, WebhookSender};

/// Shard supervisors of one tree, unless configured otherwise.
pub const SHARDS_DEFAULT: usize = 16;
/// How long a command waits for its payment before the caller is told to try again.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the journal may take to flush when the tree stops.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long each half of the tree may take to stop, milliseconds.
const RETIRE_TIMEOUT_MS: u64 = 3_000;
/// Random bytes of a magic link.
const LINK_TOKEN_BYTES: usize = 24;

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

/// A payment as it is asked for. Everything in it was validated; the merchant is the PSP's.
pub struct InitiatePayment {
    /// Whose.
    pub psp_id: PspId,
    /// For which merchant.
    pub merchant_id: MerchantId,
    /// Who pays, if named.
    pub customer_id: Option<CustomerId>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// The PSP's own object.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// What is due.
    pub amount: Amount,
    /// In which token.
    pub token: Token,
    /// On which chain.
    pub chain: ChainAsked,
    /// Seconds until it expires.
    pub expires_in_secs: i64,
    /// Makes the idempotency row of the answer.
    pub answer: Option<AnswerRow>,
}

/// The chain of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainAsked {
    /// This one.
    Named(Chain),
    /// The service chooses.
    Best,
}

/// Why a payment was not made. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InitiateError {
    /// The token is not taken on that chain, or on none.
    #[error("{token} is not available{}", .chain.map(|chain| format!(" on {chain}")).unwrap_or_default())]
    TokenUnavailable {
        /// Which.
        token: Token,
        /// Where; `None` for `best`.
        chain: Option<Chain>,
    },
    /// The chain does not answer or has stopped; `None`: all of them.
    #[error("the chain is not available at the moment")]
    ChainAway {
        /// Which.
        chain: Option<Chain>,
        /// What `best` looked at.
        candidates: Vec<ChainCandidate>,
    },
    /// The PSP's policy wants a customer.
    #[error("this PSP requires a customer")]
    CustomerRequired,
    /// The idempotency key is taken: read the answer kept with it.
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// Too much at once; try again soon.
    #[error("too many payments are being made at the moment")]
    Busy,
    /// The database is away; try again.
    #[error("{0}")]
    Unavailable(String),
    /// The commit's outcome is unknown: with an idempotency key, try again.
    #[error("{0}")]
    Unknown(String),
}

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// There is no such payment.
    #[error("no such payment")]
    NotFound,
    /// It does not fit the payment.
    #[error(transparent)]
    Rejected(Rejection),
    /// The payment failed too often and waits for an operator.
    #[error("the payment is quarantined")]
    Quarantined,
    /// The idempotency key is taken.
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// Try again; with an idempotency key, or after a look at the payment.
    #[error("{0}")]
    Unavailable(String),
}

/// Why a tree did not start.
#[derive(Debug, thiserror::Error)]
#[error("the {what} did not start: {reason}")]
pub struct StartError {
    what: String,
    reason: String,
}

/// What the tree shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct SystemView {
    /// Whether every shard has read its live payments.
    pub ready: bool,
    /// Live payment actors.
    pub payments_live: usize,
    /// Payment actors started so far.
    pub payments_spawned: u64,
    /// Restarts so far.
    pub restarts: BTreeMap<ActorKind, u64>,
    /// Payments given up until an operator looks at them.
    pub quarantined: BTreeMap<PaymentId, Quarantine>,
    /// Recent incidents, newest first.
    pub incidents: Vec<Incident>,
}

/// Handle to a running tree. Clones are the same tree.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
}

struct Inner {
    services: Arc<Services>,
    sealer: Sealer,
    root: ActorRef<RootMessage>,
    /// The journal's task; ends with the tree.
    _writing: AbortOnDropHandle<()>,
}

impl System {
    /// Starts the tree: journal, webhook sender, screening, settlers, shards with their live payments, watchers last,
    /// so that nothing is told to payments before there is somebody to tell.
    pub async fn start(config: SystemConfig) -> Result<Self, StartError> {
        let SystemConfig { database, sealer, clock, chains: setups, screener, screening, webhooks, shards } = config;
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

    /// Makes a payment; it is durable and watched when this returns.
    pub async fn initiate(&self, request: InitiatePayment) -> Result<Payment, InitiateError> {
        let services = &self.inner.services;
        let psp = services.psps.get(request.psp_id).await.map_err(|error| match error {
            PspError::Unknown | PspError::Unreadable(..) | PspError::Unavailable(_) => {
                InitiateError::Unavailable(error.to_string())
            }
        })?;
        if psp.policies.require_customer && request.customer_id.is_none() {
            return Err(InitiateError::CustomerRequired);
        }
        let (chain, chain_choice) = self.choose(request.token, request.chain)?;
        let unavailable = InitiateError::TokenUnavailable { token: request.token, chain: Some(chain) };
        let spec = services.chains.spec(chain).ok_or(unavailable.clone())?;
        let token_address = spec.token_address(request.token).ok_or(unavailable)?;
        let id = PaymentId::generate();
        let now = services.clock.now();
        let terms = Terms {
            id,
            psp_id: request.psp_id,
            merchant_id: request.merchant_id,
            customer_id: request.customer_id,
            reference: request.reference,
            metadata: request.metadata,
            amount: request.amount,
            token: request.token,
            token_address,
            chain,
            chain_choice,
            wallet: Vaults::new(spec.contract).of_payment(id),
            link_token: link_token(),
            fee_bps: psp.policies.fee_bps,
            tolerance: psp.policies.tolerance,
            overpayment: psp.policies.overpayment,
            refund_to_sender: psp.policies.refund_to_sender,
            dust_floor: psp.policies.dust_floor,
            finality: spec.finality,
            created_at: now,
        };
        let transition = payment::initiate(terms, now.plus_secs(request.expires_in_secs));
        let row = request.answer.map(|answer| answer(&transition.payment));
        let unit = store::initiation_unit(&transition, row).map_err(|e| InitiateError::Unavailable(e.to_string()))?;
        // What is queued is written whether or not the caller waits for it, and then it must be looked after.
        let services = services.clone();
        let made = tokio::spawn(async move {
            match services.journal.submit(Unit::Initiation(Box::new(unit))).await {
                Ok(_) => Ok(bring_to_life(&services, transition).await),
                Err(error) => {
                    if matches!(error, JournalError::Unknown(_)) {
                        // If it is there after all, it is looked after.
                        services.router.send(id, Message::Resume);
                    }
                    Err(error)
                }
            }
        });
        let made = made.await.unwrap_or_else(|error| Err(JournalError::Unknown(error.to_string())));
        made.map_err(|error| match error {
            JournalError::IdempotencyKeyTaken => InitiateError::IdempotencyKeyTaken,
            JournalError::Busy => InitiateError::Busy,
            JournalError::Unknown(_) => InitiateError::Unknown(error.to_string()),
            other => InitiateError::Unavailable(other.to_string()),
        })
    }

    fn choose(&self, token: Token, asked: ChainAsked) -> Result<(Chain, ChainChoice), InitiateError> {
        let chains = &self.inner.services.chains;
        let now = self.inner.services.clock.now();
        match asked {
            ChainAsked::Named(chain) => {
                let spec = chains.spec(chain);
                if spec.is_some_and(|spec| spec.token_address(token).is_none()) {
                    return Err(InitiateError::TokenUnavailable { token, chain: Some(chain) });
                }
                match chains.view(chain) {
                    Some(view) if !view.is_stale(now) => Ok((chain, ChainChoice::Asked)),
                    _ => Err(InitiateError::ChainAway { chain: Some(chain), candidates: Vec::new() }),
                }
            }
            ChainAsked::Best => match chains.selector().best(token, now) {
                Ok(choice) => Ok((choice.chain, ChainChoice::Best { candidates: choice.candidates })),
                Err(none) => {
                    let taken = |chain: &Chain| chains.spec(*chain).is_some_and(|s| s.token_address(token).is_some());
                    if Chain::ALL.iter().any(taken) {
                        Err(InitiateError::ChainAway { chain: None, candidates: none.candidates })
                    } else {
                        Err(InitiateError::TokenUnavailable { token, chain: None })
                    }
                }
            },
        }
    }

    /// Has a payment carry out a person's command; answers the payment afterwards.
    pub async fn command(
        &self,
        payment_id: PaymentId,
        command: Command,
        answer: Option<AnswerRow>,
    ) -> Result<Payment, CommandError> {
        let (reply, replied) = ractor::concurrency::oneshot();
        let ask = Ask { command, answer, reply: reply.into() };
        self.inner.services.router.send(payment_id, Message::Ask(Box::new(ask)));
        let away = |what: &str| CommandError::Unavailable(format!("the payment {what}"));
        match tokio::time::timeout(COMMAND_TIMEOUT, replied).await {
            Ok(Ok(Ok(payment))) => Ok(payment),
            Ok(Ok(Err(failure))) => Err(failure.into()),
            Ok(Err(_)) => Err(away("was interrupted")),
            Err(_) => Err(away("did not answer in time")),
        }
    }

    /// Shows a live payment's actor; `None` if it has none.
    pub async fn observe_payment(&self, payment_id: PaymentId) -> Option<PaymentView> {
        let actor = self.inner.services.router.live(payment_id)?;
        let (reply, replied) = ractor::concurrency::oneshot();
        actor.cast(Message::Observe(reply.into())).ok()?;
        tokio::time::timeout(COMMAND_TIMEOUT, replied).await.ok()?.ok()
    }

    /// Makes a payment's actor panic with its next message: to see, in the sandbox and in tests, that nothing is lost.
    pub fn inject_panic(&self, payment_id: PaymentId) {
        self.inner.services.router.send(payment_id, Message::Panic);
    }

    /// Kills all permanent actors of a kind in the middle of whatever they do: to see, in tests, that nothing is lost.
    pub fn inject_crash(&self, kind: ActorKind) {
        let _ = self.inner.root.cast(RootMessage::Kill(kind));
    }

    /// Lets a quarantined payment run again; answers whether it was quarantined.
    pub fn release(&self, payment_id: PaymentId) -> bool {
        let services = &self.inner.services;
        let released = services.log.release(payment_id);
        if released {
            services.router.send(payment_id, Message::Resume);
        }
        released
    }

    /// What the tree shows of itself.
    pub fn observe(&self) -> SystemView {
        let services = &self.inner.services;
        SystemView {
            ready: self.is_ready(),
            payments_live: services.router.live_len(),
            payments_spawned: services.router.spawned(),
            restarts: services.log.restarts(),
            quarantined: services.log.quarantine(),
            incidents: services.log.recent(),
        }
    }

    /// Whether every shard has read its live payments.
    pub fn is_ready(&self) -> bool {
        self.inner.services.rehydrated.load(Ordering::Acquire) >= self.inner.services.router.shards_len()
    }

    /// How a chain stood when it was last looked at; `None` if it does not run here or was not looked at yet.
    pub fn chain_view(&self, chain: Chain) -> Option<ChainView> {
        self.inner.services.chains.view(chain)
    }

    /// The chains that run here.
    pub fn chains(&self) -> &Chains {
        &self.inner.services.chains
    }

    /// The webhook sender. It may have just been restarted: hold it for one call.
    pub fn webhooks(&self) -> WebhookSender {
        self.inner.services.webhooks.read().clone().expect("set before the tree is handed out")
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.inner.services.database
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.inner.services.journal
    }

    /// The service's time.
    pub fn clock(&self) -> &Clock {
        &self.inner.services.clock
    }

    /// Seals secrets.
    pub fn sealer(&self) -> &Sealer {
        &self.inner.sealer
    }

    /// The PSPs' policies.
    pub fn psps(&self) -> &PspDirectory {
        &self.inner.services.psps
    }

    /// Stops the tree in order: nothing new comes in, what is queued is handled, and the journal is flushed. Bounded in
    /// time; whatever is cut short is resumed at the next start.
    pub async fn stop(self) {
        let outer = vec![ActorKind::Watcher, ActorKind::Settler, ActorKind::WebhookSender, ActorKind::Screening];
        for kinds in [outer, vec![ActorKind::Shard]] {
            let retired =
                ractor::call_t!(self.inner.root, |reply| RootMessage::Retire(kinds, reply), RETIRE_TIMEOUT_MS);
            if let Err(error) = retired {
                tracing::error!(%error, "some actors did not stop in time");
            }
        }
        if tokio::time::timeout(FLUSH_TIMEOUT, self.inner.services.journal.close()).await.is_err() {
            tracing::error!(
                "the journal could not be flushed in time; what was not committed was not acknowledged either"
            );
        }
        self.inner.root.stop(None);
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
        F: Fn(ActorCell) -> futures::future::BoxFuture<'static, Result<ActorCell, ActorProcessingErr>>
            + Send
            + Sync
            + 'static,
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

impl Drop for Inner {
    /// A tree that nobody holds ends at once, as by a crash: it would go on without its journal.
    fn drop(&mut self) {
        self.root.kill();
    }
}

/// Gives a committed payment its actor and has it watched. Where that fails, its shard wakes it.
async fn bring_to_life(services: &Arc<Services>, transition: payment::Transition) -> Payment {
    let payment = transition.payment;
    let id = payment.id();
    services.chains.watchlist().watch(payment.terms.wallet, id);
    let spawned = match services.router.shard_of(id) {
        Some(shard) => services.router.spawn(services, payment.clone(), shard.get_cell()).await.map(|_| ()),
        None => Err("there is no shard yet".into()),
    };
    match spawned {
        Ok(()) => transition.effects.iter().for_each(|effect| services.carry_out(&payment, effect)),
        Err(error) => {
            tracing::warn!(payment.id = %id, %error, "payment {id} has no actor yet");
            services.router.send(id, Message::Resume);
        }
    }
    payment
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

/// The unguessable part of a magic link: 24 random bytes, URL-safe.
fn link_token() -> String {
    use base64::Engine;
    let random: [u8; LINK_TOKEN_BYTES] = rand::random();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random)
}

impl From<CommandFailure> for CommandError {
    fn from(failure: CommandFailure) -> Self {
        match failure {
            CommandFailure::Rejected(rejection) => Self::Rejected(rejection),
            CommandFailure::IdempotencyKeyTaken => Self::IdempotencyKeyTaken,
            CommandFailure::Unknown => Self::NotFound,
            CommandFailure::Quarantined => Self::Quarantined,
            CommandFailure::Unavailable(reason) => Self::Unavailable(reason),
        }
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("payments_live", &self.inner.services.router.live_len()).finish_non_exhaustive()
    }
}
