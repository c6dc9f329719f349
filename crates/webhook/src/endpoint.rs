//! Endpoint actor of one PSP: drains the deliveries to each of the PSP's endpoints with an adaptive number of concurrent
//! attempts.
//!
//! Each endpoint has a lane ([`Lane`]), so that a slow or failing one delays no other. First attempts of a lane go out in order
//! per payment; a delivery that waits for a retry blocks no other. A lane holds one page of waiting rows and the attempts in
//! progress; everything else is in the database. Not here: making an attempt (`delivery`) and recording it (`recorder`).
//! Each delivery runs in a task beside the actor.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use payferry_domain::webhook::RetrySchedule;
use payferry_domain::{EndpointId, PspId, Timestamp};
use payferry_entities::{EndpointStatus, webhook_endpoints};
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};
use ractor::RpcReplyPort;
use sea_orm::DbErr;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinHandle, JoinSet};
use utoipa::ToSchema;

use super::delivery::{self, InProgress, Target, Turn, TurnOptions, take_turn};
use super::lane::{Ended, Lane, LaneView};
use super::load::{BreakerState, IN_FLIGHT_MIN, Permission};
use super::queue::{self, Due, Waiting};
use super::recorder::{Recorder, Unrecorded};
use super::sender::SenderContext;
use super::{STOP_PATIENCE, endpoints};

/// Maximum number of waiting rows; at this number no further page is read. Larger than a page because a whole page can
/// wait behind one payment.
pub(super) const WINDOW_MAX: usize = 1_024;
/// Another page is read while fewer rows than this are ready.
const READY_MIN: usize = 64;
/// Maximum age of the cached configuration. A change made on this node applies immediately.
const TARGET_STALE_MAX: Duration = Duration::from_secs(1);
/// Maximum age of a delivery's row at its attempt, unless the configuration changed meanwhile.
const ROW_STALE_MAX: Duration = TARGET_STALE_MAX;
/// Reason shown while a PSP has no webhook URL.
pub const NO_URL: &str = "no webhook URL is set";
/// Reason shown while an endpoint is disabled.
const IS_DISABLED: &str = "the endpoint is disabled";
/// Reason shown while the deliveries of a deleted endpoint are cancelled.
const IS_DELETED: &str = "the endpoint was deleted";
/// Reason shown if a secret is unreadable.
const UNREADABLE_SECRET: &str = "the signing secret cannot be decrypted with the current master key";
/// Time after which the row of a deleted endpoint is removed. Until then, another node may still queue a delivery for it.
const DELETED_KEPT_MS: i64 = 10_000;
/// Pause before a failed read is repeated, and while no heartbeat reaches the database.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Message {
    /// New rows may wait.
    Nudge,
    /// A retry or a probe is due.
    Wake,
    /// Search for rows that may have been missed.
    Sweep,
    /// The configuration or old rows changed: read everything again.
    Refresh,
    /// Turns of deliveries have ended and are recorded; the recorder has them.
    Ended,
    /// Return the view.
    Observe(RpcReplyPort<EndpointView>),
    /// Panic, to test that nothing is lost.
    #[cfg(test)]
    Panic,
    /// Block for this long, to test callers that wait.
    #[cfg(test)]
    Stall(Duration),
}

/// Permit from the attempts shared by all endpoints; the first few attempts need none.
pub(super) type Share = Option<OwnedSemaphorePermit>;

/// A delivery that may start its turn.
struct Admitted {
    delivery: Waiting,
    is_first: bool,
    share: Share,
}

/// View of the endpoints of a PSP.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EndpointView {
    /// Owner.
    #[schema(value_type = String)]
    pub psp_id: PspId,
    /// All endpoints together.
    #[serde(flatten)]
    pub all: LaneView,
    /// Each endpoint.
    #[schema(value_type = BTreeMap<String, LaneView>)]
    pub endpoints: BTreeMap<EndpointId, LaneView>,
}

impl std::ops::Deref for EndpointView {
    type Target = LaneView;

    fn deref(&self) -> &LaneView {
        &self.all
    }
}

/// Endpoint actor of one PSP.
pub(super) struct Endpoint {
    pub(super) context: Arc<SenderContext>,
    pub(super) psp_id: PspId,
}

pub(super) struct State {
    lanes: BTreeMap<EndpointId, Lane>,
    /// When the endpoints were read.
    read_at: Option<Instant>,
    recorder: Arc<Recorder>,
    tasks: JoinSet<()>,
    timer: Option<JoinHandle<()>>,
}

impl Behaviour for Endpoint {
    const KIND: ActorKind = ActorKind::Endpoint;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    fn message_name(message: &Self::Msg) -> &'static str {
        message.into()
    }

    async fn pre_start(&self, _: &Mailbox<Message>, (): ()) -> ActorResult<State> {
        // The breaker state of the previous actor ends with it.
        self.context.broken.remove(&self.psp_id);
        let recorder = Arc::new(Recorder::new(Arc::clone(&self.context)));
        Ok(State { lanes: BTreeMap::new(), read_at: None, recorder, tasks: JoinSet::new(), timer: None })
    }

    async fn handle(&self, myself: &Mailbox<Message>, message: Message, state: &mut State) -> ActorResult {
        match message {
            Message::Nudge => {
                // Removed before the read, so that rows queued from now on nudge again.
                self.context.nudged.remove(&self.psp_id);
                state.lanes.values_mut().for_each(|lane| lane.more = true);
            }
            Message::Wake => {}
            Message::Sweep => state.lanes.values_mut().for_each(Lane::search),
            Message::Refresh => {
                state.lanes.values_mut().for_each(Lane::forget_waiting);
                state.read_at = None;
            }
            Message::Ended => {
                for (id, ended) in state.recorder.take() {
                    if let Some(lane) = state.lanes.get_mut(&id) {
                        lane.ended(ended);
                    }
                }
                self.note_breakers(state);
            }
            Message::Observe(reply) => {
                let _ = reply.send(self.view(state));
                return Ok(());
            }
            #[cfg(test)]
            Message::Panic => panic!("panicked because a test requested it"),
            #[cfg(test)]
            Message::Stall(time) => tokio::time::sleep(time).await,
        }
        if let Err(error) = Box::pin(self.drain(myself, state)).await {
            tracing::warn!(psp.id = %self.psp_id, %error, "could not read the deliveries of {}", self.psp_id);
            wake_after(myself, state, DATABASE_PAUSE);
        }
        Ok(())
    }

    /// Gives attempts in progress a bounded time to end and be recorded; waiting deliveries stay queued.
    async fn post_stop(&self, state: &mut State) -> ActorResult {
        let ended = async { while state.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_PATIENCE, ended).await.is_err() {
            let (left, psp_id) = (state.tasks.len(), self.psp_id);
            tracing::info!(psp.id = %psp_id, left, "interrupted attempts of {psp_id}; they will be repeated");
            state.tasks.shutdown().await;
        }
        Ok(())
    }
}

impl Endpoint {
    /// Counts the breakers that are not closed.
    fn note_breakers(&self, state: &State) {
        let is_broken = |lane: &&Lane| lane.breaker.state(Instant::now()) != BreakerState::Closed;
        match state.lanes.values().filter(is_broken).count() {
            0 => drop(self.context.broken.remove(&self.psp_id)),
            count => drop(self.context.broken.insert(self.psp_id, count)),
        }
    }

    /// Starts as many attempts as are allowed and due.
    async fn drain(&self, myself: &Mailbox<Message>, state: &mut State) -> Result<(), DbErr> {
        while state.tasks.try_join_next().is_some() {}
        if self.context.node.is_silent() {
            // Another node may deliver them. A process that was frozen must not begin attempts before it knows.
            wake_after(myself, state, DATABASE_PAUSE);
            return Ok(());
        }
        self.read_endpoints(state).await?;
        let State { lanes, tasks, recorder, .. } = state;
        let mut wait: Option<Duration> = None;
        for (id, lane) in lanes {
            let of_lane = self.drain_lane(myself, tasks, recorder, *id, lane).await?;
            wait = wait.into_iter().chain(of_lane).min();
        }
        if let Some(wait) = wait {
            wake_after(myself, state, wait);
        }
        Ok(())
    }

    /// Starts the attempts of one lane. Returns the time after which it is due again, if that is known.
    async fn drain_lane(
        &self,
        myself: &Mailbox<Message>,
        tasks: &mut JoinSet<()>,
        recorder: &Arc<Recorder>,
        id: EndpointId,
        lane: &mut Lane,
    ) -> Result<Option<Duration>, DbErr> {
        let now: Timestamp = self.context.clock.real_now();
        if let Some(deleted_at) = lane.deleted_at {
            return self.cancel(id, lane, deleted_at, now).await;
        }
        let permission = lane.breaker.permission(Instant::now());
        let allowed = match permission {
            Permission::Free => lane.concurrency.limit(),
            Permission::Probe => 1,
            Permission::Wait(until) => return Ok(Some(until.saturating_duration_since(Instant::now()))),
        };
        if lane.in_flight >= allowed {
            return Ok(None);
        }
        let Some(target) = lane.target.clone() else { return Ok(None) };
        lane.forget_old_rows(ROW_STALE_MAX);
        let mut admitted = Vec::new();
        let mut read = Ok(());
        while lane.in_flight < allowed {
            read = self.read_waiting(lane).await;
            if read.is_err() {
                break;
            }
            let Some((delivery, is_first)) = lane.next() else { break };
            let Some(share) = self.admit(lane, &delivery) else {
                lane.put_back(delivery, is_first);
                break;
            };
            admitted.push(Admitted { delivery, is_first, share });
        }
        let is_urgent = lane.in_flight >= allowed || lane.window.ready_len() > 0;
        let options = TurnOptions { is_probe: permission == Permission::Probe, is_urgent };
        for turn in self.turns(id, lane, &target, admitted, options) {
            let (myself, recorder) = (myself.clone(), Arc::clone(recorder));
            tasks.spawn(async move {
                // If the actor has died, the next one reads the rows.
                recorder.record(turn.await, || drop(myself.cast(Message::Ended))).await;
            });
        }
        read?;
        let due = lane.retries_at.filter(|_| lane.retries.is_empty() && lane.in_flight < allowed);
        Ok(due.map(|at| Duration::from_millis(at.saturating_sub(now.as_millis()).max(0).unsigned_abs())))
    }

    /// Cancels the open deliveries to a deleted endpoint. After some time without any, removes the endpoint's row.
    async fn cancel(
        &self,
        id: EndpointId,
        lane: &mut Lane,
        deleted_at: i64,
        now: Timestamp,
    ) -> Result<Option<Duration>, DbErr> {
        let database = self.context.database.api_pool();
        if queue::cancel(&database, id, &lane.key, deleted_at, now).await? {
            return Ok(Some(Duration::ZERO));
        }
        let left = deleted_at.saturating_add(DELETED_KEPT_MS).saturating_sub(now.as_millis());
        if left <= 0 && lane.in_flight == 0 {
            endpoints::remove(database.writer(), id).await?;
            return Ok(None);
        }
        Ok(Some(Duration::from_millis(left.max(1_000).unsigned_abs())))
    }

    /// Reads the endpoints and keeps a lane for each. Without one, the first endpoint's lane waits for a URL.
    async fn read_endpoints(&self, state: &mut State) -> Result<(), DbErr> {
        if state.read_at.is_some_and(|at| at.elapsed() < TARGET_STALE_MAX) {
            return Ok(());
        }
        let rows = endpoints::load_all(self.context.database.reader(), self.psp_id).await?;
        let mut found: BTreeMap<EndpointId, Option<webhook_endpoints::Model>> = BTreeMap::new();
        for row in rows {
            let id = row.id.parse().map_err(|_| DbErr::Type("an endpoint's id".to_owned()))?;
            found.insert(id, Some(row));
        }
        let first = EndpointId::first_of(self.psp_id);
        if found.is_empty() {
            found.insert(first, None);
        }
        // The row of a deleted endpoint is gone: attempts in progress can end without a lane.
        state.lanes.retain(|id, _| found.contains_key(id));
        for (id, row) in found {
            let lane = match state.lanes.entry(id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(Lane::new(id.lane(self.psp_id))),
            };
            self.aim(lane, row);
        }
        state.read_at = Some(Instant::now());
        self.note_breakers(state);
        Ok(())
    }

    /// Sets the destination of a lane.
    fn aim(&self, lane: &mut Lane, row: Option<webhook_endpoints::Model>) {
        let is_deleted = row.as_ref().is_some_and(|row| row.status == EndpointStatus::Deleted);
        lane.deleted_at = row.as_ref().filter(|_| is_deleted).map(|row| row.updated_at);
        let target = row.ok_or(NO_URL).and_then(|row| self.target(row));
        lane.held_by = target.as_ref().err().copied();
        lane.target = target.ok().map(Arc::new);
    }

    /// Returns the URL, the secrets and the schedule of an endpoint, or why nothing is sent to it.
    fn target(&self, row: webhook_endpoints::Model) -> Result<Target, &'static str> {
        if row.status == EndpointStatus::Deleted {
            return Err(IS_DELETED);
        }
        if row.status == EndpointStatus::Disabled {
            return Err(IS_DISABLED);
        }
        let secrets = endpoints::secrets(&self.context.sealer, &row, self.context.clock.real_now());
        let secrets = secrets.map_err(|error| {
            tracing::error!(psp.id = %self.psp_id, %error, "the signing secret of {} cannot be decrypted with the current master key", row.id);
            UNREADABLE_SECRET
        })?;
        let schedule = row.schedule.parse().unwrap_or(RetrySchedule::Default);
        Ok(Target { url: row.url, secrets, schedule })
    }

    async fn read_retries(&self, lane: &mut Lane) -> Result<(), DbErr> {
        let now = self.context.clock.real_now::<Timestamp>().as_millis();
        if !lane.retries.is_empty() || lane.retries_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let under_way = lane.taken.len();
        let page = queue::retries_due(&self.context.database, &lane.key, now, under_way).await?;
        let is_last = page.len() < queue::PAGE + under_way;
        for delivery in page {
            if lane.taken.insert(delivery.id.clone()) {
                lane.retries.push_back(delivery);
            }
        }
        lane.retries_at = if is_last && lane.retries.is_empty() {
            queue::next_retry_after(&self.context.database, &lane.key, now).await?
        } else {
            Some(now)
        };
        Ok(())
    }

    async fn read_first_attempts(&self, lane: &mut Lane) -> Result<(), DbErr> {
        while lane.more && lane.window.ready_len() < READY_MIN && lane.window.len() < WINDOW_MAX {
            let page = queue::first_attempts(&self.context.database, &lane.key, lane.read_to).await?;
            let read = page.len();
            for (delivery, due) in page {
                lane.read_to = delivery.position;
                if !lane.taken.contains(&delivery.id) && !lane.window.holds(&delivery) {
                    lane.window.push(delivery);
                    lane.read.insert(due.id.clone(), (Instant::now(), due));
                }
            }
            if read < queue::PAGE {
                lane.more = std::mem::take(&mut lane.rewind);
                if lane.more {
                    lane.read_to = 0;
                }
            }
        }
        Ok(())
    }

    /// Reads more rows if fewer wait than could start.
    async fn read_waiting(&self, lane: &mut Lane) -> Result<(), DbErr> {
        self.read_retries(lane).await?;
        self.read_first_attempts(lane).await
    }

    /// Reserves a delivery's turn. Beyond the minimum of each endpoint this needs a shared permit; `None` if none is
    /// left.
    fn admit(&self, lane: &mut Lane, delivery: &Waiting) -> Option<Share> {
        let share = if lane.in_flight < IN_FLIGHT_MIN {
            None
        } else {
            Some(Arc::clone(&self.context.shares).try_acquire_owned().ok()?)
        };
        lane.taken.insert(delivery.id.clone());
        lane.in_flight += 1;
        lane.attempts += 1;
        Some(share)
    }

    /// Returns the turns of these deliveries.
    fn turns(
        &self,
        endpoint_id: EndpointId,
        lane: &mut Lane,
        target: &Arc<Target>,
        admitted: Vec<Admitted>,
        options: TurnOptions,
    ) -> impl Iterator<Item = impl Future<Output = Unrecorded> + Send + 'static> {
        let just_read: Vec<Option<Due>> =
            admitted.iter().map(|admitted| lane.take_row(&admitted.delivery.id)).collect();
        let unread = admitted.iter().zip(&just_read).filter(|(_, row)| row.is_none());
        let unread = unread.map(|(admitted, _)| admitted.delivery.id.clone()).collect();
        let rows = delivery::rows(&self.context, unread);
        let (context, target, epoch) = (Arc::clone(&self.context), Arc::clone(target), lane.concurrency.epoch());
        admitted.into_iter().zip(just_read).map(move |(Admitted { delivery, is_first, share }, just_read)| {
            let (context, target, rows) = (Arc::clone(&context), Arc::clone(&target), rows.clone());
            let under_way = InProgress::new(&context, &delivery.id);
            async move {
                let turn = take_turn(&context, &target, under_way.delivery_id(), just_read, rows, options);
                let turn = AssertUnwindSafe(turn).catch_unwind().await;
                let (turn, outcome) = turn.unwrap_or_else(|_| (Turn::Broken("the attempt panicked".to_owned()), None));
                let ended = Ended { delivery, is_first, epoch, turn };
                Unrecorded { endpoint_id, ended, outcome, under_way, share }
            }
        })
    }

    /// Builds the view from memory, because every operator page requests it from every endpoint, repeatedly.
    fn view(&self, state: &State) -> EndpointView {
        let endpoints: BTreeMap<_, _> = state.lanes.iter().map(|(id, lane)| (*id, lane.view())).collect();
        let mut all = endpoints.values().cloned().reduce(LaneView::and).unwrap_or_default();
        all.held_by = all.held_by.filter(|_| endpoints.values().all(|lane| lane.held_by.is_some()));
        EndpointView { psp_id: self.psp_id, all, endpoints }
    }
}

/// Schedules a wake-up. There is one timer: the next drain replaces it.
fn wake_after(myself: &Mailbox<Message>, state: &mut State, wait: Duration) {
    if let Some(timer) = state.timer.take() {
        timer.abort();
    }
    state.timer = Some(myself.send_after(wait, || Message::Wake));
}
