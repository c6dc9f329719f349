//! Open connections by client network, requests in progress by API key, and which of their connections may be closed when
//! one client has too many.
//!
//! A connection is complete while it answers a request whose body has arrived. It is incomplete otherwise: idle, or
//! with a request that is still arriving. At the limit, a new connection replaces the one that has been incomplete the
//! longest, so that a client that opens connections without using them only displaces its own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use payferry_domain::KeyId;
use tokio::sync::Notify;

use crate::limits::network_prefix;
use crate::metrics;

/// Connections open at once for one address (IPv6: for one /64 network).
pub const CONNECTIONS_PER_ADDRESS: usize = 512;

/// State of a connection that is answering.
const ANSWERING: u64 = 0;
/// State of a connection that was chosen to be closed.
const CLOSING: u64 = u64::MAX;

/// One open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// [`ANSWERING`], [`CLOSING`], or the tick at which the connection became incomplete.
    state: AtomicU64,
    /// True if it counts for its client's address, false if it is a proxy's.
    is_counted: bool,
    has_requested: AtomicBool,
    close: Notify,
    ticks: Arc<AtomicU64>,
}

impl Connection {
    fn new(ticks: &Arc<AtomicU64>, is_counted: bool) -> Arc<Self> {
        let state = AtomicU64::new(tick(ticks));
        let (has_requested, close, ticks) = (AtomicBool::new(false), Notify::new(), Arc::clone(ticks));
        Arc::new(Self { state, is_counted, has_requested, close, ticks })
    }

    /// Returns true if the connection counts for its client's address.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Records that the head of a request has arrived.
    pub(crate) fn note_request(&self) {
        self.has_requested.store(true, Ordering::Relaxed);
    }

    /// Returns true if the head of a request has arrived.
    pub(crate) fn has_requested(&self) -> bool {
        self.has_requested.load(Ordering::Relaxed)
    }

    /// Resolves when the connection must be closed.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Marks the connection as answering until the returned value is dropped. `None` if it is being closed.
    pub(crate) fn answer(self: &Arc<Self>) -> Option<Answering> {
        let answering = |state| (state != CLOSING).then_some(ANSWERING);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, answering).ok()?;
        Some(Answering(Arc::clone(self)))
    }

    /// The tick at which the connection became incomplete.
    fn incomplete_since(&self) -> Option<u64> {
        Some(self.state.load(Ordering::Acquire)).filter(|state| *state != ANSWERING && *state != CLOSING)
    }

    /// Closes the connection if it still is as it was.
    fn close_if(&self, since: u64) -> bool {
        let was = self.state.compare_exchange(since, CLOSING, Ordering::AcqRel, Ordering::Acquire);
        if was.is_ok() {
            self.close.notify_one();
        }
        was.is_ok()
    }
}

fn tick(ticks: &AtomicU64) -> u64 {
    ticks.fetch_add(1, Ordering::Relaxed)
}

/// A connection that answers a request. It becomes incomplete when this is dropped.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.state.store(tick(&self.0.ticks), Ordering::Release);
    }
}

/// Holder of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionOwner {
    /// A client network.
    Network(IpAddr),
    /// An API key.
    Key(KeyId),
}

/// Connections by their owners.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<ConnectionOwner, Vec<Arc<Connection>>>>);

impl Registry {
    /// Counts a connection of this owner. At the limit, closes the connection of the owner that has been incomplete the
    /// longest. `None` if all are answering.
    pub(crate) fn enter(
        self: &Arc<Self>,
        owner: ConnectionOwner,
        max: usize,
        connection: &Arc<Connection>,
    ) -> Option<Entry> {
        let mut owners = self.0.lock();
        let of_owner = owners.entry(owner).or_default();
        if of_owner.len() >= max && !close_oldest(of_owner) {
            metrics::connection_closed(metrics::ALL_ANSWERING);
            return None;
        }
        of_owner.push(Arc::clone(connection));
        Some(Entry { registry: Arc::clone(self), owner, connection: Arc::clone(connection) })
    }
}

/// Closes and removes the connection that has been incomplete the longest; returns false if there is none.
fn close_oldest(connections: &mut Vec<Arc<Connection>>) -> bool {
    loop {
        let incomplete =
            connections.iter().enumerate().filter_map(|(place, one)| Some((one.incomplete_since()?, place)));
        let Some((since, place)) = incomplete.min() else { return false };
        // It may have begun to answer in the meantime.
        if connections[place].close_if(since) {
            connections.swap_remove(place);
            metrics::connection_closed(metrics::OLDEST_INCOMPLETE);
            return true;
        }
    }
}

/// Entry of a connection in a registry. It no longer counts once this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    registry: Arc<Registry>,
    owner: ConnectionOwner,
    connection: Arc<Connection>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut owners = self.registry.0.lock();
        let Some(of_owner) = owners.get_mut(&self.owner) else { return };
        if let Some(place) = of_owner.iter().position(|one| Arc::ptr_eq(one, &self.connection)) {
            of_owner.swap_remove(place);
        }
        if of_owner.is_empty() {
            owners.remove(&self.owner);
        }
    }
}

/// The open connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    per_address_max: Option<usize>,
    ticks: Arc<AtomicU64>,
    open: Arc<Registry>,
}

impl Connections {
    /// No connections. `per_address_max`: limit for each client network.
    pub(crate) fn new(per_address_max: Option<usize>) -> Self {
        Self { per_address_max, ticks: Arc::new(AtomicU64::new(1)), open: Arc::default() }
    }

    /// A connection of a proxy, which counts for no address. Its requests do.
    pub(crate) fn uncounted(&self) -> OpenConnection {
        OpenConnection { connection: Connection::new(&self.ticks, false), _entry: None }
    }

    /// Counts a new connection of this address. `None` if all connections of the address are answering: the new
    /// connection must be closed.
    pub(crate) fn count(&self, address: IpAddr) -> Option<OpenConnection> {
        let connection = Connection::new(&self.ticks, true);
        let Some(max) = self.per_address_max else { return Some(OpenConnection { connection, _entry: None }) };
        let entry = self.open.enter(ConnectionOwner::Network(network_prefix(address)), max, &connection)?;
        Some(OpenConnection { connection, _entry: Some(entry) })
    }
}

/// An open connection, with its entry if connections of its address are limited.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub(crate) connection: Arc<Connection>,
    _entry: Option<Entry>,
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn is_closed(open: &OpenConnection) -> bool {
        open.connection.closed().now_or_never().is_some()
    }

    #[test]
    fn longest_incomplete_connection_gives_way() {
        let connections = Connections::new(Some(3));
        let count = || connections.count(HERE).unwrap_or_else(|| panic!("there is room"));
        let (first, second, third) = (count(), count(), count());
        let answering = first.connection.answer();
        drop(second.connection.answer());
        let fourth = count();
        assert!(is_closed(&third), "the second was used after it");
        let fifth = count();
        assert!(is_closed(&second));
        assert!(second.connection.answer().is_none(), "no request starts on a connection that is being closed");
        let others = [&fourth, &fifth].map(|open| open.connection.answer());
        assert!(connections.count(HERE).is_none(), "all are answering");
        let elsewhere = connections.count([127, 0, 0, 2].into());
        assert!(elsewhere.is_some(), "another address has a limit of its own");
        drop(answering);
        let sixth = count();
        assert!(is_closed(&first));
        drop((first, second, third, fourth, fifth, sixth, others, elsewhere));
        assert!(connections.open.0.lock().is_empty(), "nothing is kept of closed connections");
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let connections = Connections::new(Some(1));
        let count = |address: &str| address.parse().ok().and_then(|address| connections.count(address));
        let first = count("2001:db8::1").unwrap_or_else(|| panic!("the first"));
        let _second = count("2001:db8::2");
        assert!(is_closed(&first));
    }

    #[test]
    fn without_a_limit_nothing_is_closed() {
        let connections = Connections::new(None);
        let open: Vec<_> = (0..1_000).filter_map(|_| connections.count(HERE)).collect();
        assert_eq!(open.iter().filter(|open| is_closed(open)).count(), 0);
        assert!(connections.open.0.lock().is_empty());
    }
}
