//! Accepts connections until shutdown, then lets running requests end. While the node drains before that, every response
//! closes its connection.
//!
//! Owns the limits of connections: their number per address, the time and the size of request heads, and the time without
//! progress of a response. A connection that was upgraded, to a WebSocket for example, keeps only its write timeout and
//! counts no longer: its handler limits it. Deliberately absent: request bodies, see [`crate::progress`].

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::address::{ClientAddress, ProxyPreface, TrustedProxies};
use crate::connections::{Connections, OpenConnection};

/// How long the first request head of a connection may take to arrive.
pub const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle, and the head of a later request may take to arrive. It is longer than the idle
/// timeout of common client pools: a request on a connection that the server is just closing would be lost.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Maximum size of a request line with all headers. The answer to a larger one is 431.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// How long a client may read nothing of a response.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections open at once on a listener. Further connections wait to be accepted.
pub const CONNECTIONS_MAX: u32 = 16_384;
/// Time limit of running requests after shutdown begins.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for lack of a resource, usually file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of a listener's connections. The default has no limit per address and trusts no proxy.
#[derive(Debug, Clone, Default)]
pub struct ServeConfig {
    /// Proxies that forward the client's address.
    pub trusted_proxies: TrustedProxies,
    /// Connections open at once for one address; `None` is no limit.
    pub connections_per_address: Option<usize>,
    /// Once it has begun, every response closes its connection.
    pub draining: Draining,
}

/// The drain of a node that stops soon. Requests are still answered, and new ones should go to another node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Begins the drain, which never ends.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the drain has begun.
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// State that all connections of a listener share.
struct Shared {
    router: Router,
    trusted_proxies: TrustedProxies,
    connections: Connections,
    draining: Draining,
    /// Cancelled when shutdown begins.
    stopping: CancellationToken,
}

/// Serves `router` on `listener` until `shutdown` resolves. Then it accepts nothing new, closes idle connections and
/// answers running requests within [`SHUTDOWN_TIMEOUT`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: ServeConfig,
    shutdown: impl Future<Output = ()> + Send,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let connections = Connections::new(config.connections_per_address);
    let ServeConfig { trusted_proxies, draining, .. } = config;
    let shared =
        Arc::new(Shared { router, trusted_proxies, connections, draining, stopping: CancellationToken::new() });
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepting = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            () = &mut shutdown => break,
            (accepted, place) = accepting => match accepted {
                Ok((stream, peer)) => {
                    accept(&shared, stream, peer.ip().to_canonical(), place.ok());
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "connections cannot be accepted at the moment: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    shared.stopping.cancel();
    // All places are free when all connections have ended.
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, room.acquire_many(CONNECTIONS_MAX)).await.is_err() {
        tracing::warn!("some requests were still running at shutdown and were aborted");
    }
}

/// Serves a new connection in a task of its own.
fn accept(shared: &Arc<Shared>, stream: TcpStream, peer: IpAddr, place: Option<OwnedSemaphorePermit>) {
    // Answers are small and complete, so Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    // The kernel may buffer a whole response. It ends the connection if the client then reads nothing of it.
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(WRITE_TIMEOUT));
    let shared = Arc::clone(shared);
    let first_head_by = Instant::now() + FIRST_HEAD_TIMEOUT;
    if shared.trusted_proxies.trusts(peer) {
        tokio::spawn(async move {
            let stopping = shared.stopping.clone();
            let forwarded = stopping.run_until_cancelled(from_proxy(&shared, stream, peer)).await;
            if let Some(Some(accepted)) = forwarded {
                accepted.serve(shared, first_head_by).await;
            }
            drop(place);
        });
    } else if let Some(open) = shared.connections.count(peer) {
        let accepted = Accepted { stream, preface: ProxyPreface::default(), peer, open };
        tokio::spawn(async move {
            accepted.serve(shared, first_head_by).await;
            drop(place);
        });
    }
}

/// Reads the PROXY protocol header of a trusted proxy, if there is one. A connection whose client is announced counts for
/// that client; any other connection of the proxy counts for no address.
async fn from_proxy(shared: &Shared, mut stream: TcpStream, peer: IpAddr) -> Option<Accepted> {
    let preface = match ProxyPreface::read(&mut stream, FIRST_HEAD_TIMEOUT).await {
        Ok(preface) => preface,
        Err(error) => {
            tracing::debug!(%error, "a connection of the proxy {peer} ended before its first request: {error}");
            return None;
        }
    };
    let open = match preface.client {
        Some(client) if !shared.trusted_proxies.lists(client) => shared.connections.count(client)?,
        _ => shared.connections.uncounted(),
    };
    Some(Accepted { stream, preface, peer, open })
}

/// An accepted connection.
struct Accepted {
    stream: TcpStream,
    preface: ProxyPreface,
    peer: IpAddr,
    open: OpenConnection,
}

impl Accepted {
    /// Answers the requests of the connection until it ends.
    async fn serve(self, shared: Arc<Shared>, first_head_by: Instant) {
        let Self { stream, preface, peer, open } = self;
        let (connection, announced) = (Arc::clone(&open.connection), preface.client);
        let of_requests = Arc::clone(&shared);
        let service = shared.router.clone();
        let service = service.map_request(move |mut request: axum::http::Request<_>| {
            connection.note_request();
            let client = of_requests.trusted_proxies.client(peer, announced, request.headers());
            request.extensions_mut().insert(ClientAddress(client));
            request.extensions_mut().insert(Arc::clone(&connection));
            request
        });
        let draining = shared.draining.clone();
        let service = service.map_response(move |mut response: Response| {
            if draining.has_begun() {
                // An upgrade has the header already.
                response.headers_mut().entry(CONNECTION).or_insert(HeaderValue::from_static("close"));
            }
            response
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
        let io = TokioIo::new(ConnectionIo::new(stream, preface.rest));
        let serving = builder.serve_connection(io, TowerToHyperService::new(service)).with_upgrades();
        let mut serving = std::pin::pin!(serving);
        let mut is_stopping = false;
        let first_head = tokio::time::sleep_until(first_head_by);
        let mut first_head = std::pin::pin!(first_head);
        let mut has_requested = false;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut serving => break ended,
                () = shared.stopping.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    serving.as_mut().graceful_shutdown();
                }
                () = open.connection.closed() => break Ok(()),
                () = &mut first_head, if !has_requested => {
                    has_requested = open.connection.has_requested();
                    if !has_requested {
                        break Ok(());
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::trace!(%error, "a connection ended: {error}");
        }
    }
}

/// Socket of a connection: first the bytes that were already read, then the stream with its write timeout.
struct ConnectionIo {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    unread: Vec<u8>,
}

impl ConnectionIo {
    fn new(stream: TcpStream, unread: Vec<u8>) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIMEOUT));
        Self { stream: Box::pin(stream), unread }
    }
}

impl AsyncRead for ConnectionIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return self.stream.as_mut().poll_read(cx, buf);
        }
        let read = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..read]);
        self.unread.drain(..read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ConnectionIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(cx, bufs)
    }

    // Without it, hyper copies each response into one buffer.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Returns true if the client closed the connection before it was accepted, false if accepting itself failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
