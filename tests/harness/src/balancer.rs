//! A load balancer in front of the public listeners of several nodes, as HAProxy with a health check every second: a new
//! connection goes to the next node whose `/readyz` answers 200.
//!
//! Deliberately absent: retries. A request on a connection to a node that dies fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::eventually;

/// Interval of health checks, and the time limit of one.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Failed health checks after which a node gets no requests.
const FAILURES_MAX: u32 = 2;

/// A running balancer.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    backends: Arc<Mutex<Vec<Backend>>>,
    _accepting: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Backend {
    address: SocketAddr,
    is_up: watch::Sender<bool>,
    _checking: AbortOnDropHandle<()>,
}

impl Balancer {
    /// Listens on this port of the loopback address; 0 takes a free one.
    pub async fn start(port: u16) -> Self {
        // An earlier balancer on this port may just have been dropped.
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port))).await;
        let (address, backends) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Backend>>>::default());
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, backends.clone())));
        Self { address, backends, _accepting: accepting }
    }

    /// URL of the balancer.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a node that is ready, by the URL of its listener.
    pub fn add(&self, url: &str) {
        let address = address_of(url);
        let is_up = watch::Sender::new(true);
        let checking = AbortOnDropHandle::new(tokio::spawn(check(address, is_up.clone())));
        self.backends.lock().push(Backend { address, is_up, _checking: checking });
    }

    /// Removes a node. Its connections end.
    pub fn remove(&self, url: &str) {
        let address = address_of(url);
        self.backends.lock().retain(|backend| {
            let stays = backend.address != address;
            if !stays {
                backend.is_up.send_replace(false);
            }
            stays
        });
    }
}

async fn accept(listener: TcpListener, backends: Arc<Mutex<Vec<Backend>>>) {
    let turn = Arc::new(AtomicUsize::new(0));
    while let Ok((client, _)) = listener.accept().await {
        let (backends, turn) = (backends.clone(), turn.clone());
        tokio::spawn(async move { forward(client, &backends, &turn).await });
    }
}

/// Forwards one connection to the next node that is up, until either side closes it or the node is down.
async fn forward(mut client: TcpStream, backends: &Mutex<Vec<Backend>>, turn: &AtomicUsize) {
    let up: Vec<_> = backends
        .lock()
        .iter()
        .filter(|backend| *backend.is_up.borrow())
        .map(|backend| (backend.address, backend.is_up.subscribe()))
        .collect();
    for place in 0..up.len() {
        let (address, mut is_up) = up[(turn.fetch_add(1, Ordering::Relaxed) + place) % up.len()].clone();
        let Ok(mut node) = TcpStream::connect(address).await else { continue };
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut node) => {}
            _ = is_up.wait_for(|is_up| !is_up) => {}
        }
        return;
    }
}

/// Checks a node until it is removed.
async fn check(address: SocketAddr, is_up: watch::Sender<bool>) {
    let mut failures = 0;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let ready = tokio::time::timeout(CHECK_INTERVAL, is_ready(address)).await.is_ok_and(|ready| ready);
        failures = if ready { 0 } else { failures + 1 };
        is_up.send_if_modified(|is_up| std::mem::replace(is_up, failures < FAILURES_MAX) != (failures < FAILURES_MAX));
    }
}

/// The address in the URL of a listener.
pub(crate) fn address_of(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

/// True if `/readyz` of a node answers 200.
pub(crate) async fn is_ready(address: SocketAddr) -> bool {
    let answer = async {
        let mut node = TcpStream::connect(address).await?;
        node.write_all(b"GET /readyz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        node.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with(b"HTTP/1.1 200"))
    };
    answer.await.unwrap_or(false)
}
