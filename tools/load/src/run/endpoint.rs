//! The end of a run's webhooks: whether all are delivered, and the PSP's webhook endpoint of before.

use super::Target;
use payferry_testkit::audit::state::RunState;
use payferry_testkit::psp::{Psp, WebhookEndpoint};

/// Inbox of the sandbox that becomes the webhook endpoint of a PSP that had none.
const INBOX: &str = "load";

/// Returns true if a webhook of the run is not delivered. Older webhooks of others may come before it in the list.
pub(super) async fn is_owed_any(psp: &Psp, state: &RunState) -> anyhow::Result<bool> {
    let mut seen = 0;
    loop {
        let ids = psp.undelivered(seen).await?;
        if ids.is_empty() || state.has_any(&ids) {
            return Ok(!ids.is_empty());
        }
        seen += ids.len();
    }
}

/// Restores the webhook endpoint. Returns a note if it differs from before, except for a sandbox that ends with the
/// run. An endpoint cannot be unset: a PSP without one gets an inbox of the sandbox, instead of a receiver that is
/// gone.
pub(super) async fn restore(psp: &Psp, target: &Target, is_sandbox: bool, before: WebhookEndpoint) -> Option<String> {
    let had = before.webhook_url.is_some();
    if !had && target.own.is_some() {
        return None;
    }
    if !had && !is_sandbox {
        return Some(
            "The PSP had no webhook endpoint before, and one cannot be unset: it is still the load tester's receiver, which is gone."
                .to_owned(),
        );
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use alloy::primitives::Address;
    use axum::extract::Query;
    use axum::routing::get;
    use axum::{Json, Router};
    use payferry_testkit::wire::PaymentId;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use payferry_testkit::audit::behaviour::{Behaviour, Intent};
    use payferry_testkit::psp::{Initiated, PAGE};
    use payferry_testkit::stub::serve;

    /// A service with these undelivered webhooks, oldest first.
    async fn service(undelivered: Vec<PaymentId>) -> Psp {
        let page = move |Query(query): Query<HashMap<String, usize>>| async move {
            let of_page = undelivered.iter().skip(query["offset"]).take(query["limit"]);
            let deliveries: Vec<Value> = of_page.map(|id| json!({"payment_id": id.to_string()})).collect();
            Json(json!({"total": undelivered.len(), "deliveries": deliveries}))
        };
        let router = Router::new().route("/api/v1/webhook/undelivered", get(page));
        Psp::new(&serve(router).await, "sk_test_x").unwrap()
    }

    #[tokio::test]
    async fn finds_an_undelivered_webhook_behind_older_ones_of_others() {
        let (state, _late) = RunState::new("0a1b2c3d", 0, 100);
        let (ours, now) = (PaymentId::generate(), Instant::now());
        state.due(Intent::nth(0, Behaviour::Exact), now);
        let made = Initiated { payment_id: ours, intermediary_wallet: Address::ZERO, payment_methods: None };
        state.answered(0, Some(now), Ok(made));
        let others: Vec<PaymentId> = (0..PAGE + 10).map(|_| PaymentId::generate()).collect();
        for (undelivered, is_owed) in [(vec![], false), (others.clone(), false), ([others, vec![ours]].concat(), true)]
        {
            assert_eq!(is_owed_any(&service(undelivered).await, &state).await.unwrap(), is_owed);
        }
    }
}
