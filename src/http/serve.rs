//! Accepts connections until it is told to stop, then lets running requests end.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// How long the head of a request may take to arrive.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long running requests may take to end after the stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of something (file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown` resolves: from then on nothing new is accepted, idle connections are
/// closed, and running requests are answered within [`DRAIN_MAX`].
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()> + Send) {
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connect(stream, &router, &graceful),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "connections cannot be accepted at the moment: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_MAX, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were still running at the end and were cut off");
    }
}

fn connect(stream: TcpStream, router: &Router, graceful: &GracefulShutdown) {
    let Ok(peer) = stream.peer_addr() else { return };
    // Answers are small and complete; waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let service = router.clone().map_request(move |mut request: axum::http::Request<_>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
    let watched = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = watched.await {
            tracing::trace!(%error, "a connection ended: {error}");
        }
    });
}

/// Whether the connection went away before it was accepted, rather than that we cannot accept.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
