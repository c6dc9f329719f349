//! Restores the PSP's webhook endpoint after a run.

use super::Target;
use payferry_testkit::psp::{Psp, WebhookEndpoint};

/// Inbox of the sandbox that becomes the webhook endpoint of a PSP that had none.
const INBOX: &str = "load";

/// Restores the webhook endpoint. Returns a note if it differs from before, except for a sandbox that ends with the
/// run. An endpoint cannot be unset: a PSP without one gets an inbox of the sandbox, instead of a receiver that is
/// gone.
pub(super) async fn restore(psp: &Psp, target: &Target, before: WebhookEndpoint) -> Option<String> {
    let had = before.webhook_url.is_some();
    if !had && target.own.is_some() {
        return None;
    }
    let url = before.webhook_url.unwrap_or_else(|| format!("{}/sandbox/inbox/{INBOX}", target.url));
    match psp.set_endpoint(&url, &before.events).await {
        Ok(_) if had => None,
        Ok(_) => Some(format!(
            "The PSP had no webhook endpoint before, and one cannot be unset: its events go to {url} now. Events that had waited for an endpoint went to the load tester; GET /api/v1/events has them."
        )),
        Err(error) => Some(format!(
            "The PSP's webhook endpoint is still the load tester's receiver, which is gone, and could not be restored: {error:#}."
        )),
    }
}
