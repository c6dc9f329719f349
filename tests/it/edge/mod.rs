//! Attacks on a real service with the limits of production, over loopback. Each is bounded in connections and in time.
//!
//! Clients have different addresses: each binds its own address of 127.0.0.0/8.

mod fixture;
mod proxies;
mod slow_bodies;
mod slow_heads;

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

pub use fixture::{Measured, Production};

/// Address of the client that sends ordinary requests.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Address of the attacker.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Opens a connection from this address.
async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// Opens a connection from this address, and sends these bytes. The service may close it meanwhile.
async fn opened(from: Ipv4Addr, to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(from, to).await.unwrap();
    let _ = stream.write_all(bytes).await;
    stream
}
