//! Recipients of payouts and transfers.

use payferry_domain::{Address, CustomerId};
use payferry_entities::payment_details;
use payferry_httpkit::error::ApiError;
use sea_orm::EntityTrait;

use crate::http::state::Shared;

/// The wallet in the customer's payment details.
pub(super) async fn wallet_of(app: &Shared, customer_id: CustomerId) -> Result<Address, ApiError> {
    let details = payment_details::Entity::find_by_id(customer_id.to_string()).one(app.database().reader()).await?;
    let Some(wallet) = details.and_then(|details| details.wallet_address) else {
        let detail = "The customer has no wallet; add one to the payment details.".to_owned();
        return Err(ApiError::Conflict("customer_without_wallet", detail, Vec::new()));
    };
    wallet.parse().map_err(ApiError::internal)
}

/// Refuses an address whose money would be lost: the zero address, a token contract, or one of the service's own.
pub(super) async fn check_suitable(app: &Shared, to: Address) -> Result<(), ApiError> {
    let Some(unsuitable) = app.system.unsuitable(to).await? else { return Ok(()) };
    Err(ApiError::Conflict("wallet_unsuitable", format!("The wallet {unsuitable}."), Vec::new()))
}
