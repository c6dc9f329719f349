//! The HTTP request that the current task answers, or the command that it runs.
//!
//! The listener sets it around every handler, the command line around a command. The audit log reads it, so that each entry
//! names its source and no function in between has to pass it on. Tasks that a handler spawns have no request.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use tokio::task_local;

/// Where a request came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSource {
    /// Id of the request; `None` for a command.
    pub id: Option<String>,
    /// Address of the client, if the connection has one.
    pub address: Option<IpAddr>,
    /// Name of the operator who sent it, once known; for a command, `cli` with the user of the machine.
    pub operator: Option<String>,
    /// Role of that operator on the listener.
    pub role: Option<&'static str>,
    /// Context of the trace of the request, as the value of a `traceparent` header.
    pub traceparent: Option<String>,
    /// Reason that the operator gave for the change. Clones share it.
    pub reason: Arc<OnceLock<String>>,
}

task_local! {
    static CURRENT: RequestSource;
}

/// Runs `future` as the answer to a request.
pub async fn answering<F: Future>(source: RequestSource, future: F) -> F::Output {
    CURRENT.scope(source, future).await
}

/// Runs `future` as part of the current request, which this operator sent, with this role if it matters.
pub async fn sent_by<F: Future>(operator: String, role: Option<&'static str>, future: F) -> F::Output {
    match current() {
        Some(source) => answering(RequestSource { operator: Some(operator), role, ..source }, future).await,
        None => future.await,
    }
}

/// Sets the reason for the change that the current request makes, unless it has one.
pub fn give_reason(reason: &str) {
    if let Some(source) = current() {
        source.reason.get_or_init(|| reason.to_owned());
    }
}

/// Reason for the change that the current request makes, if one was given.
pub fn reason() -> Option<String> {
    current()?.reason.get().cloned()
}

/// Context of the trace of the current request.
pub fn traceparent() -> Option<String> {
    CURRENT.try_with(|source| source.traceparent.clone()).ok().flatten()
}

/// The request that this task answers; `None` outside of a request.
pub fn current() -> Option<RequestSource> {
    CURRENT.try_with(Clone::clone).ok()
}
