//! Payment details of a customer: their fields, validation and storage, and `PATCH /api/v1/customers/payment-details`,
//! which creates or replaces them.

use std::fmt;

use axum::extract::State;
use axum::response::Response;
use payferry_domain::customer::Command;
use payferry_domain::{Address as WalletAddress, CheckId, CustomerId, PspId, named};
use payferry_entities::customers;
use payferry_entities::payment_details::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::extract::{Field as _, RequestBody as _};
use payferry_httpkit::{
    Answer, ApiError, Customers, Fault, Fields, Problem, Rule, Submission, field, read, request, rule,
};
use payferry_journal::audit::Actor;
use payferry_runtime::seal::Sealer;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::MISSING;
use super::values::PostalAddress;
use crate::http::state::{AppShared, AppState};

/// Maximum characters of an account number; an IBAN has up to 34.
pub const ACCOUNT_NUMBER_CHARS_MAX: usize = 64;
/// Maximum characters of a bank's code; a BIC has up to 11.
pub const BANK_CODE_CHARS_MAX: usize = 35;
/// Digits of a routing number.
const ROUTING_NUMBER_DIGITS: usize = 9;
/// The country whose accounts require more fields.
const UNITED_STATES: &str = "USA";

/// Every field of a bank account.
const BANK_FIELDS: [&str; 6] =
    ["bank_name", "account_number", "account_type", "routing_number", "bank_address", "bank_code"];

request! {
    /// Payment details: `wallet_address`, or `bank_name` and `account_number`, or all three. `Debug` shows none of them.
    pub struct PaymentDetails: Clone, PartialEq, Eq, Serialize, Deserialize {
        /// Required with `account_number`.
        pub bank_name: Option<String> = optional(rule::text()).example("First Bank"),
        /// Required with `bank_name`; encrypted at rest.
        pub account_number: Option<String> =
            optional(rule::short::<ACCOUNT_NUMBER_CHARS_MAX>()).example("000123456789"),
        /// Required with a bank account of a customer in the USA, or at a bank there.
        pub account_type: Option<AccountType> = optional(rule::name()).example("checking"),
        /// Wallet on an EVM chain. An address in mixed case must match its EIP-55 checksum.
        pub wallet_address: Option<String> = optional(WALLET).example("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"),
        /// Nine digits.
        pub routing_number: Option<String> = optional(ROUTING_NUMBER).example("021000021"),
        /// Address of the branch; required with a bank account of a customer in the USA.
        pub bank_address: Option<PostalAddress> = field::optional_object(),
        /// SWIFT/BIC or a local code.
        pub bank_code: Option<String> = optional(rule::short::<BANK_CODE_CHARS_MAX>()).example("FRSTUS33"),
    }
}

named! {
    /// Type of a bank account.
    AccountType, "checking, savings" {
        /// A checking account.
        Checking = "checking",
        /// A savings account.
        Savings = "savings",
    }
}

/// A wallet, as submitted.
const WALLET: Rule<String> = Rule {
    read: |value| {
        if read::address(value)? == WalletAddress([0; 20]) {
            return Err(Fault::new("zero_address", "must not be the zero address: money sent there is lost"));
        }
        read::string(value).map(str::to_owned)
    },
    schema: rule::address_schema,
};

/// Nine digits. Their checksum is not verified, since the interface requires only nine digits.
const ROUTING_NUMBER: Rule<String> = Rule {
    read: |value| {
        let text = read::string(value)?;
        let is_number = text.len() == ROUTING_NUMBER_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { Ok(text.to_owned()) } else { Err(Fault::new("invalid_routing_number", "must have 9 digits")) }
    },
    schema: || rule::string().pattern(Some(format!("^[0-9]{{{ROUTING_NUMBER_DIGITS}}}$"))),
};

impl fmt::Debug for PaymentDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaymentDetails")
    }
}

/// Payment details as stored.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredPaymentDetails {
    #[serde(flatten)]
    pub details: PaymentDetails,
    /// The customer's last wallet, of these or of earlier details. Removing a wallet before setting another one counts
    /// as replacing it, too.
    pub last_wallet: Option<WalletAddress>,
}

/// Checks what the fields require of each other. `country` is the customer's; `None`: there is no such customer.
fn check(fields: &Fields<'_>, country: Option<&str>) {
    let required = |name: &str, message: &'static str| {
        if !fields.has(name) {
            fields.fault(name, Fault::new("required", message));
        }
    };
    if !BANK_FIELDS.iter().any(|name| fields.has(name)) {
        return required("wallet_address", "is required unless bank_name and account_number are given");
    }
    required("bank_name", "is required");
    required("account_number", "is required");
    let lives_there = country == Some(UNITED_STATES);
    let bank_address = fields.valid("bank_address", |value| Ok(&value["country"]));
    if lives_there || bank_address.is_some_and(|country| country == UNITED_STATES) {
        required("account_type", "is required for a bank account in the USA");
    }
    if lives_there {
        required("bank_address", "is required for a bank account in the USA");
    }
}

impl StoredPaymentDetails {
    /// Encrypts for the column of this customer.
    pub(super) fn seal(&self, sealer: &Sealer, customer_id: &str) -> Result<String, ApiError> {
        Ok(sealer.seal(&["payment_details", customer_id, "details"], &serde_json::to_vec(self)?))
    }

    /// Decrypts from the column of this customer.
    pub(super) fn open(sealer: &Sealer, row: &Model) -> Result<Self, ApiError> {
        let place = ["payment_details", &row.customer_id, "details"];
        let opened = sealer.open(&place, &row.details).map_err(ApiError::internal)?;
        // The parser's message may quote the data, so it is dropped.
        serde_json::from_slice(&opened).map_err(|_| ApiError::internal("payment details cannot be decoded"))
    }
}

const CUSTOMER_ID: &str = "customer_id";

request! {
    /// Payment details of a customer: `wallet_address`, or `bank_name` and `account_number`, or all three.
    pub struct PaymentDetailsRequest {
        ..details: PaymentDetails,
        customer_id: CustomerId = required(rule::id()).example("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
    }
}

/// Result of setting payment details.
#[derive(Serialize, ToSchema)]
pub struct PaymentDetailsAnswer {
    /// Text that says if the details were added or updated.
    #[schema(example = "Payment details added")]
    message: &'static str,
    customer_id: String,
    /// pending_update if a wallet was replaced: the customer is screened again automatically.
    #[schema(example = "pending")]
    kyc_status: String,
}

/// Set a customer's payment details
///
/// Creates the payment details, or replaces them as a whole: a customer has one set. A wallet that replaces another one
/// makes the customer `pending_update` until it has been screened again. The first wallet, or the same address in
/// different letter case, does not.
#[utoipa::path(
    patch, path = "/api/v1/customers/payment-details", tag = "Customers", operation_id = "setPaymentDetails",
    request_body = PaymentDetailsRequest,
    responses(
        (status = 200, description = "Added or updated.", body = PaymentDetailsAnswer),
        (status = 404, description = "`customer_not_found`.", body = Problem),
        (status = 409, description = "`customer_inactive`: the customer is deactivated.", body = Problem),
        (status = 422, description = "Every invalid or missing field is named.", body = Problem),
    ),
)]
pub async fn set(State(app): State<AppState>, request: Submission<Customers>) -> Result<Response, ApiError> {
    let body = request.json()?;
    let country = match body.get(CUSTOMER_ID).and_then(|value| read::id::<CustomerId>(value).ok()) {
        Some(customer_id) => country_of(&app, request.psp_id, customer_id).await?,
        None => None,
    };
    let PaymentDetailsRequest { details, customer_id } = request.read(|fields| {
        let asked = PaymentDetailsRequest::read(fields);
        check(fields, country.as_deref());
        asked
    })?;
    let wallet = details.wallet_address.as_deref().map(str::parse::<WalletAddress>).transpose();
    let wallet = wallet.map_err(ApiError::internal)?;

    let mut opened = app.system.open_customer(customer_id, Some(request.psp_id)).await?;
    let now = app.clock().now();
    let before = Entity::find_by_id(&opened.row.id).one(opened.transaction()).await?;
    let last_wallet = match &before {
        Some(row) => StoredPaymentDetails::open(app.sealer(), row)?.last_wallet,
        None => None,
    };
    let replaces = wallet.is_some() && last_wallet.is_some() && wallet != last_wallet;
    let command = if replaces { Command::ReplaceWallet(CheckId::generate()) } else { Command::SetDetails };
    opened.apply(&command, &Actor::ApiKey(request.key_id), now).await?;
    let stored = StoredPaymentDetails { details, last_wallet: wallet.or(last_wallet) };
    let row = Model {
        details: stored.seal(app.sealer(), &opened.row.id)?,
        customer_id: opened.row.id.clone(),
        wallet_address: wallet.map(checksummed),
        created_at: before.as_ref().map_or(now.as_millis(), |before| before.created_at),
        updated_at: now.as_millis(),
    };
    let replaced = [Column::WalletAddress, Column::Details, Column::UpdatedAt];
    Entity::insert(row.into_active_model())
        .on_conflict(OnConflict::column(Column::CustomerId).update_columns(replaced).to_owned())
        .exec_without_returning(opened.transaction())
        .await?;
    let answer = Answer::ok(&PaymentDetailsAnswer {
        message: if before.is_some() { "Payment details updated" } else { "Payment details added" },
        customer_id: opened.row.id.clone(),
        kyc_status: opened.row.kyc_status.clone(),
    })?;
    let answered = request.idempotency.commit(opened.into_transaction(), answer).await?;
    if replaces {
        app.system.compliance().nudge();
    }
    Ok(answered)
}

/// The country of the PSP's own customer; `None` if it is unknown or another PSP's. A country never changes, so no lock
/// is needed.
async fn country_of(app: &AppShared, psp_id: PspId, id: CustomerId) -> Result<Option<String>, ApiError> {
    let country = customers::Entity::find_by_id(id.to_string())
        .filter(customers::Column::PspId.eq(psp_id.to_string()))
        .select_only()
        .column(customers::Column::Country)
        .into_tuple()
        .one(app.database().reader())
        .await?;
    country.map(Some).ok_or(MISSING)
}
