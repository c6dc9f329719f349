//! Root supervisor: starts the permanent actors and restarts them with back-off when they fail.
//!
//! Payments, payouts and withdrawals are not here: they are children of their shards and of their supervisor, restarted
//! within a [`Budget`].

mod budget;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use ractor::{ActorCell, ActorProcessingErr, RpcReplyPort, SupervisionEvent};

pub use budget::Budget;

use crate::observe::{ActorKind, ActorRegistry, Behaviour, Cause, Mailbox, ended};

/// Initial pause before a failed actor is restarted; doubles with each failure.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Upper limit of the pause.
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// After running this long, an actor starts with the shortest pause again.
pub const BACKOFF_FORGIVEN_AFTER: Duration = Duration::from_mins(1);

/// Starts an actor under the given supervisor.
pub type Start = Arc<dyn Fn(ActorCell) -> BoxFuture<'static, Result<ActorCell, ActorProcessingErr>> + Send + Sync>;

/// Cleanup after an actor has failed, before its restart, which may take a while.
pub type Forget = Arc<dyn Fn() + Send + Sync>;

/// Permanent actor.
pub struct Child {
    /// Kind.
    pub kind: ActorKind,
    /// Name.
    pub name: String,
    /// Starts it.
    pub start: Start,
    /// Runs when it has failed.
    pub forget: Forget,
}

/// Message to the root supervisor.
pub enum RootMessage {
    /// Start an actor and keep it running from now on. If the first start fails, the caller gets the error.
    Adopt(Child, RpcReplyPort<Result<(), String>>),
    /// Restart the child.
    Restart(usize),
    /// Kill all children of a kind in the middle of their work, like a crash.
    #[cfg(feature = "faults")]
    Kill(ActorKind),
    /// Stop all children of these kinds and do not restart them; replies when they have stopped.
    Retire(Vec<ActorKind>, RpcReplyPort<()>),
}

/// Root supervisor.
pub struct Root {
    /// Registry that records failures.
    pub registry: ActorRegistry,
}

struct Slot {
    child: Child,
    cell: Option<ActorCell>,
    started: Instant,
    pause: Duration,
    retired: bool,
}

/// The permanent actors.
#[derive(Default)]
pub struct State {
    slots: Vec<Slot>,
}

/// Time that a retired actor has to finish its work.
const RETIRE_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum time of a restart. The root handles nothing else meanwhile.
const START_PATIENCE: Duration = Duration::from_secs(1);

impl Behaviour for Root {
    const KIND: ActorKind = ActorKind::Root;
    type Msg = RootMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: &Mailbox<RootMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: &Mailbox<RootMessage>,
        message: RootMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RootMessage::Adopt(child, reply) => {
                let started = (child.start)(myself.get_cell()).await;
                let answer = started.as_ref().map(|_| ()).map_err(ToString::to_string);
                if let Ok(cell) = started {
                    let (started, pause) = (Instant::now(), BACKOFF_MIN);
                    state.slots.push(Slot { child, cell: Some(cell), started, pause, retired: false });
                }
                let _ = reply.send(answer);
            }
            RootMessage::Restart(index) => self.restart(myself, index, state).await,
            #[cfg(feature = "faults")]
            RootMessage::Kill(kind) => {
                let hit = state.slots.iter().filter(|slot| slot.child.kind == kind);
                hit.filter_map(|slot| slot.cell.as_ref()).for_each(ActorCell::kill);
            }
            RootMessage::Retire(kinds, reply) => {
                let retired = state.slots.iter_mut().filter(|slot| kinds.contains(&slot.child.kind));
                let stopping: Vec<_> = retired
                    .filter_map(|slot| {
                        slot.retired = true;
                        slot.cell.take()
                    })
                    .collect();
                futures::future::join_all(stopping.iter().map(stop)).await;
                let _ = reply.send(());
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: &Mailbox<RootMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        let is_its = |slot: &&mut Slot| slot.cell.as_ref().is_some_and(|live| live.get_id() == cell.get_id());
        let Some((index, slot)) = state.slots.iter_mut().enumerate().find(|(_, slot)| is_its(slot)) else {
            return Ok(());
        };
        slot.cell = None;
        (slot.child.forget)();
        if slot.started.elapsed() >= BACKOFF_FORGIVEN_AFTER {
            slot.pause = BACKOFF_MIN;
        }
        self.registry.restarted(slot.child.kind, &slot.child.name, cause, &reason);
        myself.send_after(slot.pause, move || RootMessage::Restart(index));
        slot.pause = (slot.pause * 2).min(BACKOFF_MAX);
        Ok(())
    }
}

impl Root {
    async fn restart(&self, myself: &Mailbox<RootMessage>, index: usize, state: &mut State) {
        let Some(slot) = state.slots.get_mut(index).filter(|slot| !slot.retired && slot.cell.is_none()) else { return };
        let started = tokio::time::timeout(START_PATIENCE, (slot.child.start)(myself.get_cell())).await;
        match started.unwrap_or_else(|_| Err("it did not start in time".into())) {
            Ok(cell) => {
                slot.cell = Some(cell);
                slot.started = Instant::now();
            }
            Err(error) => {
                let error = error.to_string();
                self.registry.restarted(slot.child.kind, &slot.child.name, Cause::Start, &error);
                myself.send_after(slot.pause, move || RootMessage::Restart(index));
                slot.pause = (slot.pause * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// Lets the actor finish its queue; kills it if that takes too long.
async fn stop(cell: &ActorCell) {
    if cell.drain_and_wait(Some(RETIRE_PATIENCE)).await.is_err() {
        cell.kill();
    }
}
