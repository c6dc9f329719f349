//! Accepts connections until shutdown, then lets running requests end.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;

/// How long a connection may be idle, and the head of a request may take to arrive. It is longer than the idle timeout
/// of common client pools: a request on a connection that the server is just closing would be lost.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Connections open at once on a listener. Further connections wait to be accepted.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Time limit of running requests after shutdown begins.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for lack of a resource, usually file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown` resolves. Then it accepts nothing new, closes idle connections and
/// answers running requests within [`DRAIN_MAX`].
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()> + Send) {
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepting = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            () = &mut shutdown => break,
            (accepted, place) = accepting => match accepted {
                Ok((stream, _)) => connect(stream, place.ok(), &router, &graceful),
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
        tracing::warn!("some requests were still running at shutdown and were aborted");
    }
}

fn connect(stream: TcpStream, place: Option<OwnedSemaphorePermit>, router: &Router, graceful: &GracefulShutdown) {
    let Ok(peer) = stream.peer_addr() else { return };
    // Answers are small and complete, so Nagle's algorithm would only delay them.
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
        drop(place);
    });
}

/// Returns true if the client closed the connection before it was accepted, false if accepting itself failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
