//! A small proxy in front of the nodes of a sandbox: each new connection goes to the next node.
//!
//! It has no health checks, because the nodes end together.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Forwards connections to the nodes until it is dropped.
pub(super) fn forward(listener: TcpListener, nodes: Vec<SocketAddr>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        for node in nodes.iter().copied().cycle() {
            match listener.accept().await {
                Ok((client, _)) => drop(tokio::spawn(connect(client, node))),
                Err(error) => tracing::warn!(%error, "the proxy of the sandbox cannot accept a connection"),
            }
        }
    }))
}

async fn connect(mut client: TcpStream, node: SocketAddr) {
    if let Ok(mut node) = TcpStream::connect(node).await {
        let _ = copy_bidirectional(&mut client, &mut node).await;
    }
}
