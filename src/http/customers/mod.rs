//! Customers: handlers that read and write rows, without an actor.
//!
//! This module owns the format of a customer in requests and answers, and which parts are encrypted. The domain decides
//! state changes. `payferry_journal::customers` stores them with an audit entry. Identity verification (the compliance
//! service) and the page for accepting the terms (`pages::consent`) are elsewhere.

pub mod change;
pub mod create;
pub mod details;
mod particulars;
pub mod read;
mod search;
pub mod values;
pub mod view;

use payferry_actors::customers::CustomerChange;
use payferry_domain::{CustomerId, PspId};
use payferry_entities::customers::{Column, Entity, Model};
use payferry_httpkit::ApiError;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::state::AppShared;

pub use view::CustomerRecord;

/// Answer for a customer that does not exist or belongs to another PSP.
const MISSING: ApiError = ApiError::NotFound("customer");

/// Returns the row of the PSP's own customer. Another PSP's customer is not found.
pub async fn own(app: &AppShared, psp_id: PspId, customer_id: &str) -> Result<Model, ApiError> {
    let id = id_of(customer_id)?;
    let row = Entity::find_by_id(id.to_string()).filter(Column::PspId.eq(psp_id.to_string()));
    row.one(app.database().reader()).await?.ok_or(MISSING)
}

/// Returns the PSP's own customer, locked for a change.
pub async fn open(app: &AppShared, psp_id: PspId, customer_id: &str) -> Result<CustomerChange, ApiError> {
    Ok(app.system.open_customer(id_of(customer_id)?, Some(psp_id)).await?)
}

fn id_of(text: &str) -> Result<CustomerId, ApiError> {
    text.parse().map_err(|_| MISSING)
}
