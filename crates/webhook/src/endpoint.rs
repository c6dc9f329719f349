//! A PSP's endpoint: drains the PSP's deliveries with an adaptive number of attempts at once.
//!
//! First attempts go out in order per payment; one that waits for a retry holds nobody back. What is remembered here is
//! a page of what waits and what is under way: everything else is in the rows. Deliberately absent: what an attempt is
//! and how it is recorded (`delivery`), which runs beside the actor, one task a delivery.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use payferry_domain::{PspId, Timestamp};
use payferry_runtime::observe::{ActorKind, Behaviour, Mailbox};
use ractor::{ActorProcessingErr, RpcReplyPort};
use sea_orm::DbErr;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinHandle, JoinSet};

use super::attempt::Target;
use super::breaker::{Breaker, BreakerState, Permission};
use super::concurrency::{Concurrency, Epoch, IN_FLIGHT_MIN};
use super::delivery::{self, Turn, UnderWay, take_turn};
use super::queue::{self, Due, Waiting};
use super::sender::Desk;
use super::window::Window;
use super::{STOP_PATIENCE, endpoints};

/// Rows that wait here at most; no page is read while there are so many. More than a page, since all of a page can
/// stand in line behind one payment.
pub(super) const WINDOW_MAX: usize = 1_024;
/// Another page is read while fewer than this could go at once.
const READY_MIN: usize = 64;
/// How old the configuration that is used may be. A change made by this node is seen at once.
const TARGET_STALE_MAX: Duration = Duration::from_secs(1);
/// Why nothing is sent to a PSP that has not said where to.
pub const NO_URL: &str = "no webhook URL is set";
/// Pause before rows that could not be read are read again.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

pub(super) enum Message {
    /// New rows may wait.
    Nudge,
    /// Something is due: a retry, a probe.
    Wake,
    /// Look for what may have been missed.
    Sweep,
    /// The configuration or old rows changed: look at everything again.
    Refresh,
    /// A delivery's turn is over.
    Ended(Box<Ended>),
    /// Show yourself.
    Observe(RpcReplyPort<EndpointView>),
    /// Panic, to see that nothing is lost by it.
    #[cfg(test)]
    Panic,
    /// Be busy for so long, to see who waits for it.
    #[cfg(test)]
    Stall(Duration),
}

/// The end of a delivery's turn.
pub(super) struct Ended {
    delivery: Waiting,
    is_first: bool,
    epoch: Epoch,
    turn: Turn,
}

/// A share of the attempts that all endpoints have together; none is needed for the first few.
type Share = Option<OwnedSemaphorePermit>;

/// A delivery for whose turn there is room.
struct Admitted {
    delivery: Waiting,
    is_first: bool,
    share: Share,
}

/// What an endpoint shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointView {
    /// Whose.
    pub psp_id: PspId,
    /// Attempts under way.
    pub in_flight: usize,
    /// Attempts allowed at once.
    pub limit: usize,
    /// The circuit breaker.
    pub breaker: BreakerState,
    /// Deliveries read ahead and not begun.
    pub read_ahead: usize,
    /// Attempts since the actor started.
    pub attempts: u64,
    /// Failed ones among them.
    pub failures: u64,
    /// What the last failure was: a status or an error.
    pub last_failure: Option<String>,
    /// Why nothing is sent though deliveries wait, if it is not for the breaker.
    pub held_by: Option<&'static str>,
}

/// The actor of one PSP's endpoint.
pub(super) struct Endpoint {
    pub(super) desk: Arc<Desk>,
    pub(super) psp_id: PspId,
}

pub(super) struct State {
    concurrency: Concurrency,
    breaker: Breaker,
    /// First attempts read and not begun.
    window: Window,
    /// Retries read as due and not begun.
    retries: VecDeque<Waiting>,
    /// Deliveries that wait in `retries`, are under way or are left alone.
    taken: HashSet<String>,
    /// Deliveries whose outcome cannot be recorded: until the actor starts again or is told to look at everything.
    left_alone: Vec<String>,
    in_flight: usize,
    tasks: JoinSet<()>,
    /// First attempts up to this position of the feed were read.
    read_to: i64,
    /// Whether there may be more behind it.
    more: bool,
    /// To be read from the beginning when the end is reached: positions can appear out of order where several write.
    rewind: bool,
    /// When retries have to be looked for, milliseconds since the epoch; `None` when there are none.
    retries_at: Option<i64>,
    /// Whose turn it is where both a retry and a first attempt could go.
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

    async fn pre_start(&self, _: &Mailbox<Message>, (): ()) -> Result<State, ActorProcessingErr> {
        // The breaker of the one before is forgotten with it.
        self.desk.broken.remove(&self.psp_id);
        Ok(State {
            concurrency: Concurrency::default(),
            breaker: Breaker::default(),
            window: Window::default(),
            retries: VecDeque::new(),
            taken: HashSet::new(),
            left_alone: Vec::new(),
            in_flight: 0,
            tasks: JoinSet::new(),
            read_to: 0,
            more: true,
            rewind: false,
            retries_at: Some(0),
            retry_is_next: false,
            target: None,
            held_by: None,
            attempts: 0,
            failures: 0,
            last_failure: None,
            timer: None,
        })
    }

    async fn handle(
        &self,
        myself: &Mailbox<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Nudge => {
                // Before anything is read: what is queued from now on nudges again.
                self.desk.nudged.remove(&self.psp_id);
                state.more = true;
            }
            Message::Wake => {}
            Message::Sweep => {
                (state.more, state.rewind) = (true, true);
                state.retries_at = Some(0);
            }
            Message::Refresh => state.forget_what_waits(),
            Message::Ended(ended) => {
                state.ended(*ended);
                self.note_breaker(state);
            }
            Message::Observe(reply) => {
                let _ = reply.send(self.view(state));
                return Ok(());
            }
            #[cfg(test)]
            Message::Panic => panic!("panicked on purpose, as a test asked"),
            #[cfg(test)]
            Message::Stall(time) => tokio::time::sleep(time).await,
        }
        if let Err(error) = Box::pin(self.drain(myself, state)).await {
            tracing::warn!(psp.id = %self.psp_id, %error, "deliveries of {} could not be read", self.psp_id);
            wake_after(myself, state, DATABASE_PAUSE);
        }
        Ok(())
    }

    /// Attempts under way get a bounded time to end and be recorded; what waits stays queued.
    async fn post_stop(&self, state: &mut State) -> Result<(), ActorProcessingErr> {
        let ended = async { while state.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_PATIENCE, ended).await.is_err() {
            let (left, psp_id) = (state.tasks.len(), self.psp_id);
            tracing::info!(psp.id = %psp_id, left, "attempts of {psp_id} were cut short; they are made again");
            state.tasks.shutdown().await;
        }
        Ok(())
    }
}

impl Endpoint {
    fn note_breaker(&self, state: &State) {
        if state.breaker.state(Instant::now()) == BreakerState::Closed {
            self.desk.broken.remove(&self.psp_id);
        } else {
            self.desk.broken.insert(self.psp_id);
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
            read = self.read_what_waits(state, &mut just_read).await;
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
            let wait = at.saturating_sub(self.desk.clock.real_now::<Timestamp>().as_millis()).max(0).unsigned_abs();
            wake_after(myself, state, Duration::from_millis(wait));
        }
        Ok(())
    }

    /// Where to send and how to sign; `None` while no URL is set.
    async fn target(&self, state: &mut State) -> Result<Option<Arc<Target>>, DbErr> {
        if let Some((target, read_at)) = &state.target
            && read_at.elapsed() < TARGET_STALE_MAX
        {
            return Ok(target.clone());
        }
        let now = self.desk.clock.real_now();
        let row = endpoints::load(self.desk.database.reader(), self.psp_id).await?;
        let secrets = row.as_ref().map(|row| endpoints::secrets(&self.desk.sealer, row, now));
        let target = match (row, secrets) {
            (Some(row), Some(Ok(secrets))) => Some(Arc::new(Target { url: row.url, secrets })),
            (_, Some(Err(error))) => {
                tracing::error!(psp.id = %self.psp_id, %error, "the signing secret of {} does not open", self.psp_id);
                state.held_by = Some("the signing secret does not open with this key");
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
        let now = self.desk.clock.real_now::<Timestamp>().as_millis();
        if !state.retries.is_empty() || state.retries_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let under_way = state.taken.len();
        let page = queue::retries_due(&self.desk.database, self.psp_id, now, under_way).await?;
        let is_last = page.len() < queue::PAGE + under_way;
        for delivery in page {
            if state.taken.insert(delivery.id.clone()) {
                state.retries.push_back(delivery);
            }
        }
        state.retries_at = if is_last && state.retries.is_empty() {
            queue::next_retry_after(&self.desk.database, self.psp_id, now).await?
        } else {
            Some(now)
        };
        Ok(())
    }

    async fn read_first_attempts(&self, state: &mut State, just_read: &mut HashMap<String, Due>) -> Result<(), DbErr> {
        while state.more && state.window.ready_len() < READY_MIN && state.window.len() < WINDOW_MAX {
            let page = queue::first_attempts(&self.desk.database, self.psp_id, state.read_to).await?;
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

    /// Reads more where less waits than could go, and adds the rows of what was read to `just_read`.
    async fn read_what_waits(&self, state: &mut State, just_read: &mut HashMap<String, Due>) -> Result<(), DbErr> {
        self.read_retries(state).await?;
        self.read_first_attempts(state, just_read).await
    }

    /// Makes room for a delivery's turn. Beyond what every endpoint always gets it needs a share of what all have
    /// together; `None` if there is none left.
    fn admit(&self, state: &mut State, delivery: &Waiting) -> Option<Share> {
        let share = if state.in_flight < IN_FLIGHT_MIN {
            None
        } else {
            Some(Arc::clone(&self.desk.shares).try_acquire_owned().ok()?)
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
        let rows = delivery::rows(&self.desk, ids, just_read);
        for Admitted { delivery, is_first, share } in admitted {
            let (desk, target, myself) = (Arc::clone(&self.desk), Arc::clone(target), myself.clone());
            let (rows, epoch) = (rows.clone(), state.concurrency.epoch());
            let under_way = UnderWay::new(&desk, &delivery.id);
            state.tasks.spawn(async move {
                let turn = take_turn(&desk, &target, under_way.delivery_id(), rows, is_probe);
                let turn = AssertUnwindSafe(turn).catch_unwind().await;
                let turn = turn.unwrap_or_else(|_| Turn::Broken("the attempt panicked".to_owned()));
                drop((under_way, share));
                // An actor that has died is followed by one that reads the rows.
                let _ = myself.cast(Message::Ended(Box::new(Ended { delivery, is_first, epoch, turn })));
            });
        }
    }

    /// From memory: every operator's page asks every endpoint for it, again and again.
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
    /// Takes in what came of a delivery's turn.
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
            // The next sweep comes to it.
            Turn::Unread(error) => {
                tracing::warn!(delivery.id = %delivery.id, %error, "delivery {} could not be read", delivery.id);
            }
            Turn::Broken(why) => {
                tracing::error!(delivery.id = %delivery.id, %why, "delivery {} is left alone", delivery.id);
                self.last_failure = Some(why);
                self.left_alone.push(delivery.id);
                return;
            }
        }
        self.taken.remove(&delivery.id);
    }

    /// Retries and first attempts take turns, so that neither keeps the other waiting.
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

    /// What was taken out and not begun.
    fn put_back(&mut self, delivery: Waiting, is_first: bool) {
        if is_first {
            self.window.put_back(delivery);
        } else {
            self.retries.push_front(delivery);
        }
    }

    /// Everything that is not under way is read again.
    fn forget_what_waits(&mut self) {
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

/// One timer at a time: the next drain sets it anew.
fn wake_after(myself: &Mailbox<Message>, state: &mut State, wait: Duration) {
    if let Some(timer) = state.timer.take() {
        timer.abort();
    }
    state.timer = Some(myself.send_after(wait, || Message::Wake));
}
