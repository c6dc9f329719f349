//! Text of JSON-RPC, over HTTP and WebSockets: single requests, batches, and notifications.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::devchain::Devchain;
use crate::error::RpcError;
use crate::rpc::Session;
use crate::transport::{Wire, WireFailure, in_order};

/// Maximum number of requests in a batch.
const BATCH_MAX: usize = 1_000;

/// A received request. Without an id it is a notification. An id of null is an id.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(default)]
    jsonrpc: String,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// The part of an invalid request that the response needs.
#[derive(Deserialize)]
struct Nameless<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Parses a request. The error contains the id, if it can be determined.
    fn parse(raw: &'a RawValue) -> Result<Self, Option<&'a RawValue>> {
        let valid_id = |id: &&RawValue| !id.get().starts_with(['{', '[']);
        match serde_json::from_str::<Self>(raw.get()) {
            Ok(request) if request.jsonrpc == "2.0" && request.id.as_ref().is_none_or(valid_id) => Ok(request),
            _ => Err(serde_json::from_str::<Nameless<'_>>(raw.get()).ok().and_then(|it| it.id).filter(valid_id)),
        }
    }
}

/// Handles a packet and returns the text of the response, which is empty for notifications. Only a client with a session
/// can subscribe.
pub(crate) async fn answer(chain: &Devchain, session: Option<&Session>, packet: &[u8]) -> Result<String, WireFailure> {
    let parsed = if packet.trim_ascii_start().starts_with(b"[") {
        serde_json::from_slice::<Vec<&RawValue>>(packet).map(|requests| (requests, true))
    } else {
        serde_json::from_slice::<&RawValue>(packet).map(|request| (vec![request], false))
    };
    let Ok((raw, batch)) = parsed else {
        return Ok(error_text(None, &RpcError::new(-32_700, "parse error")));
    };
    if raw.is_empty() || raw.len() > BATCH_MAX {
        let message = if raw.is_empty() { "empty batch" } else { "batch too large" };
        return Ok(error_text(None, &RpcError::new(-32_600, message)));
    }
    let requests: Vec<Result<Request<'_>, _>> = raw.iter().map(|raw| Request::parse(raw)).collect();
    let wire = Wire::of(chain, session, requests.iter().flatten().map(|request| request.method.as_str()));
    wire.before().await?;
    let methods = requests.iter().map(|request| request.as_ref().map_or("", |request| request.method.as_str()));
    let answers = requests.iter().map(|request| one(&wire, request.as_ref().map_err(|id| *id)));
    let mut answers: Vec<String> = in_order(methods, answers).await.into_iter().flatten().collect();
    wire.after()?;
    if batch && !answers.is_empty() {
        return Ok(format!("[{}]", answers.join(",")));
    }
    // A notification has no response.
    Ok(answers.pop().unwrap_or_default())
}

/// Returns `None` for a notification.
async fn one(wire: &Wire<'_>, request: Result<&Request<'_>, Option<&RawValue>>) -> Option<String> {
    let request = match request {
        Ok(request) => request,
        Err(id) => return Some(error_text(id, &RpcError::new(-32_600, "invalid request"))),
    };
    let answer = wire.request(&request.method, request.params).await;
    let id = request.id?;
    Some(match answer {
        Ok(result) => {
            let mut text = String::with_capacity(result.get().len() + 64);
            let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.get(), result.get());
            text
        }
        Err(error) => error_text(Some(id), &error),
    })
}

fn error_text(id: Option<&RawValue>, error: &RpcError) -> String {
    let mut object = json!({"code": error.code, "message": error.message});
    if let Some(data) = &error.data {
        object["data"] = data.clone();
    }
    let id = id.map_or("null", RawValue::get);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, Value::to_string(&object))
}
