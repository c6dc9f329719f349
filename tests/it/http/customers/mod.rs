//! Customers: creation, reads, lists, changes, deactivation, money to and from them.

mod bad_input;
mod changes;
mod create;
mod details;
mod hidden;
mod list;
pub(crate) mod paid_out;
mod payments;
mod transferred;

use payferry_domain::customer::{Command, IdentityVerdict};
use payferry_journal::audit::Actor;

use crate::prelude::*;

const CUSTOMERS: &str = "/api/v1/customers";
const PAYMENT_DETAILS: &str = "/api/v1/customers/payment-details";
/// A wallet in checksum spelling.
const WALLET: &str = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
/// Another wallet.
const OTHER_WALLET: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";

fn address() -> Value {
    json!({ "street_line_1": "1 Harbour Road", "city": "Oakland", "region": "CA", "zip": "94607", "country": "USA" })
}

/// Only required fields.
pub(crate) fn individual() -> Value {
    json!({
        "type": "individual", "country": "USA", "currency": "USD", "email": "ada@example.com", "first_name": "Ada",
        "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": "P1234567",
        "residential_address": address(),
    })
}

/// All fields.
pub(crate) fn individual_in_full() -> Value {
    with(
        &individual(),
        &json!({ "phone_number": "+14155550123", "tax_id": "123-45-6789", "document_type": "passport" }),
    )
}

/// Only required fields.
pub(crate) fn business() -> Value {
    let business = json!({
        "type": "business", "email": "office@engines.example", "business_name": "Analytical Engines Inc.",
        "incorporation_certificate_number": "INC-1842", "business_tax_id": "12-3456789", "ownership_percentage": "60",
        "registered_business_address": { "street_line_1": "5 Devonshire Street", "city": "London", "country": "GBR" },
    });
    with(&individual(), &business)
}

/// All fields.
fn business_in_full() -> Value {
    let more = json!({
        "phone_number": "+14155550123", "tax_id": "123-45-6789", "document_type": "incorporation_certificate",
        "website_url": "https://engines.example", "business_registration_number": "REG-7",
        "beneficiary_owners": [owner(), with(&owner(), &json!({
            "email": "charles@engines.example", "phone_number": "+447700900123", "ownership_percentage": "15.5",
            "government_id_type": "passport", "government_id_number": "P7654321", "tax_id": "987-65-4321",
        }))],
    });
    with(&business(), &more)
}

fn owner() -> Value {
    let address = json!({ "street_line_1": "1 Dorset Street", "city": "London", "zip": "W1U", "country": "GBR" });
    json!({
        "first_name": "Charles", "last_name": "Babbage", "dob": "1985-12-26", "ownership_percentage": "24.5",
        "address": address,
    })
}

/// Creates a customer; returns its id.
pub(crate) async fn add(app: &TestApp, body: &Value) -> String {
    app.post(CUSTOMERS, body).await.ok(201)["customers"][0]["id"].as_str().unwrap().to_owned()
}

async fn read(app: &TestApp, id: &str) -> Value {
    let reply = app.get(&format!("{CUSTOMERS}/{id}")).await.ok(200);
    reply["customer"].clone()
}

async fn set_details(app: &TestApp, id: &str, details: &Value) -> Reply {
    app.patch(PAYMENT_DETAILS, &with(details, &json!({ "customer_id": id }))).await
}

async fn deactivate(app: &TestApp, id: &str) -> Reply {
    app.request(Method::DELETE, &format!("{CUSTOMERS}/{id}")).send().await
}

/// Accepts the terms and approves the customer as the operator.
async fn clear(app: &TestApp, id: &str) {
    for command in [Command::AcceptTerms, Command::Decide(IdentityVerdict::Approved)] {
        app.change_customer(id.parse().unwrap(), &command, &Actor::Operator).await;
    }
    assert_eq!(read(app, id).await["kyc_status"], "approved");
}
