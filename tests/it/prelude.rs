//! Names that most tests of the service use.

pub use axum::http::Method;
pub use payferry_domain::{Chain, CheckId, CustomerId, KeyScope as Scope, PaymentId, PspId, Timestamp, Token};
pub use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter,
    QueryOrder,
};
pub use serde_json::{Value, json};

pub use crate::app::{FixedScreener, MASTER_KEY, TestApp, TestConfig, unknown_key};
pub use crate::call::{
    Call, Reply, assert_has, assert_refused, assert_values_refused, column, has_label, redact, until, with,
};
pub use crate::chainside::{balance, blacklist, pay_from_contract, sleep};
pub(crate) use crate::operator::ServiceFixture;
