//! Check for webhooks that the service has not delivered yet, when no more are awaited.

use payferry_testkit::audit::state::RunState;
use payferry_testkit::psp::Psp;

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        let made = Initiated { payment_id: ours, intermediary_wallet: Address::ZERO };
        state.answered(0, Some(now), Ok(made));
        let others: Vec<PaymentId> = (0..PAGE + 10).map(|_| PaymentId::generate()).collect();
        for (undelivered, is_owed) in [(vec![], false), (others.clone(), false), ([others, vec![ours]].concat(), true)]
        {
            assert_eq!(is_owed_any(&service(undelivered).await, &state).await.unwrap(), is_owed);
        }
    }
}
