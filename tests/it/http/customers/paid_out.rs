//! Money out: payouts to customers, withdrawals, balances and the ledger, with every base unit verified on the chain.

use std::time::Duration;

use payferry_actors::pauses;
use payferry_evm::wallet::Vaults;
use payferry_journal::psps::PspPolicies;
use payferry_journal::psps::wallets;
use payferry_journal::psps::wallets::{WALLET_DELAY_SECS, WalletChange};

use super::*;
use crate::http::mismatches::set_policies;

/// An account used only here.
pub(crate) const TREASURER: &str = "0x000000000000000000000000000000000000beef";

/// Creates an account with 9.90 USDC on Base: a settled payment of 10.00.
async fn with_settled_payment() -> TestApp {
    let app = TestApp::start_with_chains().await;
    app.paid("10", "settled").await;
    app
}

/// Creates an approved customer with a wallet.
pub(crate) async fn payee(app: &TestApp) -> String {
    let id = add(app, &individual()).await;
    set_details(app, &id, &json!({ "wallet_address": OTHER_WALLET })).await;
    clear(app, &id).await;
    id
}

/// Creates approved customers whose wallets belong to the chain, a token or the service: the customer, the wallet, and
/// its description in the refusal. The zero address is not accepted as a wallet at all.
pub(super) async fn unsuitable_payees(app: &TestApp) -> Vec<(String, String, &'static str)> {
    let payment = app.add_payment().await;
    let spec = app.env().chain(Chain::Base).spec().clone();
    let elsewhere = app.env().chain(Chain::Polygon).spec().token_address(Token::Usdt).unwrap();
    let vaults = Vaults::new(spec.contract);
    let other = app.add_psp().await;
    let mut payees = Vec::new();
    for (wallet, what) in [
        (format!("0x{}4", "0".repeat(39)), "one of the chain's own contracts"),
        (payment.wallet().to_owned(), "a vault of this service"),
        (vaults.of_psp(app.psp_id).to_string(), "a vault of this service"),
        (vaults.of_psp(other).to_string(), "a vault of this service"),
        (spec.token_address(Token::Usdc).unwrap().to_string(), "the contract of a token"),
        (elsewhere.to_string(), "the contract of a token"),
        (spec.contract.to_string(), "the settlement contract of this service"),
        (spec.treasury.to_string(), "the treasury of this service"),
    ] {
        let id = add(app, &individual()).await;
        let nobodys = set_details(app, &id, &json!({ "wallet_address": format!("0x{}", "0".repeat(40)) })).await;
        nobodys.assert_invalid("wallet_address: zero_address");
        set_details(app, &id, &json!({ "wallet_address": wallet })).await.ok(200);
        clear(app, &id).await;
        payees.push((id, wallet, what));
    }
    payees
}

/// Asserts a refusal because of the target address, with this description.
pub(super) fn assert_unsuitable(refused: &Reply, what: &str) {
    refused.assert_problem(409, "wallet_unsuitable");
    assert_eq!(refused["detail"], format!("The wallet is {what}."));
}

/// Request for a payout or a transfer of USDC on Base.
pub(crate) fn payout(customer: &str, amount: &str) -> Value {
    json!({ "customer_id": customer, "amount": amount, "currency": "USDC", "chain": "base" })
}

/// Request for a withdrawal of USDC on Base.
pub(crate) fn withdrawal(amount: &str) -> Value {
    json!({ "amount": amount, "currency": "USDC", "chain": "base" })
}

/// Available, pending and reserved USDC on Base.
pub(crate) async fn balances(app: &TestApp) -> [String; 3] {
    balances_on(app, "base").await
}

/// The same on another chain.
pub(crate) async fn balances_on(app: &TestApp, chain: &str) -> [String; 3] {
    let all = app.get("/balances").await;
    let list = all["balances"].as_array().unwrap();
    let usdc = list.iter().find(|row| row["chain"] == chain && row["currency"] == "USDC").unwrap();
    ["available", "pending", "reserved"].map(|key| usdc[key].as_str().unwrap().to_owned())
}

async fn when(app: &TestApp, path: &str, order: &Reply, status: &str) -> Reply {
    app.when(&format!("{path}/{}", order.string("id")), status).await
}

/// Orders a payout of this amount and waits until it is sent.
async fn paid_out(app: &TestApp, customer: &str, amount: &str) {
    let asked = app.post("/payouts", &payout(customer, amount)).await;
    when(app, "/payouts", &asked, "sent").await;
}

/// Ledger entries of a subject: kind, debit, credit and amount.
pub(super) async fn kinds(app: &TestApp, subject: &str) -> Vec<[String; 4]> {
    let page = app.get(&format!("/ledger/entries?subject={subject}")).await;
    let entries = page["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| ["kind", "debit", "credit", "amount"].map(|key| entry[key].as_str().unwrap().to_owned()))
        .collect()
}

async fn usdc(app: &TestApp, account: &str) -> u64 {
    balance(app, Chain::Base, Token::Usdc, account).await
}

#[tokio::test]
async fn payout_reaches_the_customer_and_every_unit_is_booked() {
    let app = with_settled_payment().await;
    let customer = payee(&app).await;
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    let body = payout(&customer, "4.5");
    let asked = app.post_keyed("p1", "/payouts", &body).await.ok(202);
    insta::assert_json_snapshot!("payout_asked", asked.redacted());
    app.post_keyed("p1", "/api/v1/payouts", &body).await.assert_replays(&asked);

    let sent = when(&app, "/payouts", &asked, "sent").await;
    assert_eq!(usdc(&app, OTHER_WALLET).await, 4_500_000);
    assert_eq!(balances(&app).await, ["5.40", "0.00", "0.00"]);
    let id = sent["id"].as_str().unwrap();
    let expected = [["reserved", "psp", "in_flight", "4.50"], ["sent", "in_flight", "external", "4.50"]];
    assert_eq!(kinds(&app, id).await, expected);
    let log = app.get(&format!("/api/v1/payments/{id}/webhooks")).await;
    assert_eq!(column(&log["deliveries"], "event"), ["payout.pending", "payout.sent"]);
    assert_eq!(app.get("/payouts").await["payouts"], json!([sent.json]));
    assert_eq!(app.get("/payouts?status=failed").await["total"], 0);
    let key = app.stranger().await;
    for path in [format!("/payouts/{id}"), format!("/payments/{id}/webhooks"), format!("/withdrawals/{id}")] {
        assert_eq!(app.get_as(&key, &path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn invalid_payouts_are_refused_and_move_nothing() {
    let app = with_settled_payment().await;
    let customer = payee(&app).await;
    let refused = async |body: &Value, status: u16, code: &str| {
        app.post("/payouts", body).await.assert_problem(status, code);
    };
    refused(&payout(&customer, "9.900001"), 409, "insufficient_balance").await;
    refused(&payout(&customer, "1000001"), 409, "above_send_limit").await;
    let elsewhere = with(&payout(&customer, "1"), &json!({ "chain": "polygon" }));
    refused(&elsewhere, 409, "insufficient_balance").await;
    refused(&payout("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "1"), 404, "customer_not_found").await;
    refused(&json!({ "amount": "0", "currency": "EUR", "chain": "best" }), 422, "validation_failed").await;
    let bare = add(&app, &individual()).await;
    refused(&payout(&bare, "1"), 409, "customer_not_cleared").await;
    clear(&app, &bare).await;
    refused(&payout(&bare, "1"), 409, "customer_without_wallet").await;
    deactivate(&app, &customer).await;
    refused(&payout(&customer, "1"), 409, "customer_inactive").await;
    app.post_as(&app.stranger().await, "/payouts", &payout(&bare, "1")).await.assert_problem(404, "customer_not_found");
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    assert_eq!(app.get("/payouts").await["total"], 0);
    // Nor are payouts to tokens or to the service.
    let payees = unsuitable_payees(&app).await;
    let mut held = Vec::new();
    for (_, wallet, _) in &payees {
        held.push(usdc(&app, wallet).await);
    }
    for (customer, _, what) in &payees {
        assert_unsuitable(&app.post("/payouts", &payout(customer, "1")).await, what);
    }
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    assert_eq!(app.get("/payouts").await["total"], 0);
    for ((_, wallet, what), held) in payees.iter().zip(held) {
        assert_eq!(usdc(&app, wallet).await, held, "{what}");
    }
}

#[tokio::test]
async fn outgoing_money_has_a_single_and_a_daily_limit() {
    let app = with_settled_payment().await;
    let customer = payee(&app).await;
    register(&app).await;
    let payment = app.get("/payments").await["payments"][0]["payment_id"].as_str().unwrap().to_owned();
    let refunds = format!("/payments/{payment}/refunds");
    let (once, daily) = (Some("5".parse().unwrap()), Some("6".parse().unwrap()));
    set_policies(&app, &PspPolicies { send_max: once, send_daily_max: daily, ..PspPolicies::default() }).await;
    let refund = |amount: &str| json!({ "amount": amount, "address": WALLET });
    let refused = async |amount: &str, code: &str| {
        for (path, body) in [("/payouts", payout(&customer, amount)), ("/withdrawals", withdrawal(amount))] {
            let reply = app.post(path, &body).await;
            assert_eq!((reply.status.as_u16(), reply.code()), (409, code), "{path}: {}", reply.text());
        }
    };
    refused("5.000001", "above_send_limit").await;
    app.post("/transfers", &payout(&customer, "5.000001")).await.assert_problem(409, "above_send_limit");
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    paid_out(&app, &customer, "5").await;
    refused("1.000001", "above_daily_limit").await;
    assert_eq!(balances(&app).await, ["4.90", "0.00", "0.00"]);
    assert_eq!(app.get(&refunds).await["refunds"], json!([]));
    // Refunds have their own daily limit; refused orders do not count.
    app.post(&refunds, &refund("1")).await.ok(202);
    refused("1.000001", "above_daily_limit").await;
    app.get_until(&refunds, |listed| listed["refunds"][0]["status"] == "sent").await;
    assert_eq!(balances(&app).await, ["3.90", "0.00", "0.00"]);
    assert_eq!(usdc(&app, WALLET).await, 1_000_000);
    assert_eq!(usdc(&app, TREASURER).await, 0);
}

#[tokio::test]
async fn payout_rejected_by_the_token_returns_to_the_balance() {
    let app = with_settled_payment().await;
    let customer = payee(&app).await;
    blacklist(&app, Chain::Base, OTHER_WALLET, true).await;
    let asked = app.post("/payouts", &payout(&customer, "4")).await;
    let failed = when(&app, "/payouts", &asked, "failed").await;
    assert_eq!(failed["failure_reason"], "send_failed", "{}", failed.text());
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    let id = failed["id"].as_str().unwrap();
    let expected = [["reserved", "psp", "in_flight", "4.00"], ["returned", "in_flight", "psp", "4.00"]];
    assert_eq!(kinds(&app, id).await, expected);
    blacklist(&app, Chain::Base, OTHER_WALLET, false).await;
    paid_out(&app, &customer, "4").await;
    assert_eq!(usdc(&app, OTHER_WALLET).await, 4_000_000);
}

#[tokio::test]
async fn payout_fails_if_the_customer_changes_before_signing() {
    let app = with_settled_payment().await;
    let customer = payee(&app).await;
    let held_back = async |customer: &str| {
        app.pause(pauses::Scope::OutboundTransfer(None), true).await;
        let asked = app.post("/payouts", &payout(customer, "4")).await.ok(202);
        assert_eq!(balances(&app).await, ["5.90", "0.00", "4.00"]);
        asked
    };
    let fails = async |asked: &Reply| {
        app.pause(pauses::Scope::OutboundTransfer(None), false).await;
        let failed = when(&app, "/payouts", asked, "failed").await;
        assert_eq!(failed["failure_reason"], "customer_not_cleared", "{}", failed.text());
        assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
        for wallet in [OTHER_WALLET, WALLET] {
            assert_eq!(usdc(&app, wallet).await, 0, "{wallet}");
        }
    };
    // A deactivated customer.
    let asked = held_back(&customer).await;
    deactivate(&app, &customer).await;
    fails(&asked).await;
    let customer = payee(&app).await;
    // A different wallet, approved again: the payout was for the previous wallet.
    let asked = held_back(&customer).await;
    let replaced = set_details(&app, &customer, &json!({ "wallet_address": WALLET })).await;
    assert_eq!(replaced["kyc_status"], "pending_update", "{}", replaced.text());
    clear(&app, &customer).await;
    fails(&asked).await;
    // The same wallet, but the customer must be approved again.
    let asked = held_back(&customer).await;
    let path = format!("{CUSTOMERS}/{customer}");
    let changed = app.patch(&path, &json!({ "phone_number": "+447700900123" })).await;
    assert_eq!(changed["customer"]["kyc_status"], "pending_update", "{}", changed.text());
    fails(&asked).await;
    // After another approval, the next payout goes to the current wallet.
    clear(&app, &customer).await;
    paid_out(&app, &customer, "4").await;
    assert_eq!([usdc(&app, WALLET).await, usdc(&app, OTHER_WALLET).await], [4_000_000, 0]);
}

/// Registers the withdrawal wallet.
pub(crate) async fn register(app: &TestApp) {
    set_wallet(app, TREASURER, 0).await;
}

/// Changes the withdrawal wallet, after this many seconds.
async fn set_wallet(app: &TestApp, address: &str, delay_secs: i64) {
    let (transaction, now) = (app.state.database().begin().await.unwrap(), app.state.clock().now());
    let change = WalletChange { chain: None, address: Some(address.parse().unwrap()), delay_secs };
    wallets::change(&transaction, app.psp_id, change, &Actor::Operator, now).await.unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn only_one_of_many_full_withdrawals_succeeds() {
    let app = with_settled_payment().await;
    let everything = withdrawal("9.9");
    app.post("/withdrawals", &everything).await.assert_problem(409, "withdrawal_wallet_missing");
    register(&app).await;
    let asked = futures::future::join_all((0..100).map(|_| app.post("/withdrawals", &everything))).await;
    let (accepted, refused): (Vec<_>, Vec<_>) = asked.iter().partition(|reply| reply.status == 202);
    assert_eq!((accepted.len(), refused.len()), (1, 99));
    for reply in refused {
        reply.assert_problem(409, "insufficient_balance");
    }
    when(&app, "/withdrawals", accepted[0], "sent").await;
    assert_eq!(usdc(&app, TREASURER).await, 9_900_000);
    assert_eq!(balances(&app).await, ["0.00", "0.00", "0.00"]);
    app.get("/withdrawals").await.assert(200, json!({ "total": 1, "withdrawals/0/status": "sent" }));
}

#[tokio::test]
async fn withdrawal_with_an_idempotency_key_is_made_once() {
    let app = with_settled_payment().await;
    register(&app).await;
    let ask = async |path: &str, amount: &str| app.post_keyed("w1", path, &withdrawal(amount)).await;
    let asked = ask("/withdrawals", "1").await.ok(202);
    assert_eq!(asked.header("idempotent-replayed"), None);
    when(&app, "/withdrawals", &asked, "sent").await;
    for path in ["/withdrawals", "/api/v1/withdrawals"] {
        ask(path, "1").await.assert_replays(&asked);
    }
    ask("/withdrawals", "2").await.assert_problem(422, "idempotency_key_reused");
    app.get("/withdrawals").await.assert(200, json!({ "total": 1, "withdrawals/0/id": asked["id"] }));
    assert_eq!(usdc(&app, TREASURER).await, 1_000_000);
    assert_eq!(balances(&app).await, ["8.90", "0.00", "0.00"]);
}

#[tokio::test]
async fn changed_withdrawal_wallet_takes_effect_after_its_delay() {
    let app = with_settled_payment().await;
    let withdrawn = async |amount: &str| {
        let asked = app.post("/withdrawals", &withdrawal(amount)).await.ok(202);
        when(&app, "/withdrawals", &asked, "sent").await;
        [usdc(&app, TREASURER).await, usdc(&app, WALLET).await]
    };
    set_wallet(&app, WALLET, WALLET_DELAY_SECS).await;
    app.post("/withdrawals", &withdrawal("1")).await.assert_problem(409, "withdrawal_wallet_missing");
    assert_eq!(balances(&app).await, ["9.90", "0.00", "0.00"]);
    assert_eq!(app.get("/withdrawals").await["total"], 0);

    register(&app).await;
    set_wallet(&app, WALLET, WALLET_DELAY_SECS).await;
    assert_eq!(withdrawn("1").await, [1_000_000, 0]);
    sleep(&app, Duration::from_hours(25)).await;
    assert_eq!(withdrawn("2").await, [1_000_000, 2_000_000]);
}

#[tokio::test]
async fn invalid_fields_of_orders_are_named_and_nothing_is_ordered() {
    let app = TestApp::start().await;
    let deep = (0..32).fold(json!({}), |inner, _| json!({ "in": inner }));
    let large = json!({ "note": "x".repeat(16 * 1024) });
    let orders = [
        (
            json!({ "amount": null, "currency": null, "chain": null }),
            "amount: required, currency: required, chain: required",
        ),
        (
            json!({ "amount": "0", "currency": "EUR", "chain": "best" }),
            "amount: amount_too_small, currency: unknown_value, chain: unknown_value",
        ),
        (
            json!({ "amount": 1, "currency": 2, "chain": [] }),
            "amount: wrong_type, currency: wrong_type, chain: wrong_type",
        ),
        (
            json!({ "amount": "-1", "metadata": [], "reference": " " }),
            "amount: amount_malformed, metadata: wrong_type, reference: empty",
        ),
        (
            json!({ "amount": "1.0000001", "metadata": deep, "reference": "r".repeat(256) }),
            "amount: too_many_decimals, metadata: too_deep, reference: too_long",
        ),
        (
            json!({ "amount": "99999999999999999999", "metadata": large, "reference": 7 }),
            "amount: amount_too_large, metadata: too_large, reference: wrong_type",
        ),
    ];
    let of_customer = [
        (json!({ "customer_id": null, "amount": null }), "customer_id: required, amount: required"),
        (json!({ "customer_id": 7, "amount": null }), "customer_id: wrong_type, amount: required"),
        (
            json!({ "customer_id": "po_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "amount": null }),
            "customer_id: invalid_id, amount: required",
        ),
    ];
    let good = payout("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3", "1");
    for path in ["/payouts", "/withdrawals"] {
        let order = async |changes: &Value| app.post(path, &with(&good, changes)).await;
        assert_refused(&orders, order).await;
        if path == "/payouts" {
            assert_refused(&of_customer, order).await;
        }
        assert_eq!(app.get(path).await["total"], 0, "{path}");
    }
}
