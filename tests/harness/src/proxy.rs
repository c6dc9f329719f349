//! A TCP proxy in front of a PostgreSQL server with failures of networks and servers: unreachable, silent, or
//! disconnected during a commit.
//!
//! Deliberately absent: changes of the data. Forwarded data is forwarded byte for byte.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// A `COMMIT` as sent by the driver: a simple query.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// Start of a statement that is a transaction by itself (`payferry_entities::Batch`), after the statement's name.
const BATCH: &[u8] = b"\0WITH part0 AS (";
/// Prefix of the driver's prepared statement names; a number follows.
const PREPARED: &[u8] = b"sqlx_s_";
/// Maximum number of bytes per read.
const CHUNK_BYTES: usize = 16 * 1_024;

/// State of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Data is forwarded.
    Open,
    /// All connections are closed, and new ones are refused.
    Gone,
    /// Connections stay open and new ones are accepted, but no data is forwarded. A connection that lost data stays
    /// silent.
    Silent,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    line: watch::Sender<Line>,
    commits: Arc<Mutex<Commits>>,
    _accepting: AbortOnDropHandle<()>,
}

/// Selection of the commits to cut.
#[derive(Debug)]
struct Commits {
    /// Percentage of commits to cut. The random choice has a fixed seed.
    cut_percent: usize,
    random: StdRng,
    /// Commits that were cut before and after the server committed.
    cut: (usize, usize),
}

/// Position at which a commit is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The server does not receive the commit.
    Before,
    /// The server has committed, but the client does not receive the answer.
    After,
}

impl Proxy {
    /// Starts a proxy in front of the server at `url`.
    pub async fn start(url: &str) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, url).await
    }

    /// The same, on this address of the machine.
    pub async fn start_at(address: Ipv4Addr, url: &str) -> Self {
        let url: Url = url.parse().unwrap();
        let server = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (line, watched) = watch::channel(Line::Open);
        let commits = Commits { cut_percent: 0, random: StdRng::seed_from_u64(7), cut: (0, 0) };
        let commits = Arc::new(Mutex::new(commits));
        let accepting = tokio::spawn(accept(listener, server, watched, Arc::clone(&commits)));
        Self { address, line, commits, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Returns `url` with the proxy's host and port.
    pub fn url(&self, url: &str) -> String {
        let mut url: Url = url.parse().unwrap();
        url.set_host(Some(&self.address.ip().to_string())).unwrap();
        url.set_port(Some(self.address.port())).unwrap();
        url.into()
    }

    /// Sets the state of the connections.
    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// Cuts this percentage of commits from now on: half of them before the server receives them, half after it has
    /// committed.
    pub fn cut_commits(&self, percent: usize) {
        self.commits.lock().cut_percent = percent;
    }

    /// Number of commits cut before and after the server committed.
    pub fn commits_cut(&self) -> (usize, usize) {
        self.commits.lock().cut
    }
}

impl Commits {
    fn choose(&mut self) -> Option<Cut> {
        if self.random.random_range(0..100) >= self.cut_percent {
            return None;
        }
        Some(if self.random.random() { Cut::Before } else { Cut::After })
    }
}

async fn accept(listener: TcpListener, server: String, mut line: watch::Receiver<Line>, commits: Arc<Mutex<Commits>>) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    // Connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        let now = *line.borrow_and_update();
        if now == Line::Gone {
            listener = None;
            if line.changed().await.is_err() {
                return;
            }
            continue;
        }
        let listening = match listener.take() {
            Some(listening) => listening,
            None => TcpListener::bind(address).await.unwrap(),
        };
        tokio::select! {
            changed = line.changed() => if changed.is_err() { return },
            accepted = listening.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connect(client, server.clone(), line.clone(), Arc::clone(&commits)));
            }
        }
        listener = Some(listening);
    }
}

async fn connect(client: TcpStream, server: String, mut line: watch::Receiver<Line>, commits: Arc<Mutex<Commits>>) {
    if *line.borrow() == Line::Silent {
        return hold(line).await;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let (mut asked, mut answered) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut batches = Batches::default();
    let (mut is_lost, mut is_cut) = (false, false);
    loop {
        let (read, is_answer) = tokio::select! {
            changed = line.wait_for(|line| *line == Line::Gone) => {
                let _ = changed;
                return;
            }
            read = from_client.read(&mut asked) => (read, false),
            read = from_server.read(&mut answered) => (read, true),
        };
        let length = match read {
            Ok(length) if length > 0 => length,
            // A closed connection closes the other side too, unless the line is silent.
            _ if is_lost || *line.borrow() == Line::Silent => return hold(line).await,
            _ => return,
        };
        is_lost |= *line.borrow() == Line::Silent;
        if is_lost {
            continue;
        }
        let said = if is_answer { &answered[..length] } else { &asked[..length] };
        if is_answer && is_cut {
            // The server's answer confirms the commit.
            commits.lock().cut.1 += 1;
            return;
        }
        let commits_now = !is_answer && (batches.commit_in(said) || contains(said, COMMIT));
        match if commits_now { commits.lock().choose() } else { None } {
            Some(Cut::Before) => {
                commits.lock().cut.0 += 1;
                return;
            }
            Some(Cut::After) => is_cut = true,
            None => {}
        }
        let to = if is_answer { &mut to_client } else { &mut to_server };
        if to.write_all(said).await.is_err() {
            return;
        }
    }
}

/// Prepared statements of one connection that are transactions by themselves.
#[derive(Default)]
struct Batches(Vec<Vec<u8>>);

impl Batches {
    /// Returns true if the data executes one of them. Records those that the data prepares.
    fn commit_in(&mut self, said: &[u8]) -> bool {
        // A bind message starts with the portal's name (empty) and the statement's name.
        let runs = self.0.iter().any(|name| contains(said, &[b"\0", &**name, b"\0"].concat()));
        if let Some(end) = find(said, BATCH) {
            let name = said[..end].windows(PREPARED.len()).rposition(|some| some == PREPARED);
            self.0.push(said[name.expect("the driver names its prepared statements")..end].to_vec());
        }
        runs
    }
}

fn contains(said: &[u8], what: &[u8]) -> bool {
    find(said, what).is_some()
}

fn find(said: &[u8], what: &[u8]) -> Option<usize> {
    said.windows(what.len()).position(|some| some == what)
}

/// Keeps a silent connection open until the line is gone.
async fn hold(mut line: watch::Receiver<Line>) {
    let _ = line.wait_for(|line| *line == Line::Gone).await;
}
