//! The part of HTTP/1.1 that a JSON-RPC client uses, with faults.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fault::What;

/// Maximum length of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Answer to a request.
pub(super) enum Reply {
    /// No answer: the connection is closed.
    Close,
    /// An answer; `cut_at` limits the body bytes that are sent before the connection is closed.
    Http { status: u16, retry_after: Option<u64>, content_type: &'static str, body: String, cut_at: Option<usize> },
}

impl Reply {
    pub(super) fn json(body: &Value) -> Self {
        Self::http(200, None, "application/json", body.to_string())
    }

    /// HTTP status for a query whose range is too large.
    pub(super) fn too_large() -> Self {
        Self::http(413, None, "text/plain", "content too large".to_owned())
    }

    fn http(status: u16, retry_after: Option<u64>, content_type: &'static str, body: String) -> Self {
        Self::Http { status, retry_after, content_type, body, cut_at: None }
    }

    /// Truncates the answer.
    pub(super) fn cut(self) -> Self {
        match self {
            Self::Http { status, retry_after, content_type, body, .. } => {
                let cut_at = Some(body.len() / 2);
                Self::Http { status, retry_after, content_type, body, cut_at }
            }
            Self::Close => Self::Close,
        }
    }

    /// Answer of a fault that replaces the whole answer.
    pub(super) fn of(what: &What, is_batch: bool) -> Option<Self> {
        let text = |status, retry_after, body: &str| Self::http(status, retry_after, "text/plain", body.to_owned());
        match *what {
            What::Closed => Some(Self::Close),
            What::Status(status, retry_after) => Some(text(status, retry_after, "not now")),
            What::StatusError(status, retry_after, code, message) => {
                let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
                Some(Self::http(status, retry_after, "application/json", body.to_string()))
            }
            What::Garbage => Some(text(200, None, "\u{1}\u{2}garbage{{{")),
            What::Html => {
                let page = "<!DOCTYPE html><html><body>We will be back soon.</body></html>";
                Some(Self::http(200, None, "text/html", page.to_owned()))
            }
            What::NoBatches if is_batch => {
                let error = json!({"code": -32_600, "message": "batch requests are not enabled"});
                Some(Self::json(&json!({"jsonrpc": "2.0", "id": null, "error": error})))
            }
            _ => None,
        }
    }

    /// Sends the answer. Returns whether the connection stays open.
    pub(super) async fn write(self, stream: &mut TcpStream) -> bool {
        let Self::Http { status, retry_after, content_type, body, cut_at } = self else { return false };
        let mut head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n", body.len());
        if let Some(secs) = retry_after {
            let _ = write!(head, "retry-after: {secs}\r\n");
        }
        head.push_str("\r\n");
        let sent = &body.as_bytes()[..cut_at.unwrap_or(body.len())];
        let written = stream.write_all(&[head.as_bytes(), sent].concat()).await;
        written.is_ok() && cut_at.is_none()
    }
}

/// Reads the body of the next request; `None` at the end of the connection. `rest` keeps further bytes.
pub(super) async fn read_request(stream: &mut TcpStream, rest: &mut Vec<u8>) -> Option<Vec<u8>> {
    let head_end = loop {
        if let Some(at) = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if rest.len() > HEAD_BYTES_MAX || stream.read_buf(rest).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&rest[..head_end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse::<usize>().ok()?;
    while rest.len() < head_end + length {
        if stream.read_buf(rest).await.ok()? == 0 {
            return None;
        }
    }
    let after = rest.split_off(head_end + length);
    let request = std::mem::replace(rest, after);
    Some(request[head_end..].to_vec())
}
