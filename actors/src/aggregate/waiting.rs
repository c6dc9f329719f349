//! Aggregates that only wait, for a fact, a request or their deadline, and have no actor: which actors leave, and how the
//! supervisor starts one when the deadline passes or an outage moves it.
//!
//! Not here: the deadlines (`live`), and the start of an actor for any other message.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use payferry_domain::{Chain, Timestamp};
use payferry_runtime::observe::Mailbox;

use super::actor::Message;
use super::supervisor::State;
use super::{Aggregate, ChainProgress, Supervisor, SupervisorMessage};

/// Aggregates without an actor that are notified at a time. Each is read by itself.
const NOTIFIED_MAX: usize = 200;
/// Longest wait until one of them is done before the next ones are notified.
const NOTIFIED_PATIENCE: Duration = Duration::from_secs(10);

/// A live aggregate in a page that is read to start those that need it.
pub(crate) enum Found<A: Aggregate> {
    /// With its state.
    Whole(Box<A>),
    /// It only waits, which is known without its state.
    Waiting(Waiting<A::Id>),
}

impl<A: Aggregate> Found<A> {
    /// Id of the aggregate.
    pub(crate) fn id(&self) -> A::Id {
        match self {
            Self::Whole(aggregate) => aggregate.id(),
            Self::Waiting(waiting) => waiting.id,
        }
    }
}

/// A live aggregate that only waits.
pub(crate) struct Waiting<I> {
    pub(crate) id: I,
    /// As [`Aggregate::note`].
    pub(crate) note: u64,
    /// Chain of the deadline.
    pub(crate) chain: Chain,
    pub(crate) created_at: Timestamp,
    pub(crate) deadline: Timestamp,
}

/// Knowledge of a supervisor about the aggregates without an actor, and about the actors that may leave.
pub(super) struct Resting<A: Aggregate> {
    /// Aggregates without an actor to notify: of progress of their chain, or else to catch up with all facts. There may be many.
    due: VecDeque<(A::Id, Option<ChainProgress>)>,
    /// Those that were notified and may not be done.
    notified: Vec<A::Id>,
    /// Time of the last notification.
    notified_at: Instant,
    /// Messages that the actors had taken at the last look for those that may leave.
    taken: HashMap<A::Id, u64>,
}

impl<A: Aggregate> Default for Resting<A> {
    fn default() -> Self {
        Self { due: VecDeque::new(), notified: Vec::new(), notified_at: Instant::now(), taken: HashMap::new() }
    }
}

impl<A: Aggregate> Resting<A> {
    /// Has an aggregate without an actor apply all facts soon.
    pub(super) fn catch_up(&mut self, id: A::Id) {
        self.due.push_back((id, None));
    }

    /// Forgets the aggregates that this node does not hold.
    pub(super) fn retain(&mut self, holds: impl Fn(&A::Id) -> bool) {
        self.due.retain(|(id, _)| holds(id));
    }
}

impl<A: Aggregate> Supervisor<A> {
    /// Sends the command about a deadline to an aggregate, unless it has ended since, or is being restarted: then it registers
    /// again. One that only waits is started for it soon.
    pub(super) fn notify(&self, id: A::Id, progress: ChainProgress, state: &mut State<A>) {
        if let Some(actor) = self.aggregates.live(id) {
            let _ = actor.cast(Message::Progressed(progress));
        } else if self.aggregates.waiting(id).is_some() {
            match progress {
                ChainProgress::ReadTo(..) => state.resting.due.push_front((id, Some(progress))),
                ChainProgress::Stalled(..) => state.resting.due.push_back((id, Some(progress))),
            }
        }
    }

    /// Has the actors leave that have had no message since the last time and whose aggregates only wait.
    pub(super) fn rest(&self, state: &mut State<A>) {
        let before = std::mem::take(&mut state.resting.taken);
        for (id, actor) in self.aggregates.live_in(self.index) {
            let taken = actor.actor_metrics().figures().messages;
            if before.get(&id) == Some(&taken) {
                let _ = actor.cast(Message::Rest);
            }
            state.resting.taken.insert(id, taken);
        }
    }

    /// Starts the next aggregates without an actor that something has happened to, as far as earlier ones are done.
    pub(super) async fn notify_waiting(&self, myself: &Mailbox<SupervisorMessage<A>>, state: &mut State<A>) {
        let is_busy = |id: &A::Id| self.aggregates.live(*id).is_some_and(|actor| actor.actor_metrics().depth() > 0);
        if state.resting.notified_at.elapsed() >= NOTIFIED_PATIENCE {
            state.resting.notified.clear();
        }
        state.resting.notified.retain(is_busy);
        while state.resting.notified.len() < NOTIFIED_MAX {
            let Some((id, progress)) = state.resting.due.pop_front() else { break };
            state.resting.notified.push(id);
            state.resting.notified_at = Instant::now();
            let message = progress.map_or(Message::CatchUp, Message::Progressed);
            Box::pin(self.wake(myself, id, Some(message), state)).await;
            if let Some(actor) = self.aggregates.live(id) {
                let _ = actor.cast(Message::Rest);
            }
        }
    }
}
