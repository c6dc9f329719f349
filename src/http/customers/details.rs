//! `PATCH /api/v1/customers/payment-details`: creates or replaces a customer's payment details.

use axum::extract::State;
use axum::response::Response;
use payferry_domain::customer::Command;
use payferry_domain::{Address as WalletAddress, CheckId, CustomerId, PspId};
use payferry_entities::customers;
use payferry_entities::payment_details::{Column, Entity, Model};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{Answer, ApiError, Customers, Fields, Problem, Submission, read};
use payferry_journal::audit::Actor;
use payferry_journal::customers::Opened;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::MISSING;
use super::payment_details::{PaymentDetails, StoredPaymentDetails};
use crate::http::state::{AppState, Shared};

const CUSTOMER_ID: &str = "customer_id";

/// Payment details of a customer: `wallet_address`, or `bank_name` and `account_number`, or all three.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "it describes the body; `PaymentDetails::read` reads it")]
pub struct PaymentDetailsRequest {
    #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    customer_id: String,
    #[serde(flatten)]
    details: PaymentDetails,
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
    let country = match body.get(CUSTOMER_ID).and_then(|value| read::id(value).ok()) {
        Some(customer_id) => country_of(&app, request.psp_id, customer_id).await?,
        None => None,
    };
    let (customer_id, (details, wallet)) = read(&body, country.as_deref())?;

    let mut opened = Opened::find(app.database(), customer_id, Some(request.psp_id)).await?;
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
    let answered = request.idempotency.commit(&app, opened.into_transaction(), answer).await?;
    if replaces {
        app.system.compliance().nudge();
    }
    Ok(answered)
}

fn read(
    body: &Value,
    country: Option<&str>,
) -> Result<(CustomerId, (PaymentDetails, Option<WalletAddress>)), ApiError> {
    let fields = Fields::of_body(body)?;
    let customer_id = fields.required(CUSTOMER_ID, read::id);
    let details = PaymentDetails::read(&fields, country);
    fields.finish(customer_id.zip(details))
}

/// The country of the PSP's own customer; `None` if it is unknown or another PSP's. A country never changes, so no lock
/// is needed.
async fn country_of(app: &Shared, psp_id: PspId, id: CustomerId) -> Result<Option<String>, ApiError> {
    let country = customers::Entity::find_by_id(id.to_string())
        .filter(customers::Column::PspId.eq(psp_id.to_string()))
        .select_only()
        .column(customers::Column::Country)
        .into_tuple()
        .one(app.database().reader())
        .await?;
    country.map(Some).ok_or(MISSING)
}
