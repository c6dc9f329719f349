//! The body of a request while it arrives, and the body of a response while its connection counts as answering.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connections::Answering;
use crate::error::ApiError;
use crate::progress::RequestProgress;

/// Error that the handler reads from a body that was not accepted. The client receives the refusal instead.
#[derive(Debug, thiserror::Error)]
#[error("the request body was not accepted")]
struct BodyRefused;

/// Body of a request: it has deadlines, its bytes are counted, and the request counts from its end on.
pub(crate) struct ArrivingBody {
    inner: Body,
    progress: RequestProgress,
    /// Set while the handler waits for more.
    timer: Option<Pin<Box<Sleep>>>,
    idle_timeout: std::time::Duration,
    is_over: bool,
}

impl ArrivingBody {
    /// The body of this request.
    pub(crate) fn new(inner: Body, progress: RequestProgress, idle_timeout: std::time::Duration) -> Self {
        Self { inner, progress, timer: None, idle_timeout, is_over: false }
    }

    fn refuse(&mut self, refusal: ApiError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.is_over = true;
        self.progress.refuse(refusal);
        Poll::Ready(Some(Err(BodyRefused.into())))
    }

    /// Resolves once the body has missed a deadline.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (progress, idle_timeout) = (&self.progress, self.idle_timeout);
        let timer = self.timer.get_or_insert_with(|| {
            let whole_by = progress.await_body();
            Box::pin(sleep_until(whole_by.min(Instant::now() + idle_timeout)))
        });
        timer.as_mut().poll(cx)
    }
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(read) = Pin::new(&mut self.inner).poll_frame(cx) else {
            ready!(self.poll_deadline(cx));
            return self.refuse(ApiError::BodyTimedOut);
        };
        self.timer = None;
        let frame = match read {
            Some(Ok(frame)) => Some(frame),
            Some(Err(error)) => {
                self.is_over = true;
                return Poll::Ready(Some(Err(error.into())));
            }
            None => None,
        };
        let bytes = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        if bytes > 0
            && let Err(refusal) = self.progress.receive(bytes)
        {
            return self.refuse(refusal);
        }
        // Some readers stop at the end of the content, without asking for another frame.
        if frame.is_none() || self.inner.is_end_stream() {
            if let Err(refusal) = self.progress.arrive() {
                return self.refuse(refusal);
            }
            self.is_over = true;
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        if !self.is_over {
            self.progress.abandon_body();
        }
    }
}

/// Body of a response: its connection counts as answering until the body is sent.
pub(crate) struct AnsweringBody {
    inner: Body,
    _answering: Answering,
}

impl AnsweringBody {
    /// This body, with the mark of its connection.
    pub(crate) fn new(inner: Body, answering: Answering) -> Self {
        Self { inner, _answering: answering }
    }
}

impl HttpBody for AnsweringBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    // With the exact size, the response has a Content-Length.
    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::caller::read_body;
    use crate::connections::Connections;
    use crate::progress::{BODY_IDLE_TIMEOUT, BODY_TIMEOUT, Door, EdgeLimits, Shares};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    struct Fixture {
        room: Arc<Semaphore>,
        progress: RequestProgress,
    }

    impl Fixture {
        fn new(limits: EdgeLimits) -> Self {
            let room = Arc::new(Semaphore::new(1));
            let door = Door::new(Arc::clone(&room), None);
            Self { room, progress: RequestProgress::new(&Shares::new(limits), door, HERE, None) }
        }

        fn body(&self, inner: Body) -> Body {
            Body::new(ArrivingBody::new(inner, self.progress.clone(), BODY_IDLE_TIMEOUT))
        }

        fn is_counted(&self) -> bool {
            self.room.available_permits() == 0
        }
    }

    /// A body with one byte after each pause.
    fn dripping(pause: Duration, bytes: usize) -> Body {
        let bytes = futures::stream::iter(0..bytes);
        Body::from_stream(bytes.then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>("x")
        }))
    }

    #[tokio::test]
    async fn request_counts_from_the_end_of_its_body_on() {
        let fixture = Fixture::new(EdgeLimits::production());
        let chunks = futures::stream::iter(["a", "b"]).map(Ok::<_, Infallible>);
        let mut body = fixture.body(Body::from_stream(chunks)).into_data_stream();
        for chunk in ["a", "b"] {
            let read = body.next().await.and_then(Result::ok);
            assert_eq!(read.as_deref(), Some(chunk.as_bytes()));
            assert!(!fixture.is_counted());
        }
        assert!(body.next().await.is_none());
        assert!(fixture.is_counted());
        drop(fixture.progress.finish());
        assert!(!fixture.is_counted());
    }

    #[tokio::test]
    async fn request_counts_at_the_last_byte_of_a_known_length() {
        let fixture = Fixture::new(EdgeLimits::production());
        let body = fixture.body(Body::from("all"));
        assert_eq!(body.size_hint().exact(), Some(3));
        let mut body = body.into_data_stream();
        assert!(body.next().await.is_some_and(|read| read.is_ok()));
        assert!(fixture.is_counted());
    }

    #[tokio::test]
    async fn body_that_is_not_read_counts_without_its_end() {
        let fixture = Fixture::new(EdgeLimits::production());
        drop(fixture.body(Body::from("all")));
        assert!(fixture.is_counted());
        assert!(fixture.progress.refusal().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn body_without_progress_misses_its_deadline() {
        let fixture = Fixture::new(EdgeLimits::production());
        let began = Instant::now();
        let body = fixture.body(Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>()));
        assert!(read_body(body, 100).await.is_err());
        assert_eq!(began.elapsed(), BODY_IDLE_TIMEOUT);
        assert!(matches!(fixture.progress.refusal(), Some(ApiError::BodyTimedOut)));
        assert!(!fixture.is_counted());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_may_take_its_time_but_not_forever() {
        let fixture = Fixture::new(EdgeLimits::production());
        let slow = read_body(fixture.body(dripping(Duration::from_secs(4), 7)), 100).await;
        assert_eq!(slow.map(|body| body.len()).ok(), Some(7));
        let (fixture, began) = (Fixture::new(EdgeLimits::production()), Instant::now());
        assert!(read_body(fixture.body(dripping(Duration::from_secs(1), 1_000)), 2_000).await.is_err());
        assert_eq!(began.elapsed(), BODY_TIMEOUT);
        assert!(matches!(fixture.progress.refusal(), Some(ApiError::BodyTimedOut)));
    }

    #[tokio::test]
    async fn body_is_refused_when_too_many_requests_run() {
        let fixture = Fixture::new(EdgeLimits::production());
        let _other = Arc::clone(&fixture.room).try_acquire_owned();
        assert!(read_body(fixture.body(Body::from("all")), 100).await.is_err());
        assert!(matches!(fixture.progress.refusal(), Some(ApiError::Unavailable(..))));
    }

    #[tokio::test]
    async fn body_is_refused_when_its_address_sends_too_much() {
        let limits = EdgeLimits { body_bytes_per_address: Some(2), ..EdgeLimits::production() };
        let fixture = Fixture::new(limits);
        assert!(read_body(fixture.body(Body::from("all")), 100).await.is_err());
        assert!(matches!(fixture.progress.refusal(), Some(ApiError::RateLimited(_))));
        assert!(!fixture.is_counted());
    }

    #[tokio::test]
    async fn connection_is_answering_until_the_response_is_sent() {
        let connections = Connections::new(Some(1));
        let open = connections.count(HERE).unwrap_or_else(|| panic!("there is room"));
        let answering = open.connection.answer().unwrap_or_else(|| panic!("it is open"));
        let body = Body::new(AnsweringBody::new(Body::from("all"), answering));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(connections.count(HERE).is_none(), "the only connection is answering");
        drop(body);
        assert!(connections.count(HERE).is_some());
    }
}
