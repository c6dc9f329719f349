//! Set-aside transfers, in numbers that are too large to create in a test: their rows are inserted directly.

use payferry_domain::payment::LISTED_MAX;
use payferry_entities::{payments, transfers};

use super::attention::paged;
use crate::prelude::*;

/// Rows of one statement.
const ROWS_AT_ONCE: usize = 500;
const TOKENS: i64 = 1_000_000;

/// Writes transfers of this amount of one token to a payment that has applied them without listing them, in one
/// transaction of the chain.
async fn set_aside(
    service: &ServiceFixture,
    payment: &Reply,
    tx: u8,
    [chain, token]: [&str; 2],
    amount: i64,
    count: usize,
) {
    let row = |log_index: usize| transfers::Model {
        chain: chain.to_owned(),
        tx_hash: format!("0x{}", format!("{tx:02x}").repeat(32)),
        log_index: i64::try_from(log_index).unwrap(),
        payment_id: payment.id().to_owned(),
        token_address: token.to_owned(),
        from_address: format!("0x{}", "ad".repeat(20)),
        to_address: payment.wallet().to_lowercase(),
        amount,
        block_number: 1,
        block_hash: format!("0x{}", "b1".repeat(32)),
        block_time: 1,
        presence: "present".to_owned(),
        revision: 1,
        applied_revision: 1,
        applied_version: 0,
        created_at: 1,
    };
    let rows: Vec<_> = (0..count).map(|place| row(place).into_active_model()).collect();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        transfers::Entity::insert_many(rows.to_vec()).exec(service.app.writer()).await.unwrap();
    }
}

#[tokio::test]
async fn set_aside_floods_are_summed_within_limits_and_hide_nothing() {
    let service = ServiceFixture::start_with_chains().await;
    let (flooded, other) = (service.app.add_payment().await, service.app.add_payment().await);
    let (fake, another) = (format!("0x{}", "11".repeat(20)), format!("0x{}", "22".repeat(20)));
    for (payment, tx, chain, token, count) in [
        (&flooded, 1, "base", &fake, 2 * LISTED_MAX + 1),
        (&flooded, 2, "base", &another, LISTED_MAX),
        (&flooded, 3, "polygon", &fake, 3),
        (&other, 4, "arbitrum", &fake, 1),
    ] {
        set_aside(&service, payment, tx, [chain, token], TOKENS, count).await;
    }

    let read = service.get(&format!("/ops/payments/{}", flooded.id())).await.json;
    let line = |chain: &str, token: &str, transfers: usize, at_least: bool| {
        json!({ "chain": chain, "currency": null, "token_address": token, "transfers": transfers,
            "amount": format!("{transfers}.00"), "at_least": at_least, "since": "1970-01-01T00:00:00.001Z" })
    };
    let lines = [
        line("base", &fake, LISTED_MAX, true),
        line("base", &another, LISTED_MAX, false),
        line("polygon", &fake, 3, false),
    ];
    assert_eq!(read["set_aside"], json!(lines));
    let group = service.stuck("kind=transfer_set_aside").await;
    assert_eq!(group["total"], json!({ "counted": 4, "more": false }));
    let reasons = column(&group["items"], "reason");
    let expected = [
        format!("at least 2000 transfers of at least 2000.00 {fake} on base"),
        format!("2000 transfers of 2000.00 {another} on base"),
        format!("3 transfers of 3.00 {fake} on polygon"),
        format!("1 transfer of 1.00 {fake} on arbitrum"),
    ];
    assert_eq!(reasons, expected);
    assert_eq!(group["items"][3]["payment_id"], other.id());
    let first = service.stuck("kind=transfer_set_aside&limit=1").await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["total"]["counted"]), (1, &json!(4)));
    let ids = paged(&service, "transfer_set_aside", 1).await;
    assert_eq!(ids, [flooded.id(), flooded.id(), flooded.id(), other.id()]);

    // Three lines belong to one payment: `reply` asserts that each row has a unique id.
    let page = service.get("/ops/view/stuck").await;
    assert!(expected.iter().all(|reason| page.text().contains(reason)), "{}", page.text());
    let row = |nth: &str| format!("id=\"transfer_set_aside-{}{nth}\"", flooded.id());
    assert!(["", "-2", "-3"].iter().all(|nth| page.text().contains(&row(nth))), "{}", page.text());

    let view = format!("/ops/view/payments/{}", flooded.id());
    service.get(&view).await.assert_shows(&[&expected[0], &format!("{view}/decide\"")]);
    service.get(&format!("{view}/decide")).await.assert_shows(&["at least 2,000 on base"]);
}

#[tokio::test]
async fn sums_beyond_the_amount_type_are_shown() {
    let service = ServiceFixture::start_with_chains().await;
    let (made, other) = (service.app.add_payment().await, service.app.add_payment().await);
    let fake = format!("0x{}", "11".repeat(20));
    // A contract can emit any amount.
    set_aside(&service, &made, 1, ["base", &fake], i64::MAX, 3).await;
    set_aside(&service, &other, 2, ["base", &fake], i64::MAX, LISTED_MAX + 1).await;
    let read = service.get(&format!("/ops/payments/{}", made.id())).await.ok(200);
    assert_eq!(read["set_aside"][0]["amount"], "27670116110564.327421");
    assert_eq!(service.get(&format!("/ops/actors/{}", made.id())).await["set_aside"], read["set_aside"]);
    let group = service.stuck("kind=transfer_set_aside").await;
    let mut reasons = column(&group["items"], "reason");
    reasons.sort_by_key(Value::to_string);
    let expected = [
        format!("3 transfers of 27670116110564.327421 {fake} on base"),
        format!("at least 2000 transfers of at least 18446744073709551.614 {fake} on base"),
    ];
    assert_eq!(reasons, expected);
    for page in ["", "/decide"] {
        let page = service.get(&format!("/ops/view/payments/{}{page}", made.id())).await;
        page.ok(200).assert_shows(&["27670116110564.327421"]);
    }
    assert_eq!(service.get("/ops/view/stuck").await.status, 200);
}

/// Fills the list of a payment without an actor with dust, up to its limit.
async fn fill(service: &ServiceFixture, id: &str) {
    let row = payments::Entity::find_by_id(id).one(service.app.writer()).await.unwrap().unwrap();
    let mut state: Value = serde_json::from_str(&row.state).unwrap();
    let listed = state["transfers"].as_array_mut().unwrap();
    let mut dust = listed[0].clone();
    for (field, value) in
        [("amount", json!(1)), ("status", json!("ignored")), ("counted", json!(false)), ("verdict", Value::Null)]
    {
        dust[field] = value;
    }
    for log_index in 1_000..1_000 + LISTED_MAX - listed.len() {
        dust["key"]["log_index"] = json!(log_index);
        listed.push(dust.clone());
    }
    assert_eq!(listed.len(), LISTED_MAX);
    let filled = payments::ActiveModel { state: sea_orm::Set(state.to_string()), ..row.into_active_model() };
    payments::Entity::update(filled).exec(service.app.writer()).await.unwrap();
}

#[tokio::test]
async fn listed_transfers_are_shown_despite_a_flood() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.paid("10", "settled").await;
    // In blocks before that of its payment.
    let fake = format!("0x{}", "11".repeat(20));
    set_aside(&service, &made, 1, ["base", &fake], TOKENS, 600).await;
    let shown = service.get(&format!("/ops/actors/{}", made.id())).await.json;
    let listed = shown["transfers"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{shown:#}");
    assert_eq!((&listed[0]["revision"], listed[0]["revision"].is_u64()), (&listed[0]["row_revision"], true));
}

#[tokio::test]
async fn payment_with_a_full_list_accepts_no_set_aside_transfers() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.paid("10", "settled").await;
    let actor = format!("/ops/actors/{}", made.id());
    service.get_until(&actor, |read| read["actor"].is_null()).await;
    let usdc = service.get(&actor).await["token_address"].as_str().unwrap().to_lowercase();
    set_aside(&service, &made, 1, ["base", &usdc], TOKENS, 1).await;
    let (read, take_in) = (format!("/ops/payments/{}", made.id()), format!("/ops/payments/{}/take_in", made.id()));
    let possible = json!([{ "action": "take_in", "path": take_in }]);
    assert_eq!(service.get(&read).await["can"], possible);
    assert_eq!(service.stuck("kind=transfer_set_aside").await["items"][0]["can"], possible);

    fill(&service, made.id()).await;
    let refused = service.post(&take_in, &json!({ "reason": "the payer has paid in small coin" })).await;
    refused.assert_problem(409, "list_full");
    assert!(refused["detail"].as_str().unwrap().contains("2000"), "{}", refused.text());
    let after = service.get(&read).await.json;
    assert_has(&after, json!({ "can": [], "set_aside/0/transfers": 1 }));
    assert_eq!(after["history"], json!([]), "nothing was done");
    let item = service.stuck("kind=transfer_set_aside").await["items"][0].clone();
    assert_has(&item, json!({ "can": [], "reason": "1 transfer of 1.00 USDC on base; its list is full" }));
    let page = service.get(&format!("/ops/view/payments/{}", made.id())).await;
    assert!(page.text().contains("1 transfer of 1.00 USDC on base") && !page.text().contains("/decide\""));
}
