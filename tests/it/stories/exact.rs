//! Exact amounts, on every chain and token.

use payferry_harness::psp::units;

use crate::prelude::*;
use crate::stage::{Client, Stage, Transfer, on_every_stage};

on_every_stage!(every_chain_and_token, best_says_why,);

/// The exact amount settles on every chain and token.
async fn every_chain_and_token<S: Stage>(stage: &S, psp: &Client) {
    for chain in Chain::ALL {
        for token in Token::ALL {
            let before = stage.holdings(chain, token).await;
            let id = psp.payment("12.345678", token, chain).await;
            let tx_hash = stage.pay(&id, Transfer::exact()).await;
            let payment = psp.until_status(&id, "settled").await;

            let expected = json!({ "amount_received": "12.345678", "transfers/0/tx_hash": tx_hash,
                "transfers/0/counted": true, "kyt_verdict": "allow", "settlement/psp_amount": "12.222222",
                "settlement/treasury_fee": "0.123456" });
            assert_has(&payment, expected);
            let history: Vec<_> =
                payment["status_history"].as_array().unwrap().iter().map(|e| e["status"].clone()).collect();
            assert_eq!(history, ["pending", "confirmed", "settled"]);

            let after = stage.holdings(chain, token).await;
            assert_eq!(after.0 - before.0, units(&payment["settlement"]["psp_amount"]));
            assert_eq!(after.1 - before.1, units(&payment["settlement"]["treasury_fee"]));
            let announced = ["payment.confirmed", "payin.confirmed", "payment.settled", "payin.settled"];
            assert_eq!(psp.events(&id).await, announced);
        }
    }
}

/// `best` resolves to a chain and explains its choice.
async fn best_says_why<S: Stage>(stage: &S, psp: &Client) {
    let made = psp.initiate("5", Token::Usdt, "best").await;
    let chain: Chain = made["chain"].as_str().unwrap().parse().unwrap();
    let candidates = made["chain_candidates"].as_array().unwrap_or_else(|| panic!("{made:#}"));
    assert_eq!(candidates.len(), Chain::ALL.len());
    assert!(candidates.iter().all(|candidate| !candidate["reason"].as_str().unwrap().is_empty()));
    let id = made["payment_id"].as_str().unwrap();
    stage.pay(id, Transfer::exact()).await;
    let payment = psp.until_status(id, "settled").await;
    assert_eq!(payment["chain"], json!(chain));
}
