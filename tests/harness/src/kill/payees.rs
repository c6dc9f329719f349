//! Who is paid out: customers and the PSP's own wallet, made ready through the interface and as an operator does it.

use alloy::primitives::{Address, keccak256};
use alloy::sol_types::SolCall;
use payferry_contracts::TestUSDC;
use payferry_domain::Token;
use reqwest::Method;
use serde_json::{Value, json};

use crate::deployment::{Accounts, Deployment};
use crate::payers::send_as;
use crate::process::{Binary, Folder};
use crate::psp::Psp;

/// More than any run sends of a token on a day: what is tried here is not the ceiling.
const SEND_DAILY_MAX: &str = "1000000000";
/// Customers who are paid, each again and again.
const CUSTOMERS: usize = 3;
/// Gas that a call of the tokens' owner surely fits in.
const OWNER_GAS: u64 = 120_000;

/// A customer who may be paid.
#[derive(Debug, Clone)]
pub struct Payee {
    /// As the service calls the customer.
    pub customer_id: String,
    /// The customer's wallet.
    pub wallet: Address,
}

/// Everybody who is paid out. None of them ever sends anything on.
#[derive(Debug, Clone)]
pub struct Payees {
    /// Customers.
    pub customers: Vec<Payee>,
    /// A customer whom the service may pay, and USDC refuses to.
    pub refused: Payee,
    /// Where the PSP withdraws to.
    pub withdrawal_wallet: Address,
}

impl Payees {
    /// Registers where the PSP withdraws to, before the service is started.
    pub fn register_wallet(binary: &Binary, folder: &Folder, psp_id: &str) -> Address {
        let wallet = account("the PSP's own wallet");
        let address = wallet.to_string();
        let limits = ["--send-daily-max", SEND_DAILY_MAX];
        binary.run(folder, &[&["psp", "set", psp_id, "--withdrawal-wallet", &address], &limits[..]].concat());
        wallet
    }

    /// Has customers registered, consenting and cleared, and USDC refuse one of them.
    pub async fn prepare(
        psp: &Psp,
        operator: &Desk,
        withdrawal_wallet: Address,
        deployments: &[Deployment],
        accounts: &Accounts,
    ) -> Self {
        let mut customers = Vec::with_capacity(CUSTOMERS);
        for number in 0..CUSTOMERS {
            customers.push(payee(psp, operator, &format!("customer {number}")).await);
        }
        let refused = payee(psp, operator, "refused customer").await;
        for deployment in deployments {
            refuse(deployment, accounts, refused.wallet).await;
        }
        Self { customers, refused, withdrawal_wallet }
    }
}

/// The operator's listener.
#[derive(Debug)]
pub struct Desk {
    url: String,
    token: String,
    http: reqwest::Client,
}

impl Desk {
    /// The one at `url`, opened by `token`.
    pub fn new(url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), token: token.to_owned(), http: reqwest::Client::new() }
    }

    /// A request that must succeed.
    async fn post(&self, path: &str, body: &Value) {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        let response = request.send().await.unwrap();
        let status = response.status();
        assert!(status.is_success(), "{path}: {status} {}", response.text().await.unwrap_or_default());
    }
}

/// An account of nobody else's.
fn account(name: &str) -> Address {
    Address::from_slice(&keccak256(format!("payferry test {name}"))[12..])
}

/// A customer of this name, cleared, with a wallet.
async fn payee(psp: &Psp, operator: &Desk, name: &str) -> Payee {
    let wallet = account(name);
    let email = format!("{}@example.com", name.replace(' ', "."));
    let address = json!({
        "street_line_1": "12 St James's Square", "city": "London", "region": "London", "zip": "SW1Y 4JH", "country": "GBR",
    });
    let body = json!({
        "type": "individual", "country": "GBR", "currency": "GBP", "email": email, "first_name": "Ada",
        "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": "QQ123456C", "residential_address": address,
    });
    let made = psp.ok(Method::POST, "/api/v1/customers", body).await;
    let id = made["customers"][0]["id"].as_str().unwrap().to_owned();
    let details = json!({"customer_id": id, "wallet_address": wallet.to_string()});
    psp.ok(Method::PATCH, "/api/v1/customers/payment-details", details).await;
    let asked = psp.ok(Method::POST, &format!("/api/v1/customers/{id}/service-consent"), Value::Null).await;
    let form = ("content-type", "application/x-www-form-urlencoded");
    let page = operator.http.post(asked["url"].as_str().unwrap()).header(form.0, form.1).body("accept=yes");
    assert!(page.send().await.unwrap().status().is_success(), "the terms could not be accepted");
    let decision = json!({"outcome": "approved", "reason": "known in person"});
    operator.post(&format!("/ops/customers/{id}/decide"), &decision).await;
    Payee { customer_id: id, wallet }
}

/// USDC refuses to go to an account.
async fn refuse(deployment: &Deployment, accounts: &Accounts, account: Address) {
    let input = TestUSDC::blacklistCall { account }.abi_encode();
    let token = deployment.token(Token::Usdc);
    send_as(&deployment.node, &accounts.deployer, token, input.into(), OWNER_GAS).await;
    deployment.node.mine(1).await;
}
