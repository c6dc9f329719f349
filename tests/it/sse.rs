//! Server-sent events from the reader's side.

use axum::http::{HeaderMap, StatusCode};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use payferry_harness::PATIENCE;
use serde_json::Value;

/// An open stream.
pub struct Events {
    chunks: BoxStream<'static, Option<Vec<u8>>>,
    text: String,
}

/// One event: its name, id and data.
#[derive(Debug, Default)]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: String,
}

impl Event {
    /// The data of an event with a JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl Events {
    /// Asserts that the response is a stream of events, and reads from its body.
    pub fn of<B, E, S>(status: StatusCode, headers: &HeaderMap, body: S) -> Self
    where
        B: AsRef<[u8]>,
        S: Stream<Item = Result<B, E>> + Send + 'static,
    {
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["x-accel-buffering"], "no");
        Self { chunks: body.map(|chunk| Some(chunk.ok()?.as_ref().to_vec())).boxed(), text: String::new() }
    }

    /// Returns the next event; `None` after the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((block, _)) = self.text.split_once("\n\n") {
                let end = block.len() + 2;
                let lines: Vec<_> = block.lines().filter_map(|line| line.split_once(':')).collect();
                let of = |wanted: &str| -> Vec<&str> {
                    let named = lines.iter().filter(|(name, _)| *name == wanted);
                    named.map(|(_, value)| value.strip_prefix(' ').unwrap_or(value)).collect()
                };
                let id = of("id").first().map(|id| (*id).to_owned());
                let event = Event { name: of("event").concat(), id, data: of("data").join("\n") };
                self.text.drain(..end);
                if !event.name.is_empty() {
                    return Some(event);
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.chunks.next()).await;
            let chunk = chunk.expect("the stream sent nothing in time")??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads events until one matches.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before {what}"));
            if wanted(&event) {
                return event;
            }
        }
    }

    /// Reads to the end of the stream.
    pub async fn end(&mut self) {
        while self.next().await.is_some() {}
    }
}
