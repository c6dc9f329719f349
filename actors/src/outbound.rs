//! Payouts and withdrawals at run time: decisions with their writes, and the execution of effects.
//!
//! They share the runner (`crate::aggregate`), the journal, the screening, the settler's `send` and the event feed with
//! payments. Deliberately absent: decisions (the domain), and authorisation of orders (`system`, the HTTP side).

use std::ops::RangeInclusive;
use std::time::Duration;

use payferry_domain::Timestamp;
use payferry_domain::outbound::{
    self, Command, Effect, OutboundId, OutboundStatus, OutboundTransfer, Rejection, Transition, resume,
};
use payferry_entities::{Database, StoreError, audit_log};
use payferry_journal::outbound as store;
use payferry_journal::payments::RequestRows;
use payferry_runtime::observe::{ActorKind, ActorMetrics};
use payferry_runtime::supervise::doubled;

use crate::aggregate::{Aggregate, Aggregates, Decided, Found};
use crate::compliance::{KytSubject, ScreenRequest};
use crate::failed::Failed;
use crate::observe::{Note, OutboundLine};

/// Pause before a failed actor is restarted; doubles with each failure within its budget's window.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The live payouts and withdrawals.
pub(crate) type OutboundTransfers = Aggregates<OutboundTransfer>;

impl Aggregate for OutboundTransfer {
    type Id = OutboundId;
    type Command = Command;
    type Rejection = Rejection;
    type Effect = Effect;
    type Transition = Transition;
    /// Audit row of a request.
    type Rows = Option<audit_log::Model>;
    type Own = ();
    type Line = OutboundLine;

    const KIND: ActorKind = ActorKind::Sending;
    const SUPERVISOR: ActorKind = ActorKind::OutboundSupervisor;
    const NOT_RUNNING: &'static str = "the supervisor of payouts and withdrawals is not running; retry later";
    const PASSIVATE: Effect = Effect::Passivate;

    fn id(&self) -> OutboundId {
        self.id()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn traceparent(&self) -> Option<&str> {
        self.order.traceparent.as_deref()
    }

    fn status_name(&self) -> &'static str {
        self.status.as_str()
    }

    fn needs_actor(&self) -> bool {
        self.is_live()
    }

    fn note(&self) -> u64 {
        let (status, chain, version) = (self.status as usize, self.order.asset.chain, self.version);
        Note { status, chain, version, in_review: self.is_in_review() }.pack()
    }

    fn line(id: OutboundId, note: u64, actor: Option<&ActorMetrics>) -> OutboundLine {
        let Note { status, chain, version, in_review } = Note::unpack(note);
        let status = OutboundStatus::ALL.get(status).copied().unwrap_or(OutboundStatus::Pending);
        let (mailbox, since) = (actor.map_or(0, ActorMetrics::depth), actor.map(|actor| actor.since().into()));
        OutboundLine { id, status, in_review, chain, version, mailbox, since }
    }

    fn resume(&self) -> Vec<Effect> {
        resume(self)
    }

    fn shard(id: OutboundId) -> u8 {
        id.operation().to_bytes()[15]
    }

    fn made_at(id: OutboundId) -> Timestamp {
        Timestamp(id.operation().ulid().timestamp_ms().cast_signed())
    }

    async fn load(database: &Database, id: OutboundId) -> Result<Option<Self>, StoreError> {
        store::load(database, id).await
    }

    async fn load_live(
        database: &Database,
        _: RangeInclusive<u8>,
        after: Option<OutboundId>,
        limit: u64,
    ) -> Result<Vec<Found<Self>>, StoreError> {
        let mut after = after.map(|id| id.to_string()).unwrap_or_default();
        loop {
            let rows = store::load_live(database, &after, limit).await?;
            let read = rows.iter().filter_map(|row| {
                store::outbound_of(row)
                    .inspect_err(|error| tracing::error!(sending.id = %row.id, %error, "{} cannot be read", row.id))
                    .ok()
            });
            let readable: Vec<_> = read.collect();
            match rows.into_iter().next_back() {
                Some(last) if readable.is_empty() => after = last.id,
                _ => return Ok(readable.into_iter().map(|outbound| Found::Whole(Box::new(outbound))).collect()),
            }
        }
    }

    async fn live_versions(
        database: &Database,
        _: RangeInclusive<u8>,
        after: Option<OutboundId>,
        limit: u64,
    ) -> Result<Vec<(OutboundId, u32)>, StoreError> {
        let rows = store::load_live(database, &after.map(|id| id.to_string()).unwrap_or_default(), limit).await?;
        Ok(rows.iter().filter_map(|row| Some((row.id.parse().ok()?, row.version.try_into().ok()?))).collect())
    }

    async fn decide(
        &self,
        transfers: &OutboundTransfers,
        command: &Command,
        audit: &Option<audit_log::Model>,
    ) -> Result<Decided<Self>, Failed<Rejection>> {
        let real_now = transfers.clock.real_now();
        let Some(transition) = outbound::transition(self, command, transfers.clock.now())? else {
            return Ok(Decided::Known(store::known(self, command, real_now), resume(self)));
        };
        let psp = transfers.psps.get(self.order.psp_id).await?;
        let rows = RequestRows { audit: audit.clone(), ..RequestRows::default() };
        let ceiling = psp.ceilings.send_daily_max;
        let write = store::change(&transition, rows, real_now, ceiling, |event| psp.destinations_of(event))?;
        Ok(Decided::Change(write, transition))
    }

    fn committed(transition: Transition, _: &OutboundTransfers) -> (Self, Vec<Effect>) {
        (transition.outbound, transition.effects)
    }

    fn execute(&self, transfers: &OutboundTransfers, effect: &Effect) {
        let subject = KytSubject::OutboundTransfer(self.id());
        match effect {
            Effect::Screen { to, amount, chain } => {
                transfers.screen(ScreenRequest::of_recipient(subject, *chain, *to, *amount), None);
            }
            Effect::AwaitReview { to, amount, chain, alarm_at } => {
                transfers.screen(ScreenRequest::of_recipient(subject, *chain, *to, *amount), Some(*alarm_at));
            }
            Effect::Send { chain, .. } => transfers.nudge_settler(*chain),
            Effect::DeliverWebhooks => transfers.nudge_webhooks(self.order.psp_id),
            // The actor does this itself, because only it can leave.
            Effect::Passivate => {}
        }
    }

    fn restart_pause(nth: u32) -> Duration {
        doubled(RESTART_PAUSE_MIN, Duration::MAX, nth - 1)
    }
}
