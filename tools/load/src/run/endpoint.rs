//! The PSP's webhook endpoint after a run.

use super::Target;
use payferry_testkit::psp::{WebhookEndpoint, Psp};

/// Where events of a PSP go afterwards that had no webhook endpoint before: an inbox of the sandbox with this name.
const INBOX: &str = "load";

/// Sets the webhook endpoint back. Answers what is not as it was before, in words; of a sandbox that ends with the run nobody
/// wants to know. An endpoint cannot be unset: where there was none, events go to an inbox of the sandbox from then on,
/// rather than to a receiver that is gone.
pub(super) async fn restore(api: &Psp, target: &Target, before: WebhookEndpoint) -> Option<String> {
    let had = before.webhook_url.is_some();
    if !had && target.own.is_some() {
        return None;
    }
    let url = before.webhook_url.unwrap_or_else(|| format!("{}/sandbox/inbox/{INBOX}", target.url));
    match api.set_endpoint(&url, &before.events).await {
        Ok(_) if had => None,
        Ok(_) => Some(format!(
            "The PSP had no webhook endpoint before, and one cannot be unset: its events go to {url} now. Those that waited for one went to the load tester; GET /api/v1/events has them."
        )),
        Err(error) => Some(format!(
            "The PSP's webhook endpoint is still the load tester's receiver, which is gone; it could not be set to another: {error:#}."
        )),
    }
}
