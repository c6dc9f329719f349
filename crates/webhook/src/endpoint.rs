//! Endpoint actor of one PSP: drains the PSP's deliveries with an adaptive number of concurrent attempts.
//!
//! First attempts go out in order per payment; a delivery that waits for a retry blocks no other. The actor holds one
//! page of waiting rows and the attempts in progress; everything else is in the database. Not here: making and
//! recording an attempt (`delivery`). Each delivery runs in a task beside the actor.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use payferry_domain::{PspId, Timestamp};
use payferry_runtime::observe::{ActorKind, ActorResult, Behaviour, Mailbox};
use ractor::RpcReplyPort;
use sea_orm::DbErr;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinHandle, JoinSet};

use super::delivery::{self, InProgress, Target, Turn, take_turn};
use super::load::{Breaker, BreakerState, Concurrency, Epoch, IN_FLIGHT_MIN, Permission};
use super::queue::{self, Due, Waiting};
use super::sender::SenderContext;
use super::window::Window;
use super::{STOP_PATIENCE, endpoints};

/// Maximum number of waiting rows; at this number no further page is read. Larger than a page because a whole page can
/// wait behind one payment.
pub(super) const WINDOW_MAX: usize = 1_024;
/// Another page is read while fewer rows than this are ready.
const READY_MIN: usize = 64;
/// Maximum age of the cached configuration. A change made on this node applies immediately.
const TARGET_STALE_MAX: Duration = Duration::from_secs(1);
/// Reason shown while a PSP has no webhook URL.
pub const NO_URL: &str = "no webhook URL is set";
/// Pause before a failed read is repeated.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

pub(super) enum Message {
    /// New rows may wait.
    Nudge,
    /// A retry or a probe is due.
    Wake,
    /// Search for rows that may have been missed.
    Sweep,
    /// The configuration or old rows changed: read everything again.
    Refresh,
    /// A delivery's turn has ended.
    Ended(Box<Ended>),
    /// Return the view.
    Observe(RpcReplyPort<EndpointView>),
    /// Panic, to test that nothing is lost.
    #[cfg(test)]
    Panic,
    /// Block for this long, to test callers that wait.
    #[cfg(test)]
    Stall(Duration),
}

/// End of a delivery's turn.
pub(super) struct Ended {
    delivery: Waiting,
    is_first: bool,
    epoch: Epoch,
    turn: Turn,
}

/// Permit from the attempts shared by all endpoints; the first few attempts need none.
type Share = Option<OwnedSemaphorePermit>;

/// A delivery that may start its turn.
struct Admitted {
    delivery: Waiting,
    is_first: bool,
    share: Share,
}

/// View of an endpoint.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointView {
    /// Owner.
    pub psp_id: PspId,
    /// Attempts in progress.
    pub in_flight: usize,
    /// Maximum number of concurrent attempts.
    pub limit: usize,
    /// Circuit breaker.
    pub breaker: BreakerState,
    /// Deliveries read and not yet started.
    pub read_ahead: usize,
    /// Attempts since the actor started.
    pub attempts: u64,
    /// Failed attempts among them.
    pub failures: u64,
    /// Last failure: a status or an error.
    pub last_failure: Option<String>,
    /// Reason why waiting deliveries are not sent, other than the breaker.
    pub held_by: Option<&'static str>,
}

/// Endpoint actor of one PSP.
pub(super) struct Endpoint {
    pub(super) context: Arc<SenderContext>,
    pub(super) psp_id: PspId,
}

#[derive(Default)]
pub(super) struct State {
    concurrency: Concurrency,
    breaker: Breaker,
    /// First attempts read and not yet started.
    window: Window,
    /// Due retries read and not yet started.
    retries: VecDeque<Waiting>,
    /// Deliveries in `retries`, in progress or suspended.
    taken: HashSet<String>,
    /// Deliveries whose outcome cannot be recorded: suspended until the actor restarts or is refreshed.
    left_alone: Vec<String>,
    in_flight: usize,
    tasks: JoinSet<()>,
    /// Feed position up to which first attempts were read.
    read_to: i64,
    /// `true` if more rows may follow.
    more: bool,
    /// `true` if it must read from the start after reaching the end: with several writers, positions can appear out of
    /// order.
    rewind: bool,
    /// Time of the next search for retries, milliseconds since the epoch; `None` without retries.
    retries_at: Option<i64>,
    /// `true` if a retry goes before a first attempt when both could go.
    retry_is_next: bool,
    target: Option<(Option<Arc<Target>>, Instant)>,
    held_by: Option<&'static str>,
    attempts: u64,
    failures: u64,
    last_failure: Option<String>,
    timer: Option<JoinHandle<()>>,
}

impl Behaviour for Endpoint {
    const KIND: ActorKind = ActorKind::Endpoint;
    type Msg = Message;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: &Mailbox<Message>, (): ()) -> ActorResult<State> {
        // The breaker state of the previous actor ends with it.
        self.context.broken.remove(&self.psp_id);
        Ok(State { more: true, retries_at: Some(0), ..State::default() })
    }

    async fn handle(&self, myself: &Mailbox<Message>, message: Message, state: &mut State) -> ActorResult {
        match message {
            Message::Nudge => {
                // Removed before the read, so that rows queued from now on nudge again.
                self.context.nudged.remove(&self.psp_id);
                state.more = true;
            }
            Message::Wake => {}
            Message::Sweep => {
                (state.more, state.rewind) = (true, true);
                state.retries_at = Some(0);
            }
            Message::Refresh => state.forget_waiting(),
            Message::Ended(ended) => {
                state.ended(*ended);
                self.note_breaker(state);
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
    fn note_breaker(&self, state: &State) {
        if state.breaker.state(Instant::now()) == BreakerState::Closed {
            self.context.broken.remove(&self.psp_id);
        } else {
            self.context.broken.insert(self.psp_id);
        }
    }

    /// Starts as many attempts as are allowed and due.
    async fn drain(&self, myself: &Mailbox<Message>, state: &mut State) -> Result<(), DbErr> {
        while state.tasks.try_join_next().is_some() {}
        let permission = state.breaker.permission(Instant::now());
        let allowed = match permission {
            Permission::Free => state.concurrency.limit(),
            Permission::Probe => 1,
            Permission::Wait(until) => {
                wake_after(myself, state, until.saturating_duration_since(Instant::now()));
                return Ok(());
            }
        };
        if state.in_flight >= allowed {
            return Ok(());
        }
        let Some(target) = self.target(state).await? else { return Ok(()) };
        let (mut admitted, mut just_read) = (Vec::new(), HashMap::new());
        let mut read = Ok(());
        while state.in_flight < allowed {
            read = self.read_waiting(state, &mut just_read).await;
            if read.is_err() {
                break;
            }
            let Some((delivery, is_first)) = state.next() else { break };
            let Some(share) = self.admit(state, &delivery) else {
                state.put_back(delivery, is_first);
                break;
            };
            admitted.push(Admitted { delivery, is_first, share });
        }
        self.start(myself, state, &target, admitted, just_read, permission == Permission::Probe);
        read?;
        if let Some(at) = state.retries_at.filter(|_| state.retries.is_empty() && state.in_flight < allowed) {
            let wait = at.saturating_sub(self.context.clock.real_now::<Timestamp>().as_millis()).max(0).unsigned_abs();
            wake_after(myself, state, Duration::from_millis(wait));
        }
        Ok(())
    }

    /// Returns the URL and the secrets; `None` while no URL is set.
    async fn target(&self, state: &mut State) -> Result<Option<Arc<Target>>, DbErr> {
        if let Some((target, read_at)) = &state.target
            && read_at.elapsed() < TARGET_STALE_MAX
        {
            return Ok(target.clone());
        }
        let now = self.context.clock.real_now();
        let row = endpoints::load(self.context.database.reader(), self.psp_id).await?;
        let secrets = row.as_ref().map(|row| endpoints::secrets(&self.context.sealer, row, now));
        let target = match (row, secrets) {
            (Some(row), Some(Ok(secrets))) => Some(Arc::new(Target { url: row.url, secrets })),
            (_, Some(Err(error))) => {
                tracing::error!(psp.id = %self.psp_id, %error, "the signing secret of {} cannot be decrypted with the current master key", self.psp_id);
                state.held_by = Some("the signing secret cannot be decrypted with the current master key");
                state.target = Some((None, Instant::now()));
                return Ok(None);
            }
            _ => None,
        };
        state.held_by = target.is_none().then_some(NO_URL);
        state.target = Some((target.clone(), Instant::now()));
        Ok(target)
    }

    async fn read_retries(&self, state: &mut State) -> Result<(), DbErr> {
        let now = self.context.clock.real_now::<Timestamp>().as_millis();
        if !state.retries.is_empty() || state.retries_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let under_way = state.taken.len();
        let page = queue::retries_due(&self.context.database, self.psp_id, now, under_way).await?;
        let is_last = page.len() < queue::PAGE + under_way;
        for delivery in page {
            if state.taken.insert(delivery.id.clone()) {
                state.retries.push_back(delivery);
            }
        }
        state.retries_at = if is_last && state.retries.is_empty() {
            queue::next_retry_after(&self.context.database, self.psp_id, now).await?
        } else {
            Some(now)
        };
        Ok(())
    }

    async fn read_first_attempts(&self, state: &mut State, just_read: &mut HashMap<String, Due>) -> Result<(), DbErr> {
        while state.more && state.window.ready_len() < READY_MIN && state.window.len() < WINDOW_MAX {
            let page = queue::first_attempts(&self.context.database, self.psp_id, state.read_to).await?;
            let read = page.len();
            for (delivery, due) in page {
                state.read_to = delivery.position;
                if !state.taken.contains(&delivery.id) && !state.window.holds(&delivery) {
                    state.window.push(delivery);
                    just_read.insert(due.id.clone(), due);
                }
            }
            if read < queue::PAGE {
                state.more = std::mem::take(&mut state.rewind);
                if state.more {
                    state.read_to = 0;
                }
            }
        }
        Ok(())
    }

    /// Reads more rows if fewer wait than could start, and adds the rows read to `just_read`.
    async fn read_waiting(&self, state: &mut State, just_read: &mut HashMap<String, Due>) -> Result<(), DbErr> {
        self.read_retries(state).await?;
        self.read_first_attempts(state, just_read).await
    }

    /// Reserves a delivery's turn. Beyond the minimum of each endpoint this needs a shared permit; `None` if none is
    /// left.
    fn admit(&self, state: &mut State, delivery: &Waiting) -> Option<Share> {
        let share = if state.in_flight < IN_FLIGHT_MIN {
            None
        } else {
            Some(Arc::clone(&self.context.shares).try_acquire_owned().ok()?)
        };
        state.taken.insert(delivery.id.clone());
        state.in_flight += 1;
        state.attempts += 1;
        Some(share)
    }

    /// Starts the turns of these deliveries.
    fn start(
        &self,
        myself: &Mailbox<Message>,
        state: &mut State,
        target: &Arc<Target>,
        admitted: Vec<Admitted>,
        just_read: HashMap<String, Due>,
        is_probe: bool,
    ) {
        let ids = admitted.iter().map(|admitted| admitted.delivery.id.clone()).collect();
        let rows = delivery::rows(&self.context, ids, just_read);
        for Admitted { delivery, is_first, share } in admitted {
            let (context, target, myself) = (Arc::clone(&self.context), Arc::clone(target), myself.clone());
            let (rows, epoch) = (rows.clone(), state.concurrency.epoch());
            let under_way = InProgress::new(&context, &delivery.id);
            state.tasks.spawn(async move {
                let turn = take_turn(&context, &target, under_way.delivery_id(), rows, is_probe);
                let turn = AssertUnwindSafe(turn).catch_unwind().await;
                let turn = turn.unwrap_or_else(|_| Turn::Broken("the attempt panicked".to_owned()));
                drop((under_way, share));
                // If the actor has died, the next one reads the rows.
                let _ = myself.cast(Message::Ended(Box::new(Ended { delivery, is_first, epoch, turn })));
            });
        }
    }

    /// Builds the view from memory, because every operator page requests it from every endpoint, repeatedly.
    fn view(&self, state: &State) -> EndpointView {
        EndpointView {
            psp_id: self.psp_id,
            in_flight: state.in_flight,
            limit: state.concurrency.limit(),
            breaker: state.breaker.state(Instant::now()),
            read_ahead: state.window.len() + state.retries.len(),
            attempts: state.attempts,
            failures: state.failures,
            last_failure: state.last_failure.clone(),
            held_by: state.held_by,
        }
    }
}

impl State {
    /// Applies the result of a delivery's turn.
    fn ended(&mut self, ended: Ended) {
        let Ended { delivery, is_first, epoch, turn } = ended;
        let in_flight = self.in_flight;
        self.in_flight -= 1;
        if is_first {
            self.window.ended(&delivery.payment_id);
        }
        match turn {
            Turn::Attempted { delivered: true, .. } => {
                self.concurrency.succeeded(in_flight);
                self.breaker.succeeded();
            }
            Turn::Attempted { strained, failure, next_attempt_at, .. } => {
                self.failures += 1;
                self.last_failure = failure;
                self.breaker.failed(Instant::now());
                if strained {
                    self.concurrency.strained(epoch);
                }
                if let Some(at) = next_attempt_at {
                    self.retries_at = Some(self.retries_at.map_or(at, |other| other.min(at)));
                }
            }
            Turn::Closed => {}
            // The next sweep reads it again.
            Turn::Unread(error) => {
                tracing::warn!(delivery.id = %delivery.id, %error, "could not read delivery {}", delivery.id);
            }
            Turn::Broken(why) => {
                tracing::error!(delivery.id = %delivery.id, %why, "suspended delivery {} until a restart", delivery.id);
                self.last_failure = Some(why);
                self.left_alone.push(delivery.id);
                return;
            }
        }
        self.taken.remove(&delivery.id);
    }

    /// Alternates retries and first attempts, so that neither starves the other.
    fn next(&mut self) -> Option<(Waiting, bool)> {
        self.retry_is_next = !self.retry_is_next;
        if self.retry_is_next
            && let Some(retry) = self.retries.pop_front()
        {
            return Some((retry, false));
        }
        let first = self.window.pop().map(|delivery| (delivery, true));
        first.or_else(|| self.retries.pop_front().map(|retry| (retry, false)))
    }

    /// Returns a delivery that was taken and not started.
    fn put_back(&mut self, delivery: Waiting, is_first: bool) {
        if is_first {
            self.window.put_back(delivery);
        } else {
            self.retries.push_front(delivery);
        }
    }

    /// Drops everything that is not in progress, so that it is read again.
    fn forget_waiting(&mut self) {
        self.window.clear();
        let retries = self.retries.drain(..).map(|retry| retry.id);
        for id in retries.chain(self.left_alone.drain(..)) {
            self.taken.remove(&id);
        }
        (self.read_to, self.more, self.rewind) = (0, true, false);
        self.retries_at = Some(0);
        self.target = None;
    }
}

/// Schedules a wake-up. There is one timer: the next drain replaces it.
fn wake_after(myself: &Mailbox<Message>, state: &mut State, wait: Duration) {
    if let Some(timer) = state.timer.take() {
        timer.abort();
    }
    state.timer = Some(myself.send_after(wait, || Message::Wake));
}
