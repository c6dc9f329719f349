//! JSON-RPC over WebSockets: the calls of HTTP, and subscriptions.
//!
//! One task serves a WebSocket. It reads no further request while it sends, so a client that reads slowly is not given
//! more work, and is closed after [`SEND_MAX`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::block::BlockRef;
use crate::devchain::Devchain;
use crate::http::{BODY_BYTES_MAX, not_a_websocket};
use crate::packet;
use crate::rpc::{Session, TooFarBehind};
use crate::transport::WireFailure;

/// Maximum number of WebSockets of a chain.
pub(crate) const WEBSOCKETS_MAX: usize = 100;

/// Maximum number of packets of a WebSocket that are executed at once, and the size above which no more are read.
const RUNNING_MAX: usize = 32;
const RUNNING_BYTES_MAX: usize = 1024 * 1024;

/// Time in which a client must read a message.
const SEND_MAX: Duration = Duration::from_secs(10);

/// Time without any message from the client after which it is pinged; after twice this time, it is closed.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Starts a WebSocket.
pub(crate) async fn upgrade(
    State(chain): State<Devchain>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let Ok(upgrade) = upgrade else { return not_a_websocket() };
    let Ok(place) = Arc::clone(&chain.engine.websockets).try_acquire_owned() else {
        let message = format!("the chain has {WEBSOCKETS_MAX} WebSockets already");
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    upgrade.max_message_size(BODY_BYTES_MAX).max_frame_size(BODY_BYTES_MAX).on_upgrade(async move |socket| {
        Client::new(chain, socket).serve().await;
        drop(place);
    })
}

/// Reason for which the server closes a WebSocket.
struct Close {
    code: u16,
    reason: &'static str,
}

impl Close {
    const GOING_AWAY: Self = Self { code: close_code::AWAY, reason: "the chain is closed" };
    const QUIET: Self = Self { code: close_code::POLICY, reason: "no answer to a ping" };
}

impl From<TooFarBehind> for Close {
    fn from(_: TooFarBehind) -> Self {
        Self { code: close_code::POLICY, reason: "too slow: subscribe again" }
    }
}

/// Injected faults that are HTTP statuses close a WebSocket.
impl From<WireFailure> for Close {
    fn from(_: WireFailure) -> Self {
        Self { code: close_code::AGAIN, reason: "fault injected" }
    }
}

/// A connected client.
struct Client {
    chain: Devchain,
    socket: WebSocket,
    session: Arc<Session>,
    heads: watch::Receiver<BlockRef>,
    running: FuturesUnordered<BoxFuture<'static, (usize, Result<String, WireFailure>)>>,
    /// Size of the running packets.
    running_bytes: usize,
    heard: Instant,
    is_pinged: bool,
}

/// The connection is lost, or the client asked to close it.
struct Gone;

impl Client {
    fn new(chain: Devchain, socket: WebSocket) -> Self {
        let (session, heads) = (Arc::default(), chain.heads());
        Self {
            chain,
            socket,
            session,
            heads,
            running: FuturesUnordered::new(),
            running_bytes: 0,
            heard: Instant::now(),
            is_pinged: false,
        }
    }

    async fn serve(mut self) {
        if let Ok(Close { code, reason }) = self.run().await {
            let _ = self.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
        }
    }

    /// Returns the reason to close the connection.
    async fn run(&mut self) -> Result<Close, Gone> {
        let mut is_behind = false;
        loop {
            let reads = self.running.len() < RUNNING_MAX && self.running_bytes < RUNNING_BYTES_MAX;
            let quiet_max = if self.is_pinged { 2 * QUIET_MAX } else { QUIET_MAX };
            tokio::select! {
                received = self.socket.recv(), if reads => {
                    (self.heard, self.is_pinged) = (Instant::now(), false);
                    match received {
                        Some(Ok(Message::Text(text))) => self.start(text.into()),
                        Some(Ok(Message::Binary(packet))) => self.start(packet),
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
                    }
                }
                Some((bytes, answer)) = self.running.next() => {
                    self.running_bytes -= bytes;
                    match answer {
                        Ok(text) => {
                            if !text.is_empty() {
                                self.send(Message::text(text)).await?;
                            }
                            self.session.activate();
                            is_behind = true;
                        }
                        Err(failure) => return Ok(failure.into()),
                    }
                }
                _ = self.heads.changed(), if !is_behind => {
                    if self.chain.engine.is_closed() {
                        return Ok(Close::GOING_AWAY);
                    }
                    is_behind = true;
                }
                () = std::future::ready(()), if is_behind => match self.session.messages(&self.chain.engine) {
                    Ok(messages) => {
                        is_behind = !messages.is_empty();
                        for message in messages {
                            self.send(Message::text(message)).await?;
                        }
                    }
                    Err(too_far) => return Ok(too_far.into()),
                },
                () = tokio::time::sleep_until(self.heard + quiet_max), if reads => {
                    if self.is_pinged {
                        return Ok(Close::QUIET);
                    }
                    self.is_pinged = true;
                    self.send(Message::Ping(Bytes::new())).await?;
                }
            }
        }
    }

    /// Executes a packet while others are read.
    fn start(&mut self, packet: Bytes) {
        let (chain, session) = (self.chain.clone(), Arc::clone(&self.session));
        self.running_bytes += packet.len();
        let answer = async move { (packet.len(), packet::answer(&chain, Some(&session), &packet).await) };
        self.running.push(answer.boxed());
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        match tokio::time::timeout(SEND_MAX, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // A client that does not read cannot receive the reason.
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }
}
