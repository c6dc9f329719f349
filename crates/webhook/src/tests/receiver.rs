//! HTTP receiver on a plain socket: fast, and able to misbehave in ways that an HTTP server cannot.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Answer to one request.
pub(super) struct Answer {
    status: u16,
    delay: Duration,
    body: Body,
}

enum Body {
    Empty,
    /// Announced and never sent.
    Stalling,
    /// Sent without end.
    Endless,
}

impl Answer {
    pub(super) fn status(status: u16) -> Self {
        Self { status, delay: Duration::ZERO, body: Body::Empty }
    }

    pub(super) fn stalling(status: u16) -> Self {
        Self { body: Body::Stalling, ..Self::status(status) }
    }

    pub(super) fn endless(status: u16) -> Self {
        Self { body: Body::Endless, ..Self::status(status) }
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

#[derive(Clone)]
pub(super) struct Arrival {
    pub(super) id: String,
    pub(super) at: Instant,
}

#[derive(Default)]
struct Seen {
    arrivals: Mutex<Vec<Arrival>>,
    ids: Mutex<HashSet<String>>,
    connections: AtomicUsize,
}

pub(super) struct Receiver {
    port: u16,
    seen: Arc<Seen>,
    _accepting: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Starts a receiver. `answer` gets the number of the request, from 0, and whether its event arrived before.
    pub(super) async fn start(answer: impl Fn(usize, bool) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, answer) = (Arc::new(Seen::default()), Arc::new(answer));
        let shared = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (seen, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                tokio::spawn(async move { serve(stream, &seen, &*answer).await });
            }
        });
        Self { port, seen, _accepting: AbortOnDropHandle::new(accepting) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.seen.arrivals.lock().clone()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.arrivals().into_iter().map(|arrival| arrival.id).collect()
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }
}

/// Answers requests until the peer hangs up, then returns `None`.
async fn serve(stream: TcpStream, seen: &Seen, answer: &(dyn Fn(usize, bool) -> Answer + Send + Sync)) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut id, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line == "\r\n" {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "webhook-id" => value.clone_into(&mut id),
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        }
        stream.read_exact(&mut vec![0; length]).await.ok()?;
        let is_again = !seen.ids.lock().insert(id.clone());
        let nth = {
            let mut arrivals = seen.arrivals.lock();
            arrivals.push(Arrival { id, at: Instant::now() });
            arrivals.len() - 1
        };
        let Answer { status, delay, body } = answer(nth, is_again);
        tokio::time::sleep(delay).await;
        let length = match body {
            Body::Empty => "0",
            Body::Stalling => "10",
            Body::Endless => "1000000000000",
        };
        let head = format!("HTTP/1.1 {status} Answer\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        match body {
            Body::Empty => {}
            Body::Stalling => std::future::pending().await,
            Body::Endless => loop {
                stream.write_all(&[b'x'; 8_192]).await.ok()?;
            },
        }
    }
}
