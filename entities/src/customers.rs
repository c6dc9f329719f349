//! Customers. What compliance decides on stands in columns; who the customer is, sealed in one.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

use sea_orm::entity::prelude::*;
use serde::{Deserialize, Serialize};

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize, Deserialize)]
#[sea_orm(table_name = "customers")]
pub struct Model {
    /// `cr_` id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Owner.
    pub psp_id: String,
    /// `individual` or `business`.
    pub kind: String,
    /// As submitted.
    pub email: String,
    /// The same in lower case, for searching.
    pub email_search: String,
    /// ISO 3166-1 alpha-3.
    pub country: String,
    /// ISO 4217.
    pub currency: String,
    /// See the domain's `KycStatus`.
    pub kyc_status: String,
    /// The status that an update returns to, while it is screened.
    pub before_update: Option<String>,
    /// Once false, false for ever.
    pub is_active: bool,
    /// Milliseconds since the epoch.
    pub tos_accepted_at: Option<i64>,
    /// JSON list of the kinds that were handed in.
    #[sea_orm(column_type = "Text")]
    pub documents: String,
    /// The check that counts at the moment, a row of `checks`.
    pub check_id: Option<String>,
    /// What it is for.
    pub check_purpose: Option<String>,
    /// The revision that it was asked for.
    pub check_revision: Option<i64>,
    /// JSON list.
    #[sea_orm(column_type = "Text")]
    pub rejection_reasons: String,
    /// Of the data that is screened.
    pub revision: i64,
    /// Of the row, for compare and swap.
    pub version: i64,
    /// Everything else that was submitted, as JSON, sealed.
    #[sea_orm(column_type = "Text")]
    pub particulars: String,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

/// Joins are written where they are needed; none is declared here.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
