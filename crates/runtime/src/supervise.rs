//! Root supervisor: starts the permanent actors and restarts them with back-off when they fail.
//!
//! Payments, payouts and withdrawals are not here: they are children of their shards and of their supervisor, restarted
//! within a [`Budget`].

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use ractor::{ActorCell, RpcReplyPort, SupervisionEvent};

use crate::observe::{ActorKind, ActorRegistry, ActorResult, Behaviour, Cause, Mailbox, ended};

/// After running this long, an actor starts with the shortest pause again.
const FORGIVEN_AFTER: Duration = Duration::from_mins(1);

/// Returns `min`, doubled for each of these failures, at most `max`.
pub fn doubled(min: Duration, max: Duration, failures: u32) -> Duration {
    min.saturating_mul(2_u32.saturating_pow(failures)).min(max)
}

/// Pause before a failed actor is restarted: doubles with each failure, and is the shortest again after a long run.
#[derive(Debug)]
pub struct RestartPause {
    min: Duration,
    max: Duration,
    failures: u32,
    /// Start of the current run; `None` while the actor is down.
    started: Option<Instant>,
}

impl RestartPause {
    /// Creates the pauses of an actor that is not running.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0, started: None }
    }

    /// Records a start.
    pub fn started(&mut self) {
        self.started = Some(Instant::now());
    }

    /// Records a failure, of the run or of the start, and returns the pause before the next start.
    pub fn after_failure(&mut self) -> Duration {
        if self.started.take().is_some_and(|started| started.elapsed() >= FORGIVEN_AFTER) {
            self.failures = 0;
        }
        let pause = doubled(self.min, self.max, self.failures);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

/// Starts an actor under the given supervisor.
pub type Start = Arc<dyn Fn(ActorCell) -> BoxFuture<'static, ActorResult<ActorCell>> + Send + Sync>;

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
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RootMessage {
    /// Start an actor and keep it running from now on. If the first start fails, the caller gets the error.
    Adopt(Child, RpcReplyPort<Result<(), String>>),
    /// Restart the child.
    Restart(usize),
    /// Kill all children of a kind in the middle of their work, like a crash.
    #[cfg(feature = "faults")]
    Kill(ActorKind),
    /// Stop these children, by kind and name, and do not restart them; replies when they have stopped. They can be adopted
    /// again.
    Release(Vec<(ActorKind, String)>, RpcReplyPort<()>),
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
    pause: RestartPause,
    retired: bool,
}

/// The permanent actors.
#[derive(Default)]
pub struct State {
    slots: Vec<Slot>,
}

/// Initial pause before a failed actor is restarted.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Upper limit of the pause.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time that a retired actor has to finish its work.
const RETIRE_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum time of a restart. The root handles nothing else meanwhile.
const START_PATIENCE: Duration = Duration::from_secs(1);

impl Behaviour for Root {
    const KIND: ActorKind = ActorKind::Root;
    type Msg = RootMessage;
    type State = State;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, _: &Mailbox<RootMessage>, (): ()) -> ActorResult<State> {
        Ok(State::default())
    }

    async fn handle(&self, myself: &Mailbox<RootMessage>, message: RootMessage, state: &mut State) -> ActorResult {
        match message {
            RootMessage::Adopt(child, reply) => {
                let started = (child.start)(myself.get_cell()).await;
                let answer = started.as_ref().map(|_| ()).map_err(ToString::to_string);
                if let Ok(cell) = started {
                    let mut pause = RestartPause::new(RESTART_PAUSE_MIN, RESTART_PAUSE_MAX);
                    pause.started();
                    let is_same = |slot: &&mut Slot| {
                        slot.retired && (slot.child.kind, &slot.child.name) == (child.kind, &child.name)
                    };
                    let released = state.slots.iter_mut().find(is_same);
                    let slot = Slot { child, cell: Some(cell), pause, retired: false };
                    match released {
                        Some(released) => *released = slot,
                        None => state.slots.push(slot),
                    }
                }
                let _ = reply.send(answer);
            }
            RootMessage::Restart(index) => self.restart(myself, index, state).await,
            #[cfg(feature = "faults")]
            RootMessage::Kill(kind) => {
                let hit = state.slots.iter().filter(|slot| slot.child.kind == kind);
                hit.filter_map(|slot| slot.cell.as_ref()).for_each(ActorCell::kill);
            }
            RootMessage::Release(children, reply) => {
                let is_named =
                    |child: &Child| children.iter().any(|(kind, name)| (*kind, name) == (child.kind, &child.name));
                state.retire(is_named).await;
                let _ = reply.send(());
            }
            RootMessage::Retire(kinds, reply) => {
                state.retire(|child| kinds.contains(&child.kind)).await;
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
    ) -> ActorResult {
        let Some((cell, cause, reason)) = ended(event) else { return Ok(()) };
        let is_its = |slot: &&mut Slot| slot.cell.as_ref().is_some_and(|live| live.get_id() == cell.get_id());
        let Some((index, slot)) = state.slots.iter_mut().enumerate().find(|(_, slot)| is_its(slot)) else {
            return Ok(());
        };
        slot.cell = None;
        (slot.child.forget)();
        self.registry.restarted(slot.child.kind, &slot.child.name, cause, &reason);
        myself.send_after(slot.pause.after_failure(), move || RootMessage::Restart(index));
        Ok(())
    }
}

impl State {
    /// Stops children and does not restart them; returns when they have stopped.
    async fn retire(&mut self, is_retired: impl Fn(&Child) -> bool) {
        let retired = self.slots.iter_mut().filter(|slot| is_retired(&slot.child));
        let stopping: Vec<_> = retired
            .filter_map(|slot| {
                slot.retired = true;
                slot.cell.take()
            })
            .collect();
        futures::future::join_all(stopping.iter().map(stop)).await;
    }
}

impl Root {
    async fn restart(&self, myself: &Mailbox<RootMessage>, index: usize, state: &mut State) {
        let Some(slot) = state.slots.get_mut(index).filter(|slot| !slot.retired && slot.cell.is_none()) else { return };
        let started = tokio::time::timeout(START_PATIENCE, (slot.child.start)(myself.get_cell())).await;
        match started.unwrap_or_else(|_| Err("it did not start in time".into())) {
            Ok(cell) => {
                slot.cell = Some(cell);
                slot.pause.started();
            }
            Err(error) => {
                let error = error.to_string();
                self.registry.restarted(slot.child.kind, &slot.child.name, Cause::Start, &error);
                myself.send_after(slot.pause.after_failure(), move || RootMessage::Restart(index));
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

/// Restarts within the window before the quarantine.
pub const RESTARTS_MAX: u32 = 3;
/// Length of the window.
pub const RESTARTS_WINDOW: Duration = Duration::from_mins(1);

/// Budget of restarts within a time window, before an actor is quarantined: for payments under their shards, and for
/// payouts and withdrawals under their supervisor. Holds the recent failures by actor.
#[derive(Debug)]
pub struct Budget<K> {
    failures: HashMap<K, VecDeque<Instant>>,
}

impl<K> Default for Budget<K> {
    fn default() -> Self {
        Self { failures: HashMap::new() }
    }
}

impl<K: Eq + Hash> Budget<K> {
    /// Records a failure; returns its number within the window, counted from 1. `None` if the budget is exceeded: the
    /// actor must be quarantined, and its budget is full again after a release.
    pub fn spend(&mut self, of: K, now: Instant) -> Option<u32> {
        let failures = self.failures.entry(of).or_default();
        failures.retain(|failure| now.duration_since(*failure) < RESTARTS_WINDOW);
        failures.push_back(now);
        let nth = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        if nth > RESTARTS_MAX {
            failures.clear();
            return None;
        }
        Some(nth)
    }

    /// Drops failures outside of the window.
    pub fn forget_old(&mut self, now: Instant) {
        let is_recent = |last: &Instant| now.duration_since(*last) < RESTARTS_WINDOW;
        self.failures.retain(|_, failures| failures.back().is_some_and(is_recent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_three_failures_within_a_minute() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        assert_eq!([0, 10, 20].map(|secs| budget.spend("bad", at(secs))), [Some(1), Some(2), Some(3)]);
        assert_eq!(budget.spend("other", at(21)), Some(1), "each key has its own budget");
        // The first failure is a minute old by then.
        assert_eq!(budget.spend("bad", at(60)), Some(3));
        assert_eq!(budget.spend("bad", at(61)), None);
        assert_eq!(budget.spend("bad", at(62)), Some(1), "the budget is full after a release");
    }

    #[test]
    fn drops_old_failures() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        budget.spend("old", start);
        budget.spend("recent", start + Duration::from_secs(30));
        for _ in 0..=RESTARTS_MAX {
            budget.spend("given up", start + Duration::from_secs(30));
        }
        budget.forget_old(start + RESTARTS_WINDOW);
        assert_eq!(budget.failures.keys().collect::<Vec<_>>(), [&"recent"]);
    }
}
