//! Payments whose payer chooses the chain, over the API. `browser::pay` has the page.

use payferry::sandbox::Payer;

use crate::prelude::*;

async fn payer_may_choose(app: &TestApp) -> Reply {
    app.initiate(&json!({ "chain": "payer" })).await.ok(201)
}

fn candidates(record: &Reply) -> Vec<(&str, bool)> {
    let candidates = record.json["chain_candidates"].as_array().unwrap().iter();
    candidates.map(|one| (one["chain"].as_str().unwrap(), one["chosen"].as_bool().unwrap())).collect()
}

#[tokio::test]
async fn transfer_on_any_offered_chain_pays_and_is_settled_there() {
    let app = TestApp::start_with_chains().await;
    for chain in [Chain::Polygon, Chain::Base] {
        let made = payer_may_choose(&app).await;
        for field in ["chain", "token_address", "payment_uri"] {
            assert_eq!(made[field], Value::Null, "{field}");
        }
        assert_eq!(made["payment_methods"], json!([]));
        assert!(candidates(&made).len() > 1 && candidates(&made).iter().all(|(_, chosen)| !chosen));
        app.send(&made, Payer::Clean, chain, Token::Usdc, "10").await;
        let settled = app.payment_when(&made, "settled").await;
        assert_eq!(settled["chain"], chain.as_str());
        assert!(candidates(&settled).contains(&(chain.as_str(), true)));
        let reasons = column(&settled["status_history"], "reason");
        assert_eq!(reasons, ["initiated", "chain_chosen", "paid", "settled"]);
        let log = app.get(&format!("{}/webhooks", made.path())).await;
        let payloads = column(&log["deliveries"], "payload");
        assert_eq!(column(&json!(payloads), "chain"), vec![json!(chain.as_str()); 4]);
        let balances = app.get("/balances").await;
        let of = |one: &&Value| one["chain"] == chain.as_str() && one["currency"] == "USDC";
        let balance = balances["balances"].as_array().unwrap().iter().find(of).unwrap();
        assert_ne!(balance["available"], "0.00", "{balance}");
    }
}

#[tokio::test]
async fn authorization_waits_for_the_choice_and_a_payment_that_nobody_chose_expires() {
    let app = TestApp::start_with_chains().await;
    let made = payer_may_choose(&app).await;
    let cancelled = app.post(&format!("{}/cancel", made.path()), &json!({})).await.ok(200);
    assert_eq!((cancelled["status"].clone(), cancelled["chain"].clone()), (json!("failed"), Value::Null));
    // Money that comes late can be accepted on the chain on which it is.
    app.send(&made, Payer::Clean, Chain::Polygon, Token::Usdc, "10").await;
    let late = app.payment_when(&made, "mismatched").await;
    assert_eq!(late["chain"], "polygon");
    app.post(&format!("{}/resolve", made.path()), &json!({ "action": "accept" })).await.ok(200);
    assert_eq!(app.payment_when(&made, "settled").await["chain"], "polygon");
}

#[tokio::test]
async fn only_available_chains_are_offered_and_transfers_to_customers_have_none() {
    let app = TestApp::start_with_chains().await;
    app.pause(payferry_actors::pauses::Scope::Chain(Chain::Polygon), true).await;
    let offered = async || {
        let made = payer_may_choose(&app).await;
        candidates(&made).into_iter().map(|(chain, _)| chain.to_owned()).collect::<Vec<_>>()
    };
    let without = async || Some(offered().await).filter(|chains| !chains.contains(&"polygon".to_owned()));
    assert!(!until("the paused chain is not offered", without).await.is_empty());
    let transfer =
        json!({ "customer_id": CustomerId::generate(), "amount": "10", "currency": "USDC", "chain": "payer" });
    app.post("/transfers", &transfer).await.assert_invalid("chain: unknown_value");
}
