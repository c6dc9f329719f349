//! Customers: handler to row, no actor.
//!
//! Owned here: what a customer looks like in requests and answers, and what of it is sealed. What becomes of it is the
//! domain's to decide, and `payferry_actors::customers` writes it down with who asked for it. Deliberately absent:
//! identity verification itself (the compliance desk) and the page on which the terms are accepted (`pages::consent`).

pub mod create;
pub mod creation;
pub mod deactivate;
pub mod details;
pub mod get;
pub mod list;
pub mod particulars;
pub mod payment_details;
pub mod update;
pub mod values;
pub mod view;

use payferry_actors::customers::Opened;
use payferry_domain::{CustomerId, PspId};
use payferry_entities::customers::{Column, Entity, Model};
use payferry_httpkit::error::ApiError;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};

use super::state::Shared;

pub use view::CustomerRecord;

/// What the caller is told of a customer that is not there, or another PSP's.
const MISSING: ApiError = ApiError::NotFound("customer");

/// The row of the PSP's own customer: another PSP's is as if it were not there.
pub async fn own(app: &Shared, psp_id: PspId, customer_id: &str) -> Result<Model, ApiError> {
    let id = id_of(customer_id)?;
    let row = Entity::find_by_id(id.to_string()).filter(Column::PspId.eq(psp_id.to_string()));
    row.one(app.database().reader()).await?.ok_or(MISSING)
}

/// The PSP's own customer, locked to be changed.
pub async fn open(app: &Shared, psp_id: PspId, customer_id: &str) -> Result<Opened, ApiError> {
    Ok(Opened::find(app.database(), id_of(customer_id)?, Some(psp_id)).await?)
}

fn id_of(text: &str) -> Result<CustomerId, ApiError> {
    text.parse().map_err(|_| MISSING)
}
