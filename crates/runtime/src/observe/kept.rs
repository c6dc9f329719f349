//! What every actor runs in: takes the message out of its envelope, times the handling, and tells a panic from an error.
//!
//! The bookkeeping stands around the behaviour and never inside it.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::ActorKind;
use super::books::Presence;
use super::figures::{ActorBooks, Handling};
use super::log::Panicked;
use super::mailbox::{Envelope, Mailbox};

/// What an actor does. As [`ractor::Actor`], except that a supervisor survives its children unless it says otherwise.
pub trait Behaviour: Sized + Send + Sync + 'static {
    /// Its kind.
    const KIND: ActorKind;
    /// What it is told.
    type Msg: Send + 'static;
    /// What it remembers.
    type State: Send + 'static;
    /// What it is started with.
    type Arguments: Send + 'static;

    /// Makes the state; runs in the spawner's task.
    fn pre_start(
        &self,
        myself: &Mailbox<Self::Msg>,
        args: Self::Arguments,
    ) -> impl Future<Output = Result<Self::State, ActorProcessingErr>> + Send;

    /// Before the first message.
    fn post_start(
        &self,
        _myself: &Mailbox<Self::Msg>,
        _state: &mut Self::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        async { Ok(()) }
    }

    /// One message.
    fn handle(
        &self,
        myself: &Mailbox<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send;

    /// What happened to a child.
    fn handle_supervisor_evt(
        &self,
        _myself: &Mailbox<Self::Msg>,
        _event: SupervisionEvent,
        _state: &mut Self::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        async { Ok(()) }
    }

    /// After the last message, unless it was killed or failed.
    fn post_stop(&self, _state: &mut Self::State) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        async { Ok(()) }
    }
}

/// A behaviour with its books.
pub(super) struct Kept<B> {
    behaviour: B,
    books: Arc<ActorBooks>,
    _presence: Presence,
}

impl<B: Behaviour> Kept<B> {
    pub(super) fn new(behaviour: B, presence: Presence) -> Self {
        Self { behaviour, books: Arc::clone(presence.books()), _presence: presence }
    }

    fn mailbox(&self, actor: ActorRef<Envelope<B::Msg>>) -> Mailbox<B::Msg> {
        Mailbox::new(actor, Arc::clone(&self.books))
    }
}

#[ractor::async_trait]
impl<B: Behaviour> Actor for Kept<B> {
    type Msg = Envelope<B::Msg>;
    type State = B::State;
    type Arguments = B::Arguments;

    async fn pre_start(&self, myself: ActorRef<Self::Msg>, args: B::Arguments) -> Result<B::State, ActorProcessingErr> {
        let myself = self.mailbox(myself);
        self.behaviour.pre_start(&myself, args).await
    }

    async fn post_start(&self, myself: ActorRef<Self::Msg>, state: &mut B::State) -> Result<(), ActorProcessingErr> {
        let myself = self.mailbox(myself);
        caught(self.behaviour.post_start(&myself, state)).await
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        envelope: Self::Msg,
        state: &mut B::State,
    ) -> Result<(), ActorProcessingErr> {
        let Envelope { message, stamp } = envelope;
        let myself = self.mailbox(myself);
        // Ends with this future, however that ends.
        let _handling = Handling::begin(&self.books, stamp);
        caught(self.behaviour.handle(&myself, message, state)).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut B::State,
    ) -> Result<(), ActorProcessingErr> {
        let myself = self.mailbox(myself);
        caught(self.behaviour.handle_supervisor_evt(&myself, event, state)).await
    }

    async fn post_stop(&self, _: ActorRef<Self::Msg>, state: &mut B::State) -> Result<(), ActorProcessingErr> {
        caught(self.behaviour.post_stop(state)).await
    }
}

/// Makes a panic an error of its own kind, so that the supervisor can tell.
async fn caught(future: impl Future<Output = Result<(), ActorProcessingErr>> + Send) -> Result<(), ActorProcessingErr> {
    // Whoever panicked is not run again: its state is dropped with it.
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => Err(Panicked(words_of(panic)).into()),
    }
}

/// The message of a panic.
pub fn words_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => panic.downcast_ref::<&str>().map_or("a panic without a message", |words| words).to_owned(),
    }
}
