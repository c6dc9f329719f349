//! Payment details: valid sets, and updates.

use payferry_entities::{checks, payment_details};

use super::*;

/// The required bank fields.
fn bank() -> Value {
    json!({ "bank_name": "First Bank", "account_number": "000123456789" })
}

/// All fields.
fn in_full() -> Value {
    let more = json!({ "account_type": "checking", "wallet_address": WALLET, "routing_number": "021000021",
        "bank_address": address(), "bank_code": "FRSTUS33" });
    with(&bank(), &more)
}

/// A customer outside the USA.
fn abroad() -> Value {
    with(&individual(), &json!({ "country": "NGA", "currency": "NGN" }))
}

shared!(#[tokio::test] sets, app = TestApp::start().await, app.renew_psp() =>
    only_a_different_wallet_starts_a_screening, accepts_a_wallet_a_bank_account_or_both,
    set_is_added_and_then_replaced_as_a_whole, missing_and_invalid_fields_are_named);

async fn accepts_a_wallet_a_bank_account_or_both(app: &TestApp) {
    for details in [json!({ "wallet_address": WALLET }), bank(), with(&bank(), &json!({ "wallet_address": WALLET }))] {
        let id = add(app, &abroad()).await;
        set_details(app, &id, &details).await.ok(200);
        let shown = &read(app, &id).await["payment_details"];
        for (name, value) in details.as_object().unwrap() {
            assert_eq!(&shown[name], value);
        }
    }
}

async fn set_is_added_and_then_replaced_as_a_whole(app: &TestApp) {
    let id = add(app, &individual()).await;
    assert_eq!(read(app, &id).await["payment_details"], Value::Null);
    let added = set_details(app, &id, &in_full()).await;
    insta::assert_json_snapshot!("details_added", added.redacted());
    let shown = read(app, &id).await;
    insta::assert_json_snapshot!("details_shown", redact(&shown["payment_details"]));
    assert_eq!(shown["payment_details"]["wallet_address"], WALLET);
    let updated = set_details(app, &id, &json!({ "wallet_address": WALLET.to_lowercase() })).await;
    assert_eq!(updated["message"], "Payment details updated");
    // Nothing remains of the previous set; the wallet is shown in EIP-55 form.
    let created_at = &shown["payment_details"]["created_at"];
    let replaced = json!({ "bank_name": null, "created_at": created_at, "wallet_address": WALLET });
    assert_has(&read(app, &id).await["payment_details"], replaced);
    // No sealed value is in the row.
    set_details(app, &id, &in_full()).await;
    let row = payment_details::Entity::find().one(app.reader()).await.unwrap().unwrap();
    let row = format!("{row:?}");
    assert!(!row.contains("000123456789") && !row.contains("First Bank"), "{row}");
}

async fn missing_and_invalid_fields_are_named(app: &TestApp) {
    let id = add(app, &abroad()).await;
    let long = "1".repeat(65);
    let cases = [
        (json!({}), "wallet_address: required"),
        (json!({ "wallet_address": null }), "wallet_address: required"),
        (json!({ "bank_name": "First Bank" }), "account_number: required"),
        (json!({ "account_number": "1" }), "bank_name: required"),
        (json!({ "bank_code": "FRSTUS33", "wallet_address": WALLET }), "bank_name: required, account_number: required"),
        (json!({ "wallet_address": "0x12" }), "wallet_address: invalid_address"),
        (json!({ "wallet_address": WALLET.replace("fCD6", "FCD6") }), "wallet_address: wrong_checksum"),
        (json!({ "wallet_address": format!("0x{}", "0".repeat(40)) }), "wallet_address: zero_address"),
        (with(&bank(), &json!({ "account_number": long })), "account_number: too_long"),
        (with(&bank(), &json!({ "account_type": "current" })), "account_type: unknown_value"),
        (with(&bank(), &json!({ "routing_number": "12345678" })), "routing_number: invalid_routing_number"),
        (with(&bank(), &json!({ "routing_number": "02100002x" })), "routing_number: invalid_routing_number"),
        (with(&bank(), &json!({ "routing_number": 21_000_021 })), "routing_number: wrong_type"),
        (with(&bank(), &json!({ "bank_code": "X".repeat(36) })), "bank_code: too_long"),
        (
            with(&bank(), &json!({ "bank_address": { "city": "Lagos" } })),
            "bank_address.street_line_1: required, bank_address.country: required",
        ),
        // For a bank in the USA the account type is required, regardless of the customer.
        (with(&bank(), &json!({ "bank_address": address() })), "account_type: required"),
    ];
    assert_refused(&cases, async |details| set_details(app, &id, details).await).await;
    assert_eq!(read(app, &id).await["payment_details"], Value::Null);
    let refused = app.patch(PAYMENT_DETAILS, &json!({ "bank_name": "" })).await;
    assert_eq!(refused.faults(), "customer_id: required, bank_name: empty, account_number: required");
    let nobody = set_details(app, "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3", &json!({ "wallet_address": WALLET })).await;
    nobody.assert_problem(404, "customer_not_found");

    // The account of a customer in the USA needs more fields.
    let id = add(app, &individual()).await;
    let refused = set_details(app, &id, &with(&bank(), &json!({ "routing_number": "1" }))).await;
    let faults = refused.faults_sorted();
    assert_eq!(faults, "account_type: required, bank_address: required, routing_number: invalid_routing_number");
    let wallet = set_details(app, &id, &json!({ "wallet_address": WALLET })).await;
    assert_eq!(wallet.status, 200, "a wallet needs none of these fields");
    let account = with(&bank(), &json!({ "account_type": "savings", "bank_address": address() }));
    assert_eq!(set_details(app, &id, &account).await.status, 200);
}

async fn only_a_different_wallet_starts_a_screening(app: &TestApp) {
    let id = add(app, &abroad()).await;
    clear(app, &id).await;
    let status = async |details: Value| {
        let set = set_details(app, &id, &details).await.ok(200);
        let status = read(app, &id).await["kyc_status"].as_str().unwrap().to_owned();
        assert_eq!(set["kyc_status"], status.as_str());
        status
    };
    let wallet = |wallet: &str| json!({ "wallet_address": wallet });
    let upper = format!("0x{}", WALLET[2..].to_uppercase());
    for (details, what) in [
        (bank(), "no wallet"),
        (wallet(WALLET), "the first wallet"),
        (wallet(&WALLET.to_lowercase()), "the same wallet in another letter case"),
        (wallet(&upper), "the same wallet in another letter case"),
        (with(&bank(), &wallet(WALLET)), "the same wallet with an account"),
        (bank(), "no wallet any more"),
        (wallet(WALLET), "the same wallet as before"),
    ] {
        assert_eq!(status(details).await, "approved", "{what}");
    }
    assert_eq!(app.count::<checks::Entity>().await, 0);
    assert_eq!(status(wallet(OTHER_WALLET)).await, "pending_update");
    assert_eq!(app.count::<checks::Entity>().await, 1);

    // Removing and setting a wallet counts as a replacement.
    let id = add(app, &abroad()).await;
    clear(app, &id).await;
    set_details(app, &id, &json!({ "wallet_address": WALLET })).await;
    set_details(app, &id, &bank()).await;
    let set = set_details(app, &id, &json!({ "wallet_address": OTHER_WALLET })).await;
    assert_eq!(set["kyc_status"], "pending_update");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_concurrent_sets_leave_the_last_one() {
    let app = TestApp::start().await;
    let id = add(&app, &abroad()).await;
    let set = async |n: usize| {
        let name = format!("Bank {n}");
        let body = json!({ "customer_id": id, "bank_name": name, "account_number": n.to_string() });
        let reply = app.patch(PAYMENT_DETAILS, &body).await;
        (reply, name)
    };
    let replies = futures::future::join_all((0..50).map(set)).await;
    let added =
        |message: &str| replies.iter().filter(|(reply, _)| reply.status == 200 && reply["message"] == message).count();
    let counts = (added("Payment details added"), added("Payment details updated"));
    assert_eq!(counts, (1, 49), "exactly one request added the set");
    assert_eq!(app.count::<payment_details::Entity>().await, 1);
    let shown = read(&app, &id).await["payment_details"].clone();
    let bank_name = shown["bank_name"].as_str().unwrap();
    let number = bank_name.strip_prefix("Bank ").unwrap();
    assert_eq!(shown["account_number"], number, "of one set, not of two");
    // Reads return the last answered set.
    let (last, name) = set(50).await;
    assert_eq!(last["message"], "Payment details updated");
    assert_eq!(read(&app, &id).await["payment_details"]["bank_name"], name.as_str());
}
