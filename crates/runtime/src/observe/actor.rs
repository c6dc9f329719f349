//! Wrapper of every actor, and its mailbox, the only way to reach it.
//!
//! The wrapper unpacks messages, measures the handling, and distinguishes panics from errors. The measurement surrounds the
//! behaviour and is never inside it. Messages are timestamped, and counted as waiting until they are received.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ractor::rpc::CallResult;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, MessagingErr, RpcReplyPort, SupervisionEvent};
use tokio::task::JoinHandle;

use super::ActorKind;
use super::figures::{ActorMetrics, Handling, Stamp};
use super::log::Panicked;
use super::messages::HANDLING_KIND;
use super::registry::RunningGuard;

/// Result of an actor's callback. An error ends the actor.
pub type ActorResult<T = ()> = Result<T, ActorProcessingErr>;

/// Behaviour of an actor. Like [`ractor::Actor`], except that by default a supervisor survives its children.
pub trait Behaviour: Sized + Send + Sync + 'static {
    /// Kind of the actor.
    const KIND: ActorKind;
    /// Type of its messages.
    type Msg: Send + 'static;
    /// Type of its state.
    type State: Send + 'static;
    /// Type of its arguments.
    type Arguments: Send + 'static;

    /// Name of a message, for its figures.
    fn message_name(_message: &Self::Msg) -> &'static str {
        "message"
    }

    /// Creates the state; runs in the spawner's task.
    fn pre_start(
        &self,
        myself: &Mailbox<Self::Msg>,
        args: Self::Arguments,
    ) -> impl Future<Output = ActorResult<Self::State>> + Send;

    /// Runs before the first message.
    fn post_start(
        &self,
        _myself: &Mailbox<Self::Msg>,
        _state: &mut Self::State,
    ) -> impl Future<Output = ActorResult> + Send {
        async { Ok(()) }
    }

    /// Handles one message.
    fn handle(
        &self,
        myself: &Mailbox<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> impl Future<Output = ActorResult> + Send;

    /// Handles an event of a child.
    fn handle_supervisor_evt(
        &self,
        _myself: &Mailbox<Self::Msg>,
        _event: SupervisionEvent,
        _state: &mut Self::State,
    ) -> impl Future<Output = ActorResult> + Send {
        async { Ok(()) }
    }

    /// Runs after the last message, unless the actor was killed or failed.
    fn post_stop(&self, _state: &mut Self::State) -> impl Future<Output = ActorResult> + Send {
        async { Ok(()) }
    }
}

/// Actor of a behaviour with its measurements.
pub(super) struct MeasuredActor<B> {
    behaviour: B,
    actor_metrics: Arc<ActorMetrics>,
    _presence: RunningGuard,
}

impl<B: Behaviour> MeasuredActor<B> {
    pub(super) fn new(behaviour: B, running_guard: RunningGuard) -> Self {
        Self { behaviour, actor_metrics: Arc::clone(running_guard.actor_metrics()), _presence: running_guard }
    }

    fn mailbox(&self, actor: ActorRef<Envelope<B::Msg>>) -> Mailbox<B::Msg> {
        Mailbox::new(actor, Arc::clone(&self.actor_metrics))
    }

    /// Runs a callback as this actor. Converts a panic into an error of its own type, so that the supervisor can distinguish it.
    async fn caught(&self, future: impl Future<Output = ActorResult> + Send) -> ActorResult {
        // The state is dropped after a panic and never used again.
        match HANDLING_KIND.scope(B::KIND, AssertUnwindSafe(future).catch_unwind()).await {
            Ok(outcome) => outcome,
            Err(panic) => {
                let text = panic_text(panic);
                self.actor_metrics.panicked(&text);
                Err(Panicked(text).into())
            }
        }
    }
}

#[ractor::async_trait]
impl<B: Behaviour> Actor for MeasuredActor<B> {
    type Msg = Envelope<B::Msg>;
    type State = B::State;
    type Arguments = B::Arguments;

    async fn pre_start(&self, myself: ActorRef<Self::Msg>, args: B::Arguments) -> ActorResult<B::State> {
        let myself = self.mailbox(myself);
        self.behaviour.pre_start(&myself, args).await
    }

    async fn post_start(&self, myself: ActorRef<Self::Msg>, state: &mut B::State) -> ActorResult {
        let myself = self.mailbox(myself);
        self.caught(self.behaviour.post_start(&myself, state)).await
    }

    async fn handle(&self, myself: ActorRef<Self::Msg>, envelope: Self::Msg, state: &mut B::State) -> ActorResult {
        let Envelope { message, stamp } = envelope;
        let myself = self.mailbox(myself);
        // Ends together with this future, however it ends.
        let _handling = Handling::begin(&self.actor_metrics, B::message_name(&message), stamp);
        self.caught(self.behaviour.handle(&myself, message, state)).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut B::State,
    ) -> ActorResult {
        let myself = self.mailbox(myself);
        self.caught(self.behaviour.handle_supervisor_evt(&myself, event, state)).await
    }

    async fn post_stop(&self, _: ActorRef<Self::Msg>, state: &mut B::State) -> ActorResult {
        self.caught(self.behaviour.post_stop(state)).await
    }
}

/// The message of a panic.
pub fn panic_text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => panic.downcast_ref::<&str>().map_or("a panic without a message", |words| words).to_owned(),
    }
}

/// A message with its timestamp; only a mailbox creates one.
pub(super) struct Envelope<M> {
    message: M,
    stamp: Stamp,
}

/// Sender of messages to one actor. Clones reach the same actor.
pub struct Mailbox<M> {
    actor: ActorRef<Envelope<M>>,
    actor_metrics: Arc<ActorMetrics>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), actor_metrics: Arc::clone(&self.actor_metrics) }
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.actor.fmt(f)
    }
}

/// Access to status, stop, drain and kill.
impl<M> Deref for Mailbox<M> {
    type Target = ActorCell;

    fn deref(&self) -> &ActorCell {
        &self.actor
    }
}

impl<M> Mailbox<M> {
    pub(super) fn new(actor: ActorRef<Envelope<M>>, actor_metrics: Arc<ActorMetrics>) -> Self {
        Self { actor, actor_metrics }
    }

    /// The actor's cell, for its supervisor.
    pub fn get_cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Metrics of the actor.
    pub fn actor_metrics(&self) -> &ActorMetrics {
        &self.actor_metrics
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// Sends a message. If the actor no longer receives messages, returns it in the error.
    pub fn cast(&self, message: M) -> Result<(), MessagingErr<M>> {
        self.actor_metrics.sent_to();
        let stamp = Stamp::new(&self.actor_metrics);
        self.actor.send_message(Envelope { message, stamp }).map_err(|error| match error {
            MessagingErr::SendErr(envelope) => MessagingErr::SendErr(envelope.message),
            MessagingErr::ChannelClosed => MessagingErr::ChannelClosed,
            MessagingErr::InvalidActorType => MessagingErr::InvalidActorType,
        })
    }

    /// Sends a request and waits for the reply, at most `patience` if given. Compatible with `ractor::call!` and
    /// `call_t!`.
    pub async fn call<R: Send + 'static>(
        &self,
        ask: impl FnOnce(RpcReplyPort<R>) -> M,
        patience: Option<Duration>,
    ) -> Result<CallResult<R>, MessagingErr<M>> {
        let (reply, replied) = ractor::concurrency::oneshot();
        self.cast(ask(reply.into()))?;
        let answer = match patience {
            Some(patience) => tokio::time::timeout(patience, replied).await,
            None => Ok(replied.await),
        };
        Ok(match answer {
            Ok(Ok(answer)) => CallResult::Success(answer),
            Ok(Err(_)) => CallResult::SenderError,
            Err(_) => CallResult::Timeout,
        })
    }

    /// Sends a message after `wait`.
    pub fn send_after(&self, wait: Duration, message: impl FnOnce() -> M + Send + 'static) -> JoinHandle<()> {
        let mailbox = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // An actor that has ended meanwhile needs no reminder.
            let _ = mailbox.cast(message());
        })
    }

    /// Sends messages periodically, the first after `period`, until the actor no longer receives them.
    pub fn send_interval(&self, period: Duration, message: impl Fn() -> M + Send + 'static) -> JoinHandle<()> {
        let mailbox = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            loop {
                ticks.tick().await;
                if mailbox.cast(message()).is_err() {
                    return;
                }
            }
        })
    }
}
