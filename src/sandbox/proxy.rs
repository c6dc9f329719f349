//! A small proxy in front of the nodes of a sandbox: each new connection goes to the next node.
//!
//! It has no health checks. It asks the first node, in whose process it runs, which nodes are ready.

use payferry_nodes::Node;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Forwards connections to the nodes that are ready, until it is dropped.
pub(super) fn forward(listener: TcpListener, node: Node) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        for turn in 0_usize.. {
            match listener.accept().await {
                Ok((client, _)) => drop(tokio::spawn(connect(client, node.ready_urls(), turn))),
                Err(error) => tracing::warn!(%error, "the proxy of the sandbox cannot accept a connection"),
            }
        }
    }))
}

/// Forwards a connection to the next node that accepts it: one that was killed is ready until the others have noticed.
async fn connect(mut client: TcpStream, mut urls: Vec<String>, turn: usize) {
    let len = urls.len().max(1);
    urls.rotate_left(turn % len);
    for url in urls {
        if let Ok(mut node) = TcpStream::connect(url.trim_start_matches("http://")).await {
            let _ = copy_bidirectional(&mut client, &mut node).await;
            return;
        }
    }
}
