//! Set-aside transfers, in numbers that are too large to create in a test: their rows are inserted directly.

use payferry_domain::payment::LISTED_MAX;
use payferry_entities::{payments, transfers};
use sea_orm::{EntityTrait, IntoActiveModel};
use serde_json::{Value, json};

use super::ServiceFixture;
use super::stuck::paged;
use crate::app::Reply;

/// Rows of one statement.
const ROWS_AT_ONCE: usize = 500;
const TOKENS: i64 = 1_000_000;

fn id_of(payment: &Reply) -> &str {
    payment.json["payment_id"].as_str().unwrap()
}

/// Transfers of one token to a payment that has applied them without listing them.
struct SetAsideTransfers<'a> {
    payment: &'a Reply,
    /// Transaction that contains all of them.
    tx: u8,
    chain: &'a str,
    token: &'a str,
    /// Amount of each.
    amount: i64,
    count: usize,
}

impl SetAsideTransfers<'_> {
    async fn write(&self, service: &ServiceFixture) {
        let row = |log_index: usize| transfers::Model {
            chain: self.chain.to_owned(),
            tx_hash: format!("0x{}", format!("{:02x}", self.tx).repeat(32)),
            log_index: i64::try_from(log_index).unwrap(),
            payment_id: id_of(self.payment).to_owned(),
            token_address: self.token.to_owned(),
            from_address: format!("0x{}", "ad".repeat(20)),
            to_address: self.payment.json["intermediary_wallet"].as_str().unwrap().to_lowercase(),
            amount: self.amount,
            block_number: 1,
            block_hash: format!("0x{}", "b1".repeat(32)),
            block_time: 1,
            presence: "present".to_owned(),
            revision: 1,
            applied_revision: 1,
            applied_version: 0,
            created_at: 1,
        };
        let rows: Vec<_> = (0..self.count).map(|place| row(place).into_active_model()).collect();
        for rows in rows.chunks(ROWS_AT_ONCE) {
            transfers::Entity::insert_many(rows.to_vec()).exec(service.app.writer()).await.unwrap();
        }
    }
}

async fn stuck(service: &ServiceFixture) -> Value {
    service.get("/ops/stuck?kind=transfer_set_aside").await.json["kinds"][0].clone()
}

#[tokio::test]
async fn set_aside_floods_are_summed_within_limits_and_hide_nothing() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let (flooded, other) = (service.app.add_payment(&merchant).await, service.app.add_payment(&merchant).await);
    let (fake, another) = (format!("0x{}", "11".repeat(20)), format!("0x{}", "22".repeat(20)));
    for aside in [
        SetAsideTransfers {
            payment: &flooded,
            tx: 1,
            chain: "base",
            token: &fake,
            amount: TOKENS,
            count: 2 * LISTED_MAX + 1,
        },
        SetAsideTransfers {
            payment: &flooded,
            tx: 2,
            chain: "base",
            token: &another,
            amount: TOKENS,
            count: LISTED_MAX,
        },
        SetAsideTransfers { payment: &flooded, tx: 3, chain: "polygon", token: &fake, amount: TOKENS, count: 3 },
        SetAsideTransfers { payment: &other, tx: 4, chain: "arbitrum", token: &fake, amount: TOKENS, count: 1 },
    ] {
        aside.write(&service).await;
    }

    let read = service.get(&format!("/ops/payments/{}", id_of(&flooded))).await.json;
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
    let group = stuck(&service).await;
    assert_eq!(group["total"], json!({ "counted": 4, "more": false }));
    let reasons: Vec<_> = group["items"].as_array().unwrap().iter().map(|item| &item["reason"]).collect();
    let expected = [
        format!("at least 2000 transfers of at least 2000.00 {fake} on base"),
        format!("2000 transfers of 2000.00 {another} on base"),
        format!("3 transfers of 3.00 {fake} on polygon"),
        format!("1 transfer of 1.00 {fake} on arbitrum"),
    ];
    assert_eq!(json!(reasons), json!(expected));
    assert_eq!(group["items"][3]["payment_id"], id_of(&other));
    let first = service.get("/ops/stuck?kind=transfer_set_aside&limit=1").await.json["kinds"][0].clone();
    assert_eq!((first["items"].as_array().unwrap().len(), &first["total"]["counted"]), (1, &json!(4)));
    let ids = paged(&service, "transfer_set_aside", 1).await;
    assert_eq!(ids, [id_of(&flooded), id_of(&flooded), id_of(&flooded), id_of(&other)]);

    // Three lines belong to one payment: `reply` asserts that each row has a unique id.
    let page = service.get("/ops/view/stuck").await;
    assert!(expected.iter().all(|reason| page.text().contains(reason)), "{}", page.text());
    let row = |nth: &str| format!("id=\"transfer_set_aside-{}{nth}\"", id_of(&flooded));
    assert!(["", "-2", "-3"].iter().all(|nth| page.text().contains(&row(nth))), "{}", page.text());

    let view = format!("/ops/view/payments/{}", id_of(&flooded));
    let page = service.get(&view).await;
    assert!(page.text().contains(&expected[0]) && page.text().contains(&format!("{view}/decide\"")), "{}", page.text());
    let decide = service.get(&format!("{view}/decide")).await;
    assert!(decide.text().contains("at least 2,000 on base"), "{}", decide.text());
    service.stop().await;
}

#[tokio::test]
async fn sums_beyond_the_amount_type_are_shown() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let (made, other) = (service.app.add_payment(&merchant).await, service.app.add_payment(&merchant).await);
    let fake = format!("0x{}", "11".repeat(20));
    // A contract can emit any amount.
    let most = SetAsideTransfers { payment: &made, tx: 1, chain: "base", token: &fake, amount: i64::MAX, count: 3 };
    most.write(&service).await;
    SetAsideTransfers { payment: &other, tx: 2, chain: "base", token: &fake, amount: i64::MAX, count: LISTED_MAX + 1 }
        .write(&service)
        .await;
    let read = service.get(&format!("/ops/payments/{}", id_of(&made))).await;
    assert_eq!(read.status, 200, "{}", read.text());
    assert_eq!(read.json["set_aside"][0]["amount"], "27670116110564.327421");
    assert_eq!(service.get(&format!("/ops/actors/{}", id_of(&made))).await.json["set_aside"], read.json["set_aside"]);
    let group = stuck(&service).await;
    let mut reasons: Vec<_> =
        group["items"].as_array().unwrap().iter().map(|item| item["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    let expected = [
        format!("3 transfers of 27670116110564.327421 {fake} on base"),
        format!("at least 2000 transfers of at least 18446744073709551.614 {fake} on base"),
    ];
    assert_eq!(reasons, expected);
    for page in ["", "/decide"] {
        let page = service.get(&format!("/ops/view/payments/{}{page}", id_of(&made))).await;
        assert_eq!(page.status, 200);
        assert!(page.text().contains("27670116110564.327421"), "{}", page.text());
    }
    assert_eq!(service.get("/ops/view/stuck").await.status, 200);
    service.stop().await;
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
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    // In blocks before that of its payment.
    let fake = format!("0x{}", "11".repeat(20));
    SetAsideTransfers { payment: &made, tx: 1, chain: "base", token: &fake, amount: TOKENS, count: 600 }
        .write(&service)
        .await;
    let shown = service.get(&format!("/ops/actors/{}", id_of(&made))).await.json;
    let listed = shown["transfers"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{shown:#}");
    assert_eq!((&listed[0]["revision"], listed[0]["revision"].is_u64()), (&listed[0]["row_revision"], true));
    service.stop().await;
}

#[tokio::test]
async fn payment_with_a_full_list_accepts_no_set_aside_transfers() {
    let service = ServiceFixture::start_with_chains().await;
    let merchant = service.app.add_merchant().await;
    let made = service.app.add_payment(&merchant).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    let actor = format!("/ops/actors/{}", id_of(&made));
    let gone = async |service: &ServiceFixture| service.get(&actor).await.json["actor"].is_null().then_some(());
    service.until("its actor has left", gone).await;
    let usdc = service.get(&actor).await.json["token_address"].as_str().unwrap().to_lowercase();
    SetAsideTransfers { payment: &made, tx: 1, chain: "base", token: &usdc, amount: TOKENS, count: 1 }
        .write(&service)
        .await;
    let (read, take_in) =
        (format!("/ops/payments/{}", id_of(&made)), format!("/ops/payments/{}/take_in", id_of(&made)));
    let possible = json!([{ "action": "take_in", "path": take_in }]);
    assert_eq!(service.get(&read).await.json["can"], possible);
    assert_eq!(stuck(&service).await["items"][0]["can"], possible);

    fill(&service, id_of(&made)).await;
    let refused = service.post(&take_in, &json!({ "reason": "the payer has paid in small coin" })).await;
    refused.assert_problem(409, "list_full");
    assert!(refused.json["detail"].as_str().unwrap().contains("2000"), "{}", refused.text());
    let after = service.get(&read).await.json;
    assert_eq!((&after["can"], &after["set_aside"][0]["transfers"]), (&json!([]), &json!(1)));
    assert_eq!(after["history"], json!([]), "nothing was done");
    let item = stuck(&service).await["items"][0].clone();
    assert_eq!(item["can"], json!([]));
    assert_eq!(item["reason"], "1 transfer of 1.00 USDC on base; its list is full");
    let page = service.get(&format!("/ops/view/payments/{}", id_of(&made))).await;
    assert!(page.text().contains("1 transfer of 1.00 USDC on base") && !page.text().contains("/decide\""));
    service.stop().await;
}
