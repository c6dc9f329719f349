//! HTTP receiver that is fast, records what arrives, and can misbehave.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use futures::stream;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Answer to one request.
pub(super) struct Answer {
    status: u16,
    delay: Duration,
    body: Body,
}

impl Answer {
    pub(super) fn status(status: u16) -> Self {
        Self { status, delay: Duration::ZERO, body: Body::empty() }
    }

    /// The body is announced and never sent.
    pub(super) fn stalling(status: u16) -> Self {
        let body = Body::from_stream(stream::pending::<Result<&str, Infallible>>());
        Self { body, ..Self::status(status) }
    }

    /// The body is sent without end.
    pub(super) fn endless(status: u16) -> Self {
        let body = Body::from_stream(stream::repeat(Ok::<_, Infallible>(&[b'x'; 8_192][..])));
        Self { body, ..Self::status(status) }
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

#[derive(Clone)]
pub(super) struct Arrival {
    pub(super) id: String,
    pub(super) at: Instant,
    peer: SocketAddr,
}

pub(super) struct Receiver {
    port: u16,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    _serving: AbortOnDropHandle<std::io::Result<()>>,
}

impl Receiver {
    /// Starts a receiver. `answer` gets the number of the request, from 0, and whether its event arrived before.
    pub(super) async fn start(answer: impl Fn(usize, bool) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let arrivals = Arc::<Mutex<Vec<Arrival>>>::default();
        let (shared, answer) = (Arc::clone(&arrivals), Arc::new(answer));
        let respond = move |ConnectInfo(peer): ConnectInfo<SocketAddr>, headers: HeaderMap, _: Bytes| async move {
            let id = headers["webhook-id"].to_str().unwrap().to_owned();
            let (nth, is_again) = {
                let mut arrivals = shared.lock();
                let is_again = arrivals.iter().any(|arrival| arrival.id == id);
                arrivals.push(Arrival { id, at: Instant::now(), peer });
                (arrivals.len() - 1, is_again)
            };
            let Answer { status, delay, body } = answer(nth, is_again);
            tokio::time::sleep(delay).await;
            (StatusCode::from_u16(status).unwrap(), body).into_response()
        };
        let service = Router::new().fallback(respond).into_make_service_with_connect_info::<SocketAddr>();
        let serving = tokio::spawn(axum::serve(listener, service).into_future());
        Self { port, arrivals, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().clone()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.arrivals().into_iter().map(|arrival| arrival.id).collect()
    }

    pub(super) fn connections(&self) -> usize {
        self.arrivals().iter().map(|arrival| arrival.peer).collect::<HashSet<_>>().len()
    }
}
