//! `/ops/stuck`.

use payferry::sandbox::Payer;
use payferry_domain::{Chain, Token};
use sea_orm::ConnectionTrait;
use serde_json::json;

use super::Desk;
use crate::app::Reply;

fn id_of(payment: &Reply) -> &str {
    payment.json["payment_id"].as_str().unwrap()
}

#[tokio::test]
async fn nothing_is_stuck_while_all_is_well() {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    let made = desk.app.add_payment(&merchant).await;
    desk.app.pay(&made, "10").await;
    desk.app.payment_when(&made, "settled").await;
    let stuck = desk.get("/ops/stuck").await;
    assert_eq!(stuck.json, json!({ "total": { "counted": 0, "more": false }, "kinds": [] }));
    let bad = desk.get("/ops/stuck?kind=everything&limit=1000").await;
    assert_eq!(bad.faults(), ["kind: unknown_value", "limit: out_of_range"]);
    desk.stop().await;
}

#[tokio::test]
async fn what_needs_a_person_is_listed_with_why_and_what_to_do() {
    let desk = Desk::start_with_chains().await;
    let merchant = desk.app.add_merchant().await;
    // Blocked for real: the money of a sanctioned payer is held.
    let blocked = desk.app.add_payment(&merchant).await;
    let wallet = blocked.json["intermediary_wallet"].as_str().unwrap().parse().unwrap();
    let chain = desk.app.world().chain(Chain::Base);
    chain.transfer(Payer::Sanctioned, Token::Usdc, wallet, "10".parse().unwrap()).await.unwrap();
    desk.app.payment_when(&blocked, "failed").await;
    let settled = desk.app.add_payment(&merchant).await;
    desk.app.pay(&settled, "10").await;
    desk.app.payment_when(&settled, "settled").await;
    // The rest as rows would stand if something had gone wrong long ago.
    let (overdue, unsettled) = (desk.app.add_payment(&merchant).await, desk.app.add_payment(&merchant).await);
    for sql in [
        format!("UPDATE payments SET expires_at = 1 WHERE id = '{}'", id_of(&overdue)),
        format!("UPDATE payments SET status = 'confirmed', updated_at = 1 WHERE id = '{}'", id_of(&unsettled)),
        format!("UPDATE transfers SET applied_revision = 0, created_at = 1 WHERE payment_id = '{}'", id_of(&settled)),
        format!("UPDATE deliveries SET status = 'exhausted' WHERE payment_id = '{}'", id_of(&blocked)),
        format!("UPDATE deliveries SET created_at = 1, updated_at = 1 WHERE payment_id = '{}'", id_of(&settled)),
    ] {
        desk.app.writer().execute_unprepared(&sql).await.unwrap();
    }
    let stuck = desk.get("/ops/stuck").await;
    insta::assert_json_snapshot!("stuck", stuck.redacted());
    let one = desk.get("/ops/stuck?kind=overdue&limit=1").await.json;
    assert_eq!(one["kinds"].as_array().unwrap().len(), 1);
    assert_eq!(one["kinds"][0]["items"][0]["id"], id_of(&overdue));
    desk.stop().await;
}
