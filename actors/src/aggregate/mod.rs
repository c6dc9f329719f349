//! Runner of aggregates: payments, and payouts and withdrawals.
//!
//! The domain decides, and the database holds the state. The actor of an aggregate runs one command at a time,
//! supervisors start and restart the actors, and [`Aggregates`] finds them. Deliberately absent: differences between the
//! kinds, which implement [`Aggregate`].

mod actor;
mod live;
mod loading;
pub(crate) mod metrics;
mod router;
mod supervisor;
mod waiting;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::time::Duration;

use payferry_domain::payment::Outage;
use payferry_domain::{Address, Chain, PaymentId, Timestamp};
use payferry_entities::{Database, StoreError};
use payferry_journal::JournalWrite;
use payferry_runtime::observe::{ActorKind, ActorMetrics};
use serde::Serialize;

use crate::failed::Failed;
use crate::observe::{ActorSubject, Quarantinable};

pub use actor::ActorMemory;
pub(crate) use actor::{Message, Request};
pub(crate) use router::{Aggregates, Services};
pub(crate) use supervisor::{Supervisor, SupervisorMessage};
pub(crate) use waiting::{Found, Waiting};

/// A kind of aggregate with actors.
pub(crate) trait Aggregate: Clone + Send + Sync + Sized + 'static {
    /// Id.
    type Id: Copy + Eq + Ord + Hash + Display + Into<ActorSubject> + Into<Quarantinable> + Send + Sync + 'static;
    /// Fact or request.
    type Command: Send + Sync + 'static;
    /// Reason why the domain rejects a command.
    type Rejection: Error + Clone + Send + Sync + 'static;
    /// Effect to run after a commit.
    type Effect: Clone + Debug + PartialEq + Serialize + Send + Sync + 'static;
    /// Result of a command that changes the aggregate.
    type Transition: Send;
    /// Rows that a request adds to its result.
    type Rows: Default + Send + Sync + 'static;
    /// Services that only aggregates of this kind use.
    type Own: Send + Sync + 'static;
    /// Summary of a live aggregate.
    type Line;

    /// Kind of the actors.
    const KIND: ActorKind;
    /// Kind of the supervisors.
    const SUPERVISOR: ActorKind;
    /// Error of a message that no supervisor accepts.
    const NOT_RUNNING: &'static str;
    /// The effect of an aggregate that needs no actor any more.
    const PASSIVATE: Self::Effect;

    /// Id of the aggregate.
    fn id(&self) -> Self::Id;
    /// Number of transitions.
    fn version(&self) -> u32;
    /// Name of a command, for the figures of messages.
    fn command_name(_command: &Self::Command) -> &'static str {
        "command"
    }
    /// Context of the trace that it belongs to.
    fn traceparent(&self) -> Option<&str>;
    /// The step outside of the aggregate that a command reports, for its trace: its name, and when it began.
    fn step_before(&self, _command: &Self::Command) -> Option<(&'static str, Timestamp)> {
        None
    }
    /// Name of the status.
    fn status_name(&self) -> &'static str;
    /// True if the aggregate needs an actor.
    fn needs_actor(&self) -> bool;
    /// Packed summary, which [`Self::line`] unpacks.
    fn note(&self) -> u64;
    /// Summary of the live aggregate from its note, and its actor if it has one.
    fn line(id: Self::Id, note: u64, actor: Option<&ActorMetrics>) -> Self::Line;
    /// All effects that are still due.
    fn resume(&self) -> Vec<Self::Effect>;

    /// Logical shard of an id.
    fn shard(id: Self::Id) -> u8;
    /// Wall-clock time when the id was generated.
    fn made_at(id: Self::Id) -> Timestamp;

    /// Loads one aggregate.
    fn load(database: &Database, id: Self::Id) -> impl Future<Output = Result<Option<Self>, StoreError>> + Send;
    /// Page of the live aggregates of some logical shards, by id, after `after`; an empty page is the end. Unreadable
    /// rows are skipped and logged: they must not keep the others from starting.
    fn load_live(
        database: &Database,
        shards: RangeInclusive<u8>,
        after: Option<Self::Id>,
        limit: u64,
    ) -> impl Future<Output = Result<Vec<Found<Self>>, StoreError>> + Send;
    /// Like [`Self::load_live`], but only ids and versions, including those of unreadable rows.
    fn live_versions(
        database: &Database,
        shards: RangeInclusive<u8>,
        after: Option<Self::Id>,
        limit: u64,
    ) -> impl Future<Output = Result<Vec<(Self::Id, u32)>, StoreError>> + Send;

    /// The deadline of a live aggregate that needs no actor now, because only a fact, a request or the deadline changes it.
    fn waiting(&self) -> Option<Waiting<Self::Id>> {
        None
    }
    /// True if something has happened that changes an aggregate that only waits. `aggregate`: its state, if it has been read.
    fn is_behind(_: &Waiting<Self::Id>, _aggregate: Option<&Self>, _aggregates: &Aggregates<Self>) -> bool {
        false
    }
    /// Those of these aggregates with facts that are recorded and not applied.
    fn with_unapplied(
        _database: &Database,
        _ids: &[Self::Id],
    ) -> impl Future<Output = Result<BTreeSet<Self::Id>, StoreError>> + Send {
        async { Ok(BTreeSet::new()) }
    }
    /// True if the command may only be decided after all recorded facts have been applied: a notification may have been
    /// lost.
    fn must_know_all(&self, _command: &Self::Command) -> bool {
        false
    }
    /// Facts that are recorded and not applied.
    fn unapplied(
        &self,
        _aggregates: &Aggregates<Self>,
    ) -> impl Future<Output = Result<Vec<Self::Command>, Failed<Self::Rejection>>> + Send {
        async { Ok(Vec::new()) }
    }
    /// Decides a command and prepares its write.
    fn decide(
        &self,
        aggregates: &Aggregates<Self>,
        command: &Self::Command,
        rows: &Self::Rows,
    ) -> impl Future<Output = Result<Decided<Self>, Failed<Self::Rejection>>> + Send;
    /// State and effects of a committed transition.
    fn committed(transition: Self::Transition, aggregates: &Aggregates<Self>) -> (Self, Vec<Self::Effect>);
    /// Runs an effect of a transition or a restart, except [`Self::PASSIVATE`]. All effects are nudges: the facts behind
    /// them are committed.
    fn execute(&self, aggregates: &Aggregates<Self>, effect: &Self::Effect);

    /// Command for the aggregate, if it waits for a deadline on the chain with this progress.
    fn on_chain_progress(&self, _progress: ChainProgress) -> Option<Self::Command> {
        None
    }
    /// Pause before the restart after the `nth` failure within the budget, counted from 1.
    fn restart_pause(_nth: u32) -> Duration {
        Duration::ZERO
    }
    /// Wallet that is watched while the aggregate has an actor.
    fn wallet(&self) -> Option<(Address, PaymentId)> {
        None
    }
    /// The aggregate was committed as a new one.
    fn created(&self, _aggregates: &Aggregates<Self>) {}
    /// Every supervisor is running and has started its live aggregates.
    fn all_started(_aggregates: &Aggregates<Self>) {}
    /// A live aggregate was found without an actor, and got one.
    fn unattended() {}
}

/// Result of a command that was not rejected.
pub(crate) enum Decided<A: Aggregate> {
    /// It changes nothing. The write marks the row of the fact as applied, or its notification would repeat forever.
    Known(Option<JournalWrite>, Vec<A::Effect>),
    /// It changes the aggregate by this write.
    Change(JournalWrite, A::Transition),
}

/// Progress of a chain that moves deadlines.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChainProgress {
    /// The chain was read completely up to a block of this time; deadlines at or before it have passed.
    ReadTo(Chain, Timestamp),
    /// The chain produced no blocks for a while; deadlines are extended.
    Stalled(Chain, Outage),
}

/// Logs about an aggregate, with its id in the field of its kind.
macro_rules! log_about {
    ($level:ident, $id:expr, $text:literal $(, $field:ident)*) => {
        match $id.into() {
            ActorSubject::Payment(id) => {
                tracing::$level!(payment.id = %id, $(%$field,)* concat!("payment {} ", $text), id);
            }
            ActorSubject::OutboundTransfer(id) => {
                tracing::$level!(sending.id = %id, $(%$field,)* concat!("{} ", $text), id);
            }
        }
    };
}
use log_about;
