//! Lean HTTP/1.1 client: a bounded pool of keep-alive connections to one address, one request at a time on each.
//!
//! It runs on the same machine as the service that it measures, so it does little: no redirects, cookies, compression,
//! proxies or TLS. It sends a request once. It sends a request again only if the request never left (on a new
//! connection), or if the caller asks for retries of a read ([`Client::read`]).

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// Largest response body, in bytes.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Number of addresses of other people.
const OTHERS_MAX: u32 = 0x007d_0000;
/// Attempts of a read while the service is unavailable, and the first pause between two of them. Each pause is twice as
/// long as the one before: about six seconds in all.
const READS_MAX: u32 = 7;
const READ_PAUSE_FIRST: Duration = Duration::from_millis(100);

/// Reason why a request has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallError {
    /// No connection could be opened: nothing was sent.
    #[error("no connection")]
    Unconnected,
    /// No connection was free or could be opened in time: nothing was sent.
    #[error("no connection in time")]
    NotSent,
    /// The connection closed before the response arrived: the service may have handled the request.
    #[error("the connection broke")]
    Broken,
    /// The response did not arrive in time: the service may have handled the request.
    #[error("no answer in time")]
    TimedOut,
    /// The response is longer than [`ANSWER_BYTES_MAX`].
    #[error("the answer is too long")]
    TooLong,
}

impl CallError {
    /// Returns true if the service may have handled the request.
    pub const fn may_be_done(self) -> bool {
        match self {
            Self::Unconnected | Self::NotSent => false,
            Self::Broken | Self::TimedOut | Self::TooLong => true,
        }
    }
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// Client of one address. Share it by reference or in an `Arc`.
#[derive(Debug)]
pub struct Client {
    /// `host:port`.
    address: String,
    host: HeaderValue,
    bearer: Option<HeaderValue>,
    /// Local address of its connections.
    from: Option<Ipv4Addr>,
    deadline: Duration,
    /// Idle connections, the most recently used last.
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// One permit per connection.
    permits: Semaphore,
    opened: AtomicU64,
}

impl Client {
    /// Makes a client of the host and port of `url`, with up to `connections_max` connections. `deadline` is the
    /// timeout of a call, including the wait for a connection.
    pub fn new(url: &str, connections_max: usize, deadline: Duration) -> anyhow::Result<Self> {
        let url: Url = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
        ensure!(url.scheme() == "http", "only http URLs can be called, not {}", url.scheme());
        let host = url.host_str().context("the URL has no host")?;
        let address = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
        Ok(Self {
            host: HeaderValue::from_str(&address)?,
            address,
            bearer: None,
            from: None,
            deadline,
            idle: Mutex::default(),
            permits: Semaphore::new(connections_max),
            opened: AtomicU64::new(0),
        })
    }

    /// Adds a bearer token to every request.
    pub fn bearer(mut self, token: &str) -> anyhow::Result<Self> {
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))?;
        header.set_sensitive(true);
        self.bearer = Some(header);
        Ok(self)
    }

    /// Makes a client of the same address as another person: without the token, and from address `number` of this machine
    /// if the service is on it. Systems other than Linux have only one such address.
    pub fn as_another(&self, number: u32) -> Self {
        let [_, b, c, d] = (number % OTHERS_MAX + 1).to_be_bytes();
        let is_local = ["127.0.0.1:", "localhost:"].iter().any(|host| self.address.starts_with(host));
        Self {
            address: self.address.clone(),
            host: self.host.clone(),
            bearer: None,
            from: (is_local && cfg!(target_os = "linux")).then_some(Ipv4Addr::new(127, b + 1, c, d)),
            deadline: self.deadline,
            idle: Mutex::default(),
            permits: Semaphore::new(1),
            opened: AtomicU64::new(0),
        }
    }

    /// Returns the number of connections opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Gets `path` (with its query, if any).
    pub async fn get(&self, path: &str) -> Result<Response, CallError> {
        self.call(request(Method::GET, path, Bytes::new())).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, json: impl Into<Bytes>) -> Result<Response, CallError> {
        self.call(request(Method::POST, path, json.into())).await
    }

    /// Sends a request whose URI is a path, and reads the complete response.
    pub async fn call(&self, request: Request<Full<Bytes>>) -> Result<Response, CallError> {
        self.call_timed(request).await.1
    }

    /// Sends a request. Also returns when it got a connection, or `None` if it never got one: the wait before that time
    /// is caused by this client, the wait after it by the service.
    pub async fn call_timed(&self, request: Request<Full<Bytes>>) -> (Option<Instant>, Result<Response, CallError>) {
        let until = Instant::now() + self.deadline;
        let Ok(Ok(_permit)) = timeout_at(until, self.permits.acquire()).await else {
            return (None, Err(CallError::NotSent));
        };
        let begun = Instant::now();
        let mut has_left = false;
        // At the deadline the connection is dropped with the call: a late response must not be read by the next
        // request.
        let answer = timeout_at(until, self.call_untimed(request, &mut has_left)).await;
        let too_late = if has_left { CallError::TimedOut } else { CallError::NotSent };
        (Some(begun), answer.unwrap_or(Err(too_late)))
    }

    /// Sends a request that changes nothing. Retries a few times if the connection fails or the service is unavailable
    /// (503).
    pub async fn read(&self, request: impl Fn() -> Request<Full<Bytes>>) -> Result<Response, CallError> {
        let mut pause = READ_PAUSE_FIRST;
        for _ in 1..READS_MAX {
            let answer = self.call(request()).await;
            let may_pass = match &answer {
                Ok(answer) => answer.status == StatusCode::SERVICE_UNAVAILABLE,
                Err(error) => matches!(error, CallError::Unconnected | CallError::Broken),
            };
            if !may_pass {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.call(request()).await
    }

    /// Sets `has_left` as soon as the service may have read the request.
    async fn call_untimed(
        &self,
        mut request: Request<Full<Bytes>>,
        has_left: &mut bool,
    ) -> Result<Response, CallError> {
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(bearer) = &self.bearer {
            request.headers_mut().entry(AUTHORIZATION).or_insert_with(|| bearer.clone());
        }
        loop {
            let (mut connection, is_new) = match self.take_idle() {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            if connection.ready().await.is_err() {
                if is_new {
                    return Err(CallError::Broken);
                }
                continue;
            }
            *has_left = true;
            match connection.try_send_request(request).await {
                Ok(response) => {
                    let (parts, body) = response.into_parts();
                    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
                        let too_long = error.is::<http_body_util::LengthLimitError>();
                        if too_long { CallError::TooLong } else { CallError::Broken }
                    })?;
                    self.idle.lock().push(connection);
                    return Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() });
                }
                // The server closed the connection while it was idle. The request never left.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => (request, *has_left) = (unsent, false),
                    _ => return Err(CallError::Broken),
                },
            }
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect_from(&self, from: Ipv4Addr) -> std::io::Result<TcpStream> {
        let to = lookup_host(&self.address).await?.find(SocketAddr::is_ipv4).ok_or(ErrorKind::AddrNotAvailable)?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to).await
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, CallError> {
        let stream = match self.from {
            None => TcpStream::connect(&self.address).await,
            Some(from) => self.connect_from(from).await,
        };
        let stream = stream.map_err(|_| CallError::Unconnected)?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| CallError::Unconnected)?;
        // The task ends with the sender, or when the server closes the connection.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(sender)
    }
}

/// Makes a request with a JSON body. An invalid path becomes `/`.
pub fn request(method: Method, path: &str, json: Bytes) -> Request<Full<Bytes>> {
    let has_body = !json.is_empty();
    let mut request = Request::new(Full::new(json));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse::<Uri>().unwrap_or_default();
    if has_body {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::stub::serve;

    fn client(url: &str, connections_max: usize) -> Client {
        Client::new(url, connections_max, Duration::from_secs(5)).expect("a client")
    }

    #[tokio::test]
    async fn many_calls_share_few_connections() {
        let echo = |headers: HeaderMap, body: String| async move {
            let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
            format!("{bearer} {body}")
        };
        let url = serve(Router::new().route("/echo", post(echo))).await;
        let client = Arc::new(client(&url, 3).bearer("secret").expect("a header"));
        let calls = (0..50).map(|number| {
            let client = client.clone();
            async move { client.post("/echo", format!("{number}")).await.map(|answer| answer.body) }
        });
        for (number, body) in futures::future::join_all(calls).await.into_iter().enumerate() {
            assert_eq!(body, Ok(Bytes::from(format!("Bearer secret {number}"))));
        }
        assert!(client.opened() <= 3, "{} connections were opened", client.opened());
    }

    #[tokio::test]
    async fn after_a_timeout_the_next_call_gets_its_own_response() {
        let slow = || async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            "slow"
        };
        let url = serve(Router::new().route("/slow", get(slow)).route("/quick", get(|| async { "quick" }))).await;
        let client = Client::new(&url, 1, Duration::from_millis(100)).expect("a client");
        assert_eq!(client.get("/slow").await.map(|answer| answer.status), Err(CallError::TimedOut));
        assert_eq!(client.get("/quick").await.map(|answer| answer.body), Ok(Bytes::from("quick")));
    }

    #[tokio::test]
    async fn a_call_without_a_connection_was_not_sent() {
        let asked = Arc::new(AtomicU64::new(0));
        let slow = {
            let asked = asked.clone();
            move || async move {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        let url = serve(Router::new().route("/slow", get(slow))).await;
        let client = Client::new(&url, 1, Duration::from_millis(500)).expect("a client");
        let since = Instant::now();
        let call = || client.call_timed(request(Method::GET, "/slow", Bytes::new()));
        // The second call gets the connection when 200 ms are left.
        let ((immediate, first), (later, second)) = tokio::join!(call(), call());
        let waited = |begun: Option<Instant>| begun.expect("it had a connection") - since;
        assert!(first.is_ok() && waited(immediate) < Duration::from_millis(200), "{:?}", waited(immediate));
        assert!(waited(later) >= Duration::from_millis(300), "{:?}", waited(later));
        assert_eq!(second.map(|answer| answer.status), Err(CallError::TimedOut));

        let none = Client::new(&url, 0, Duration::from_millis(50)).expect("a client");
        let (begun, answer) = none.call_timed(request(Method::GET, "/slow", Bytes::new())).await;
        assert_eq!((begun, answer.map(|answer| answer.status)), (None, Err(CallError::NotSent)));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert!(CallError::TimedOut.may_be_done() && !CallError::NotSent.may_be_done());
    }

    #[tokio::test]
    async fn replaces_connections_that_the_server_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        // One response per connection; the server closes it without saying so.
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        });
        let client = client(&url, 1);
        for _ in 0..5 {
            assert_eq!(client.get("/").await.map(|answer| answer.body), Ok(Bytes::from("ok")));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(client.opened(), 5);
    }

    #[tokio::test]
    async fn retries_reads_only() {
        let asked = Arc::new(AtomicU64::new(0));
        let answers = {
            let asked = asked.clone();
            move || async move {
                let busy = asked.fetch_add(1, Ordering::Relaxed) < 2;
                if busy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NOT_FOUND }
            }
        };
        let client = client(&serve(Router::new().route("/", get(answers))).await, 1);
        let ask = || request(Method::GET, "/", Bytes::new());
        assert_eq!(client.call(ask()).await.map(|answer| answer.status.as_u16()), Ok(503));
        assert_eq!(client.read(ask).await.map(|answer| answer.status.as_u16()), Ok(404));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn reports_an_unreachable_service() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        drop(listener);
        assert_eq!(client(&url, 1).get("/").await.map(|answer| answer.status), Err(CallError::Unconnected));
        assert!(Client::new("https://example.com", 1, Duration::from_secs(1)).is_err());
    }
}
