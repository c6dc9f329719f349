//! Recipients of outbound transfers: customers and the PSP's own wallet, set up through the interface and operator
//! commands.

use alloy::primitives::{Address, keccak256};
use alloy::sol_types::SolCall;
use payferry_contracts::TestUSDC;
use payferry_domain::Token;
use reqwest::Method;
use serde_json::json;

use crate::deployment::{Accounts, Deployment};
use crate::payers::send_as;
use crate::process::{Binary, Folder};
use crate::psp::{Psp, person};

/// Limits, above the total of any run: the limits are not under test here.
const UNLIMITED: &str = "1000000000";
/// Number of customers; each is paid repeatedly.
const CUSTOMERS: usize = 3;
/// Gas limit of a call by the tokens' owner.
const OWNER_GAS: u64 = 120_000;

/// A customer who can be paid.
#[derive(Debug, Clone)]
pub struct Payee {
    /// The service's id of the customer.
    pub customer_id: String,
    pub wallet: Address,
}

/// All recipients. None of them sends funds on.
#[derive(Debug, Clone)]
pub struct Payees {
    pub customers: Vec<Payee>,
    /// A customer whom the service may pay but whose wallet USDC blacklists.
    pub refused: Payee,
    pub withdrawal_wallet: Address,
}

impl Payees {
    /// Registers the PSP's withdrawal wallet, before the service is started.
    pub fn register_wallet(binary: &Binary, folder: &Folder, psp_id: &str) -> Address {
        let wallet = account("the PSP's own wallet");
        let address = wallet.to_string();
        let limits = ["--send-daily-max", UNLIMITED, "--refund-elsewhere-daily-max", UNLIMITED];
        binary.run(folder, &[&["psp", "set", psp_id, "--withdrawal-wallet", &address], &limits[..]].concat());
        wallet
    }

    /// Registers customers with consent and approval, and blacklists one of them in USDC.
    pub async fn prepare(
        psp: &Psp,
        operator: &Psp,
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

/// An address used for one name only.
fn account(name: &str) -> Address {
    Address::from_slice(&keccak256(format!("payferry test {name}"))[12..])
}

/// Creates an approved customer with this name and a wallet.
async fn payee(psp: &Psp, operator: &Psp, name: &str) -> Payee {
    let wallet = account(name);
    let email = format!("{}@example.com", name.replace(' ', "."));
    let made = psp.ok(Method::POST, "/api/v1/customers", person(&email)).await;
    let id = made["customers"][0]["id"].as_str().unwrap().to_owned();
    let details = json!({"customer_id": id, "wallet_address": wallet.to_string()});
    psp.ok(Method::PATCH, "/api/v1/customers/payment-details", details).await;
    psp.accept_terms(&id).await;
    let decision = json!({"outcome": "approved", "reason": "known in person"});
    operator.ok(Method::POST, &format!("/ops/customers/{id}/decide"), decision).await;
    Payee { customer_id: id, wallet }
}

/// Blacklists an account in USDC.
async fn refuse(deployment: &Deployment, accounts: &Accounts, account: Address) {
    let input = TestUSDC::blacklistCall { account }.abi_encode();
    let token = deployment.token(Token::Usdc);
    send_as(&deployment.node, &accounts.deployer, token, input.into(), OWNER_GAS).await;
    deployment.node.mine(1).await;
}
