//! The limits that one request counts against, from its head to its answer: the concurrent requests of the listener and
//! of its API key, and the body bytes in memory of its address, of its key and of all.
//!
//! A request counts against the concurrent requests of all once its body has arrived, so that clients that send slowly
//! take no place from others. From its head on, it counts for its API key and, if it comes through a proxy, for the address
//! that the proxy forwards. There it gives way to a new request as long as its body is missing, see
//! [`crate::connections`]. Its body has deadlines, see the module `arriving`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use payferry_domain::KeyId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::connections::{Answering, CONNECTIONS_PER_ADDRESS, Connection, ConnectionOwner, Entry, Registry};
use crate::error::{ApiError, Away};
use crate::limits::network_prefix;

/// How long a body may make no progress.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a body may take in total, from the moment at which the handler reads it.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Body bytes in memory of all requests of a listener.
pub const BODY_BYTES: usize = 256 * 1024 * 1024;
/// Body bytes in memory of the requests of one address: two document uploads of the maximum size.
pub const BODY_BYTES_PER_ADDRESS: usize = 64 * 1024 * 1024;
/// Body bytes in memory of the requests with one API key.
pub const BODY_BYTES_PER_KEY: usize = 64 * 1024 * 1024;
/// Requests in progress with one API key: half of what the listener answers at once.
pub const REQUESTS_PER_KEY: usize = 512;
/// Seconds after which a client at a limit of its own may try again.
const SHARE_RETRY_SECS: u64 = 1;

/// Limits of connections and request bodies; `None` is no limit.
#[derive(Debug, Clone, Copy)]
pub struct EdgeLimits {
    /// Connections open at once for one address, and requests in progress of an address behind a proxy.
    pub connections_per_address: Option<usize>,
    /// How long a body may make no progress.
    pub body_idle_timeout: Duration,
    /// How long a body may take in total.
    pub body_timeout: Duration,
    /// Body bytes in memory, of all requests.
    pub body_bytes: usize,
    /// Body bytes in memory, of one address.
    pub body_bytes_per_address: Option<usize>,
    /// Body bytes in memory, of one API key.
    pub body_bytes_per_key: Option<usize>,
    /// Requests in progress with one API key.
    pub requests_per_key: Option<usize>,
}

impl EdgeLimits {
    /// The sandbox: no limit for one address or one key, because load tests run on one machine with one key.
    pub const fn sandbox() -> Self {
        Self {
            connections_per_address: None,
            body_bytes_per_address: None,
            body_bytes_per_key: None,
            requests_per_key: None,
            ..Self::production()
        }
    }

    /// Production.
    pub const fn production() -> Self {
        Self {
            connections_per_address: Some(CONNECTIONS_PER_ADDRESS),
            body_idle_timeout: BODY_IDLE_TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            body_bytes: BODY_BYTES,
            body_bytes_per_address: Some(BODY_BYTES_PER_ADDRESS),
            body_bytes_per_key: Some(BODY_BYTES_PER_KEY),
            requests_per_key: Some(REQUESTS_PER_KEY),
        }
    }
}

/// Holder of a share of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Share {
    /// Body bytes of all requests.
    Bytes,
    /// Body bytes of a client network.
    AddressBytes(IpAddr),
    /// Body bytes of an API key.
    KeyBytes(KeyId),
}

/// Shares of the limits that the requests of a listener hold.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) limits: EdgeLimits,
    requests: Arc<Registry>,
    held: DashMap<Share, usize>,
}

impl Shares {
    pub(crate) fn new(limits: EdgeLimits) -> Arc<Self> {
        Arc::new(Self { limits, requests: Arc::default(), held: DashMap::new() })
    }

    /// Takes `amount` of a limit; returns false if too little is left.
    fn take(&self, share: Share, amount: usize, max: Option<usize>) -> bool {
        let Some(max) = max else { return true };
        let mut held = self.held.entry(share).or_insert(0);
        let fits = held.saturating_add(amount) <= max;
        if fits {
            *held += amount;
        }
        let is_unused = *held == 0;
        drop(held);
        if is_unused {
            self.held.remove_if(&share, |_, held| *held == 0);
        }
        fits
    }

    fn give_back(&self, share: Share, amount: usize) {
        // Without a limit nothing was counted.
        let Some(mut held) = self.held.get_mut(&share) else { return };
        *held = held.saturating_sub(amount);
        drop(held);
        self.held.remove_if(&share, |_, held| *held == 0);
    }
}

/// Permits of concurrent requests.
#[derive(Debug, Clone)]
pub struct Door {
    room: Arc<Semaphore>,
    /// Permits that are left when `room` is full.
    reserve: Option<Arc<Semaphore>>,
}

impl Door {
    pub(crate) fn new(room: Arc<Semaphore>, reserve: Option<Arc<Semaphore>>) -> Self {
        Self { room, reserve }
    }

    /// At the limit, a request is refused immediately: a queue would only grow.
    fn enter(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.room).try_acquire_owned().ok();
        let permit = permit.or_else(|| Arc::clone(self.reserve.as_ref()?).try_acquire_owned().ok());
        permit.ok_or_else(|| ApiError::Unavailable(Away::Capacity, "too many concurrent requests".into()))
    }
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its handler does not read the body yet.
    Head,
    /// Its handler has been reading the body since then.
    Body(Instant),
    /// It has arrived, or its handler needs no more of it, since then.
    Arrived(Instant),
}

#[derive(Debug)]
struct State {
    phase: Phase,
    key: Option<KeyId>,
    /// Entries of the request for its forwarded address and for its key.
    entries: [Option<Entry>; 2],
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
    answering: Option<Answering>,
    refusal: Option<ApiError>,
    is_over: bool,
}

/// Progress of one request. It is an extension of the request; clones share it.
#[derive(Debug, Clone)]
pub struct RequestProgress(Arc<Progress>);

#[derive(Debug)]
struct Progress {
    began: Instant,
    shares: Arc<Shares>,
    door: Door,
    network: IpAddr,
    connection: Option<Arc<Connection>>,
    state: Mutex<State>,
}

impl RequestProgress {
    pub(crate) fn new(shares: &Arc<Shares>, door: Door, address: IpAddr, connection: Option<Arc<Connection>>) -> Self {
        let state = State {
            phase: Phase::Head,
            key: None,
            entries: [None, None],
            bytes: 0,
            permit: None,
            answering: None,
            refusal: None,
            is_over: false,
        };
        let (shares, network, state) = (Arc::clone(shares), network_prefix(address), Mutex::new(state));
        Self(Arc::new(Progress { began: Instant::now(), shares, door, network, connection, state }))
    }

    /// Counts the request for the address that a proxy forwards.
    pub(crate) fn begin(&self) -> Result<(), ApiError> {
        let Progress { connection, shares, network, state, .. } = &*self.0;
        if let (Some(connection), Some(max)) = (connection, shares.limits.connections_per_address)
            && !connection.is_counted()
        {
            let entry = shares.requests.enter(ConnectionOwner::Network(*network), max, connection);
            state.lock().entries[0] = Some(entry.ok_or(ApiError::RateLimited(SHARE_RETRY_SECS))?);
        }
        Ok(())
    }

    /// Counts the request for this API key, which has sent it.
    pub fn identify(&self, key: KeyId) -> Result<(), ApiError> {
        let mut state = self.0.state.lock();
        if state.key.is_some() || state.is_over {
            return Ok(());
        }
        state.key = Some(key);
        let Progress { connection, shares, .. } = &*self.0;
        if let (Some(connection), Some(max)) = (connection, shares.limits.requests_per_key) {
            let entry = shares.requests.enter(ConnectionOwner::Key(key), max, connection);
            state.entries[1] = Some(entry.ok_or(ApiError::RateLimited(SHARE_RETRY_SECS))?);
        }
        Ok(())
    }

    /// Counts bytes of the body, which the handler receives now.
    pub(crate) fn receive(&self, bytes: usize) -> Result<(), ApiError> {
        let Progress { shares, network, state, .. } = &*self.0;
        let (limits, mut state) = (&shares.limits, state.lock());
        if !shares.take(Share::AddressBytes(*network), bytes, limits.body_bytes_per_address) {
            return Err(ApiError::RateLimited(SHARE_RETRY_SECS));
        }
        let of_key = state.key.map(Share::KeyBytes);
        if of_key.is_some_and(|share| !shares.take(share, bytes, limits.body_bytes_per_key)) {
            shares.give_back(Share::AddressBytes(*network), bytes);
            return Err(ApiError::RateLimited(SHARE_RETRY_SECS));
        }
        if !shares.take(Share::Bytes, bytes, Some(limits.body_bytes)) {
            shares.give_back(Share::AddressBytes(*network), bytes);
            if let Some(share) = of_key {
                shares.give_back(share, bytes);
            }
            return Err(ApiError::Unavailable(Away::Capacity, "too many bytes of request bodies".into()));
        }
        state.bytes += bytes;
        Ok(())
    }

    /// The handler waits for the body. Returns the moment at which the whole body must have arrived.
    pub(crate) fn await_body(&self) -> Instant {
        let mut state = self.0.state.lock();
        let since = match state.phase {
            Phase::Body(since) => since,
            _ => Instant::now(),
        };
        state.phase = Phase::Body(since);
        since + self.0.shares.limits.body_timeout
    }

    /// The whole body has arrived: the request counts against the concurrent requests.
    pub(crate) fn arrive(&self) -> Result<(), ApiError> {
        let mut state = self.0.state.lock();
        state.phase = Phase::Arrived(Instant::now());
        if let Some(connection) = &self.0.connection {
            let closing = || ApiError::Unavailable(Away::Capacity, "the connection is being closed".into());
            state.answering = Some(connection.answer().ok_or_else(closing)?);
        }
        state.permit = Some(self.0.door.enter()?);
        Ok(())
    }

    /// The handler needs no more of the body: the request counts if there is room, and its connection is answering. It is
    /// not refused, because the handler may already work on it.
    pub(crate) fn abandon_body(&self) {
        let mut state = self.0.state.lock();
        if !matches!(state.phase, Phase::Arrived(_)) && state.refusal.is_none() && !state.is_over {
            state.phase = Phase::Arrived(Instant::now());
            state.answering = self.0.connection.as_ref().and_then(Connection::answer);
            state.permit = self.0.door.enter().ok();
        }
    }

    /// Records why the body was not accepted. The client receives this instead of the handler's answer.
    pub(crate) fn refuse(&self, refusal: ApiError) {
        let mut state = self.0.state.lock();
        state.phase = Phase::Arrived(Instant::now());
        state.refusal.get_or_insert(refusal);
    }

    /// The reason why the body was not accepted.
    pub(crate) fn refusal(&self) -> Option<ApiError> {
        self.0.state.lock().refusal.clone()
    }

    /// The moment at which the request is over, as far as is known now, and what is wrong if it is not over then.
    pub(crate) fn deadline(&self, request_timeout: Duration) -> (Instant, ApiError) {
        let body_timeout = self.0.shares.limits.body_timeout;
        match self.0.state.lock().phase {
            Phase::Head => (self.0.began + request_timeout, ApiError::TimedOut),
            Phase::Body(since) => (since + body_timeout, ApiError::BodyTimedOut),
            Phase::Arrived(since) => (since + request_timeout, ApiError::TimedOut),
        }
    }

    /// Returns everything that the request holds, except the mark of its connection, which the response keeps.
    pub(crate) fn finish(&self) -> Option<Answering> {
        let mut state = self.0.state.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return None;
        }
        let (shares, bytes) = (&self.0.shares, std::mem::take(&mut state.bytes));
        (state.permit, state.entries) = (None, [None, None]);
        if bytes > 0 {
            shares.give_back(Share::Bytes, bytes);
            shares.give_back(Share::AddressBytes(self.0.network), bytes);
        }
        if let Some(key) = state.key {
            shares.give_back(Share::KeyBytes(key), bytes);
        }
        state.answering.take()
    }
}

/// Finishes the request when it is dropped, also if the client disconnects before the answer.
pub(crate) struct FinishOnDrop(pub(crate) RequestProgress);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    fn door(room: usize) -> Door {
        Door::new(Arc::new(Semaphore::new(room)), None)
    }

    #[test]
    fn requests_of_one_key_leave_room_for_others() {
        let limits = EdgeLimits { requests_per_key: Some(2), ..EdgeLimits::production() };
        let (shares, door, connections) = (Shares::new(limits), door(10), Connections::new(None));
        let start = || {
            let open = connections.count(HERE).unwrap_or_else(|| panic!("there is no limit"));
            RequestProgress::new(&shares, door.clone(), HERE, Some(Arc::clone(&open.connection)))
        };
        let (key, other) = (KeyId::generate(), KeyId::generate());
        let answered = |key| {
            let request = start();
            request.arrive().and_then(|()| request.identify(key)).map(|()| request)
        };
        let waiting = [start(), start()];
        assert!(waiting.iter().all(|request| request.identify(key).is_ok()));
        let running = [answered(key), answered(key)];
        assert!(running.iter().all(Result::is_ok), "requests without their body give way");
        assert!(waiting.iter().all(|request| request.arrive().is_err()));
        assert!(matches!(answered(key), Err(ApiError::RateLimited(_))), "all are being answered");
        assert!(answered(other).is_ok());
        running.into_iter().flatten().for_each(|request| drop(request.finish()));
        assert!(answered(key).is_ok());
    }

    #[test]
    fn requests_through_a_proxy_count_for_the_forwarded_address() {
        let limits = EdgeLimits { connections_per_address: Some(1), ..EdgeLimits::production() };
        let (shares, door, connections) = (Shares::new(limits), door(10), Connections::new(Some(1)));
        let start = |address| {
            let request =
                RequestProgress::new(&shares, door.clone(), address, Some(connections.uncounted().connection));
            request.begin().map(|()| request)
        };
        let (first, elsewhere, second) = (start(HERE), start(THERE), start(HERE));
        let arrives =
            |request: &Result<RequestProgress, ApiError>| request.as_ref().is_ok_and(|one| one.arrive().is_ok());
        assert!(!arrives(&first), "it gives way, because its body is missing");
        assert!(arrives(&second) && arrives(&elsewhere));
        assert!(matches!(start(HERE), Err(ApiError::RateLimited(_))));
    }

    #[test]
    fn body_bytes_are_limited_for_each_address_and_key_and_returned() {
        let limits = EdgeLimits {
            body_bytes_per_address: Some(100),
            body_bytes_per_key: Some(60),
            body_bytes: 150,
            ..EdgeLimits::production()
        };
        let (shares, key) = (Shares::new(limits), KeyId::generate());
        let start = |address| RequestProgress::new(&shares, door(10), address, None);
        let (first, second, third) = (start(HERE), start(HERE), start(THERE));
        assert!(first.identify(key).is_ok());
        assert!(first.receive(60).is_ok());
        assert!(matches!(first.receive(1), Err(ApiError::RateLimited(_))), "the key has its share");
        assert!(second.receive(40).is_ok());
        assert!(matches!(second.receive(1), Err(ApiError::RateLimited(_))), "the address has its share");
        assert!(third.receive(50).is_ok());
        assert!(matches!(third.receive(1), Err(ApiError::Unavailable(Away::Capacity, _))), "nothing is left");
        drop(FinishOnDrop(first.clone()));
        assert!(third.receive(50).is_ok());
        for request in [first, second, third] {
            drop(request.finish());
        }
        assert!(shares.held.is_empty(), "{:?}", shares.held);
    }

    #[test]
    fn no_request_starts_on_a_connection_that_is_being_closed() {
        let (shares, connections) = (Shares::new(EdgeLimits::production()), Connections::new(Some(1)));
        let open = connections.count(HERE);
        let connection = open.as_ref().map(|open| Arc::clone(&open.connection));
        let request = RequestProgress::new(&shares, door(1), HERE, connection);
        let _replacement = connections.count(HERE);
        assert!(matches!(request.arrive(), Err(ApiError::Unavailable(..))));
    }

    #[test]
    fn reserve_is_for_those_routes_that_have_it() {
        let (room, reserve) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let (plain, reserved) = (Door::new(Arc::clone(&room), None), Door::new(room, Some(reserve)));
        let first = plain.enter();
        assert!(first.is_ok() && plain.enter().is_err());
        let second = reserved.enter();
        assert!(second.is_ok() && reserved.enter().is_err());
    }
}
